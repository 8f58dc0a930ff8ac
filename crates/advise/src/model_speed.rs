//! How fast this machine trains a model, and where the time goes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nettorrent_engine::data::Batch;
use nettorrent_engine::kernel::peak_multiplications;
use nettorrent_engine::model::{Network, Phase, Workspace};
use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
use nettorrent_engine::rng::Rng;
use nettorrent_engine::train_error::TrainError;
use serde::Serialize;

use crate::timed::timed;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Samples in a batch.
    pub batch: usize,
    /// Compute threads.
    pub n_threads: usize,
    /// How long to measure.
    pub duration: Duration,
    /// Whether layers are timed too, which takes as long again.
    pub profiles_layers: bool,
}

/// How fast this machine trains a model.
#[derive(Debug, Serialize)]
pub struct ModelSpeed {
    /// Parameters of the model.
    pub parameters: usize,
    /// Samples in a batch.
    pub batch: usize,
    /// Compute threads.
    pub threads: usize,
    /// Steps that were timed.
    pub steps: u64,
    /// Samples trained in a second.
    pub samples_per_s: f64,
    /// Multiplications and additions in a second, in 10⁹.
    pub gflop_per_s: f64,
    /// Where the time of the first thread goes, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerTime>,
}

/// What one phase of one layer takes.
#[derive(Debug, Serialize)]
pub struct LayerTime {
    /// The layer's name.
    pub name: String,
    /// What kind of layer it is.
    pub kind: &'static str,
    /// What is computed.
    pub phase: &'static str,
    /// How long it takes in each step.
    pub ms_per_step: f64,
    /// How fast that is, where there is something to multiply.
    pub gflop_per_s: f64,
}

impl ModelSpeed {
    /// Trains a random batch again and again.
    pub fn measure(network: &Network, workload: Workload) -> Result<Self, TrainError> {
        let mut steps = Steps::new(network, workload)?;
        let Ok((n_steps, seconds)) = timed(workload.duration, || {
            steps.step();
            Ok::<(), Infallible>(())
        });
        let batch = steps.batch.len();
        let samples_per_s = (n_steps as usize * batch) as f64 / seconds;
        Ok(Self {
            parameters: network.n_params(),
            batch,
            threads: steps.workspace.n_threads(),
            steps: n_steps,
            samples_per_s,
            gflop_per_s: samples_per_s * flop_per_sample(network) / 1e9,
            layers: if workload.profiles_layers { steps.profile(workload.duration) } else { Vec::new() },
        })
    }
}

/// Operations for a sample: each multiplication has its addition, and the backward pass has two products for the forward pass's one,
/// but for the first layer with weights, below which nobody wants a gradient.
fn flop_per_sample(network: &Network) -> f64 {
    let layers = network.summary();
    let multiplications = layers.iter().map(|layer| layer.n_multiplications).filter(|&n| n > 0);
    let first = multiplications.clone().next().unwrap_or(0);
    2.0 * (3 * multiplications.sum::<usize>() - first) as f64
}

/// Training steps on one random batch.
struct Steps<'a> {
    network: &'a Network,
    batch: Batch,
    values: Vec<f32>,
    gradient: Vec<f32>,
    optimizer: Optimizer,
    workspace: Workspace,
    n_done: u64,
}

impl<'a> Steps<'a> {
    fn new(network: &'a Network, workload: Workload) -> Result<Self, TrainError> {
        let mut rng = Rng::new(1);
        let n = workload.batch.max(1);
        let batch = Batch::random(network, n, &mut rng);
        let spec = OptimizerSpec { momentum: 0.5, ..OptimizerSpec::default() };
        Ok(Self {
            network,
            batch,
            values: network.init(&mut rng),
            gradient: vec![0.0; network.n_values()],
            optimizer: Optimizer::new(spec, network.n_params()),
            workspace: Workspace::new(workload.n_threads)?,
            n_done: 0,
        })
    }

    fn step(&mut self) {
        self.network.gradient(&self.values, &self.batch, self.n_done, &mut self.gradient, &mut self.workspace);
        self.optimizer.step(0.01, &mut self.values, &self.gradient, &self.workspace);
        self.n_done += 1;
    }

    fn profile(&mut self, duration: Duration) -> Vec<LayerTime> {
        let clock = Arc::new(Mutex::new((Instant::now(), BTreeMap::new())));
        let shared = clock.clone();
        self.workspace.probe = Some(Box::new(move |step, phase| {
            let (last, times) = &mut *shared.lock().expect("only one thread probes");
            let now = Instant::now();
            *times.entry((step, phase)).or_insert(Duration::ZERO) += now - *last;
            *last = now;
        }));
        let (started, mut n_steps) = (Instant::now(), 0.0);
        while n_steps == 0.0 || started.elapsed() < duration {
            clock.lock().expect("only one thread probes").0 = Instant::now();
            self.step();
            n_steps += 1.0;
        }
        self.workspace.probe = None;
        let layers = self.network.summary();
        let share = self.batch.len().div_ceil(self.workspace.n_threads());
        let (_, times) = &*clock.lock().expect("only one thread probes");
        let line = |(&(step, phase), time): (&(usize, Phase), &Duration)| {
            let layer = &layers[step];
            let seconds = time.as_secs_f64() / n_steps;
            let flop = if phase == Phase::Statistics { 0 } else { 2 * share * layer.n_multiplications };
            LayerTime {
                name: layer.name.clone(),
                kind: layer.kind,
                phase: phase_name(phase),
                ms_per_step: seconds * 1e3,
                gflop_per_s: flop as f64 / seconds / 1e9,
            }
        };
        times.iter().map(line).filter(|line| line.ms_per_step > 1e-3).collect()
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::InputGradient => "input gradient",
        Phase::WeightGradient => "weight gradient",
        Phase::Statistics => "statistics",
    }
}

/// What one core can do at most: multiplications with additions that touch no memory, in 10⁹ operations a second.
pub fn peak_gflop_per_s() -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..5 {
        let started = Instant::now();
        let n = peak_multiplications(1_000_000);
        best = best.max(2.0 * n as f64 / started.elapsed().as_secs_f64() / 1e9);
    }
    best
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_engine::job::{build_network, model_spec};

    use super::{ModelSpeed, Workload};

    #[test]
    fn layers_are_timed_only_when_asked_for() {
        let network = build_network("mlp:8", &model_spec("mlp:8", Some(&[4]), Some(3)).unwrap()).unwrap();
        for profiles_layers in [false, true] {
            let workload = Workload { batch: 2, n_threads: 1, duration: Duration::ZERO, profiles_layers };
            let speed = ModelSpeed::measure(&network, workload).unwrap();
            assert_eq!((speed.batch, speed.threads, speed.parameters), (2, 1, network.n_params()));
            assert!(speed.steps > 0 && speed.samples_per_s > 0.0);
            assert!(profiles_layers || speed.layers.is_empty());
        }
    }
}
