//! How many multiplications a peer makes in a second of training.

use std::convert::Infallible;
use std::time::Duration;

use nettorrent_engine::data::Batch;
use nettorrent_engine::job::Job;
use nettorrent_engine::model::{LayerSpec, ModelSpec, Network, Workspace, n_values};
use nettorrent_engine::rng::Rng;
use nettorrent_engine::train_error::TrainError;
use nettorrent_pipeline::planner::USUAL_MULTIPLICATIONS_PER_S;
use serde::Serialize;

use crate::timed::timed;

/// How long steps are timed.
const MEASURE_FOR: Duration = Duration::from_millis(500);
/// So many multiplications are enough for a step that is timed; a batch has fewer samples then.
const MEASURED_MULTIPLICATIONS: usize = 2_000_000_000;
/// Larger networks are not built to be timed: who plans to share one out may not have the memory for it.
const MOST_MEASURED_VALUES: usize = 1 << 27;

/// How fast a peer computes, and where that is known from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputeSpeed {
    /// Multiplications in a second of training, each with its addition.
    pub multiplications_per_s: f64,
    /// Where it is known from.
    pub source: SpeedSource,
}

/// Where a peer's speed is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeedSource {
    /// Somebody said so.
    Given,
    /// This machine is so fast.
    Measured,
    /// Nobody has measured it.
    Usual,
}

impl ComputeSpeed {
    /// This machine's, with the threads and batches of a job; the usual one for networks that are too large to be timed.
    pub fn measure(job: &Job, spec: &ModelSpec, network: &Network) -> Result<Self, TrainError> {
        let n_multiplications: usize = network.summary().iter().map(|layer| layer.n_multiplications).sum();
        if network.n_values() > MOST_MEASURED_VALUES || n_multiplications == 0 {
            return Ok(Self { multiplications_per_s: USUAL_MULTIPLICATIONS_PER_S, source: SpeedSource::Usual });
        }
        let n = job.batch.clamp(1, (MEASURED_MULTIPLICATIONS / n_multiplications).max(1));
        let step_s = step_seconds(job, spec, network, n)?;
        let multiplications_per_s = 3.0 * (n * n_multiplications) as f64 / step_s.max(1e-9);
        Ok(Self { multiplications_per_s, source: SpeedSource::Measured })
    }
}

/// How long the gradient of so many samples takes here.
fn step_seconds(job: &Job, spec: &ModelSpec, network: &Network, n: usize) -> Result<f64, TrainError> {
    let mut rng = Rng::stream(job.seed, "plan", 0);
    // Symbols are whole numbers, and the first one always exists.
    let has_symbols = matches!(spec.layers.first(), Some(LayerSpec::Embedding(_)));
    let mut number = || if has_symbols { 0.0 } else { rng.normal() };
    let inputs = (0..n * n_values(network.input())).map(|_| number()).collect();
    let batch = Batch::labelled(inputs, vec![0; n]);
    let values = network.init(&mut Rng::stream(job.seed, "init", 0));
    let mut gradient = vec![0.0; network.n_values()];
    let mut workspace = Workspace::new(job.threads)?;
    let Ok((n_steps, seconds)) = timed(MEASURE_FOR, || {
        network.gradient(&values, &batch, job.seed, &mut gradient, &mut workspace);
        Ok::<(), Infallible>(())
    });
    Ok(seconds / n_steps as f64)
}
