//! Worlds of many seeds, some at the same time.

use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use crate::oracle::violations;
use crate::plan::Plan;
use crate::world::{self, Outcome};

/// A plan that was carried out.
pub struct Trial {
    /// The plan.
    pub plan: Plan,
    /// What came of it; nothing if a process panicked.
    pub outcome: Option<Outcome>,
    /// What must hold and did not.
    pub violations: Vec<String>,
}

/// How many worlds are run at the same time where nothing else is asked for: as many as there are cores.
pub fn n_cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Runs the plans of all seeds, `n_jobs` at a time, and hands over what came of each as it comes. Each is run by one thread from its
/// beginning to its end, so nothing in it depends on how many there are. Once `is_stopped` none is begun any more.
///
/// # Panics
/// If whoever is handed the trials does.
pub fn run(seeds: Range<u64>, n_jobs: usize, is_stopped: &AtomicBool, on_trial: impl FnMut(Trial) + Send) {
    let (next, on_trial) = (AtomicU64::new(seeds.start), Mutex::new(on_trial));
    scope(|threads| {
        for _ in 0..n_jobs.max(1) {
            threads.spawn(|| {
                while !is_stopped.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let trial = try_out(Plan::new(seed));
                    on_trial.lock().expect("nobody panics while handling a trial")(trial);
                }
            });
        }
    });
}

fn try_out(plan: Plan) -> Trial {
    match catch_unwind(AssertUnwindSafe(|| world::run(&plan))) {
        Ok(outcome) => Trial { violations: violations(&plan, &outcome), plan, outcome: Some(outcome) },
        Err(_) => Trial { plan, outcome: None, violations: vec!["a process panicked".to_owned()] },
    }
}
