//! Many peers on people's links, for docs/src/scale.md: `cargo bench -p nettorrent-sim --bench scale -- 1000 moshpit`.
//!
//! Names of strategies and numbers of peers are arguments, all of each with all of the other; `churn` as a word has half of the peers gone
//! after an hour, as many come, and half of them go without a word; a view then lasts for 30 s.
//!
//! Each peer has 20 samples of the toy an epoch, in batches of 5, and there are three epochs. Links are 50mbit/20ms, with 10mbit up for three
//! peers in ten; sites have 50 peers, or a fifth of all, at 1gbit/1ms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_sim::{Churn, Scenario, Simulation, Site, SlowUplinks, Toy, ToySize};
use nettorrent_swarm::Setup;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategies::STRATEGIES;

const SAMPLES_PER_PEER: usize = 20;
const USUAL: [&str; 4] = ["gossip", "moshpit", "threshold", "two-level"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut sizes: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![100, 1000];
    }
    let is_asked = |name: &&str| words.iter().any(|word| word == name);
    let mut strategies: Vec<&str> = STRATEGIES.iter().map(|spec| spec.name).filter(is_asked).collect();
    if strategies.is_empty() {
        strategies = USUAL.to_vec();
    }
    for n_peers in sizes {
        for strategy in &strategies {
            measure(n_peers, strategy, words.iter().any(|word| word == "churn"));
        }
    }
}

fn measure(n_peers: usize, strategy: &str, has_churn: bool) {
    let size = ToySize { n_features: 64, n_classes: 10, n_train: SAMPLES_PER_PEER * n_peers, n_test: 1000 };
    let mut swarm =
        SwarmSpec { strategy: strategy.to_owned(), scale: Scale::None, work: Work::Equal, ..SwarmSpec::default() };
    if ["moshpit", "local-sgd", "diloco", "gossip"].contains(&strategy) {
        swarm.options.insert("local_steps".to_owned(), 2.into());
    }
    if strategy == "two-level" {
        swarm.options.insert("outer_every".to_owned(), 4.into());
    }
    let optimizer = OptimizerSpec { lr: 0.05, ..OptimizerSpec::default() };
    let job = Job { epochs: 3, batch: 5, optimizer, swarm, ..Job::default() };
    let setup = Arc::new(Setup::new(&job, Arc::new(Toy::with_size(size, 1))).expect("the job is sound"));
    let (began, used, mut epochs, mut n_views) = (now(), processor_seconds(), Vec::new(), 0);
    let simulation = Simulation::new(setup, n_peers, scenario(n_peers, has_churn)).expect("the scenario is sound");
    let mut note = |record: Record| match record.event {
        Event::Epoch { epoch, test_accuracy, .. } if epochs.len() < epoch as usize => {
            epochs.push(format!("{:.2}", 100.0 * test_accuracy));
        }
        Event::View { view, .. } => n_views = n_views.max(view),
        _ => {}
    };
    let outcome = simulation.run_with(&mut note).expect("it comes to an end");
    let wall = began.elapsed().as_secs_f64();
    let n_finished = outcome.peers.iter().filter(|peer| peer.is_finished).count();
    let n_bytes: u64 = outcome.peers.iter().map(|peer| peer.traffic.bytes_sent).sum();
    println!(
        "{n_peers} {strategy}: {} % after the epochs, {:.1} s simulated, {:.1} kB from a peer, {n_views} views, {n_finished} of {} finished; \
         simulating took {wall:.1} s, {:.1} of them a processor's, {} events, {} MB at most so far",
        epochs.join(" "),
        outcome.time.as_secs_f64(),
        n_bytes as f64 / outcome.peers.len() as f64 / 1e3,
        outcome.peers.len(),
        processor_seconds() - used,
        outcome.n_events,
        peak_rss_bytes().unwrap_or(0) / 1_000_000,
    );
}

fn scenario(n_peers: usize, has_churn: bool) -> Scenario {
    let at_site = (n_peers / 5).clamp(1, 50);
    let link = |text: &str| text.parse().expect("a link");
    Scenario {
        link: link("50mbit/20ms"),
        slow_uplinks: SlowUplinks { share: 0.3, up: link("10mbit/20ms") },
        sites: vec![Site { peers: at_site, count: n_peers / at_site, link: link("1gbit/1ms") }],
        deadline: Duration::from_secs(15),
        churn: has_churn.then_some(Churn { median_stay: Duration::from_secs(3600), killed: 0.5 }),
        view_lasts: if has_churn { Duration::from_secs(30) } else { Duration::ZERO },
        ..Scenario::lan()
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured here is the simulator, not what it simulates")]
fn now() -> Instant {
    Instant::now()
}

/// How long this process has computed, where the system tells.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The largest resident size so far, where the system tells.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
