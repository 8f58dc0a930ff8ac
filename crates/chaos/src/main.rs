//! Runs worlds from seeds and tells which of them broke what must hold.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use nettorrent_chaos::seeds::{self, Trial};
use nettorrent_chaos::summary::Summary;

/// Simulates whole swarms through faults that are drawn from seeds. Ctrl-C ends the run early, with the summary of what was done.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many are run at the same time [default: as many as there are cores].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Tell what happened to each process of every world.
    #[arg(long)]
    log: bool,
}

/// How often a long run tells how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// What shells expect of who was interrupted.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let Arguments { seeds, first, jobs, log } = Arguments::parse();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stop = is_stopped.clone();
    if let Err(error) = ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed)) {
        eprintln!("Ctrl-C ends the run without a summary: {error}");
    }
    let (began, mut told) = (Instant::now(), Instant::now());
    let seeds = first..first.saturating_add(seeds);
    let n_jobs = jobs.map_or_else(seeds::n_cores, usize::from);
    let mut summary = Summary::new(seeds.clone());
    seeds::run(seeds, n_jobs, &is_stopped, |trial| {
        summary.add(&trial);
        if log || !trial.violations.is_empty() {
            println!("{}", report(&trial, log));
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{:6.0} s: {}", began.elapsed().as_secs_f64(), summary.progress());
        }
    });
    println!("{summary}seconds:    {:.1} with {n_jobs} at a time", began.elapsed().as_secs_f64());
    match (is_stopped.load(Ordering::Relaxed), summary.violations.is_empty()) {
        (_, false) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
    }
}

/// A world and what was wrong with it, for people.
fn report(trial: &Trial, with_log: bool) -> String {
    let mut text = trial.plan.to_string();
    for violation in &trial.violations {
        text += &format!("  VIOLATION: {violation}\n");
    }
    for fate in trial.outcome.iter().filter(|_| with_log).flat_map(|outcome| &outcome.fates) {
        let refusal = fate.told.not_admitted.as_deref().unwrap_or_default();
        text += &format!("  process {} {refusal}\n", fate.host);
        fate.told.log.iter().for_each(|line| text += &format!("    {line}\n"));
    }
    text
}
