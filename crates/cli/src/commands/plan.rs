//! `plan`: which peers hold which layers of a network, how fast that would be, and why.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use bytesize::ByteSize;
use clap::Args;
use nettorrent_engine::data::{Batch, Part};
use nettorrent_engine::job::{GroupSpec, Groups, Job, LayersSpec, build_network, model_spec};
use nettorrent_engine::model::{LayerSpec, ModelSpec, Network, Workspace, n_values};
use nettorrent_engine::rng::Rng;
use nettorrent_pipeline::plan::PipelinePlan;
use nettorrent_pipeline::planner::{Candidate, Choice, Question, USUAL_MULTIPLICATIONS_PER_S, choose, estimate};
use nettorrent_swarm::link_spec::LinkSpec;

use crate::job_arguments::JobArguments;
use crate::plan_picture::figure;
use crate::plan_text;
use crate::planned::{Planned, Speed};
use crate::step_time::timed;
use nettorrent_session::open::open_data;

/// Arguments of `plan`.
#[derive(Args)]
#[command(after_help = plan_text::ASSUMPTIONS)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    job: JobArguments,
    /// How many peers.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    peers: u32,
    /// Every peer's link: rate and one-way delay, for example 100mbit/5ms [default: the job's, or 1gbit].
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<LinkSpec>,
    /// How fast peers are by each other, in their order; fewer than peers are taken in turn [default: the job's, or all alike].
    #[arg(long, value_name = "SPEED,…", value_delimiter = ',')]
    speeds: Vec<f64>,
    /// How much memory each peer may take for the network, for example 2GB; larger plans are left out.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Compute speed of a peer in GMAC/s, 10⁹ multiply-adds a second [default: measured here, on as many threads as the job says].
    #[arg(long, value_name = "GMAC/S")]
    speed: Option<f64>,
    /// Also draw the plan in this file (SVG).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of a table and a picture.
    #[arg(long)]
    json: bool,
}

/// How long steps are timed.
const MEASURE_FOR: Duration = Duration::from_millis(500);
/// So many multiplications are enough for a step that is timed; a batch has fewer samples then.
const MEASURED_MULTIPLICATIONS: usize = 2_000_000_000;
/// Larger networks are not built to be timed: who plans to share one out may not have the memory for it.
const MOST_MEASURED_VALUES: usize = 1 << 27;

/// Runs `plan`.
pub(crate) fn plan(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let mut job = arguments.job.open(&[])?;
    let layers = job.layers.get_or_insert_with(LayersSpec::default);
    if !arguments.speeds.is_empty() {
        layers.speeds.clone_from(&arguments.speeds);
    }
    if let Some(link) = arguments.link {
        layers.link = Some(link.to_string());
    }
    let groups = layers.groups.clone();
    let (spec, without_data) = describe(&job)?;
    let network = build_network(&job.model, &spec)?;
    let mut question = Question::of(&job, &spec, arguments.peers as usize)?;
    let (multiplications_per_s, speed) = speed(arguments, &job, &spec, &network)?;
    question.multiplications_per_s = multiplications_per_s;
    question.memory_limit = arguments.memory;
    let choice = match &groups {
        Groups::Auto(_) => choose(&question)?,
        Groups::Given(groups) => {
            Choice { best: estimate(&question, &PipelinePlan::new(&spec, groups)?)?, runners_up: Vec::new() }
        }
    };
    let is_given = matches!(groups, Groups::Given(_));
    let planned = Planned {
        job: &job,
        n_params: network.n_params(),
        question: &question,
        choice: &choice,
        alone: alone(&question)?,
        speed,
        is_given,
        without_data,
    };
    if let Some(path) = &arguments.svg {
        std::fs::write(path, figure(&planned).svg()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&planned.json())?);
    } else {
        print!("{}", planned.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// The fastest peer by itself; none where it has not the memory.
fn alone(question: &Question<'_>) -> anyhow::Result<Option<Candidate>> {
    let speeds = question.speeds.iter().copied().reduce(f64::max).into_iter().collect();
    let question = Question { n_peers: 1, speeds, in_flight: 1, copies: false, ..question.clone() };
    let whole = GroupSpec { layers: question.spec.layers.len(), rows: 1, columns: 1 };
    let alone = estimate(&question, &PipelinePlan::new(question.spec, &[whole])?)?;
    Ok(Some(alone).filter(|alone| question.memory_limit.is_none_or(|limit| alone.estimate.memory_bytes <= limit)))
}

/// The model for the job's data; where these are not here, for samples as the model usually has them, and why the data are not
/// here: a plan needs none.
fn describe(job: &Job) -> anyhow::Result<(ModelSpec, Option<String>)> {
    match open_data(job, Part::Train) {
        Ok(data) => Ok((job.model_spec(data.shape(), data.classes().len())?, None)),
        Err(error) => Ok((model_spec(&job.model, None, None)?, Some(error.to_string()))),
    }
}

/// How many multiplications a peer makes in a second, and where that is known from.
fn speed(arguments: &PlanArguments, job: &Job, spec: &ModelSpec, network: &Network) -> anyhow::Result<(f64, Speed)> {
    if let Some(speed) = arguments.speed {
        if !(speed > 0.0 && speed.is_finite()) {
            bail!("--speed {speed}: must be a number above 0, in GMAC/s");
        }
        return Ok((1e9 * speed, Speed::Given));
    }
    let n_multiplications: usize = network.summary().iter().map(|layer| layer.n_multiplications).sum();
    if network.n_values() > MOST_MEASURED_VALUES || n_multiplications == 0 {
        return Ok((USUAL_MULTIPLICATIONS_PER_S, Speed::Usual));
    }
    let n = job.batch.clamp(1, (MEASURED_MULTIPLICATIONS / n_multiplications).max(1));
    let step_s = step_seconds(job, spec, network, n)?;
    Ok((3.0 * (n * n_multiplications) as f64 / step_s.max(1e-9), Speed::Measured))
}

/// How long the gradient of so many samples takes here.
fn step_seconds(job: &Job, spec: &ModelSpec, network: &Network, n: usize) -> anyhow::Result<f64> {
    let mut rng = Rng::stream(job.seed, "plan", 0);
    // Symbols are whole numbers, and the first one always exists.
    let has_symbols = matches!(spec.layers.first(), Some(LayerSpec::Embedding(_)));
    let mut number = || if has_symbols { 0.0 } else { rng.normal() };
    let inputs = (0..n * n_values(network.input())).map(|_| number()).collect();
    let batch = Batch { inputs, labels: vec![0; n] };
    let values = network.init(&mut Rng::stream(job.seed, "init", 0));
    let mut gradient = vec![0.0; network.n_values()];
    let mut room = Workspace::new(job.threads)?;
    let (n_steps, seconds) = timed(MEASURE_FOR, || {
        network.gradient(&values, &batch, job.seed, &mut gradient, &mut room);
        Ok::<(), Infallible>(())
    })?;
    Ok(seconds / n_steps as f64)
}

/// A number of bytes, as people write it.
fn size(text: &str) -> Result<u64, String> {
    let size: Option<ByteSize> = text.trim().parse().ok();
    let size = size.map(|size| size.as_u64()).filter(|size| *size > 0);
    size.ok_or_else(|| "not a size: write a number and kB, MB or GB, for example 2GB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes =
            [("2GB", 2_000_000_000), ("2G", 2_000_000_000), ("1.5 MB", 1_500_000), ("4gib", 4 << 30), ("12 b", 12)];
        for (text, bytes) in sizes {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-1GB", "nanGB", "infMB", "2X", "0B"] {
            assert!(size(text).unwrap_err().contains("for example 2GB"), "{text}");
        }
    }
}
