//! How long a thousand peers take for two rounds of 25 thousand parameters: `cargo bench -p nettorrent-sim`.
//!
//! The name of a strategy as argument takes another one, a number another number of peers:
//! `cargo bench -p nettorrent-sim --bench thousand -- step-wise 100`.

use std::sync::Arc;
use std::time::Instant;

use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::task::Task;
use nettorrent_sim::{Scenario, Simulation, Toy, ToySize};
use nettorrent_swarm::Setup;
use nettorrent_swarm::strategies::STRATEGIES;

const N_ROUNDS: usize = 2;

fn main() {
    // Cargo hands `--bench` over too.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let n_peers = words.iter().find_map(|word| word.parse().ok()).unwrap_or(1000);
    let strategy = words.into_iter().find(|word| STRATEGIES.iter().any(|spec| spec.name == word));
    let strategy = strategy.unwrap_or_else(|| SwarmSpec::default().strategy);

    let size = ToySize { n_features: 2272, n_classes: 10, n_train: N_ROUNDS * n_peers, n_test: 100 };
    let toy = Toy::with_size(size, 1);
    let n_values = toy.n_values();
    let toy = toy.with_buckets(&[n_values]);
    let swarm = SwarmSpec { strategy, ..SwarmSpec::default() };
    let job = Job { epochs: 1, batch: 1, swarm, ..Job::default() };
    let setup = Arc::new(Setup::new(&job, Arc::new(toy)).expect("the job is sound"));

    let began = now();
    let simulation = Simulation::new(setup, n_peers, Scenario::lan()).expect("the scenario is sound").with_threads(0);
    let outcome = simulation.run_with(&mut |_| {}).expect("nothing goes wrong in this scenario");
    let wall = began.elapsed().as_secs_f64();

    let n_frames: u64 = outcome.peers.iter().map(|peer| peer.traffic.frames_received).sum();
    println!("{n_peers} peers, {N_ROUNDS} rounds of {n_values} numbers, {}", job.swarm.strategy);
    println!("{wall:.2} s for {:.3} s of simulated time", outcome.time.as_secs_f64());
    println!("{n_frames} frames, {:.0} ns each; {} events", wall * 1e9 / n_frames as f64, outcome.n_events);
    if let Some(bytes) = peak_rss_bytes() {
        println!("at most {} MB of memory", bytes / 1_000_000);
    }
    assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.values == outcome.peers[0].values));
}

#[expect(clippy::disallowed_methods, reason = "what is measured here is the simulator, not what it simulates")]
fn now() -> Instant {
    Instant::now()
}

/// The largest resident size so far, where the system tells.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
