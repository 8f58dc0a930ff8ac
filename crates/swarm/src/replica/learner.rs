//! A replica's parameters with the strategy that acts on them.

use std::sync::Arc;

use super::asynchronous::{Clock, Ending};
use super::core::Core;
use super::fetch::Snapshot;
use crate::malformed::Malformed;
use crate::place::State;
use crate::replica_setup::ReplicaSetup;
use crate::strategy::{AnyStrategy, Past};
use crate::view::PeerId;

/// What is trained, and by which rule peers exchange it.
pub(super) struct Learner {
    pub core: Core,
    pub strategy: AnyStrategy,
    setup: Arc<ReplicaSetup>,
    /// Whether the strategy is that of the warm-up, after which the job's own takes over.
    is_warming_up: bool,
}

impl Learner {
    pub(super) fn new(id: PeerId, setup: Arc<ReplicaSetup>, mut strategy: AnyStrategy, mut state: State) -> Self {
        let n_values = setup.training.task.n_values();
        let vectors = std::mem::take(&mut state.strategy_state);
        // A checkpoint may be another strategy's.
        if vectors.len() == strategy.n_state_vectors() && vectors.iter().all(|vector| vector.len() == n_values) {
            strategy.restore(vectors);
        }
        let is_warming_up = setup.is_warming_up(state.place.ledger.epoch);
        let core = Core::new(id, setup.training.clone(), strategy.round_plan(), state);
        Self { core, strategy, setup, is_warming_up }
    }

    /// All that training could go on from: the state after the last round.
    pub(super) fn state(&self) -> State {
        let mut state = self.core.state(self.strategy_state());
        state.values = self.strategy.common(&state.values);
        state
    }

    fn strategy_state(&self) -> Vec<Arc<Vec<f32>>> {
        let n_values = self.core.values.len();
        let vector = |k| match self.strategy.state_vector(k) {
            vector if vector.is_empty() => Arc::new(vec![0.0; n_values]),
            vector => vector,
        };
        (0..self.strategy.n_state_vectors()).map(vector).collect()
    }

    /// How many vectors are the state of this epoch's strategy, with the average if there is one.
    pub(super) fn n_state_vectors_at(&self, epoch: u64) -> usize {
        let n_of_strategy = match self.setup.is_warming_up(epoch) == self.is_warming_up {
            true => self.strategy.n_state_vectors(),
            false => self.setup.strategy_at(epoch).n_state_vectors(),
        };
        n_of_strategy + usize::from(self.core.average.is_some())
    }

    /// From this epoch on, another strategy may be the one; also where a run goes back.
    pub(super) fn choose_strategy(&mut self, epoch: u64) {
        let is_warming_up = self.setup.is_warming_up(epoch);
        if std::mem::replace(&mut self.is_warming_up, is_warming_up) != is_warming_up {
            self.strategy = self.setup.strategy_at(epoch);
            self.core.set_round_plan(self.strategy.round_plan());
        }
    }

    /// Goes on from a state of before.
    pub(super) fn go_back_to(&mut self, state: State) {
        let State { values, optimizer, place, strategy_state, average, epoch_score, left_out: _ } = state;
        self.choose_strategy(place.ledger.epoch);
        let core = &mut self.core;
        if let Some((mean, average)) = core.average.as_mut().zip(average) {
            mean.set(average);
        }
        (core.values, core.optimizer, core.place) = (values, optimizer, place);
        core.lent_for = None;
        core.earlier_score = epoch_score;
        (core.past, core.account) = (Past::Stranger, Vec::new());
        self.strategy.restore(strategy_state);
        core.reopen();
    }

    /// Goes on from another's state. Says how the segments before it ended.
    pub(super) fn take_over(&mut self, snapshot: Snapshot) -> Result<Vec<Ending>, Malformed> {
        let Snapshot { place, optimizer_steps, endings, account, values, mut strategy, optimizer } = snapshot;
        self.choose_strategy(place.ledger.epoch);
        let core = &mut self.core;
        core.past = if core.is_asynchronous() {
            Ending::past_of(&endings, Clock::of(core), core.slot_of(core.me))
        } else {
            Past::Own
        };
        if core.lent_for.take().is_some() {
            // What the worker is at is void, and comes back too late.
            core.reset_optimizer();
        }
        // Who trains asynchronously keeps what its own optimizer remembers of its own gradients.
        let keeps_own = matches!(core.past, Past::Adopted { .. });
        let mut optimizer = optimizer.into_iter();
        if !keeps_own && !core.optimizer.restore(optimizer_steps, |_| optimizer.next()) {
            return Err(Malformed::new("the state that came does not fit the optimizer"));
        }
        if let Some(average) = &mut core.average {
            average.set(strategy.pop().ok_or_else(|| Malformed::new("the state that came has no average"))?);
        }
        core.account = account;
        self.strategy.restore(strategy);
        core.values = Arc::new(values);
        core.round_start = None;
        core.earlier_score = Default::default();
        core.place = place;
        core.reopen();
        Ok(endings)
    }
}
