//! Who says less where links are slow says as much as they carry beside the computing.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_sim::{PeerLinks, Scenario, Simulation, Toy, ToySize};
use nettorrent_swarm::record::Event;

use super::case::{self, Case};

const N_PEERS: usize = 3;
const BATCH: usize = 10;
const N_BATCHES: usize = 30;
/// What stands before the numbers: a part's length, where they begin and how many there are.
const HEAD_LEN: u64 = 12;

/// Those who say less where links are slow, with numbers as they are.
fn cases() -> Vec<Case> {
    let has_parts = |case: &&Case| case.has_option("most_partitions");
    let defaults = case::defaults();
    let names = defaults.iter().filter(has_parts).map(|case| case.name().trim().to_owned());
    names.map(|name| Case::new(&name, toml::toml! { codec = "f32" })).collect()
}

/// What each peer sent in each of its rounds, and how many numbers are trained.
fn sent_bytes(case: &Case, scenario: Scenario) -> (BTreeMap<u32, Vec<u64>>, usize) {
    let n_train = N_PEERS * BATCH * N_BATCHES;
    let toy = Toy::with_size(ToySize { n_features: 1000, n_classes: 4, n_train, n_test: 3 }, 1);
    let n_params = toy.n_params();
    let setup = case.setup_for(toy, Job { epochs: 1, batch: BATCH, ..case::equal_job() });
    let outcome = Simulation::new(setup, N_PEERS, scenario).unwrap().run().unwrap();
    let mut sent: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for record in outcome.records {
        if let Event::Round { sent_bytes, .. } = record.event {
            sent.entry(record.peer.join_index()).or_default().push(sent_bytes);
        }
    }
    (sent, n_params)
}

#[test]
fn the_number_of_parts_follows_each_peers_uplink() {
    for case in cases() {
        let case = &case;
        let most = case.option("most_partitions").and_then(|most| most.as_integer()).unwrap() as f64;
        // One peer's uplink is another than everybody's, and fast enough for all.
        for (link, bytes_per_s) in [("100mbit/20ms", 12.5e6), ("8mbit/20ms", 1e6), ("800kbit", 1e5), ("8kbit", 1e3)] {
            let fast = PeerLinks { peer: 2, up: "10gbit".parse().unwrap(), down: "10gbit".parse().unwrap() };
            let scenario = Scenario { link: link.parse().unwrap(), links: vec![fast], ..Scenario::lan() };
            let batch_s = BATCH as f64 * scenario.sample_time.as_secs_f64();
            let (sent, n_params) = sent_bytes(case, scenario);
            // As many as it takes for what is said during a batch to leave meanwhile.
            let others = (N_PEERS - 1) as u64;
            let n_parts = |bytes_per_s: f64| {
                let n_bytes = (others * 4 * n_params as u64) as f64;
                (n_bytes / (bytes_per_s * batch_s)).ceil().clamp(1.0, most) as u64
            };
            for (peer, bytes_per_s) in [(0, bytes_per_s), (1, bytes_per_s), (2, 1.25e9)] {
                let (sent, n_parts) = (&sent[&peer], n_parts(bytes_per_s));
                assert_eq!(sent.len(), N_BATCHES);
                // The first batch is told in full, for nobody knows yet how long a batch takes.
                let whole = others * (HEAD_LEN + 4 * n_params as u64);
                assert_eq!(sent[0], whole, "{}over {link}: peer {peer}", case.name());
                let numbers = n_params as u64 / n_parts..=n_params as u64 / n_parts + 1;
                for &n_bytes in &sent[1..] {
                    let said = (n_bytes / others - HEAD_LEN) / 4;
                    assert!(numbers.contains(&said), "{}over {link}: peer {peer}: {said} in {n_parts}", case.name());
                }
            }
        }
    }
}

#[test]
fn a_slow_link_carries_less_than_a_fast_one() {
    for case in cases() {
        let case = &case;
        let total = |link: &str| -> u64 {
            let scenario = Scenario { link: link.parse().unwrap(), ..Scenario::lan() };
            sent_bytes(case, scenario).0.values().flatten().sum()
        };
        let [fast, slow] = ["1gbit", "8mbit"].map(total);
        assert!(3 * slow < fast, "{}: {slow} and {fast} bytes", case.name());
    }
}

#[test]
fn a_link_that_is_not_known_yet_changes_nothing() {
    for case in cases() {
        let sent = |link: &str, uplinks_known_after| {
            sent_bytes(&case, Scenario { link: link.parse().unwrap(), uplinks_known_after, ..Scenario::lan() }).0
        };
        let slow = "800kbit";
        assert_eq!(sent(slow, Duration::MAX), sent("10gbit", Duration::MAX), "{}", case.name());
        let total = |after| sent(slow, after)[&0].iter().sum::<u64>();
        let totals = [Duration::ZERO, Duration::from_secs(2), Duration::MAX].map(total);
        assert!(totals[0] < totals[1] && totals[1] < totals[2], "{}: {totals:?}", case.name());
    }
}
