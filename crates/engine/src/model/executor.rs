//! One thread's forward and backward pass through a network, with its own samples.

use std::ops::Range;

use super::bucket_sink::ThreadGradient;
use super::graph::{Op, Step, Weights};
use super::layer::{Backward, BatchStatistics, Context, Mode};
use super::network::Network;
use super::plan::Extent;
use super::workspace::{Phase, Probe, Space, Workspace};
use crate::kernel::{Before, add};
use crate::team::Member;

/// What all threads of an execution have in common.
pub(super) struct Execution<'a> {
    pub network: &'a Network,
    pub values: &'a [f32],
    /// The samples, how many there are, and the number of the first within the batch.
    pub inputs: &'a [f32],
    pub n: usize,
    pub first: usize,
    pub mode: Mode,
    /// Whether the backward pass goes on to the gradient by the samples themselves.
    pub wants_input: bool,
    /// Whose prepared parameters are used; the values that are kept lie elsewhere.
    pub workspace: &'a Workspace,
}

/// One thread's passes.
pub(super) struct Executor<'a> {
    execution: &'a Execution<'a>,
    network: &'a Network,
    /// This thread's samples, counted from the execution's first, and their inputs.
    pub samples: Range<usize>,
    inputs: &'a [f32],
    member: Member<'a>,
    probe: Option<&'a Probe>,
    space: &'a mut Space,
}

impl<'a> Executor<'a> {
    /// The passes of one thread, whose numbers are kept in `space`.
    pub(super) fn new(execution: &'a Execution<'a>, member: Member<'a>, space: &'a mut Space) -> Self {
        let samples = member.share(execution.n);
        let len = execution.network.lens[0];
        Self {
            execution,
            network: execution.network,
            inputs: &execution.inputs[samples.start * len..samples.end * len],
            samples,
            member,
            probe: execution.workspace.probe.as_ref().filter(|_| member.rank == 0),
            space,
        }
    }

    /// Which of the threads this is.
    pub(super) fn rank(&self) -> usize {
        self.member.rank
    }

    /// What comes out at the top.
    pub(super) fn output(&self) -> &[f32] {
        match self.network.output {
            0 => self.inputs,
            output => &self.space.values[output],
        }
    }

    /// The forward pass. Allocates what it needs.
    pub(super) fn up(&mut self) {
        self.space.fit_values(self.network, self.samples.len());
        for segment in &self.network.plan.up {
            for chunk in chunks(self.samples.len(), segment.chunk) {
                for step in segment.steps.clone() {
                    self.forward(step, &chunk);
                    self.mark(step, Phase::Forward);
                }
                if let (Some(step), Mode::Train { .. }) = (segment.gathers, self.execution.mode) {
                    self.gather(step, &chunk);
                    self.mark(step, Phase::Statistics);
                }
            }
            if let (Some(step), Mode::Train { .. }) = (segment.gathers, self.execution.mode) {
                self.member.sum(&mut self.space.sums[step]);
            }
        }
    }

    /// Makes room for the backward pass, whose start, the gradient by the output, `write` is handed with the output.
    pub(super) fn turn(&mut self, write: impl FnOnce(&[f32], &mut [f32])) {
        self.space.fit_gradients(self.network, self.samples.len(), self.execution.wants_input);
        let mut gradient = std::mem::take(&mut self.space.gradients[self.network.output]);
        write(self.output(), &mut gradient);
        self.space.gradients[self.network.output] = gradient;
    }

    /// What came out at the bottom, if the execution wanted it.
    pub(super) fn gradient_by_input(&self) -> &[f32] {
        &self.space.gradients[0]
    }

    /// The backward pass, for the gradients by all values and by the weights.
    pub(super) fn down(&mut self, gradient: &mut ThreadGradient<'_>) {
        self.descend(true, Some(gradient));
    }

    /// The backward pass for the gradients by all values only.
    pub(super) fn down_for_inputs(&mut self) {
        self.descend(true, None);
    }

    /// The backward pass for the gradients by the weights, after that for those by the values.
    pub(super) fn down_for_weights(&mut self, gradient: &mut ThreadGradient<'_>) {
        self.descend(false, Some(gradient));
    }

    /// Overwrites this thread's part of the gradient, if that is wanted, and lets go of what is final.
    fn descend(&mut self, by_inputs: bool, mut gradient: Option<&mut ThreadGradient<'_>>) {
        let network = self.network;
        // Each layer's part becomes zero just before it is first added to, while it is in the cache; the rest here.
        if let Some(gradient) = &mut gradient {
            gradient.delta.fill(0.0);
            if self.samples.is_empty() {
                gradient.weights.fill(0.0);
            }
        }
        for segment in &network.plan.down {
            for chunk in chunks(self.samples.len(), segment.chunk) {
                for step in segment.steps.clone().rev() {
                    if by_inputs {
                        self.input_gradients(step, &chunk);
                    }
                    if let Some(gradient) = &mut gradient {
                        self.weight_gradient(step, &chunk, gradient.weights);
                    }
                }
                if let (Some(step), true) = (segment.gathers, by_inputs) {
                    self.gather_gradient(step, &chunk);
                    self.mark(step, Phase::Statistics);
                }
            }
            if let (Some(step), true) = (segment.gathers, by_inputs) {
                self.member.sum(&mut self.space.gradient_sums[step]);
            }
            let Some(gradient) = &mut gradient else { continue };
            if let Some(step) = segment.gathers {
                self.finish_statistics(step, gradient);
            }
            // After the threads have met for the statistics, if they do: then nobody waits twice.
            if let Some(start) = network.first_param(segment.steps.clone()) {
                gradient.finish_from(start);
            }
        }
        if let Some(gradient) = gradient {
            gradient.finish();
        }
    }

    fn mark(&self, step: usize, phase: Phase) {
        if let Some(probe) = self.probe {
            probe(step, phase);
        }
    }

    /// The samples' numbers in a value.
    fn value(&self, value: usize, chunk: &Range<usize>) -> &[f32] {
        match value {
            0 => &self.inputs[chunk.start * self.network.lens[0]..chunk.end * self.network.lens[0]],
            _ => &self.space.values[value][self.place(self.network.plan.values[value], value, chunk)],
        }
    }

    fn gradient(&self, value: usize, chunk: &Range<usize>) -> &[f32] {
        &self.space.gradients[value][self.place(self.network.plan.gradients[value], value, chunk)]
    }

    fn place(&self, extent: Extent, value: usize, chunk: &Range<usize>) -> Range<usize> {
        let len = self.network.lens[value];
        match extent {
            Extent::Batch => chunk.start * len..chunk.end * len,
            Extent::Chunk(_) => 0..chunk.len() * len,
        }
    }

    fn context(&self, step: usize, chunk: &Range<usize>) -> Context<'_> {
        let Step { params, buffers, prepared, .. } = &self.network.steps[step];
        Context {
            params: &self.execution.values[params.clone()],
            buffers: &self.execution.values[buffers.clone()],
            prepared: &self.execution.workspace.prepared[prepared.clone()],
            mode: self.execution.mode,
            n: chunk.len(),
            first: self.execution.first + self.samples.start + chunk.start,
            batch_len: self.execution.n,
            before: Before::Kept,
            sums: &self.space.sums[step],
            gradient_sums: &self.space.gradient_sums[step],
        }
    }

    fn forward(&mut self, step: usize, chunk: &Range<usize>) {
        let Step { op, inputs, output, .. } = &self.network.steps[step];
        // The output is taken out while it is written, so that everything else can be read beside it.
        let mut whole = std::mem::take(&mut self.space.values[*output]);
        let y = &mut whole[self.place(self.network.plan.values[*output], *output, chunk)];
        match op {
            Op::Layer(layer) => {
                let mut scratch = std::mem::take(&mut self.space.scratch);
                layer.forward(&self.context(step, chunk), self.value(inputs[0], chunk), y, &mut scratch);
                self.space.scratch = scratch;
            }
            Op::Join(join) => join.forward([0, 1].map(|i| self.value(inputs[i], chunk)), y),
        }
        self.space.values[*output] = whole;
    }

    fn input_gradients(&mut self, step: usize, chunk: &Range<usize>) {
        for (which, input) in self.network.steps[step].inputs.iter().enumerate() {
            if *input != 0 || self.execution.wants_input {
                self.input_gradient(step, which, chunk);
            }
        }
        self.mark(step, Phase::InputGradient);
    }

    fn weight_gradient(&mut self, step: usize, chunk: &Range<usize>, weights: &mut [f32]) {
        let Step { op, inputs, params, weights: weights_of, .. } = &self.network.steps[step];
        if let (Op::Layer(layer), false) = (op, params.is_empty()) {
            let mut scratch = std::mem::take(&mut self.space.scratch);
            let dw = &mut weights[params.clone()];
            let mut context = self.context(step, chunk);
            // What a later step has already added to is kept.
            let is_first = chunk.start == 0 && *weights_of != Weights::Lent;
            match is_first && layer.statistics().is_none() {
                true if layer.overwrites() => context.before = Before::Lost,
                true => dw.fill(0.0),
                false => {}
            }
            let mut back = self.around(step, chunk);
            if layer.keeps().input_gradient {
                back.dx = self.gradient(inputs[0], chunk);
            }
            layer.weight_gradient(&context, back, dw, &mut scratch);
            self.space.scratch = scratch;
            self.mark(step, Phase::WeightGradient);
        }
    }

    /// What a step's gradients are computed from.
    fn around(&self, step: usize, chunk: &Range<usize>) -> Backward<'_> {
        let Step { op, inputs, output, .. } = &self.network.steps[step];
        let Op::Layer(layer) = op else {
            return Backward { x: &[], y: &[], dy: self.gradient(*output, chunk), dx: &[] };
        };
        let keeps = layer.keeps();
        Backward {
            x: if keeps.input { self.value(inputs[0], chunk) } else { &[] },
            y: if keeps.output { self.value(*output, chunk) } else { &[] },
            dy: self.gradient(*output, chunk),
            dx: &[],
        }
    }

    /// Writes the gradient by one of a step's inputs, or adds it where another step has already written.
    fn input_gradient(&mut self, step: usize, which: usize, chunk: &Range<usize>) {
        let (input, shared) = (self.network.steps[step].inputs[which], self.network.plan.shares_input[step][which]);
        let mut whole = std::mem::take(&mut self.space.gradients[input]);
        let dx = &mut whole[self.place(self.network.plan.gradients[input], input, chunk)];
        match &self.network.steps[step].op {
            Op::Join(join) => {
                let Step { inputs, output, .. } = &self.network.steps[step];
                let kept = |i: usize| if join.keeps_inputs() { self.value(inputs[i], chunk) } else { &[] };
                let before = if shared { Before::Kept } else { Before::Lost };
                join.gradient(which, [kept(0), kept(1)], self.gradient(*output, chunk), before, dx);
            }
            Op::Layer(layer) => {
                let mut scratch = std::mem::take(&mut self.space.scratch);
                let mut waiting = std::mem::take(&mut self.space.shared);
                waiting.resize(if shared { dx.len() } else { 0 }, 0.0);
                let target = if shared { &mut waiting[..] } else { &mut *dx };
                layer.input_gradient(&self.context(step, chunk), self.around(step, chunk), target, &mut scratch);
                if shared {
                    add(dx, &waiting);
                }
                self.space.shared = waiting;
                self.space.scratch = scratch;
            }
        }
        self.space.gradients[input] = whole;
    }

    fn statistics(&self, step: usize) -> &'a dyn BatchStatistics {
        match &self.network.steps[step].op {
            Op::Layer(layer) => layer.statistics().expect("only steps with statistics are planned so"),
            Op::Join(_) => unreachable!("only layers have statistics"),
        }
    }

    fn gather(&mut self, step: usize, chunk: &Range<usize>) {
        let mut sums = std::mem::take(&mut self.space.sums[step]);
        let x = self.value(self.network.steps[step].inputs[0], chunk);
        self.statistics(step).gather(&self.context(step, chunk), x, &mut sums);
        self.space.sums[step] = sums;
    }

    fn gather_gradient(&mut self, step: usize, chunk: &Range<usize>) {
        let mut sums = std::mem::take(&mut self.space.gradient_sums[step]);
        self.statistics(step).gather_gradient(&self.context(step, chunk), self.around(step, chunk), &mut sums);
        self.space.gradient_sums[step] = sums;
    }

    /// The first thread writes what follows from the sums for the whole batch.
    fn finish_statistics(&mut self, step: usize, gradient: &mut ThreadGradient<'_>) {
        let Step { params, buffers, .. } = &self.network.steps[step];
        let weights = &mut gradient.weights[params.clone()];
        weights.fill(0.0);
        // No samples have no mean: the statistics stay where they are.
        if self.member.rank == 0 && self.execution.n > 0 {
            let context = self.context(step, &(0..self.samples.len()));
            self.statistics(step).finish_gradient(&context, weights);
            let n_params = self.network.n_params();
            let delta = &mut gradient.delta[buffers.start - n_params..buffers.end - n_params];
            self.statistics(step).delta(&context, delta);
        }
    }
}

/// Cuts `n` samples into ranges of at most `most`.
fn chunks(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let most = most.min(n.max(1));
    (0..n).step_by(most).map(move |start| start..n.min(start + most))
}
