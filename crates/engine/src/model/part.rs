//! A part of a network, as one of several peers holds it: consecutive layers and, where the first of them is split, some of
//! its outputs. Its numbers are a flat vector of their own.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::columns::Columns;
use super::cut::{Cut, cut};
use super::description::ModelSpec;
use super::graph::{ModelError, Op};
use super::layer::Init;
use super::loss::Loss;
use super::network::Network;
use super::part_spec::{PartSpec, Span};
use super::score::Score;
use crate::data::TargetRows;
use crate::rng::Rng;

/// Which samples of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first one's number within the batch.
    pub first: usize,
    /// How many.
    pub n: usize,
    /// How many the whole batch has.
    pub batch_len: usize,
}

/// A part of a network: an immutable function of its own flat vector.
///
/// A part that is split by columns is handed all numbers of the value below, and makes some channels of the one above. The
/// layers of a split part must work channel by channel, but for the first, whose
/// [outputs can be split](super::LayerSpec::outputs_to_split) (a `flatten` may come before it).
pub struct Part {
    pub(super) network: Network,
    spec: PartSpec,
    spans: Vec<Span>,
    outputs: Columns,
    /// What the whole network's tensors start as and how many numbers they have, in the order of its vector.
    starts: Vec<(Init, usize)>,
    n_whole_params: usize,
}

impl Part {
    /// The part of a network that a description describes.
    pub fn new(spec: &ModelSpec, part: &PartSpec) -> Result<Self, ModelError> {
        let whole = Network::new(spec)?;
        let Cut { network, outputs, spans } = cut(spec, &whole, part)?;
        let starts = whole.tensors().iter().map(|named| (named.tensor.init, named.range.len())).collect();
        Ok(Self { network, spec: part.clone(), spans, outputs, starts, n_whole_params: whole.n_params() })
    }

    /// How many numbers are trained.
    pub fn n_params(&self) -> usize {
        self.network.n_params()
    }

    /// Length of the part's flat vector: the trained numbers, then the running statistics.
    pub fn n_values(&self) -> usize {
        self.network.n_values()
    }

    /// Numbers of a sample that the part is handed: those of all columns below.
    pub fn input_len(&self) -> usize {
        self.network.lens[0]
    }

    /// Which of the numbers above it makes.
    pub fn outputs(&self) -> &Columns {
        &self.outputs
    }

    /// Multiplications for one sample on the forward pass.
    pub fn n_multiplications(&self) -> usize {
        self.network.summary().iter().map(|layer| layer.n_multiplications).sum()
    }

    /// Whether it is right only for all samples of a batch at once, because it takes statistics over them: batch norm.
    pub fn needs_all_rows(&self) -> bool {
        self.network.steps.iter().any(|step| matches!(&step.op, Op::Layer(layer) if layer.statistics().is_some()))
    }

    /// Where the part's numbers lie in the whole network's vector: together these cover the part's vector once, in order.
    /// None holds both trained numbers and running statistics.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Ranges of the part's vector, see [`Network::buckets`].
    pub fn buckets(&self, min_len: usize) -> Vec<Range<usize>> {
        self.network.buckets(min_len)
    }

    /// The part's share of what [`Network::init`] gives for the whole, bit for bit, without ever holding the whole.
    pub fn init(&self, rng: &mut Rng) -> Vec<f32> {
        let mut mine = Vec::with_capacity(self.n_values());
        let mut start = 0;
        let mut spans = self.spans.iter().copied().peekable();
        for &(init, len) in &self.starts {
            // Spans are in the whole's order, and so go through it once; one may go on into the next tensor.
            let (mut at, end) = (start, start + len);
            while let Some(span) = spans.peek_mut().filter(|span| span.whole < end) {
                init.skip(span.whole - at, rng);
                let n = span.len.min(end - span.whole);
                mine.extend((0..n).map(|_| init.draw(rng)));
                at = span.whole + n;
                (span.whole, span.len) = (at, span.len - n);
                if span.len > 0 {
                    break;
                }
                spans.next();
            }
            init.skip(end - at, rng);
            start = end;
        }
        mine
    }

    /// The part's share of a whole network's vector (parameters, then statistics).
    ///
    /// # Panics
    /// If the vector is too short to be the whole network's.
    pub fn take(&self, whole: &[f32]) -> Vec<f32> {
        self.gather(&self.spans, whole)
    }

    /// The part's share of a vector of the trained numbers only, as an optimizer remembers them.
    ///
    /// # Panics
    /// If the vector is not as long as the whole network's trained numbers.
    pub fn take_params(&self, whole: &[f32]) -> Vec<f32> {
        assert_eq!(whole.len(), self.n_whole_params, "as many as the whole network trains");
        let n_trained = self.spans.partition_point(|span| span.mine < self.n_params());
        self.gather(&self.spans[..n_trained], whole)
    }

    /// Writes the part's vector to its places in the whole network's.
    ///
    /// # Panics
    /// If one of them has another length.
    pub fn put(&self, mine: &[f32], whole: &mut [f32]) {
        assert_eq!(mine.len(), self.n_values(), "the vector belongs to another part");
        for Span { mine: from, whole: to, len } in self.spans.iter().copied() {
            whole[to..to + len].copy_from_slice(&mine[from..from + len]);
        }
    }

    fn gather(&self, spans: &[Span], whole: &[f32]) -> Vec<f32> {
        let mut mine = Vec::with_capacity(self.n_values());
        spans.iter().for_each(|span| mine.extend_from_slice(&whole[span.whole..][..span.len]));
        mine
    }
}

impl Ord for PartSpec {
    /// By the first layer, the last, and the column.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |part: &Self| (part.layers.start, part.layers.end, part.column, part.columns);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for PartSpec {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartSpec { layers, column, columns } = &self.spec;
        write!(f, "Part(layers {layers:?}, column {column} of {columns}, {} numbers)", self.n_values())
    }
}

/// How well the whole network's outputs fit the targets of `n` samples, and the gradient by these outputs of the mean loss of a batch of
/// `batch_len`.
///
/// # Panics
/// If outputs and targets do not fit each other.
pub fn loss_gradient(
    loss: &Loss,
    outputs: &[f32],
    targets: TargetRows<'_>,
    n: usize,
    batch_len: usize,
) -> (Score, Vec<f32>) {
    let mut gradient = vec![0.0; outputs.len()];
    loss.gradient(outputs, targets, n, batch_len, &mut gradient);
    (loss.score(outputs, targets, n), gradient)
}
