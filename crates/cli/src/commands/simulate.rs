//! `simulate`: what a swarm of any size would do on a network that need not exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use nettorrent_engine::job::read_toml;
use nettorrent_engine::measure::Measure;
use nettorrent_history::{Event as Happened, Line};
use nettorrent_session::Training;
use nettorrent_session::memory::peak_rss_bytes;
use nettorrent_session::needs::check_own;
use nettorrent_session::run_log::{dropped, incident_text};
use nettorrent_session::simulated_run::SimulatedRun;
use nettorrent_sim::{Attack, Observer, Outcome, Scenario, Simulation};
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{Peer, PeerId, Setup};
use serde_json::json;

use crate::bar::bar;
use crate::job_arguments::JobArguments;
use crate::output::{complain, print_line, say_line};
use crate::progress::{GUESSING, tested_text};

/// Arguments of `simulate`.
#[derive(Args)]
pub(crate) struct SimulateArguments {
    #[command(flatten)]
    job: JobArguments,
    /// How many peers.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    peers: u32,
    /// Every peer's link: rate and one-way delay [default: the scenario's, or 1gbit/200us].
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<LinkSpec>,
    /// A file that describes links, slow peers, losses, joins and partitions (TOML).
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// How long a peer takes to train one sample, in milliseconds [default: the scenario's, or 1].
    #[arg(long, value_name = "MS")]
    sample_ms: Option<f64>,
    /// What hostile peers hand in instead of what they learnt: `sign-flip`, `scaled:FACTOR` or `a-little[:DEVIATIONS]`.
    #[arg(long, value_name = "ATTACK")]
    attack: Option<Attack>,
    /// How many peers are hostile, the last ones [default: the scenario's, or 1 with --attack].
    #[arg(long, value_name = "N")]
    attackers: Option<usize>,
    /// Write down what happens, like `train` does, in this folder.
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Print records as lines of JSON instead of a summary.
    #[arg(long)]
    json: bool,
}

/// Runs `simulate`.
pub(crate) fn simulate(arguments: &SimulateArguments) -> anyhow::Result<ExitCode> {
    let n_peers = arguments.peers as usize;
    let scenario = scenario(arguments)?;
    let job = arguments.job.open(&[])?;
    let training = Training::from_job(job, n_peers)?;
    let Training { job, task, setup, .. } = &training;
    training.check(n_peers)?;
    // Simulated peers may share their parameters.
    check_own(&training, 1)?;
    if !arguments.json {
        say_line(&format!(
            "{} with {} parameters on {} samples, {} simulated peer{} by {} over {}",
            job.model,
            HumanCount(task.n_params() as u64),
            HumanCount(task.labels().len() as u64),
            HumanCount(n_peers as u64),
            if n_peers == 1 { "" } else { "s" },
            job.swarm.strategy,
            scenario.link
        ));
    }
    if let Some(dropped) = dropped(setup, n_peers) {
        if arguments.json { print_event(Happened::Dropped(dropped)) } else { say_line(&dropped.to_string()) }
    }
    let viewer = Viewer::new(arguments.json, job.epochs * task.labels().len() as u64, setup.clone());
    let recorder = |path: &Path| SimulatedRun::start(path, &training, n_peers, &scenario);
    let run = arguments.run.as_deref().map(recorder).transpose()?;
    let mut audience = Audience { viewer, run };
    let began = Instant::now();
    let simulation = Simulation::new(setup.clone(), n_peers, scenario.clone())?.with_threads(job.threads);
    let outcome = simulation.run_with(&mut audience)?;
    let Audience { viewer, run } = audience;
    viewer.bar.finish_and_clear();
    if let Some(run) = run {
        run.finish(&training, &outcome)?;
    }
    summarise(arguments, &outcome, &viewer, began.elapsed());
    // What becomes of those who are hostile is no failure of the others.
    let is_honest = |peer: PeerId| !scenario.is_hostile(peer.join_index() as usize, n_peers);
    if let Some(failure) = outcome.failures.iter().find(|failure| is_honest(failure.peer)) {
        bail!("{} could not go on: {}", failure.peer, failure.problem);
    }
    if viewer.is_guessing {
        viewer.tell(GUESSING);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what is known before anything has happened.
fn print_event(event: Happened) {
    let line = Line { at_s: 0.0, event };
    print_line!("{}", serde_json::to_string(&line).expect("events are plain data"));
}

fn scenario(arguments: &SimulateArguments) -> anyhow::Result<Scenario> {
    let mut scenario = match &arguments.scenario {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            read_toml(&path.display().to_string(), &text)?
        }
        None => Scenario::lan(),
    };
    scenario.link = arguments.link.unwrap_or(scenario.link);
    scenario.attack = arguments.attack.or(scenario.attack);
    scenario.attackers = arguments.attackers.unwrap_or(scenario.attackers);
    if arguments.attack.is_some() && arguments.attackers.is_none() {
        scenario.attackers = scenario.attackers.max(1);
    }
    if let Some(milliseconds) = arguments.sample_ms {
        let seconds = Duration::try_from_secs_f64(milliseconds / 1000.0);
        scenario.sample_time = seconds.context("--sample-ms: must be a number of milliseconds from 0 up")?;
    }
    Ok(scenario)
}

/// Who is told what happens: the one who looks on, and the run's folder if there is one.
struct Audience {
    viewer: Viewer,
    run: Option<SimulatedRun>,
}

impl Observer for Audience {
    fn record(&mut self, record: Record) {
        self.viewer.see(&record);
        if let Some(run) = &mut self.run {
            run.record(record);
        }
    }

    fn handled(&mut self, at: Duration, peer: PeerId, state: &dyn Peer) {
        if let Some(run) = &mut self.run {
            run.handled(at, peer, state);
        }
    }
}

/// Shows what happens while it happens.
struct Viewer {
    bar: ProgressBar,
    json: bool,
    epoch: u64,
    /// Whether the last test came to no more than guessing.
    is_guessing: bool,
    evaluated: f64,
    /// Loss and accuracy of the last test at an epoch's end.
    tested: Option<(f64, f64)>,
    told: BTreeSet<String>,
    setup: Arc<Setup>,
}

impl Viewer {
    fn new(json: bool, n_samples: u64, setup: Arc<Setup>) -> Self {
        let bar = bar(n_samples, "{bar:32.cyan/dim} {msg}  {eta} left", json);
        Self { bar, json, epoch: 0, is_guessing: false, evaluated: 0.0, tested: None, told: BTreeSet::new(), setup }
    }

    /// Tells people something even when another program reads standard output.
    fn tell(&self, line: &str) {
        if self.json { complain(line) } else { say_line(line) }
    }

    fn see(&mut self, record: &Record) {
        if let Event::Epoch { is_guessing, test_loss, test_accuracy, .. } = record.event {
            self.is_guessing = is_guessing;
            self.tested = Some((test_loss, test_accuracy));
        }
        match &record.event {
            Event::Round { n_samples_all, round, loss, .. } => {
                if *n_samples_all > self.bar.position() {
                    self.bar.set_position(*n_samples_all);
                    self.bar.set_message(format!("round {round}  {:.1} s simulated  loss {loss:.4}", record.at_s));
                }
                if !self.json {
                    return;
                }
            }
            Event::Epoch { epoch, train_loss, test_loss, test_accuracy, metrics, .. }
                if *epoch > self.epoch && !self.json =>
            {
                self.epoch = *epoch;
                let measure = self.setup.training().task.measure();
                let tested = tested_text(measure, *test_loss, *test_accuracy, metrics);
                let line = format!(
                    "epoch {epoch}  train loss {train_loss:.4}   test {tested}   {:.1} s simulated",
                    record.at_s
                );
                self.bar.suspend(|| say_line(&line));
            }
            Event::Evaluation { epoch, test_loss, test_accuracy, metrics, .. }
                if *epoch > self.evaluated && !self.json =>
            {
                self.evaluated = *epoch;
                let measure = self.setup.training().task.measure();
                let tested = tested_text(measure, *test_loss, *test_accuracy, metrics);
                let line = format!("epoch {epoch:.2}   test {tested}   {:.1} s simulated", record.at_s);
                self.bar.suspend(|| say_line(&line));
            }
            event if !self.json => {
                if let Event::RolledBack { epoch, .. } = event {
                    self.epoch = self.epoch.min(*epoch);
                    self.evaluated = self.evaluated.min(*epoch as f64);
                }
                // Several peers may tell the same.
                let text = incident_text(event, &self.setup).filter(|text| self.told.insert(text.clone()));
                if let Some(text) = text {
                    self.bar.suspend(|| say_line(&text));
                }
            }
            // Rounds say the same, for all their batches.
            Event::Batch { .. } => return,
            _ => {}
        }
        if self.json {
            print_line!("{}", serde_json::to_string(record).expect("records are plain data"));
        }
    }
}

fn summarise(arguments: &SimulateArguments, outcome: &Outcome, viewer: &Viewer, took: Duration) {
    let Viewer { tested, is_guessing, .. } = *viewer;
    let n_finished = outcome.peers.iter().filter(|peer| peer.is_finished).count();
    let sent: Vec<u64> = outcome.peers.iter().map(|peer| peer.traffic.payload_sent).collect();
    let (total, most) = (sent.iter().sum::<u64>(), sent.iter().copied().max().unwrap_or(0));
    let rounds = outcome.peers.iter().map(|peer| peer.place.n_rounds()).max().unwrap_or(0);
    if arguments.json {
        let summary = json!({
            "event": "summary", "n_peers": outcome.peers.len(), "n_finished": n_finished, "rounds": rounds,
            "test_loss": tested.map(|(loss, _)| loss), "test_accuracy": tested.and_then(|(_, accuracy)| viewer.setup.training().task.measure().counted(accuracy)),
            "simulated_s": outcome.time.as_secs_f64(), "payload_bytes": total, "most_sent_bytes": most,
            "n_events": outcome.n_events, "took_s": took.as_secs_f64(), "peak_rss_bytes": peak_rss_bytes(), "is_guessing": is_guessing,
        });
        print_line!("{summary}");
        return;
    }
    let tested = tested.map_or(String::new(), |(loss, accuracy)| match viewer.setup.training().task.measure() {
        Measure::Accuracy => format!(", with an accuracy of {:.2} %", 100.0 * accuracy),
        Measure::Loss => format!(", with a loss of {loss:.4}"),
        Measure::Perplexity { .. } => format!(", with a perplexity of {:.3}", loss.exp()),
    });
    print_line!(
        "{n_finished} of {} peers finished after {:.1} simulated seconds and {rounds} rounds{tested}.",
        outcome.peers.len(),
        outcome.time.as_secs_f64()
    );
    print_line!("They sent {} in all, the busiest {}.", HumanBytes(total), HumanBytes(most));
    let memory = peak_rss_bytes().map_or(String::new(), |bytes| format!(" and {} of memory", HumanBytes(bytes)));
    print_line!("Simulating took {:.1} s{memory}.", took.as_secs_f64());
}
