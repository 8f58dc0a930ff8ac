//! A swarm that was stopped goes on from one peer's checkpoint, with others who join anew.

use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Observer, Scenario, Simulation, Toy};
use nettorrent_swarm::{Peer, PeerId, State};

use super::case;

const N_PEERS: usize = 3;
const EPOCHS: u64 = 3;

/// Remembers the last state before the middle of the second epoch.
struct BeforeMiddle {
    n_samples: u64,
    state: Option<State>,
}

impl Observer for BeforeMiddle {
    fn handled(&mut self, _: Duration, _: PeerId, peer: &dyn Peer) {
        let place = peer.place();
        if place.ledger.epoch == 1 && place.version.n_samples <= self.n_samples {
            self.state = peer.state().or(self.state.take());
        }
    }
}

#[test]
fn those_who_join_whoever_has_a_checkpoint_train_on_with_it() {
    for case in case::defaults() {
        let job = Job { epochs: EPOCHS, batch: 8, ..case::job() };
        let setup = case.setup_for(Toy::new(7), job);
        let n_train = setup.training().task.labels().len() as u64;
        let mut seen = BeforeMiddle { n_samples: n_train + n_train / 2, state: None };
        Simulation::new(setup.clone(), N_PEERS, Scenario::lan()).unwrap().run_with(&mut seen).unwrap();
        let mut state = seen.state.expect("there is a second epoch");
        // Those who took part are not there any more, and nobody bears their names.
        for segment in &mut state.place.ledger.segments {
            segment.members.iter_mut().for_each(|member| *member |= 1 << 62);
        }
        let resumed = Simulation::from_state(setup, state, N_PEERS, Scenario::lan()).unwrap().held_by_first();
        let outcome = resumed.run().unwrap_or_else(|stuck| panic!("{}: {stuck}", case.name()));
        assert!(outcome.failures.is_empty() && outcome.refusals.is_empty(), "{}", case.name());
        for peer in &outcome.peers {
            assert!(peer.is_finished && peer.place.ledger.epoch == EPOCHS, "{}: {}", case.name(), peer.id);
            assert_eq!(peer.values, outcome.peers[0].values, "{}: {}", case.name(), peer.id);
        }
    }
}
