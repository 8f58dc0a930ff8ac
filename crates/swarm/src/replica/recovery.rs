//! A run that diverges is not finished: the swarm goes back to its state after the last good epoch, with half the learning rate.
//!
//! Every peer watches its own losses. Whoever sees that training has diverged tells the first member, which goes back and gives its state to
//! all, as when others are behind in a new view. Rounds then have numbers that nobody has used before, so what was said until then is void.
//! After a few times whoever sees it again stops with an error.

use bytes::Bytes;
use nettorrent_engine::guard::LossGuard;
use nettorrent_engine::guessing::Guessing;
use nettorrent_engine::model::Score;

use super::agreement::Accord;
use super::{Outbox, Phase, Replica};
use crate::malformed::Malformed;
use crate::place::{ROUNDS_APART, State};
use crate::record::Event;
use crate::strategy::Past;
use crate::wire::{Frame, Kind};

/// How often a run may go back.
const MOST_ROLLBACKS: u32 = 4;
/// The first members keep what to go back to: one, and another in case it is lost.
const N_KEEPERS: usize = 2;
/// Batches of a swarm are small, and a few samples' loss may be anything: it is looked at when it is the mean of so many.
const FEWEST_SAMPLES: usize = 32;
/// The longest reason that is passed on.
const REASON_LEN: usize = 300;

/// What a peer needs to know whether training has diverged, and to go back.
pub(super) struct Recovery {
    guard: LossGuard,
    /// What the guard has not seen yet.
    recent: Score,
    /// The state after the last good epoch, at the first members.
    good: Option<State>,
}

impl Recovery {
    /// For a run in which guessing would do so.
    pub(super) fn new(guessing: Guessing) -> Self {
        Self { guard: LossGuard::beside(guessing), recent: Score::default(), good: None }
    }
}

impl Replica {
    /// Takes the losses of a batch in; says what is wrong if training has diverged.
    pub(super) fn watch(&mut self, score: Score) -> Option<String> {
        let recovery = self.recovery.as_mut()?;
        recovery.recent += score;
        if recovery.recent.n < FEWEST_SAMPLES {
            return None;
        }
        let loss = std::mem::take(&mut recovery.recent).loss();
        recovery.guard.add(loss).err().map(|divergence| divergence.to_string())
    }

    /// What is wrong if the run ends here, and has not learnt anything since its loss exploded.
    pub(super) fn ends_diverged(&self) -> Option<String> {
        let recovery = self.recovery.as_ref().filter(|_| self.phase != Phase::Testing)?;
        recovery.guard.finish().err().map(|divergence| divergence.to_string())
    }

    /// What is wrong if an epoch and the test after it show that training has diverged. It is for the first member to judge, by its
    /// own parameters.
    pub(super) fn spoilt_by(&self, train: &Score, test: &Score) -> Option<String> {
        self.recovery.as_ref().filter(|_| test.n > 0)?;
        let (fresh, collapse) = (LossGuard::beside(self.core.training.guessing()), self.core.training.collapse());
        let judged = fresh.judge_test(test.loss()).and_then(|()| collapse.judge(train, self.core.params()));
        judged.err().map(|divergence| divergence.to_string())
    }

    /// All members know that: the first goes back, and the others wait for it; or all stop.
    pub(super) fn on_spoilt_test(&mut self, why: &str, out: &mut Outbox) {
        if self.core.rank == 0 || self.core.place.n_rollbacks >= MOST_ROLLBACKS {
            self.on_divergence(why, out);
        }
    }

    /// What the run begins with is what to go back to, as long as there is nothing better: its losses are not known yet.
    pub(super) fn keep_first_state(&mut self) {
        let good = Some(self.state());
        self.recovery.iter_mut().for_each(|recovery| recovery.good.clone_from(&good));
    }

    /// An epoch is done: its state is what to go back to, if the losses speak for it.
    pub(super) fn keep_good_state(&mut self) {
        if self.core.rank >= N_KEEPERS {
            self.recovery.iter_mut().for_each(|recovery| recovery.good = None);
            return;
        }
        let Some(recovery) = &self.recovery else { return };
        if self.core.training.collapse().is_worth_keeping(&recovery.guard, self.core.params()) {
            let good = Some(self.state());
            self.recovery.iter_mut().for_each(|recovery| recovery.good.clone_from(&good));
        }
    }

    /// Training has diverged, as this peer sees it.
    pub(super) fn on_divergence(&mut self, why: &str, out: &mut Outbox) {
        let n_rollbacks = self.core.place.n_rollbacks;
        if self.recovery.is_none() || n_rollbacks >= MOST_ROLLBACKS {
            self.give_up(why, out);
        } else if self.core.rank == 0 {
            self.roll_back(why, out);
        } else {
            let (view, round) = (&self.core.view, self.core.place.standing.round);
            let reason = Bytes::copy_from_slice(&why.as_bytes()[..why.len().min(REASON_LEN)]);
            let part = super::pace::DIVERGED;
            out.frames.push((view.members[0], Frame::in_round(Kind::Pace, view.number, round, part, reason)));
            self.abandon();
            self.accord = Accord::Waiting;
        }
    }

    /// Stops with an error.
    pub(super) fn give_up(&mut self, why: &str, out: &mut Outbox) {
        self.has_diverged = true;
        let core = &self.core;
        let back = match core.place.n_rollbacks {
            0 => String::new(),
            n => format!(", although the swarm had gone back {n} times and halved the learning rate each time"),
        };
        out.failure = Some(format!(
            "training diverged: {why} at step {} (learning rate {:?}){back}; lower optimizer.lr, or add schedule.warmup, and \
             go on from the last good checkpoint",
            core.place.step,
            core.lr(self.turn.as_ref().map_or(0, |turn| turn.round), 0.0)
        ));
    }

    /// The step of the last state that is known to be good, if this peer keeps one.
    pub(crate) fn good_step(&self) -> Option<u64> {
        self.recovery.as_ref().and_then(|recovery| recovery.good.as_ref()).map(|state| state.place.step)
    }

    /// Whether nothing speaks against the present state: one that diverges must not take the place of a good checkpoint.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.has_diverged && self.recovery.as_ref().is_none_or(|recovery| recovery.guard.is_healthy())
    }

    /// Another member says that training has diverged.
    pub(super) fn on_diverged(&mut self, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        if self.core.rank != 0 || frame.body.len() > REASON_LEN {
            return Err(Malformed::new("it tells one who cannot help that training has diverged"));
        }
        if self.core.place.n_rollbacks >= MOST_ROLLBACKS {
            return Err(Malformed::new("it says that training has diverged, and should stop by itself"));
        }
        // What it means may be over already.
        if frame.head.round >= self.core.place.first_round && self.phase != Phase::Finished {
            self.roll_back(&String::from_utf8_lossy(&frame.body), out);
        }
        Ok(())
    }

    /// What is being computed and waited for is not wanted any more.
    pub(super) fn abandon(&mut self) {
        self.turn = None;
        let core = &mut self.core;
        (core.request, core.scoring, core.is_computing, core.round_start) = (None, None, false, None);
        self.pace.on_view();
        self.enter(Phase::Agreeing);
    }

    /// Goes back to the last good state, and all others with this peer.
    fn roll_back(&mut self, why: &str, out: &mut Outbox) {
        let Some(mut state) = self.recovery.as_ref().and_then(|recovery| recovery.good.clone()) else {
            self.give_up(why, out);
            return;
        };
        let from_step = self.core.place.step;
        let first_round = self.core.place.standing.round.saturating_add(ROUNDS_APART);
        state.place.n_rollbacks = self.core.place.n_rollbacks + 1;
        (state.place.first_round, state.place.standing.round) = (first_round, first_round);
        state.place.standing.pass(self.core.view.number);
        let others: Vec<u32> = (1..self.core.view.len() as u32).collect();
        self.tell_rollback(&others, out);
        self.send_state(&state, Vec::new(), &others, Vec::new(), out);
        self.abandon();
        let lr_factor = state.place.lr_factor();
        let (epoch, step) = (state.place.ledger.epoch, state.place.step);
        out.records.push(self.core.record(Event::RolledBack {
            why: why.to_owned(),
            from_step,
            epoch,
            step,
            lr_factor,
        }));
        let State { values, optimizer, place, memories } = state;
        self.choose_strategy(place.ledger.epoch);
        (self.core.values, self.core.optimizer, self.core.place) = (values, optimizer, place);
        (self.core.past, self.core.account) = (Past::Stranger, Vec::new());
        self.strategy.recall(memories);
        self.core.reopen();
        self.ending = None;
        self.epoch_evaluation.begin_anew(epoch);
        self.evaluations.forget();
        self.begin_anew();
        self.go_on(0, true, out);
    }

    /// The state is another's, or one of before: what was seen of losses since says nothing about it.
    pub(super) fn begin_anew(&mut self) {
        let guessing = self.core.training.guessing();
        if let Some(recovery) = &mut self.recovery {
            (recovery.guard, recovery.recent) = (LossGuard::beside(guessing), Score::default());
        }
        self.core.epoch_score = Score::default();
    }
}
