//! Running a network over a batch: up through its steps, and down again for the gradient.

use std::ops::Range;
use std::sync::Mutex;

use super::handover::{Handover, Part, add};
use super::layer::{Backward, BatchStatistics, Context, Mode};
use super::loss::{self, Score};
use super::network::{Network, Op, Step};
use super::plan::Extent;
use super::workspace::{Phase, Probe, Space, Workspace};
use crate::data::Batch;
use crate::kernel::{Before, vectorised};
use crate::team::Member;

impl Network {
    /// The gradient of the batch's mean loss by all parameters, and how well the network did before it.
    ///
    /// `gradient` is as long as `values`; behind the trained numbers' gradient lies how far the running statistics are to
    /// move. The same seed, batch and number of threads give the same bits.
    pub fn gradient(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, room, None)
    }

    /// The same gradient, bit for bit, whose buckets are handed over one by one while the rest is still computed.
    ///
    /// # Panics
    /// If the buckets are not this network's.
    pub fn gradient_in_buckets(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        handover: Handover<'_>,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, room, Some(handover))
    }

    fn find_gradient(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        handover: Option<Handover<'_>>,
    ) -> Score {
        self.check(values, batch);
        assert_eq!(gradient.len(), self.n_values(), "a gradient is as long as the parameters");
        room.prepare(self, values);
        let mut others = room.take_parts(self.n_values());
        let is_whole = handover.is_none();
        let parts = Part::of_each(self.n_params(), gradient, &mut others, handover);
        let parts: Vec<Mutex<Option<Part<'_>>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        room.team.run(|member| {
            // Taken out, so that a thread that panics drops it, and those who wait for its buckets wait no longer.
            let part = parts[member.rank].lock().expect("each thread has its own").take();
            let mut part = part.expect("it is taken once");
            let mut space = room.spaces[member.rank].lock().expect("each thread has its own");
            let mut pass = Pass::new(self, values, batch, Mode::Train { seed }, member, room, &mut space);
            pass.up();
            pass.down(&mut part);
        });
        drop(parts);
        if is_whole {
            room.add_up(gradient, &others);
        }
        room.parts = others;
        total_score(room)
    }

    /// The network's outputs for each sample (the higher a class's number, the likelier it is), and how well it did.
    pub fn predict(&self, values: &[f32], batch: &Batch, room: &mut Workspace) -> (Vec<f32>, Score) {
        self.check(values, batch);
        room.prepare(self, values);
        let outputs = Mutex::new(vec![0.0; batch.len() * self.n_classes()]);
        room.team.run(|member| {
            let mut space = room.spaces[member.rank].lock().expect("each thread has its own");
            let mut pass = Pass::new(self, values, batch, Mode::Test, member, room, &mut space);
            pass.up();
            let place = pass.samples.start * self.n_classes()..pass.samples.end * self.n_classes();
            outputs.lock().expect("no thread panicked")[place].copy_from_slice(pass.logits());
        });
        (outputs.into_inner().expect("no thread panicked"), total_score(room))
    }

    fn check(&self, values: &[f32], batch: &Batch) {
        assert_eq!(values.len(), self.n_values(), "the parameters belong to another network");
        assert_eq!(batch.inputs.len(), batch.len() * self.lens[0], "the samples have another shape");
        assert!(batch.labels.iter().all(|&label| (label as usize) < self.n_classes()), "a label names no class");
    }
}

fn total_score(room: &mut Workspace) -> Score {
    let mut total = Score::default();
    for space in &mut room.spaces {
        total += space.get_mut().expect("no thread panicked").score;
    }
    total
}

/// One thread's way through a batch.
struct Pass<'a> {
    network: &'a Network,
    values: &'a [f32],
    prepared: &'a [f32],
    /// This thread's samples, counted within the batch, and their inputs and labels.
    samples: Range<usize>,
    inputs: &'a [f32],
    labels: &'a [u32],
    batch_len: usize,
    mode: Mode,
    member: Member<'a>,
    probe: Option<&'a Probe>,
    space: &'a mut Space,
}

impl<'a> Pass<'a> {
    fn new(
        network: &'a Network,
        values: &'a [f32],
        batch: &'a Batch,
        mode: Mode,
        member: Member<'a>,
        room: &'a Workspace,
        space: &'a mut Space,
    ) -> Self {
        let samples = member.share(batch.len());
        space.fit(network, samples.len(), mode != Mode::Test);
        Self {
            network,
            values,
            prepared: &room.prepared,
            inputs: &batch.inputs[samples.start * network.lens[0]..samples.end * network.lens[0]],
            labels: &batch.labels[samples.clone()],
            samples,
            batch_len: batch.len(),
            mode,
            member,
            probe: room.probe.as_ref().filter(|_| member.rank == 0),
            space,
        }
    }

    fn logits(&self) -> &[f32] {
        &self.space.values[self.network.output]
    }

    fn up(&mut self) {
        for segment in &self.network.plan.up {
            for chunk in chunks(self.samples.len(), segment.chunk) {
                for step in segment.steps.clone() {
                    self.forward(step, &chunk);
                    self.mark(step, Phase::Forward);
                }
                if let (Some(step), Mode::Train { .. }) = (segment.gathers, self.mode) {
                    self.gather(step, &chunk);
                    self.mark(step, Phase::Statistics);
                }
            }
            if let (Some(step), Mode::Train { .. }) = (segment.gathers, self.mode) {
                self.member.sum(&mut self.space.sums[step]);
            }
        }
        self.space.score = loss::score(self.logits(), self.labels, self.network.n_classes());
    }

    /// Overwrites this thread's part of the gradient, and lets go of what is final.
    fn down(&mut self, part: &mut Part<'_>) {
        let network = self.network;
        // Each layer's part becomes zero just before it is first added to, while it is in the cache; the rest here.
        part.drift.fill(0.0);
        if self.samples.is_empty() {
            part.weights.fill(0.0);
        }
        let mut delta = std::mem::take(&mut self.space.gradients[network.output]);
        loss::gradient(self.logits(), self.labels, network.n_classes(), self.batch_len, &mut delta);
        self.space.gradients[network.output] = delta;
        for segment in &network.plan.down {
            for chunk in chunks(self.samples.len(), segment.chunk) {
                for step in segment.steps.clone().rev() {
                    self.backward(step, &chunk, part.weights);
                }
                if let Some(step) = segment.gathers {
                    self.gather_gradient(step, &chunk);
                    self.mark(step, Phase::Statistics);
                }
            }
            if let Some(step) = segment.gathers {
                self.finish_statistics(step, part);
            }
            // After the threads have met for the statistics, if they do: then nobody waits twice.
            if let Some(start) = network.first_param(segment.steps.clone()) {
                part.finish_from(start);
            }
        }
        part.finish();
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
            params: &self.values[params.clone()],
            buffers: &self.values[buffers.clone()],
            prepared: &self.prepared[prepared.clone()],
            mode: self.mode,
            n: chunk.len(),
            first: self.samples.start + chunk.start,
            batch_len: self.batch_len,
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
            Op::Add => {
                let (a, b) = (self.value(inputs[0], chunk), self.value(inputs[1], chunk));
                vectorised(|| y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a + b));
            }
        }
        self.space.values[*output] = whole;
    }

    fn backward(&mut self, step: usize, chunk: &Range<usize>, weights: &mut [f32]) {
        let Step { op, inputs, params, .. } = &self.network.steps[step];
        for (input, &shared) in inputs.iter().zip(&self.network.plan.shares_input[step]) {
            if *input != 0 {
                self.input_gradient(step, *input, shared, chunk);
            }
        }
        self.mark(step, Phase::InputGradient);
        if let (Op::Layer(layer), false) = (op, params.is_empty()) {
            let mut scratch = std::mem::take(&mut self.space.scratch);
            let dw = &mut weights[params.clone()];
            let mut context = self.context(step, chunk);
            match chunk.start == 0 && layer.statistics().is_none() {
                true if layer.overwrites() => context.before = Before::Lost,
                true => dw.fill(0.0),
                false => {}
            }
            layer.weight_gradient(&context, self.around(step, chunk), dw, &mut scratch);
            self.space.scratch = scratch;
            self.mark(step, Phase::WeightGradient);
        }
    }

    /// What a step's gradients are computed from.
    fn around(&self, step: usize, chunk: &Range<usize>) -> Backward<'_> {
        let Step { op, inputs, output, .. } = &self.network.steps[step];
        let Op::Layer(layer) = op else {
            return Backward { x: &[], y: &[], dy: self.gradient(*output, chunk) };
        };
        let keeps = layer.keeps();
        Backward {
            x: if keeps.input { self.value(inputs[0], chunk) } else { &[] },
            y: if keeps.output { self.value(*output, chunk) } else { &[] },
            dy: self.gradient(*output, chunk),
        }
    }

    /// Writes the gradient by one input, or adds it where another step has already written.
    fn input_gradient(&mut self, step: usize, input: usize, shared: bool, chunk: &Range<usize>) {
        let mut whole = std::mem::take(&mut self.space.gradients[input]);
        let dx = &mut whole[self.place(self.network.plan.gradients[input], input, chunk)];
        match &self.network.steps[step].op {
            Op::Add => {
                let dy = self.gradient(self.network.steps[step].output, chunk);
                if shared { add(dx, dy) } else { dx.copy_from_slice(dy) }
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
            Op::Add => unreachable!("a sum has no statistics"),
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

    /// All threads agree on the sums; the first writes what follows from them for the whole batch.
    fn finish_statistics(&mut self, step: usize, part: &mut Part<'_>) {
        self.member.sum(&mut self.space.gradient_sums[step]);
        let Step { params, buffers, .. } = &self.network.steps[step];
        let weights = &mut part.weights[params.clone()];
        weights.fill(0.0);
        // No samples have no mean: the statistics stay where they are.
        if self.member.rank == 0 && self.batch_len > 0 {
            let context = self.context(step, &(0..self.samples.len()));
            self.statistics(step).finish_gradient(&context, weights);
            let n_params = self.network.n_params();
            let drift = &mut part.drift[buffers.start - n_params..buffers.end - n_params];
            self.statistics(step).drift(&context, drift);
        }
    }
}

/// Cuts `n` samples into ranges of at most `most`.
fn chunks(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let most = most.min(n.max(1));
    (0..n).step_by(most).map(move |start| start..n.min(start + most))
}
