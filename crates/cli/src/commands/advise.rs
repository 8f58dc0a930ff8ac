//! `advise`: measures, predicts how long each strategy and one machine alone take to the target, and recommends the fastest.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_advise::{ASSUMPTIONS, Depth, Findings, Inquiry};
use nettorrent_engine::measure::Measure;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::observer::{Observer, worst_link};
use nettorrent_net::{Load, block_on};
use nettorrent_session::Training;
use nettorrent_swarm::link_spec::LinkSpec;

use crate::bar::bar;
use crate::job_arguments::JobArguments;
use crate::output::{print_line, print_text};
use crate::ticket::{self, TicketSource};
use crate::transport::of_ticket;

/// Arguments of `advise`.
#[derive(Args)]
#[command(after_help = ASSUMPTIONS)]
pub(crate) struct AdviseArguments {
    #[command(flatten)]
    job: JobArguments,
    /// How many peers [default: as many as the ticket's swarm has, or 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    peers: Option<u32>,
    /// Every peer's link: rate and one-way delay, for example 100mbit/20ms.
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<LinkSpec>,
    /// All peers are to run on this machine, as with `train --peers`, and share its cores; links take no time unless --link is given.
    #[arg(long, conflicts_with = "swarm")]
    here: bool,
    /// Measure the links to the peers of a running swarm instead; the worst one counts. `-` reads its ticket from standard input
    /// [default: what NETTORRENT_TICKET says, without --link and --here].
    #[arg(long, group = "swarm", conflicts_with = "link")]
    ticket: Option<TicketSource>,
    /// The same with a file that holds the ticket, which keeps it from other users of this machine.
    #[arg(long, value_name = "FILE", group = "swarm", conflicts_with = "link")]
    ticket_file: Option<PathBuf>,
    /// The ticket's swarm does not encrypt.
    #[arg(long, conflicts_with_all = ["link", "here"])]
    plain: bool,
    /// What is to be reached: an accuracy as a share, or the perplexity or loss where the model is judged by that [default: half a point
    /// less, or half a percent worse, than one machine alone reaches in the job's epochs].
    #[arg(long, value_name = "VALUE")]
    target: Option<f64>,
    /// With how many seeds each strategy is simulated, where the budget allows it.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// How long all simulations together may take, in seconds. Long jobs are simulated with some of their samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    budget: f64,
    /// Predict speed only, without finding out whether strategies learn.
    #[arg(long, conflicts_with_all = ["target", "seeds"])]
    no_pilots: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

const USUAL_PEERS: usize = 4;

/// Runs `advise`.
pub(crate) fn advise(arguments: &AdviseArguments) -> anyhow::Result<ExitCode> {
    let budget =
        Duration::try_from_secs_f64(arguments.budget).context("--budget: must be a number of seconds from 0 up")?;
    let encryption = if arguments.plain { Encryption::Off } else { Encryption::On };
    let ticket = match arguments.link.is_some() || arguments.here {
        true => None,
        false => ticket::read(arguments.ticket.as_ref(), arguments.ticket_file.as_deref())?,
    };
    let training = Training::from_job(arguments.job.open(&[])?, 1)?;
    let measure = training.task.measure();
    let target = arguments.target.map(|target| quality(target, measure)).transpose()?;
    let surveyed = match &ticket {
        Some(ticket) => block_on(Load { n_processes: 1, n_bytes: 0 }, async {
            anyhow::Ok(Observer::connect(of_ticket(ticket), ticket, encryption, false).await?.links().await)
        })??,
        None => Vec::new(),
    };
    let there = (surveyed.len() >= 2).then_some(surveyed.len());
    let n_peers = arguments.peers.map(|n| n as usize).or(there).unwrap_or(USUAL_PEERS);
    training.setup.training().sampler.check(n_peers)?;
    let inquiry = Inquiry {
        job: &training.job,
        task: &training.task,
        n_peers,
        is_one_machine: arguments.here,
        link: match &ticket {
            Some(_) => worst_link(&surveyed)?,
            None => link(arguments)?,
        },
        surveyed,
        encryption,
        depth: match arguments.no_pilots {
            true => Depth::Speed,
            false => Depth::Learning { target, n_seeds: arguments.seeds },
        },
        budget,
    };
    let bar = bar(Findings::N_JUDGED as u64, "{pos}/{len} {bar:24.cyan/dim} {msg}", arguments.json);
    let findings = Findings::find_out(inquiry, &mut |name| {
        bar.inc(1);
        bar.set_message(name.to_owned());
    })?;
    bar.finish_and_clear();
    let words = arguments.job.words();
    if arguments.json {
        print_line!("{}", findings.json(&words));
    } else {
        print_text(&findings.text(&words));
    }
    Ok(ExitCode::SUCCESS)
}

/// The quality that a target stands for, by whatever the task is judged.
fn quality(target: f64, measure: Measure) -> anyhow::Result<f64> {
    let quality = measure.quality_of(target);
    if quality > 0.0 && quality <= 1.0 {
        return Ok(quality);
    }
    let range = match measure {
        Measure::Accuracy => "a share, above 0 and at most 1",
        Measure::Loss => "a loss, from 0 up",
        Measure::Perplexity { .. } => "a perplexity, from 1 up",
    };
    bail!("--target {target}: must be {range}")
}

fn link(arguments: &AdviseArguments) -> anyhow::Result<LinkSpec> {
    match arguments.link {
        Some(link) => Ok(link),
        None if arguments.here => Ok(LinkSpec { bits_per_second: None, delay: Duration::ZERO }),
        None => bail!(
            "say how fast links are, for example --link 100mbit/20ms, measure those of a swarm with --ticket-file, or say --here \
             if all peers are to run on this machine"
        ),
    }
}
