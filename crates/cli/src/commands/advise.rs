//! `advise`: measures, foretells how fast each strategy is, and recommends one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::task::Task;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::ticket::Ticket;
use nettorrent_sim::Scenario;
use nettorrent_study::{Flight, Forecast, Goal, Judged, Pilot, PilotError, Situation, fly, predict};
use nettorrent_swarm::shape::Shape;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::Spec;
use toml::Table;

use crate::advice_text::{self, Findings};
use crate::job_arguments::JobArguments;
use crate::link_survey::{Surveyed, survey, worst};
use crate::step_time::batch_time;
use crate::swarm::material::Material;

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
    link: Option<Shape>,
    /// Measure the links to the peers of a running swarm instead; the worst one counts.
    #[arg(long, conflicts_with = "link")]
    ticket: Option<Ticket>,
    /// The ticket's swarm does not encrypt.
    #[arg(long, requires = "ticket", conflicts_with = "link")]
    plain: bool,
    /// The accuracy to be reached, as a share: how many epochs each strategy needs is found out by simulating it.
    #[arg(long, value_name = "SHARE")]
    target: Option<f64>,
    /// How long one strategy may be simulated, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    pilot_seconds: f64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// How long steps are timed.
const MEASURE_FOR: Duration = Duration::from_secs(1);
/// So many rounds tell how much is said by those who cannot say it before.
const PILOT_ROUNDS: u32 = 40;
const USUAL_PEERS: u32 = 4;

/// Runs `advise`.
pub(crate) fn advise(arguments: &AdviseArguments) -> anyhow::Result<ExitCode> {
    if let Some(target) = arguments.target.filter(|target| !(*target > 0.0 && *target <= 1.0)) {
        bail!("--target {target}: must be a share, above 0 and at most 1");
    }
    let patience = Duration::try_from_secs_f64(arguments.pilot_seconds)
        .context("--pilot-seconds: must be a number of seconds from 0 up")?;
    let material = Material::open(arguments.job.open(&[])?, None, 1)?;
    let surveyed = match &arguments.ticket {
        Some(ticket) => survey(ticket, if arguments.plain { Encryption::Off } else { Encryption::On })?,
        None => Vec::new(),
    };
    let link = match arguments.link {
        Some(link) => link,
        None if arguments.ticket.is_none() => {
            bail!("say how fast links are, for example --link 100mbit/20ms, or measure those of a swarm with --ticket")
        }
        None => worst(&surveyed)?,
    };
    let n_peers = n_peers(arguments, &surveyed);
    material.setup.curriculum.check(n_peers)?;
    let Material { job, learning, .. } = &material;
    let batch_time = batch_time(job, learning.as_ref(), MEASURE_FOR)?;
    let situation = Situation {
        n_peers,
        buckets: learning.buckets(),
        n_params: learning.n_params(),
        n_train: learning.labels().len(),
        batch: job.batch,
        scale: job.swarm.scale,
        batch_time,
        link,
    };
    let bar = progress(arguments.json);
    let judge = Judge { material: &material, situation, target: arguments.target, patience };
    let mut judged = Vec::new();
    for spec in STRATEGIES {
        bar.set_message(spec.name);
        judged.push(judge.judge(spec)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    judged.sort_by(|a, b| order(a).total_cmp(&order(b)));
    let advice = nettorrent_study::advise(&judged, &SwarmSpec::default().strategy, arguments.target.is_some());
    let findings = Findings {
        job,
        words: arguments.job.words(),
        situation: &situation,
        target: arguments.target,
        surveyed,
        judged,
        advice,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&findings.json())?);
    } else {
        print!("{}", findings.text());
    }
    Ok(ExitCode::SUCCESS)
}

fn n_peers(arguments: &AdviseArguments, surveyed: &[Surveyed]) -> usize {
    let there = (surveyed.len() >= 2).then_some(surveyed.len());
    arguments.peers.map(|n| n as usize).or(there).unwrap_or(USUAL_PEERS as usize)
}

/// By their time; those who do not get there come last, by their speed.
fn order(judged: &Judged) -> f64 {
    judged.seconds.unwrap_or(1e12 + judged.forecast.epoch_s)
}

fn progress(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(STRATEGIES.len() as u64) };
    let style = ProgressStyle::with_template("{pos}/{len} {bar:24.cyan/dim} {msg}");
    bar.set_style(style.expect("the template is right").progress_chars("━╸─"));
    bar
}

/// What strategies are judged by.
struct Judge<'a> {
    material: &'a Material,
    situation: Situation<'a>,
    target: Option<f64>,
    patience: Duration,
}

impl Judge<'_> {
    fn judge(&self, spec: &Spec) -> anyhow::Result<Judged> {
        let job = &self.material.job;
        let options = options(job, spec);
        let strategy = (spec.build)(&options)?;
        let goal = match self.target {
            Some(target) => Some(Goal::Accuracy(target)),
            None => strategy.may_cost_less().then_some(Goal::Rounds(PILOT_ROUNDS)),
        };
        let (pilot, problem) = match goal.map(|goal| self.fly(spec, options, goal)).transpose() {
            Ok(pilot) => (pilot, None),
            // This strategy cannot stand the job, but others may.
            Err(PilotError::Failed { problem, .. }) => (None, Some(problem)),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be simulated", spec.name)),
        };
        let observed = pilot.as_ref().and_then(|pilot| pilot.cost).filter(|_| strategy.may_cost_less());
        let forecast: Forecast = predict(&*strategy, &self.situation, observed);
        // Who trains freely may have to wait for those it has not heard of, and how long, only the simulator knows.
        let round_s = pilot.as_ref().and_then(|pilot| pilot.round_s).filter(|_| strategy.may_cost_less());
        let forecast = forecast.no_faster_than(round_s.unwrap_or(0.0));
        let epochs = match (self.target, &pilot) {
            _ if problem.is_some() => None,
            (Some(_), Some(pilot)) => pilot.is_reached.then_some(pilot.epochs),
            _ => Some(job.epochs),
        };
        let seconds = epochs.map(|epochs| epochs as f64 * forecast.epoch_s);
        let (strategy, turn) = (spec.name.to_owned(), strategy.turn());
        Ok(Judged { strategy, forecast, epochs, seconds, pilot, problem, turn })
    }

    fn fly(&self, spec: &Spec, options: Table, goal: Goal) -> Result<Pilot, PilotError> {
        let Situation { n_peers, batch, batch_time, link, .. } = self.situation;
        let job = &self.material.job;
        let swarm = SwarmSpec { strategy: spec.name.to_owned(), options, ..job.swarm.clone() };
        let job = Job { swarm, ..job.clone() };
        let sample_time = batch_time / u32::try_from(batch.max(1)).unwrap_or(u32::MAX);
        let scenario = Scenario { link, sample_time, deadline: Duration::MAX, ..Scenario::lan() };
        let until = Instant::now() + self.patience;
        fly(&job, self.material.learning.clone(), Flight { n_peers, scenario, goal, until })
    }
}

/// The job's own options for its own strategy, and for all others the usual.
fn options(job: &Job, spec: &Spec) -> Table {
    if job.swarm.strategy == spec.name { job.swarm.options.clone() } else { Table::new() }
}
