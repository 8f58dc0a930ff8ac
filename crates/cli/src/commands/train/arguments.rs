//! What `train` and `resume` are asked on the command line.

use std::path::PathBuf;

use clap::Args;

use crate::job_arguments::{JobArguments, n_epochs};
use crate::measuring::MeasuringArguments;
use crate::swarm::run::LinkArguments;

/// Arguments of `train`.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// The folder for this run [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    pub(super) run: Option<PathBuf>,
    /// Start from these weights (safetensors) instead of random ones.
    #[arg(long, value_name = "FILE")]
    pub(super) weights: Option<PathBuf>,
    /// Print events as lines of JSON instead of a progress bar.
    #[arg(long)]
    pub(super) json: bool,
    /// Train with this many processes on this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Swarm")]
    pub(super) peers: Option<u64>,
    #[command(flatten)]
    pub(super) links: LinkArguments,
    #[command(flatten)]
    pub(super) measuring: MeasuringArguments,
}

/// Arguments of `resume`.
#[derive(Args)]
pub(crate) struct ResumeArguments {
    /// The run's folder.
    pub(super) run: PathBuf,
    /// Train to this many epochs instead of the job's.
    #[arg(long, value_parser = n_epochs)]
    pub(super) epochs: Option<u64>,
    /// Change a field of the job from here on, for example `--set optimizer.lr=0.001`; may be given several times.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub(super) settings: Vec<String>,
    /// The checkpoint to go on from: its folder, or its name in the run [default: the newest].
    #[arg(long, value_name = "FOLDER")]
    pub(super) checkpoint: Option<PathBuf>,
    /// Print events as lines of JSON instead of a progress bar.
    #[arg(long)]
    pub(super) json: bool,
    /// Go on with this many processes on this machine instead of as many as there were.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Swarm")]
    pub(super) peers: Option<u64>,
    #[command(flatten)]
    pub(super) links: LinkArguments,
    #[command(flatten)]
    pub(super) measuring: MeasuringArguments,
}
