//! `plan`: which peers hold which layers of a network, how fast that would be, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_advise::{ComputeSpeed, PIPELINE_ASSUMPTIONS, PipelineReport, SpeedSource};
use nettorrent_engine::data::Split;
use nettorrent_engine::job::{Job, PipelineSpec, build_network, model_spec};
use nettorrent_engine::model::ModelSpec;
use nettorrent_session::open::open_data;
use nettorrent_swarm::link_spec::LinkSpec;

use crate::job_arguments::JobArguments;
use crate::output::{print_line, print_text};
use crate::size::size;

/// Arguments of `plan`.
#[derive(Args)]
#[command(after_help = PIPELINE_ASSUMPTIONS)]
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
    compute_speed: Option<f64>,
    /// Also draw the plan in this file (SVG).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of a table and a picture.
    #[arg(long)]
    json: bool,
}

/// Runs `plan`.
pub(crate) fn plan(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let mut job = arguments.job.open(&[])?;
    let pipeline = job.pipeline.get_or_insert_with(PipelineSpec::default);
    if !arguments.speeds.is_empty() {
        pipeline.speeds.clone_from(&arguments.speeds);
    }
    if let Some(link) = arguments.link {
        pipeline.link = Some(link.to_string());
    }
    let (spec, without_data) = describe(&job)?;
    let network = build_network(&job.model, &spec)?;
    let speed = match arguments.compute_speed {
        Some(speed) if speed > 0.0 && speed.is_finite() => {
            ComputeSpeed { multiplications_per_s: 1e9 * speed, source: SpeedSource::Given }
        }
        Some(speed) => bail!("--compute-speed {speed}: must be a number above 0, in GMAC/s"),
        None => ComputeSpeed::measure(&job, &spec, &network)?,
    };
    let model = (&spec, network.n_params());
    let report = PipelineReport::new(&job, model, arguments.peers as usize, speed, arguments.memory)?;
    let report = report.without_data(without_data);
    if let Some(path) = &arguments.svg {
        std::fs::write(path, report.figure().svg()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        print_line!("{}", report.json());
    } else {
        print_text(&report.to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// The model for the job's data; where these are not here, for samples as the model usually has them, and why the data are not
/// here: a plan needs none.
fn describe(job: &Job) -> anyhow::Result<(ModelSpec, Option<String>)> {
    match open_data(job, Split::Train) {
        Ok(data) => Ok((job.model_spec(data.shape(), data.n_outputs())?, None)),
        Err(error) => Ok((model_spec(&job.model, None, None)?, Some(error.to_string()))),
    }
}
