//! A run that diverges is not finished: the swarm goes back to its state after the last good epoch, with half the learning rate and an optimizer that
//! begins anew.
//!
//! Every peer watches its own losses. Whoever sees that training has diverged tells the first member, which goes back and gives its state to
//! all, as when others are behind in a new view. Rounds then have numbers that nobody has used before, so what was said until then is void.
//! After a few times whoever sees it again stops with an error.

use bytes::Bytes;
use nettorrent_engine::guard::LossGuard;
use nettorrent_engine::guessing::Guessing;
use nettorrent_engine::model::Score;

use super::core::Core;
use super::learner::Learner;
use super::pace::DIVERGED;
use crate::effects::{Outbox, Phase};
use crate::malformed::Malformed;
use crate::place::{ROUNDS_APART, State};
use crate::printable::printable;
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
    /// None where others look after runs that diverge: then this peer stops.
    watch: Option<Watch>,
    has_diverged: bool,
}

struct Watch {
    guard: LossGuard,
    /// What the guard has not seen yet.
    recent: Score,
    /// The state after the last good epoch, at the first members.
    good: Option<State>,
}

/// The state as it is kept. Its optimizer begins anew, so that nobody holds another copy of what it remembers all the time.
fn to_go_back_to(state: State) -> State {
    State { optimizer: state.optimizer.restarted(), ..state }
}

/// What a peer does when training has diverged.
pub(super) enum Reaction {
    /// It stops, and has said why.
    Stop,
    /// It waits for the first member's state.
    Wait,
    /// It goes back to this state, and all others with it.
    GoBack(Box<State>),
}

impl Recovery {
    /// For a run in which guessing would do so. What it begins with is what to go back to, as long as there is nothing better: its losses
    /// are not known yet.
    pub(super) fn new(guessing: Guessing, first: State) -> Self {
        let watch =
            Watch { guard: LossGuard::beside(guessing), recent: Score::default(), good: Some(to_go_back_to(first)) };
        Self { watch: Some(watch), has_diverged: false }
    }

    /// That of a peer that stops when training has diverged.
    pub(super) fn none() -> Self {
        Self { watch: None, has_diverged: false }
    }

    /// Takes the losses of a batch in; says what is wrong if training has diverged.
    pub(super) fn watch(&mut self, score: Score) -> Option<String> {
        let Watch { guard, recent, .. } = self.watch.as_mut()?;
        *recent += score;
        if recent.n < FEWEST_SAMPLES {
            return None;
        }
        let loss = std::mem::take(recent).loss();
        guard.add(loss).err().map(|divergence| divergence.to_string())
    }

    /// What is wrong if the run ends here, and has not learnt anything since its loss exploded.
    pub(super) fn ends_diverged(&self) -> Option<String> {
        self.watch.as_ref()?.guard.finish().err().map(|divergence| divergence.to_string())
    }

    /// What is wrong if an epoch and the test after it show that training has diverged. It is for the first member to judge, by its
    /// own parameters.
    pub(super) fn spoilt_by(&self, core: &Core, train: &Score, test: &Score) -> Option<String> {
        self.watch.as_ref().filter(|_| test.n > 0)?;
        let (fresh, collapse) = (LossGuard::beside(core.training.guessing()), core.training.collapse());
        let judged = fresh.judge_test(test.loss()).and_then(|()| collapse.judge(train, core.epoch_size));
        judged.err().map(|divergence| divergence.to_string())
    }

    /// Whether this peer has to do something when all know that training has diverged: the first goes back, and the others wait for it;
    /// or all stop.
    pub(super) fn is_to_act(core: &Core) -> bool {
        core.rank == 0 || core.place.n_rollbacks >= MOST_ROLLBACKS
    }

    /// An epoch is done: its state is what to go back to, if the losses speak for it.
    pub(super) fn keep_if_good(&mut self, learner: &Learner) {
        let Some(watch) = &mut self.watch else { return };
        let core = &learner.core;
        if core.rank >= N_KEEPERS {
            watch.good = None;
        } else if core.is_finite() && core.training.collapse().is_worth_keeping(&watch.guard, core.params()) {
            // The old one is not wanted any more, and what is made for the new one needs the room.
            watch.good = None;
            watch.good = Some(to_go_back_to(learner.state()));
        }
    }

    /// The step of the last state that is known to be good, if this peer keeps one.
    pub(super) fn good_step(&self) -> Option<u64> {
        self.watch.as_ref()?.good.as_ref().map(|state| state.place.step)
    }

    /// Whether nothing speaks against the present state: one that diverges must not take the place of a good checkpoint.
    pub(super) fn is_healthy(&self) -> bool {
        !self.has_diverged && self.watch.as_ref().is_none_or(|watch| watch.guard.is_healthy())
    }

    /// Training has diverged, at this rate, as this peer sees it.
    pub(super) fn on_divergence(&mut self, why: &str, lr: f32, core: &Core, out: &mut Outbox) -> Reaction {
        let is_last = core.place.n_rollbacks >= MOST_ROLLBACKS;
        let Some(watch) = self.watch.as_ref().filter(|_| !is_last) else {
            self.give_up(why, lr, core, out);
            return Reaction::Stop;
        };
        if core.rank > 0 {
            let reason = Bytes::copy_from_slice(&why.as_bytes()[..why.len().min(REASON_LEN)]);
            core.tell(0, Kind::Pace, DIVERGED, reason, out);
            return Reaction::Wait;
        }
        let Some(mut state) = watch.good.clone() else {
            self.give_up(why, lr, core, out);
            return Reaction::Stop;
        };
        let first_round = core.place.version.round.saturating_add(ROUNDS_APART);
        state.place.n_rollbacks = core.place.n_rollbacks + 1;
        (state.place.first_round, state.place.version.round) = (first_round, first_round);
        state.place.version.pass(core.view.number);
        Reaction::GoBack(Box::new(state))
    }

    /// Stops with an error.
    pub(super) fn give_up(&mut self, why: &str, lr: f32, core: &Core, out: &mut Outbox) {
        self.has_diverged = true;
        let back = match core.place.n_rollbacks {
            0 => String::new(),
            n => format!(", although training had gone back {n} times and halved the learning rate each time"),
        };
        out.failure = Some(format!(
            "training diverged: {why} at step {} (learning rate {lr:?}){back}. Lower optimizer.lr (a tenth is a good try), add \
             schedule.warmup, or look for broken samples, and go on from the last good checkpoint",
            core.place.step
        ));
    }

    /// Another member says that training has diverged; why, unless what it means is over already.
    pub(super) fn on_frame(frame: &Frame, core: &Core) -> Result<Option<String>, Malformed> {
        if core.rank != 0 || frame.body.len() > REASON_LEN {
            return Err(Malformed::new("it tells one who cannot help that training has diverged"));
        }
        if core.place.n_rollbacks >= MOST_ROLLBACKS {
            return Err(Malformed::new("it says that training has diverged, and should stop by itself"));
        }
        let is_meant = frame.head.round >= core.place.first_round && core.phase != Phase::Finished;
        Ok(is_meant.then(|| printable(&String::from_utf8_lossy(&frame.body))))
    }

    /// The state is another's, or one of before: what was seen of losses since says nothing about it.
    pub(super) fn begin_anew(&mut self, guessing: Guessing) {
        if let Some(watch) = &mut self.watch {
            (watch.guard, watch.recent) = (LossGuard::beside(guessing), Score::default());
        }
    }
}
