//! What came of many worlds, in a few lines.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::seeds::Trial;

/// What came of the seeds so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The seeds that were asked for.
    pub seeds: Range<u64>,
    /// How many of them were run.
    pub n_run: u64,
    /// How many faults of each kind happened. A pair that is cut both ways counts as two cuts that go one way each.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was violated, by seed.
    pub violations: BTreeMap<u64, Vec<String>>,
}

impl Summary {
    /// Of seeds of which none was run yet.
    pub fn new(seeds: Range<u64>) -> Self {
        Self { seeds, n_run: 0, faults: BTreeMap::new(), violations: BTreeMap::new() }
    }

    /// Takes another one in.
    pub fn add(&mut self, trial: &Trial) {
        self.n_run += 1;
        for fault in trial.outcome.iter().flat_map(|outcome| &outcome.happened).filter_map(|action| action.fault()) {
            *self.faults.entry(fault).or_insert(0) += 1;
        }
        if !trial.violations.is_empty() {
            self.violations.insert(trial.plan.seed, trial.violations.clone());
        }
    }

    /// How far the run is, in a line.
    pub fn progress(&self) -> String {
        let (n_run, n) = (self.n_run, self.n_asked());
        format!("{n_run} of {n} seeds ({} %), {} with violations", n_run * 100 / n.max(1), self.violations.len())
    }

    fn n_asked(&self) -> u64 {
        self.seeds.end.saturating_sub(self.seeds.start)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_run, n, Range { start, end }) = (self.n_run, self.n_asked(), &self.seeds);
        match n_run == n {
            true => writeln!(out, "seeds:      {n} ({start} to {})", end.saturating_sub(1))?,
            false => writeln!(out, "seeds:      {n_run} of {n} from {start} on: stopped before the end")?,
        }
        let faults: Vec<String> = self.faults.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        writeln!(out, "faults:     {} ({})", self.faults.values().sum::<u64>(), faults.join(", "))?;
        match self.violations.len() {
            0 => writeln!(out, "violations: none")?,
            n_failed => writeln!(out, "violations: in {n_failed} seeds")?,
        }
        for (seed, problems) in &self.violations {
            writeln!(out, "  seed {seed}: {}", problems.join("; "))?;
        }
        Ok(())
    }
}
