//! Where peers are at sites: what stays within them, what goes between, and that all ends well whoever is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Fault, Join, Observer, Outcome, Scenario, Simulation, Site, Toy, What, When};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategy::CostQuestion;
use nettorrent_swarm::wire::{Frame, Kind};

use super::case::{self, Case};

/// Two sites of two, and one peer that is at none.
const SIZES: [usize; 3] = [2, 2, 1];
const N_PEERS: usize = 5;

fn site_of(peer: PeerId) -> u32 {
    peer.join_index() / 2
}

fn scenario() -> Scenario {
    let site = Site { peers: 2, count: 2, link: "1gbit/200us".parse().unwrap() };
    Scenario {
        link: "50mbit/10ms".parse().unwrap(),
        sites: vec![site],
        deadline: Duration::from_millis(200),
        ..Scenario::lan()
    }
}

fn two_level() -> Case {
    Case::new("two-level", toml::toml! { outer_every = 3 })
}

/// What goes over the links, by round.
#[derive(Default)]
struct Meter {
    sent: BTreeMap<u32, BTreeMap<PeerId, u64>>,
    received: BTreeMap<u32, BTreeMap<PeerId, u64>>,
    /// Who speaks to another site.
    far: BTreeMap<u32, BTreeSet<PeerId>>,
    rounds: BTreeSet<u32>,
}

impl Observer for Meter {
    fn record(&mut self, record: Record) {
        if let Event::Round { round, .. } = record.event {
            self.rounds.insert(round - 1);
        }
    }

    fn frame(&mut self, _: Duration, from: PeerId, to: PeerId, frame: &Frame) {
        if frame.head.kind == Kind::Strategy {
            let (round, n_bytes) = (frame.head.round, frame.body.len() as u64);
            *self.sent.entry(round).or_default().entry(from).or_default() += n_bytes;
            *self.received.entry(round).or_default().entry(to).or_default() += n_bytes;
            if site_of(from) != site_of(to) {
                self.far.entry(round).or_default().insert(from);
            }
        }
    }
}

#[test]
fn between_sites_the_first_peers_speak_and_seldom() {
    let case = two_level();
    let toy = Toy::new(7);
    let (buckets, n_params) = (toy.buckets().to_vec(), toy.n_params());
    let mut meter = Meter::default();
    let setup = case.setup_for(toy, Job { epochs: 2, batch: 2, ..case::equal_job() });
    let outcome = Simulation::new(setup, N_PEERS, scenario()).unwrap().run_with(&mut meter).unwrap();
    assert!(outcome.refusals.is_empty() && outcome.failures.is_empty(), "{:?}", outcome.refusals);
    assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.values == outcome.peers[0].values));
    let firsts: BTreeSet<PeerId> = [0, 2, 4].map(|peer| PeerId::new(peer, 0)).into();
    assert!(meter.rounds.len() > 6);
    for &round in &meter.rounds {
        let far = meter.far.get(&round).cloned().unwrap_or_default();
        assert_eq!(far, if (round + 1).is_multiple_of(3) { firsts.clone() } else { BTreeSet::new() }, "round {round}");
        let question = CostQuestion { n_peers: N_PEERS, buckets: &buckets, n_params, round, site_sizes: &SIZES };
        let cost = case.strategy().cost(&question);
        let of = |count: &BTreeMap<u32, BTreeMap<PeerId, u64>>| -> Vec<u64> {
            count.get(&round).into_iter().flat_map(|peers| peers.values().copied()).collect()
        };
        let (sent, received) = (of(&meter.sent), of(&meter.received));
        assert_eq!(cost.total, sent.iter().sum::<u64>(), "round {round}: the sum");
        assert_eq!(Some(cost.most_sent), sent.into_iter().max(), "round {round}: the busiest sender");
        assert_eq!(Some(cost.most_received), received.into_iter().max(), "round {round}: the busiest receiver");
    }
}

#[test]
fn it_learns_and_survives_the_loss_of_any_peer() {
    let setup = two_level().setup(10);
    let task = setup.training().task.clone();
    let before = task.clone().worker(1).unwrap().test(&task.init(3), 0..task.n_test()).unwrap();
    for peer in 0..N_PEERS {
        for round in [0, 1, 2, 3, 7] {
            for what in [What::Kill, What::Leave, What::Hang(Duration::from_millis(500))] {
                let faults = vec![Fault { peer, when: When::Round(round), what }];
                let scenario = Scenario { faults, ..scenario() };
                let outcome = Simulation::new(setup.clone(), N_PEERS, scenario).unwrap().run().unwrap();
                let what = format!("peer {peer}, round {round}, {what:?}");
                assert!(outcome.refusals.is_empty() && outcome.failures.is_empty(), "{what}: {:?}", outcome.refusals);
                let live: Vec<_> = outcome.live().collect();
                assert!(live.iter().all(|peer| peer.is_finished && peer.values == live[0].values), "{what}");
                let after = task.clone().worker(1).unwrap().test(&live[0].values, 0..task.n_test()).unwrap();
                assert!(after.loss() < 0.6 * before.loss(), "{what}: from {} to {}", before.loss(), after.loss());
            }
        }
    }
}

/// Eight peers in two places, 1 ms within each and 50 ms between them, there and back.
fn two_places() -> Scenario {
    let site = Site { peers: 4, count: 2, link: "1gbit/500us".parse().unwrap() };
    Scenario {
        link: "100mbit/25ms".parse().unwrap(),
        sites: vec![site],
        deadline: Duration::from_millis(500),
        ..Scenario::lan()
    }
}

fn outcome(epochs: u64, scenario: Scenario) -> Outcome {
    outcome_of(&two_level(), epochs, scenario)
}

fn outcome_of(case: &Case, epochs: u64, scenario: Scenario) -> Outcome {
    let setup = case.setup_for(Toy::new(7), Job { epochs, batch: 2, ..case::equal_job() });
    let outcome = Simulation::new(setup, 8, scenario).unwrap().run().unwrap();
    assert!(outcome.refusals.is_empty() && outcome.failures.is_empty(), "{:?}", outcome.refusals);
    outcome
}

/// Who takes part in each view, and at which site all of them say that each is.
fn agreed(outcome: &Outcome) -> Vec<(Vec<PeerId>, Vec<u32>)> {
    let mut agreed = BTreeMap::new();
    for record in &outcome.records {
        if let Event::View { view, members, sites, .. } = &record.event {
            let said = (members.clone(), sites.clone());
            assert_eq!(*agreed.entry(*view).or_insert_with(|| said.clone()), said, "{} in view {view}", record.peer);
        }
    }
    agreed.into_values().collect()
}

#[test]
fn sites_that_are_found_are_those_that_would_be_told() {
    let [told, found] = [false, true].map(|finds_sites| outcome(2, Scenario { finds_sites, ..two_places() }));
    for outcome in [&told, &found] {
        assert_eq!(agreed(outcome), [((0..8).map(|k| PeerId::new(k, 0)).collect(), vec![0, 0, 0, 0, 1, 1, 1, 1])]);
    }
    let values = |outcome: &Outcome| -> Vec<_> { outcome.peers.iter().map(|peer| peer.values.clone()).collect() };
    assert_eq!(values(&told), values(&found));
    // Without them all would be at one, and end elsewhere.
    let one = outcome(2, Scenario { sites: Vec::new(), ..two_places() });
    let unasked = outcome_of(&Case::new("ring-all-reduce", toml::Table::new()), 1, two_places());
    for outcome in [&one, &unasked] {
        assert!(agreed(outcome).iter().all(|(_, sites)| sites.is_empty()));
    }
    assert_ne!(values(&one), values(&found));
}

#[test]
fn noise_makes_no_two_sites_of_a_room() {
    for seed in 0..10 {
        let jitter = Duration::from_millis(4);
        let outcome = outcome(1, Scenario { seed, jitter, finds_sites: true, ..Scenario::lan() });
        assert!(agreed(&outcome).iter().all(|(_, sites)| sites.is_empty()), "seed {seed}");
    }
}

#[test]
fn whoever_comes_and_goes_the_others_stay_where_they_are() {
    let place = |peer: &PeerId| peer.join_index() / 4;
    for seed in 0..5 {
        let faults = [(1, 2, What::Leave), (4, 4, What::Kill), (5, 6, What::Leave)];
        let fault = |(peer, round, what)| Fault { peer, when: When::Round(round), what };
        // Who comes is at a place of its own.
        let joins = vec![Join { at: Duration::from_millis(150) }];
        let (jitter, spread) = (Duration::from_millis(5), 0.3);
        let faults = faults.map(fault).into();
        let outcome = outcome(5, Scenario { seed, jitter, spread, faults, joins, finds_sites: true, ..two_places() });
        let agreed = agreed(&outcome);
        assert!(agreed.len() >= 4, "seed {seed}: {} views", agreed.len());
        for (members, sites) in agreed {
            for (a, b) in (0..members.len()).flat_map(|a| (0..members.len()).map(move |b| (a, b))) {
                let are_near = place(&members[a]) == place(&members[b]);
                assert_eq!(sites[a] == sites[b], are_near, "seed {seed}: {members:?} at {sites:?}");
            }
        }
    }
}
