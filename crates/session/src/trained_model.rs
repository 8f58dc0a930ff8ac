//! A model that was trained, to be evaluated or used.

use std::collections::BTreeMap;
use std::path::Path;

use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::data::{Batch, Dataset, IGNORED, OutsideSample, Split, TargetKind, Targets, Tone};
use nettorrent_engine::evaluation::{check_fit, evaluate};
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::measure::{Measure, measure_of};
use nettorrent_engine::model::{Network, Workspace, best_class};
use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;
use serde::Serialize;

use crate::error::SessionError;
use crate::open::{data_spec, open_data};
use crate::overlap::Overlap;
use crate::prediction::{Prediction, guesses};
use crate::ranking::Ranking;
use crate::run_folder::RunFolder;
use crate::training::Training;

/// A model that was trained, with test samples.
pub struct TrainedModel {
    job: Job,
    model: Model,
    values: Vec<f32>,
    test_set: Box<dyn Dataset>,
    workspace: Workspace,
}

/// What computes it.
enum Model {
    /// Our engine.
    Ours(Box<Network>),
    /// A Python process.
    Python(Box<dyn Worker>),
}

/// How well a model does on its test samples.
#[derive(Debug, Serialize)]
pub struct ModelEvaluation {
    /// The model's name.
    pub model: String,
    /// How many samples there are.
    pub n: usize,
    /// The mean loss.
    pub loss: f64,
    /// What people judge it by.
    pub measure: Measure,
    /// The share that is classified correctly, where samples have classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// e to the loss, where it predicts tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// What else is measured.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Rows are what samples are, columns what the model took them for; empty where samples have no one class, or Python computes the
    /// model.
    pub confusion: Vec<Vec<usize>>,
}

impl TrainedModel {
    /// The model of a run's checkpoint, or of its newest, with some fields of its job set otherwise and perhaps other data.
    pub fn from_run(
        run: &RunFolder,
        checkpoint: Option<&Path>,
        settings: &[String],
        data: Option<&str>,
        n_threads: usize,
    ) -> Result<Self, SessionError> {
        let workspace = workspace(n_threads)?;
        let mut job = run.job(settings)?;
        let checkpoint = run.choose(checkpoint)?.ok_or_else(|| {
            let shown = run.path().display();
            SessionError::Run(format!(
                "the run {shown} has no checkpoint yet; train it first, with `nettorrent resume {shown}`"
            ))
        })?;
        if let Some(argument) = data {
            job.data = data_spec(argument, job.data)?;
        }
        let test_set = open_data(&job, Split::Test)?;
        if job.python().is_some() {
            let training = Training::alone(Job { threads: n_threads, ..job.clone() }, None)?;
            let values = run.load_model(&checkpoint, training.task.layout())?;
            let model = Model::Python(training.task.clone().worker(n_threads)?);
            return Ok(Self { job, model, values, test_set, workspace });
        }
        let network = with_loss(run.network()?, &job, test_set.as_ref())?;
        let values = run.load_model(&checkpoint, &network.layout())?;
        check_fit(&network, test_set.as_ref())?;
        Ok(Self { job, model: Model::Ours(Box::new(network)), values, test_set, workspace })
    }

    /// The model of this name or description, with the weights in a file; some fields of the usual job may be set otherwise.
    pub fn from_weights(
        weights: &Path,
        model: &str,
        settings: &[String],
        data: &str,
        n_threads: usize,
    ) -> Result<Self, SessionError> {
        let workspace = workspace(n_threads)?;
        let mut job = Job::parse("the arguments", "", settings)?;
        model.clone_into(&mut job.model);
        job.data = data_spec(data, job.data)?;
        let test_set = open_data(&job, Split::Test)?;
        let spec = job.model_spec(test_set.shape(), test_set.n_outputs())?;
        let network = with_loss(build_network(model, &spec)?, &job, test_set.as_ref())?;
        let values = load_weights(weights, &network.layout())?;
        check_fit(&network, test_set.as_ref())?;
        Ok(Self { job, model: Model::Ours(Box::new(network)), values, test_set, workspace })
    }

    /// Classifies all test samples.
    pub fn evaluate(&mut self) -> Result<ModelEvaluation, SessionError> {
        let Self { job, model, values, test_set, workspace } = self;
        let (all, measure) = (0..test_set.len(), measure_of(test_set.as_ref()));
        let (mut ranking, mut overlap) = (Ranking::new(test_set.as_ref()), Overlap::new(test_set.as_ref()));
        let (score, confusion) = match model {
            // What it takes each sample for stays in its process.
            Model::Python(worker) => (worker.test(values, all)?, Vec::new()),
            Model::Ours(network) => {
                let n_classes = if measure == Measure::Accuracy { network.n_classes() } else { 0 };
                let mut confusion = vec![vec![0; n_classes]; n_classes];
                let mut count = |batch: &Batch, logits: &[f32]| {
                    let rows = logits.chunks_exact(n_classes.max(1)).zip(batch.classes());
                    for (row, &label) in rows.take(if n_classes > 0 { batch.len() } else { 0 }) {
                        confusion[label as usize][best_class(row)] += 1;
                    }
                };
                let score =
                    evaluate(network, values, test_set.as_ref(), all, job.batch, workspace, |batch, logits, _| {
                        count(batch, logits);
                        ranking.watch(batch, logits, network.n_classes());
                        overlap.watch(batch, logits, network.n_classes());
                        true
                    })?;
                (score, confusion)
            }
        };
        let names = job.loss.resolve(test_set.target()).map_err(TrainError::from)?.metrics(test_set.target());
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut metrics = score.named_metrics(&names);
        metrics.extend(ranking.found().into_iter().chain(overlap.found()));
        let classes = if measure == Measure::Accuracy { test_set.classes().to_vec() } else { Vec::new() };
        Ok(ModelEvaluation {
            model: job.model.clone(),
            n: score.n,
            loss: score.loss(),
            measure,
            accuracy: measure.counted(score.accuracy()),
            perplexity: matches!(measure, Measure::Perplexity { .. }).then(|| score.loss().exp()),
            metrics,
            classes,
            confusion,
        })
    }

    /// What it says about the samples of a file that is no part of its data, prepared as those are: `top` guesses about each, or as many
    /// as are usual.
    pub fn predict(&mut self, file: &Path, tone: Tone, top: Option<usize>) -> Result<Vec<Prediction>, SessionError> {
        let Self { job, model, values, test_set, workspace } = self;
        let Model::Ours(network) = model else {
            let problem = format!("`{}` is computed by Python: predict with the model itself there", job.model);
            return Err(TrainError::Mismatch(problem).into());
        };
        let data = test_set.as_ref();
        let samples = data.read_samples(file, tone)?;
        let mut predictions = Vec::with_capacity(samples.len());
        for samples in samples.chunks(job.batch.max(1)) {
            let (logits, _) = network.predict(values, &unasked(samples, data), workspace);
            for (sample, logits) in samples.iter().zip(logits.chunks_exact(network.output_len())) {
                let logits = match sample.position {
                    Some(position) => &logits[position * network.n_classes()..(position + 1) * network.n_classes()],
                    None => logits,
                };
                let guesses = guesses(data, logits, top);
                predictions.push(Prediction { line: sample.line, guesses, logits: logits.to_vec() });
            }
        }
        Ok(predictions)
    }
}

/// Samples of which it is not known what they are.
fn unasked(samples: &[OutsideSample], data: &dyn Dataset) -> Batch {
    let n = samples.len();
    let targets = match data.target() {
        TargetKind::Class => Targets::Classes(vec![IGNORED; n]),
        TargetKind::Positions { n: n_positions } => Targets::Classes(vec![IGNORED; n * n_positions]),
        TargetKind::Tokens => Targets::Classes(vec![IGNORED; n * data.shape()[0]]),
        TargetKind::Labels => Targets::Numbers(vec![0.0; n * data.n_outputs()]),
        TargetKind::Numbers { n: each, n_positions, .. } => Targets::Numbers(vec![0.0; n * each * n_positions]),
    };
    Batch { n, inputs: samples.iter().flat_map(|sample| &sample.inputs).copied().collect(), targets }
}

/// The network with the loss that its job and data have it trained for.
fn with_loss(network: Network, job: &Job, data: &dyn Dataset) -> Result<Network, SessionError> {
    Ok(network.with_loss(job.loss.resolve(data.target()).map_err(TrainError::from)?))
}

fn workspace(n_threads: usize) -> Result<Workspace, SessionError> {
    Workspace::new(n_threads).map_err(|error| TrainError::from(error).into())
}
