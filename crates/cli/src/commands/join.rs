//! `join`: takes part in a swarm that was started elsewhere.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nettorrent_net::{Load, block_on};
use nettorrent_session::needs::{MachineLimits, Needs};
use nettorrent_session::open::n_threads;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::{Invited, Training};

use crate::measuring::MeasuringArguments;
use crate::output::say_line;
use crate::size::size;
use crate::swarm::network::{NetworkArguments, take_part};
use crate::ticket::TicketArguments;

/// Arguments of `join`.
#[derive(Args)]
pub(crate) struct JoinArguments {
    #[command(flatten)]
    ticket: TicketArguments,
    /// The data on this machine: a path, or a name [default: the swarm's data set in the cache].
    #[arg(long, value_name = "NAME|PATH")]
    data: Option<String>,
    /// A function that gives the swarm's model as a PyTorch module, to compute it with PyTorch here: FILE.py:FUNCTION.
    #[arg(long, value_name = "FILE.py:FUNCTION")]
    model: Option<String>,
    /// Number of compute threads; 0 for as many as the machine has.
    #[arg(long)]
    threads: Option<usize>,
    /// The folder for what is learnt [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// The most memory that the swarm's job may take here, such as 2GB [default: what is free].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<u64>,
    /// The most room that its checkpoints may take on the disk [default: what is free].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_disk: Option<u64>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    measuring: MeasuringArguments,
}

impl JoinArguments {
    /// What the swarm's job may take.
    fn limits(&self) -> MachineLimits {
        let available = MachineLimits::available(self.run.as_deref().unwrap_or(Path::new(".")));
        MachineLimits {
            memory: self.max_memory.unwrap_or(available.memory),
            disk: self.max_disk.unwrap_or(available.disk),
        }
    }
}

/// Runs `join`.
pub(crate) fn join(arguments: &JoinArguments) -> anyhow::Result<ExitCode> {
    let JoinArguments { network, measuring, .. } = arguments;
    let ticket = arguments.ticket.read()?;
    let options = network.options(1, Some(&ticket), measuring)?;
    // Said before anybody is asked, for whoever is let in uses the ticket once.
    options.open_folder()?;
    RunFolder::check_free(arguments.run.as_deref())?;
    arguments.threads.map(n_threads).transpose()?;
    let invited = block_on(Load { n_processes: 1, n_bytes: 0 }, Invited::ask(&ticket, &options))??;
    if !network.json {
        let there = match invited.n_members() {
            1 => "1 peer is".to_owned(),
            n => format!("{n} peers are"),
        };
        say_line(&format!("{there} there; opening the data"));
    }
    let training = Training::from_package(
        invited.package(),
        arguments.data.as_deref(),
        arguments.threads,
        arguments.model.as_deref(),
    )?;
    Needs::of(&training)?.check(&arguments.limits())?;
    let run = training.create_run(arguments.run.as_deref())?;
    take_part(invited, training, &run, options, (measuring, network.json))
}
