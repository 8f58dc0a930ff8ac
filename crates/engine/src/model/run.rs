//! Running a network over a batch: up through its steps, and down again for the gradient.

use std::sync::Mutex;

use super::bucket_sink::{BucketSink, ThreadGradient};
use super::executor::{Execution, Executor};
use super::layer::Mode;
use super::loss::Loss;
use super::network::Network;
use super::score::Score;
use super::workspace::Workspace;
use crate::data::{Batch, Targets};
use crate::rng::Rng;

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
        workspace: &mut Workspace,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, workspace, None)
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
        workspace: &mut Workspace,
        sink: BucketSink<'_>,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, workspace, Some(sink))
    }

    fn find_gradient(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        workspace: &mut Workspace,
        sink: Option<BucketSink<'_>>,
    ) -> Score {
        self.check(values, batch);
        assert_eq!(gradient.len(), self.n_values(), "a gradient is as long as the parameters");
        workspace.prepare(self, values);
        let mut others = workspace.take_parts(self.n_values());
        let is_whole = sink.is_none();
        let parts = ThreadGradient::of_each(self.n_params(), gradient, &mut others, sink);
        let parts: Vec<Mutex<Option<ThreadGradient<'_>>>> =
            parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        let execution = self.execution(values, batch, Mode::Train { seed }, workspace);
        workspace.team.run(|member| {
            // Taken out, so that a thread that panics drops it, and those who wait for its buckets wait no longer.
            let part = parts[member.rank].lock().expect("each thread has its own").take();
            let mut part = part.expect("it is taken once");
            let mut space = workspace.spaces[member.rank].lock().expect("each thread has its own");
            let mut executor = Executor::new(&execution, member, &mut space);
            executor.up();
            let (samples, n) = (executor.samples.clone(), executor.samples.len());
            let targets = batch.targets.of(samples, batch.len());
            let score = self.loss.score(executor.output(), targets, n);
            executor.turn(|output, delta| self.loss.gradient(output, targets, n, batch.len(), delta));
            executor.down(&mut part);
            space.score = score;
        });
        drop(parts);
        if is_whole {
            workspace.add_up(gradient, &others);
        }
        workspace.parts = others;
        total_score(workspace)
    }

    /// The network's outputs for each sample (the higher a class's number, the likelier it is), and how well it did.
    pub fn predict(&self, values: &[f32], batch: &Batch, workspace: &mut Workspace) -> (Vec<f32>, Score) {
        self.check(values, batch);
        workspace.prepare(self, values);
        let len = self.output_len();
        let outputs = Mutex::new(vec![0.0; batch.len() * len]);
        let execution = self.execution(values, batch, Mode::Test, workspace);
        workspace.team.run(|member| {
            let mut space = workspace.spaces[member.rank].lock().expect("each thread has its own");
            let mut executor = Executor::new(&execution, member, &mut space);
            executor.up();
            let samples = executor.samples.clone();
            let place = samples.start * len..samples.end * len;
            outputs.lock().expect("no thread panicked")[place].copy_from_slice(executor.output());
            let n = samples.len();
            let score = self.loss.score(executor.output(), batch.targets.of(samples, batch.len()), n);
            space.score = score;
        });
        (outputs.into_inner().expect("no thread panicked"), total_score(workspace))
    }

    fn execution<'a>(
        &'a self,
        values: &'a [f32],
        batch: &'a Batch,
        mode: Mode,
        workspace: &'a Workspace,
    ) -> Execution<'a> {
        Execution {
            network: self,
            values,
            inputs: &batch.inputs,
            n: batch.len(),
            first: 0,
            mode,
            wants_input: false,
            workspace,
        }
    }

    fn check(&self, values: &[f32], batch: &Batch) {
        assert_eq!(values.len(), self.n_values(), "the parameters belong to another network");
        assert_eq!(batch.inputs.len(), batch.len() * self.lens[0], "the samples have another shape");
        let fits = self.loss.fits(batch.targets.rows(), batch.len(), self.output_len(), self.n_classes());
        assert!(fits, "the targets are not what the network's outputs are compared with");
    }
}

impl Batch {
    /// Random samples and targets of the shapes that a network takes and is compared with, for measuring its speed.
    pub fn random(network: &Network, n: usize, rng: &mut Rng) -> Self {
        let number = |_| match network.n_symbols() {
            Some(n_symbols) => rng.below(n_symbols) as f32,
            None => rng.normal(),
        };
        let inputs = (0..n * network.lens[0]).map(number).collect();
        let (len, n_classes) = (n * network.output_len(), network.n_classes());
        let targets = match network.loss {
            Loss::CrossEntropy { .. } => {
                Targets::Classes((0..len / n_classes).map(|_| rng.below(n_classes) as u32).collect())
            }
            _ => Targets::Numbers((0..len).map(|_| rng.uniform()).collect()),
        };
        Self { n, inputs, targets }
    }
}

fn total_score(workspace: &mut Workspace) -> Score {
    let mut total = Score::default();
    for space in &mut workspace.spaces {
        total += space.get_mut().expect("no thread panicked").score;
    }
    total
}
