//! The moving average of the parameters: the same at all peers, also at one that came late, and made of what they had after each round.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Join, Observer, Scenario, Simulation, Toy};
use nettorrent_swarm::strategy::{Mixing, Payload};
use nettorrent_swarm::{Peer, PeerId, Setup, State};

use super::case::{self, Case};

const EMA: f32 = 0.9;

fn job() -> Job {
    Job { ema: EMA, epochs: 3, batch: 8, ..case::job() }
}

/// Every peer's state after each round that it has made.
#[derive(Default)]
struct States(BTreeMap<PeerId, BTreeMap<u32, State>>);

impl Observer for States {
    fn handled(&mut self, _: Duration, id: PeerId, peer: &dyn Peer) {
        // Who is alone lends the parameters to the worker, a batch at a time.
        let Some(state) = peer.state() else { return };
        self.0.entry(id).or_default().entry(state.place.version.round).or_insert(state);
    }
}

impl States {
    fn of(case: &Case, n_peers: usize, joins: Vec<Join>) -> Self {
        let mut states = Self::default();
        let scenario = Scenario { joins, ..Scenario::lan() };
        let setup = case.setup_for(Toy::new(7), job());
        Simulation::new(setup, n_peers, scenario).unwrap().run_with(&mut states).unwrap();
        states
    }
}

fn average(state: &State) -> &[f32] {
    state.average.as_ref().expect("the job wants it")
}

/// Whether peers have the same parameters after every round.
fn are_equal(case: &Case) -> bool {
    let plan = case.strategy().round_plan();
    plan.mixing == Mixing::Full && plan.payload != Payload::Updates
}

#[test]
fn all_peers_have_the_same_average() {
    let mut n_checked = 0;
    for case in case::all().into_iter().filter(|case| are_equal(case) && !case.depends_on_time()) {
        n_checked += 1;
        for n_peers in [1, 3] {
            let states = States::of(&case, n_peers, Vec::new());
            let last: Vec<&State> = states.0.values().map(|rounds| rounds.last_key_value().unwrap().1).collect();
            assert_eq!(last.len(), n_peers, "{}", case.name());
            assert!(last.iter().all(|state| average(state) == average(last[0])), "{}", case.name());
            assert!(average(last[0]) != last[0].values.as_slice(), "{}: it follows behind", case.name());
        }
    }
    assert!(n_checked > 10);
}

#[test]
fn it_is_made_of_the_parameters_after_each_round() {
    for (name, n_peers) in [("ring-all-reduce", 3), ("local-sgd", 3), ("diloco", 2)] {
        let states = States::of(&Case::new(name, toml::Table::new()), n_peers, Vec::new());
        let rounds: Vec<&State> = states.0.values().next().unwrap().values().collect();
        let mut expected: Vec<f64> = rounds[0].values.iter().map(|&value| f64::from(value)).collect();
        for pair in rounds.windows(2) {
            let (before, after) = (pair[0].place.step, pair[1].place.step);
            let decay = f64::from(EMA).min((1 + after) as f64 / (10 + after) as f64);
            let stays = decay.powi((after - before) as i32);
            let mix = |(mean, &value): (&mut f64, &f32)| *mean = stays * *mean + (1.0 - stays) * f64::from(value);
            expected.iter_mut().zip(pair[1].values.iter()).for_each(mix);
            let off = |(mean, &found): (&f64, &f32)| (mean - f64::from(found)).abs();
            let most = expected.iter().zip(average(pair[1])).map(off).fold(0.0, f64::max);
            assert!(most < 1e-5, "{name} with {n_peers} peers: {most} off after step {after}");
        }
    }
}

#[test]
fn it_follows_every_step_of_who_is_alone() {
    // One keeps its parameters for each round of one step, the other lends them to its worker.
    let cases =
        [Case::new("local-sgd", toml::toml! { local_steps = 1 }), Case::new("ring-all-reduce", toml::Table::new())];
    let [kept, lent] = cases.map(|case| States::of(&case, 1, Vec::new()).0.into_values().next().unwrap());
    assert!(lent.len() < kept.len(), "it was lent");
    let [kept, lent] = [kept, lent].map(|rounds| rounds.into_values().next_back().unwrap());
    assert!((&kept.values, kept.place.step) == (&lent.values, lent.place.step));
    assert!(average(&kept) == average(&lent));
}

#[test]
fn a_newcomer_gets_it_with_the_state() {
    for name in ["ring-all-reduce", "diloco", "parameter-server"] {
        let joins = vec![Join { at: Duration::from_millis(20) }];
        let states = States::of(&Case::new(name, toml::Table::new()), 2, joins);
        assert_eq!(states.0.len(), 3, "{name}");
        let last: Vec<&State> = states.0.values().map(|rounds| rounds.last_key_value().unwrap().1).collect();
        let newcomer = states.0.values().next_back().unwrap();
        assert!(newcomer.len() > 2, "{name}: it has trained along");
        assert!(last.iter().all(|state| average(state) == average(last[0])), "{name}");
    }
}

#[test]
fn peers_that_differ_between_epochs_have_none() {
    for case in case::defaults().into_iter().filter(|case| !are_equal(case)) {
        let swarm = nettorrent_engine::job::SwarmSpec {
            strategy: case.name().trim().to_owned(),
            ..nettorrent_engine::job::SwarmSpec::default()
        };
        let refused = Setup::new(&Job { swarm, ..job() }, std::sync::Arc::new(Toy::new(7)));
        let problem = refused.err().expect("it is refused").to_string();
        assert!(problem.contains(case.name().trim()) && problem.contains("ema = 0"), "{problem}");
    }
}
