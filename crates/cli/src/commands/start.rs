//! `start`: begins a swarm that peers on other machines join with a ticket.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_net::identity::Identity;
use nettorrent_net::ticket::{Secret, Ticket};
use nettorrent_net::{Load, block_on};

use crate::job_arguments::{JobArguments, definite};
use crate::measuring::MeasuringArguments;
use crate::run_folder::RunFolder;
use crate::swarm::checkpoint_writer;
use crate::swarm::network::{Beginning, NetworkArguments, train};
use crate::swarm::prepared_job::PreparedJob;
use crate::swarm::start_state::Start;

/// Arguments of `start`.
#[derive(Args)]
pub(crate) struct StartArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Begin when this many peers are there, this one counted.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4096))]
    wait_for: u64,
    /// Start from these weights (safetensors) instead of random ones.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Go on with a run that was stopped, with the peers that join now; its job is taken, not another.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["job", "weights", "run"])]
    resume: Option<PathBuf>,
    /// The folder for this run [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    measuring: MeasuringArguments,
}

/// Runs `start`.
pub(crate) fn start(arguments: &StartArguments) -> anyhow::Result<ExitCode> {
    let folder = arguments.network.open_folder()?;
    let (run, prepared, start) = match &arguments.resume {
        Some(path) => resumed(arguments, RunFolder::open(path)?)?,
        None => fresh(arguments)?,
    };
    let wait_for = arguments.wait_for as usize;
    prepared.check(wait_for)?;
    let events = arguments.measuring.open_events(&run, arguments.network.json)?;
    let secret = Secret::random();
    let identity = Identity::new(&secret, 0)?;
    let measures = arguments.measuring.is_on();
    let beginning = Beginning { prepared: &prepared, start, run, events, wait_for, members: Vec::new(), measures };
    block_on(Load { n_processes: 1, n_bytes: prepared.n_bytes() }, async {
        let (endpoint, arrivals) = arguments.network.bind(identity, &prepared, folder).await?;
        let ticket = Ticket { secret, addresses: arguments.network.addresses(&endpoint) };
        let address = ticket.addresses.first().copied().unwrap_or(endpoint.local_address());
        if arguments.network.json {
            println!("{}", serde_json::json!({ "event": "ticket", "ticket": ticket.to_string(), "address": address }));
        } else {
            println!("Others join with:\n\n  nettorrent join {ticket}\n");
            let waiting = if wait_for == 1 { String::new() } else { format!(" Waiting for {} more.", wait_for - 1) };
            println!("The ticket lets in whoever has it.{waiting}");
        }
        train(beginning, (endpoint, arrivals), address, &arguments.network).await
    })?
}

fn fresh(arguments: &StartArguments) -> anyhow::Result<(RunFolder, PreparedJob, Start)> {
    let prepared = PreparedJob::open(arguments.job.open(&[])?, None, arguments.wait_for as usize)?;
    let values = arguments.weights.as_deref().map(|path| load_weights(path, prepared.learning.layout())).transpose()?;
    let run = RunFolder::create(arguments.run.as_deref(), &prepared.job, &prepared.spec)?;
    let start = match values {
        Some(values) => {
            // The seed alone would not bring these back.
            checkpoint_writer::save_values(&run, &prepared, &values)?;
            Start::from_values(&prepared, values)
        }
        None => Start::fresh(&prepared),
    };
    Ok((run, prepared, start))
}

fn resumed(arguments: &StartArguments, run: RunFolder) -> anyhow::Result<(RunFolder, PreparedJob, Start)> {
    let job = definite(run.job(&arguments.job.settings())?)?;
    let prepared = PreparedJob::open(job, Some(run.model_spec()?), arguments.wait_for as usize)?;
    let start = match run.choose(None)? {
        Some(checkpoint) => Start::from_checkpoint(&run, &checkpoint, &prepared)?,
        None => Start::fresh(&prepared),
    };
    let epoch = start.place().ledger.epoch;
    if epoch >= prepared.job.epochs {
        bail!("the run has done its {epoch} epochs; train it further with --epochs N");
    }
    run.write_job(&prepared.job)?;
    Ok((run, prepared, start))
}
