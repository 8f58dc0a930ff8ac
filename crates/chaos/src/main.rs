//! Runs worlds from seeds and tells which of them broke what must hold.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nettorrent_chaos::seeds::{self, Trial};

/// Simulates whole swarms through faults that are drawn from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Tell what happened to each process of every world.
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let Arguments { seeds, first, log } = Arguments::parse();
    let (began, mut n_run, mut n_failed) = (Instant::now(), 0_u64, 0_u64);
    let mut actions = BTreeMap::new();
    seeds::run(first..first.saturating_add(seeds), |trial| {
        n_run += 1;
        n_failed += u64::from(!trial.violations.is_empty());
        trial.plan.actions.iter().for_each(|(_, action)| *actions.entry(action.name()).or_insert(0_u64) += 1);
        if log || !trial.violations.is_empty() {
            println!("{}", report(&trial, log));
        }
    });
    let actions: Vec<String> = actions.iter().map(|(name, n)| format!("{n} {name}")).collect();
    println!("{n_run} worlds in {:.1} s ({}): {n_failed} failed", began.elapsed().as_secs_f64(), actions.join(", "));
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
