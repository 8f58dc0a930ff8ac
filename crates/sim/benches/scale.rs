//! Many peers on people's links, for docs/src/scale.md: `cargo bench -p nettorrent-sim --bench scale -- 1000 moshpit`, a line of JSON for each
//! run. `bench/many_peers` makes the table of them.
//!
//! Names of strategies and numbers of peers are arguments, all of each with all of the other; `churn` as a word has half of the peers gone
//! after an hour, as many come, and half of them go without a word; a view then lasts for 30 s, or as long as `view=SECONDS` says, and after an
//! hour the run is given up.
//!
//! Each peer has 20 samples of the toy an epoch, in batches of 5, and there are three epochs. Links are 50mbit/20ms, with 10mbit up for three
//! peers in ten; sites have 50 peers, or a fifth of all, at 1gbit/1ms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_sim::{Churn, Scenario, Simulation, SimulationError, Site, SlowUplinks, Toy, ToySize};
use nettorrent_swarm::Setup;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategies::STRATEGIES;
use serde_json::json;

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
    let view_s = words.iter().find_map(|word| word.strip_prefix("view=")?.parse().ok()).unwrap_or(30);
    let view_lasts = words.iter().any(|word| word == "churn").then_some(Duration::from_secs(view_s));
    for n_peers in sizes {
        for strategy in &strategies {
            measure(n_peers, strategy, view_lasts);
        }
    }
}

/// Where peers come and go, views last for so long.
fn measure(n_peers: usize, strategy: &str, view_lasts: Option<Duration>) {
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
    let (began, used, mut seen) = (now(), processor_seconds(), Seen::default());
    let simulation = Simulation::new(setup, n_peers, scenario(n_peers, view_lasts)).expect("the scenario is sound");
    let outcome = simulation.run_with(&mut |record| seen.note(&record));
    let Seen { accuracies, n_views, n_samples } = seen;
    let mut line = json!({
        "n_peers": n_peers, "strategy": strategy, "view_lasts_s": view_lasts.map(|view| view.as_secs_f64()),
        "accuracies": accuracies, "n_views": n_views, "samples_trained": n_samples,
        "took_s": began.elapsed().as_secs_f64(), "compute_s": processor_seconds() - used,
        "peak_rss_bytes": peak_rss_bytes(),
    });
    match outcome {
        Ok(outcome) => {
            let n_bytes: u64 = outcome.peers.iter().map(|peer| peer.traffic.bytes_sent).sum();
            line["simulated_s"] = outcome.time.as_secs_f64().into();
            line["sent_bytes_per_peer"] = (n_bytes as f64 / outcome.peers.len() as f64).into();
            line["n_peers_in_all"] = outcome.peers.len().into();
            line["n_finished"] = outcome.peers.iter().filter(|peer| peer.is_finished).count().into();
            line["n_events"] = outcome.n_events.into();
        }
        Err(SimulationError::TimeLimit { limit, .. }) => line["given_up_after_s"] = limit.as_secs_f64().into(),
        Err(error) => panic!("{error}"),
    }
    println!("{line}");
}

/// What is to be told of a run.
#[derive(Default)]
struct Seen {
    /// After each epoch, the share of the test samples that peers classified right.
    accuracies: Vec<f64>,
    n_views: u32,
    /// Of how many samples whoever knows of the most has heard.
    n_samples: u64,
}

impl Seen {
    fn note(&mut self, record: &Record) {
        match record.event {
            Event::Epoch { epoch, test_accuracy, .. } if self.accuracies.len() < epoch as usize => {
                self.accuracies.push(test_accuracy);
            }
            Event::Round { n_samples_all, .. } => self.n_samples = self.n_samples.max(n_samples_all),
            Event::View { view, .. } => self.n_views = self.n_views.max(view),
            _ => {}
        }
    }
}

fn scenario(n_peers: usize, view_lasts: Option<Duration>) -> Scenario {
    let at_site = (n_peers / 5).clamp(1, 50);
    let link = |text: &str| text.parse().expect("a link");
    let calm = Scenario {
        link: link("50mbit/20ms"),
        slow_uplinks: SlowUplinks { share: 0.3, up: link("10mbit/20ms") },
        sites: vec![Site { peers: at_site, count: n_peers / at_site, link: link("1gbit/1ms") }],
        deadline: Duration::from_secs(15),
        ..Scenario::lan()
    };
    let hour = Duration::from_secs(3600);
    match view_lasts {
        None => calm,
        Some(view_lasts) => {
            Scenario { churn: Some(Churn { median_stay: hour, killed: 0.5 }), view_lasts, limit: hour, ..calm }
        }
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
