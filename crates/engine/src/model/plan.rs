//! In what order a network's steps run over a batch, so that what one step writes the next still finds in the cache.
//!
//! Steps are grouped into segments. Within a segment a few samples at a time go through all steps; only then do the next few
//! follow. A segment ends where a step needs the whole batch: because it multiplies with weights too large to be read once
//! per few samples, or because it needs statistics over the batch first.
//!
//! It follows what must be stored for the whole batch (what crosses a segment's end, or is needed on the backward pass) and what
//! only for a few samples.

use std::ops::Range;

use super::graph::{Op, Step};

/// How many numbers of its largest value a segment handles at a time: 64 KiB, so that the handful of values that a segment
/// works on at once fit a core's second-level cache with room to spare, even where others share it.
const CHUNK_LEN: usize = 16 * 1024;

/// Steps that are run together, a few samples at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Which steps.
    pub steps: Range<usize>,
    /// How many samples at a time.
    pub chunk: usize,
    /// The step whose statistics are gathered at the end, if one.
    pub gathers: Option<usize>,
}

/// For how many samples a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// For those that a segment handles at a time (this many at most).
    Chunk(usize),
    /// For all samples.
    Batch,
}

/// How a network runs.
pub(super) struct Plan {
    /// The forward pass.
    pub up: Vec<Segment>,
    /// The backward pass; steps within a segment run in reverse.
    pub down: Vec<Segment>,
    /// For each value: how its numbers are stored, and its gradient's.
    pub values: Vec<Extent>,
    pub gradients: Vec<Extent>,
    /// For each step and input: whether a later step (on the forward pass) or an earlier input of this step is the same value, so
    /// that gradients add up.
    pub shares_input: Vec<Vec<bool>>,
}

/// When the gradients by the weights are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightGradients {
    /// On the backward pass, together with those by the inputs.
    Together,
    /// Afterwards, so what they are made of must still be there.
    Afterwards,
}

impl Plan {
    /// The plan for these steps over values of these lengths.
    pub(super) fn new(steps: &[Step], lens: &[usize], weight_gradients: WeightGradients) -> Self {
        let up = segments(steps, lens, |below, above| breaks(steps, below, above, Way::Up));
        let mut down = segments(steps, lens, |below, above| breaks(steps, below, above, Way::Down));
        down.reverse();
        let n = steps.len();
        let has_statistics = |step: usize| step < n && statistics(&steps[step]);
        let mut up: Vec<Segment> = up;
        if has_statistics(0) {
            up.insert(0, Segment { steps: 0..0, chunk: chunk(steps, lens, &(0..1)), gathers: None });
        }
        for segment in &mut up {
            segment.gathers = Some(segment.steps.end).filter(|&step| has_statistics(step));
        }
        if n > 0 && has_statistics(n - 1) {
            down.insert(0, Segment { steps: n..n, chunk: chunk(steps, lens, &(n - 1..n)), gathers: None });
        }
        for segment in &mut down {
            segment.gathers = segment.steps.start.checked_sub(1).filter(|&step| has_statistics(step));
        }
        let values = (0..lens.len()).map(|value| extent_up(steps, &up, value)).collect();
        let kept = |value: usize| {
            let is_used = |step: &Step| {
                let is_trained = step.output == value && !step.params.is_empty();
                let keeps = matches!(&step.op, Op::Layer(layer) if layer.keeps().input_gradient);
                is_trained || keeps && step.inputs.contains(&value)
            };
            weight_gradients == WeightGradients::Afterwards && steps.iter().any(is_used)
        };
        let gradient_extent = |value| if kept(value) { Extent::Batch } else { extent_within(steps, &down, value) };
        let gradients = (0..lens.len()).map(gradient_extent).collect();
        let shares_input = steps.iter().enumerate().map(|(i, step)| {
            let later = |value: &usize| steps[i + 1..].iter().any(|step| step.inputs.contains(value));
            let before = |input: usize| step.inputs[..input].contains(&step.inputs[input]);
            step.inputs.iter().enumerate().map(|(input, value)| later(value) || before(input)).collect()
        });
        let shares_input = shares_input.collect();
        Self { up, down, values, gradients, shares_input }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

fn statistics(step: &Step) -> bool {
    matches!(&step.op, Op::Layer(layer) if layer.statistics().is_some())
}

fn whole_batch(step: &Step) -> bool {
    matches!(&step.op, Op::Layer(layer) if layer.wants_whole_batch())
}

/// Whether a segment ends between these neighbours. Statistics are needed before the step on the forward pass, and before it on
/// the backward pass: which is on its other side.
fn breaks(steps: &[Step], below: usize, above: usize, way: Way) -> bool {
    let needs_statistics = match way {
        Way::Up => statistics(&steps[above]),
        Way::Down => statistics(&steps[below]),
    };
    needs_statistics || whole_batch(&steps[below]) || whole_batch(&steps[above])
}

fn segments(steps: &[Step], lens: &[usize], breaks: impl Fn(usize, usize) -> bool) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut start = 0;
    for end in 1..=steps.len() {
        if end == steps.len() || breaks(end - 1, end) {
            segments.push(Segment { steps: start..end, chunk: chunk(steps, lens, &(start..end)), gathers: None });
            start = end;
        }
    }
    segments
}

/// How many samples a segment of these steps handles at a time.
fn chunk(steps: &[Step], lens: &[usize], range: &Range<usize>) -> usize {
    if steps[range.clone()].iter().any(whole_batch) {
        return usize::MAX;
    }
    let values = steps[range.clone()].iter().flat_map(|step| step.inputs.iter().chain([&step.output]));
    let largest = values.map(|&value| lens[value]).max().unwrap_or(1);
    (CHUNK_LEN / largest.max(1)).max(1)
}

/// Where a value's numbers are kept on the forward pass: for the whole batch if the backward pass needs them.
fn extent_up(steps: &[Step], segments: &[Segment], value: usize) -> Extent {
    let needed_below = steps.iter().any(|step| match &step.op {
        Op::Join(join) => join.keeps_inputs() && step.inputs.contains(&value),
        Op::Layer(layer) => {
            let keeps = layer.keeps();
            keeps.input && step.inputs.contains(&value) || keeps.output && step.output == value
        }
    });
    if needed_below { Extent::Batch } else { extent_within(steps, segments, value) }
}

/// A few samples are enough for a value that is made and used within one segment.
fn extent_within(steps: &[Step], segments: &[Segment], value: usize) -> Extent {
    let touches = |step: &Step| step.output == value || step.inputs.contains(&value);
    let is_made = steps.iter().any(|step| step.output == value);
    let is_used = steps.iter().any(|step| step.inputs.contains(&value));
    let mut homes = segments.iter().filter(|segment| steps[segment.steps.clone()].iter().any(touches));
    match (homes.next(), homes.next()) {
        (Some(home), None) if is_made && is_used && home.chunk != usize::MAX => Extent::Chunk(home.chunk),
        _ => Extent::Batch,
    }
}
