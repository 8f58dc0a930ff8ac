//! Runs worlds from seeds and tells which of them broke what must hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use nettorrent_chaos::oracle::violations;
use nettorrent_chaos::plan::Plan;
use nettorrent_chaos::world;

/// Simulates whole swarms through faults that are drawn from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many run at the same time; 0 for as many as there are cores.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Tell what happened to each process of every world.
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let n_threads = match arguments.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let began = Instant::now();
    let (next, n_failed) = (AtomicU64::new(0), Mutex::new(0_u64));
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.seeds {
                        return;
                    }
                    if let Some(report) = try_out(arguments.first + index, arguments.log) {
                        let mut n_failed = n_failed.lock().expect("nobody panics while printing");
                        *n_failed += 1;
                        println!("{report}");
                    }
                }
            });
        }
    });
    let n_failed = *n_failed.lock().expect("all threads have ended");
    println!("{} seeds in {:.1} s: {n_failed} failed", arguments.seeds, began.elapsed().as_secs_f64());
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was wrong with a seed's world, or all about it if that is wanted.
fn try_out(seed: u64, wants_log: bool) -> Option<String> {
    let plan = Plan::new(seed);
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| world::run(&plan))) else {
        return Some(format!("{plan}  a process panicked"));
    };
    let problems = violations(&plan, &outcome);
    if problems.is_empty() && !wants_log {
        return None;
    }
    let mut text = format!("{plan}  took {:.3} s\n", outcome.took.as_secs_f64());
    for problem in &problems {
        text += &format!("  VIOLATION: {problem}\n");
    }
    if wants_log {
        for fate in &outcome.fates {
            text += &format!("  process {} {:?}\n", fate.host, fate.told.not_admitted);
            for line in &fate.told.log {
                text += &format!("    {line}\n");
            }
        }
    }
    Some(text)
}
