//! What a replica does when training has diverged: it goes back to a good state, and all others with the first member.

use super::Replica;
use super::agreement::{Agreement, Verdict};
use super::donor::Donor;
use super::recovery::Reaction;
use crate::effects::Outbox;
use crate::place::State;
use crate::record::Event;

impl Replica {
    pub(super) fn on_divergence(&mut self, why: &str, out: &mut Outbox) {
        match self.training.on_divergence(why, out) {
            Reaction::Stop => {}
            Reaction::Wait => {
                self.training.abandon();
                self.agreement = Agreement::default();
            }
            Reaction::GoBack(state) => self.go_back(why, *state, out),
        }
    }

    /// Goes back to a good state, and all others with this first member.
    fn go_back(&mut self, why: &str, state: State, out: &mut Outbox) {
        let core = self.core();
        let others: Vec<u32> = (1..core.view.len() as u32).collect();
        let verdict = Verdict::rollback(others, state.place.n_rollbacks, core);
        verdict.tell_all(core, out);
        let donor = Donor::new(verdict.transfer(), state.clone(), Vec::new(), Vec::new(), &verdict.behind);
        donor.begin(core, out);
        out.records.push(core.record(Event::RolledBack {
            why: why.to_owned(),
            from_step: core.place.step,
            epoch: state.place.ledger.epoch,
            step: state.place.step,
            lr_factor: state.place.lr_factor(),
        }));
        self.donor = Some(donor).filter(|donor| !donor.is_done());
        self.training.abandon();
        self.training.go_back_to(state);
        self.go_on(0, true, out);
    }
}
