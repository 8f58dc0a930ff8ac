//! `advise`: measures, predicts how long each strategy and one machine alone take to the target, and recommends the fastest.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_net::handshake::Encryption;
use nettorrent_net::message_cost::{MessageCost, measure_message_cost};
use nettorrent_net::ticket::Ticket;
use nettorrent_study::{ALONE, Depth, Judge, MessageTime, Question, Situation, message_rate};
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::Spec;
use toml::Table;

use crate::advice_text::{self, Findings, order};
use crate::job_arguments::JobArguments;
use crate::link_survey::{Surveyed, survey, worst};
use crate::step_time::step_time;
use nettorrent_session::Training;

/// Arguments of `advise`.
#[derive(Args)]
#[command(after_help = advice_text::ASSUMPTIONS)]
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
    #[arg(long, conflicts_with = "ticket")]
    here: bool,
    /// Measure the links to the peers of a running swarm instead; the worst one counts.
    #[arg(long, conflicts_with = "link")]
    ticket: Option<Ticket>,
    /// The ticket's swarm does not encrypt.
    #[arg(long, requires = "ticket", conflicts_with = "link")]
    plain: bool,
    /// The accuracy to be reached, as a share [default: half a point less than one machine alone reaches in the job's epochs].
    #[arg(long, value_name = "SHARE")]
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

/// How long steps are timed.
const MEASURE_FOR: Duration = Duration::from_secs(1);
/// How long work on messages is timed.
const MEASURE_MESSAGES_FOR: Duration = Duration::from_millis(200);
const USUAL_PEERS: u32 = 4;

/// Runs `advise`.
pub(crate) fn advise(arguments: &AdviseArguments) -> anyhow::Result<ExitCode> {
    if let Some(target) = arguments.target.filter(|target| !(*target > 0.0 && *target <= 1.0)) {
        bail!("--target {target}: must be a share, above 0 and at most 1");
    }
    let budget =
        Duration::try_from_secs_f64(arguments.budget).context("--budget: must be a number of seconds from 0 up")?;
    let training = Training::from_job(arguments.job.open(&[])?, 1)?;
    let surveyed = match &arguments.ticket {
        Some(ticket) => survey(ticket, if arguments.plain { Encryption::Off } else { Encryption::On })?,
        None => Vec::new(),
    };
    let link = match arguments.link {
        Some(link) => link,
        None if arguments.here => LinkSpec { bits_per_second: None, delay: Duration::ZERO },
        None if arguments.ticket.is_none() => {
            bail!(
                "say how fast links are, for example --link 100mbit/20ms, measure those of a swarm with --ticket, or say --here \
                 if all peers are to run on this machine"
            )
        }
        None => worst(&surveyed)?,
    };
    let n_peers = n_peers(arguments, &surveyed);
    training.setup.training().sampler.check(n_peers)?;
    let Training { job, task, .. } = &training;
    let cores = Cores::of(arguments.here, n_peers, job.threads);
    let encryption = if arguments.plain { Encryption::Off } else { Encryption::On };
    let situation = Situation {
        n_peers,
        buckets: task.buckets(),
        n_params: task.n_params(),
        optimizer: &job.optimizer,
        n_train: task.labels().len(),
        epochs: job.epochs,
        batch: job.batch,
        scale: job.swarm.scale,
        step: step_time(job, task.clone(), n_peers, MEASURE_FOR)?,
        link,
        messages: Some(message_time(task.n_values(), encryption, cores)?),
        slowdown: cores.slowdown,
    };
    let bar = progress(arguments.json);
    let depth = match arguments.no_pilots {
        true => Depth::Speed,
        false => Depth::Learning { target: arguments.target, n_seeds: arguments.seeds },
    };
    bar.set_message(ALONE);
    let task = task.clone();
    let mut judge = Judge::new(Question { job, task, situation, depth, budget, n_strategies: STRATEGIES.len() })?;
    bar.inc(1);
    let mut judged = Vec::new();
    for spec in STRATEGIES {
        bar.set_message(spec.name);
        judged.push(judge.judge(spec, options(job, spec))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    judged.sort_by(|a, b| order(a).total_cmp(&order(b)));
    let findings = Findings {
        job,
        words: arguments.job.words(),
        situation: &situation,
        depth,
        target: judge.target(),
        n_pilot_samples: judge.n_pilot_samples(),
        surveyed,
        advice: nettorrent_study::advise(judge.alone(), &judged, &SwarmSpec::default().strategy),
        alone: judge.alone(),
        judged,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&findings.json())?);
    } else {
        print!("{}", findings.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// What a peer has of its machine's cores.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cores {
    /// Whether messages are handled by cores that also compute.
    are_shared: bool,
    /// How many times as long everything takes because there are fewer cores than threads.
    slowdown: f64,
}

impl Cores {
    fn of(here: bool, n_peers: usize, n_threads: usize) -> Self {
        Self::among(available_parallelism().map_or(1, NonZero::get), if here { n_peers } else { 1 }, n_threads)
    }

    fn among(n_cores: usize, n_peers_here: usize, n_threads: usize) -> Self {
        let wanted = n_peers_here * n_threads.max(1);
        Self { are_shared: wanted >= n_cores, slowdown: (wanted as f64 / n_cores.max(1) as f64).max(1.0) }
    }
}

/// Times work on messages: what is made of their numbers, and how they get from one peer to another.
fn message_time(n_values: usize, encryption: Encryption, cores: Cores) -> anyhow::Result<MessageTime> {
    let MessageCost { frame, bytes_per_s } =
        measure_message_cost(encryption, MEASURE_MESSAGES_FOR).context("cannot measure what messages cost")?;
    Ok(MessageTime {
        codec_bytes_per_s: message_rate(n_values, MEASURE_MESSAGES_FOR)?,
        frame_s: frame.as_secs_f64(),
        bytes_per_s,
        shares_cores: cores.are_shared,
    })
}

fn n_peers(arguments: &AdviseArguments, surveyed: &[Surveyed]) -> usize {
    let there = (surveyed.len() >= 2).then_some(surveyed.len());
    arguments.peers.map(|n| n as usize).or(there).unwrap_or(USUAL_PEERS as usize)
}

fn progress(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(STRATEGIES.len() as u64 + 1) };
    let style = ProgressStyle::with_template("{pos}/{len} {bar:24.cyan/dim} {msg}");
    bar.set_style(style.expect("the template is right").progress_chars("━╸─"));
    bar
}

/// The job's own options for its own strategy, and for all others the usual.
fn options(job: &Job, spec: &Spec) -> Table {
    if job.swarm.strategy == spec.name { job.swarm.options.clone() } else { Table::new() }
}

#[cfg(test)]
mod tests {
    use super::Cores;

    #[test]
    fn peers_of_one_machine_share_its_cores() {
        let cores = |n_cores, n_here, n_threads| {
            let Cores { are_shared, slowdown } = Cores::among(n_cores, n_here, n_threads);
            (are_shared, slowdown)
        };
        assert_eq!([cores(8, 1, 1), cores(8, 1, 8), cores(1, 1, 1)], [(false, 1.0), (true, 1.0), (true, 1.0)]);
        assert_eq!([cores(8, 4, 1), cores(2, 4, 1), cores(4, 2, 4)], [(false, 1.0), (true, 2.0), (true, 2.0)]);
    }
}
