//! A replica: one of several holders of the same parameters. Inputs in, outbox out.
//!
//! It owns the parameters and drives its strategy: turns of training, rounds of exchange, epochs, tests. When the view
//! changes, the members first agree on whose parameters go on. All of that is written once, here, for all strategies.
//!
//! What it holds is the whole network, or in a layer network a block of it.

mod agreement;
mod asynchronous;
pub(crate) mod core;
mod epoch_evaluation;
mod evaluations;
mod pace;
mod partial_score;
mod recovery;
mod rounds;
mod snapshot;
mod steps;
mod turn;
mod turn_state;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use agreement::Accord;
use asynchronous::Ending;
use epoch_evaluation::EpochEvaluation;
use evaluations::Evaluations;
use nettorrent_engine::task::Task;
use pace::Pace;
use recovery::Recovery;
use turn_state::TurnState;

use crate::effects::{Input, Outbox, Phase, Status, TimerToken};
use crate::held::HeldFrames;
use crate::malformed::Malformed;
use crate::place::{Place, State};
use crate::replica_setup::ReplicaSetup;
use crate::strategy::{Ctx, Message, Strategy};
use crate::view::{PeerId, View};
use crate::wire::{Frame, Kind};

pub(crate) use agreement::{decoded, encoded};
pub(crate) use core::{Core, Request, batch_seed, check_ledger};

/// One of the holders of the same parameters.
pub(crate) struct Replica {
    core: Core,
    setup: Arc<ReplicaSetup>,
    strategy: Box<dyn Strategy>,
    /// Whether the strategy is that of the warm-up, after which the job's own takes over.
    is_warming_up: bool,
    accord: Accord,
    turn: Option<TurnState>,
    epoch_evaluation: EpochEvaluation,
    evaluations: Evaluations,
    pace: Pace,
    /// None where others look after that.
    recovery: Option<Recovery>,
    has_diverged: bool,
    phase: Phase,
    phase_began: Duration,
    /// Since when this peer waits for the end of the epoch, once it has nothing left to train in it.
    idle_since: Duration,
    /// How the last segment ended, where peers train asynchronously.
    ending: Option<Ending>,
    /// What came before its time: in a view or a round that this peer has yet to reach.
    held: HeldFrames,
}

/// What is held from one peer besides the vectors of rounds that are ahead.
const HELD_BYTES: usize = 64 << 20;

impl Replica {
    /// A replica with the job's strategy, that waits for its first view.
    pub(crate) fn new(id: PeerId, setup: Arc<ReplicaSetup>, state: State) -> Self {
        let strategy = setup.strategy_at(state.place.ledger.epoch);
        Self::with_strategy(id, setup, strategy, state)
    }

    /// A replica with a strategy that need not be in the list.
    pub(crate) fn with_strategy(
        id: PeerId,
        setup: Arc<ReplicaSetup>,
        mut strategy: Box<dyn Strategy>,
        mut state: State,
    ) -> Self {
        let n_values = setup.training.task.n_values();
        let recovery = Some(Recovery::new(setup.training.guessing()));
        let memories = std::mem::take(&mut state.memories);
        // A checkpoint may be another strategy's.
        if memories.len() == strategy.n_memories() && memories.iter().all(|memory| memory.len() == n_values) {
            strategy.recall(memories);
        }
        let turn = strategy.turn();
        let epoch_evaluation = EpochEvaluation::after(state.place.ledger.epoch);
        let is_warming_up = setup.is_warming_up(state.place.ledger.epoch);
        let mut replica = Self {
            core: Core::new(id, setup.training.clone(), turn, state),
            setup,
            strategy,
            is_warming_up,
            accord: Accord::Waiting,
            turn: None,
            epoch_evaluation,
            evaluations: Evaluations::default(),
            pace: Pace::default(),
            recovery,
            has_diverged: false,
            phase: Phase::Agreeing,
            phase_began: Duration::ZERO,
            idle_since: Duration::ZERO,
            ending: None,
            held: HeldFrames::default(),
        };
        replica.keep_first_state();
        replica
    }

    /// The same, if others look after runs that diverge: then this one stops.
    pub(crate) fn without_recovery(self) -> Self {
        Self { recovery: None, ..self }
    }

    /// Takes one input and says what is to be done. An error is the sender's fault and leaves the peer as it was, but for
    /// parts of a round that the sender's own message was to complete.
    pub(crate) fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        self.core.now = now;
        match input {
            Input::Done { done, took } => self.on_done(done, took, out),
            Input::Frame { from, frame } => self.on_frame(from, frame, out)?,
            Input::Timer(token) => self.on_timer(token, out),
            Input::Uplink(bytes_per_s) => self.core.uplink = Some(bytes_per_s),
            Input::View(view) => self.on_view(view, out)?,
        }
        self.apply_requests(out);
        self.go_on_asynchronously(out);
        self.keep_pace(out);
        Ok(())
    }

    /// What it learns.
    pub(crate) fn task(&self) -> &Arc<dyn Task> {
        &self.core.training.task
    }

    /// Where all randomness of the job comes from.
    pub(crate) fn seed(&self) -> u64 {
        self.core.training.seed
    }

    /// The parameters as they are.
    pub(crate) fn values(&self) -> &Arc<Vec<f32>> {
        &self.core.values
    }

    /// How far it is.
    pub(crate) fn place(&self) -> &Place {
        &self.core.place
    }

    /// All that training could go on from, for a checkpoint: the state after the last round.
    pub(crate) fn state(&self) -> State {
        let mut state = self.core.state(self.memories());
        state.values = self.strategy.common(&state.values);
        state
    }

    /// The view it is in.
    pub(crate) fn view(&self) -> &View {
        &self.core.view
    }

    /// Whether all epochs are done and tested.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// What it is doing, and whom it waits for.
    pub(crate) fn status(&self) -> Status {
        let members = &self.core.view.members;
        let waits_for = match self.phase {
            Phase::Exchanging if self.pace.is_waiting() => self.pace.waits_for(self.core.rank, members.len()),
            Phase::Exchanging | Phase::Syncing => self.strategy.waits_for(),
            Phase::Agreeing => self.accord.waits_for(&self.core.view),
            Phase::Testing => self.epoch_evaluation.missing(members),
            Phase::Training | Phase::Finished => Vec::new(),
        };
        Status {
            phase: self.phase,
            epoch: self.core.place.ledger.epoch,
            round: self.core.place.standing.round,
            waits_for: waits_for.into_iter().filter_map(|rank| members.get(rank).copied()).collect(),
            began: self.phase_began,
        }
    }

    /// What the strategy remembers.
    fn memories(&self) -> Vec<Vec<f32>> {
        let n_values = self.core.values.len();
        let memory = |k| match self.strategy.memory(k) {
            [] => vec![0.0; n_values],
            memory => memory.to_vec(),
        };
        (0..self.strategy.n_memories()).map(memory).collect()
    }

    /// From this epoch on, another strategy may be the one; also where a run goes back.
    fn choose_strategy(&mut self, epoch: u64) {
        let is_warming_up = self.setup.is_warming_up(epoch);
        if std::mem::replace(&mut self.is_warming_up, is_warming_up) != is_warming_up {
            self.strategy = self.setup.strategy_at(epoch);
            self.core.set_turn(self.strategy.turn());
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_began = self.core.now;
    }

    fn on_timer(&mut self, token: TimerToken, out: &mut Outbox) {
        if token == self.core.timer_token(token.timer) && matches!(self.accord, Accord::Reached) {
            self.strategy.on_timer(&mut Ctx::new(&mut self.core, out), token.timer);
        }
    }

    fn on_frame(&mut self, from: PeerId, frame: Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let view = self.core.view.number;
        if frame.head.view > view {
            return self.hold(from, frame);
        }
        if frame.head.view < view {
            // What was said in a view that is over is void.
            return Ok(());
        }
        let rank = self.core.view.rank(from).ok_or_else(|| Malformed::new("it does not belong to this view"))?;
        match frame.head.kind {
            Kind::Agreement => self.on_agreement(rank, &frame, out),
            // The donor may be quicker than the first member, who says that this peer needs its state.
            Kind::Snapshot if matches!(self.accord, Accord::Waiting) => self.hold(from, frame),
            Kind::Snapshot => self.on_snapshot(rank, &frame, out),
            Kind::Strategy | Kind::Tested | Kind::Pace if !matches!(self.accord, Accord::Reached) => {
                self.hold(from, frame)
            }
            // What was said before the swarm went back is void.
            Kind::Pace | Kind::Tested if frame.head.round < self.core.place.first_round => Ok(()),
            Kind::Pace => self.on_pace(rank, frame, out),
            // Others have been told how the next segment is dealt out, and this peer will be.
            Kind::Strategy | Kind::Tested if self.pace.is_waiting() => self.hold(from, frame),
            Kind::Strategy | Kind::Tested if frame.head.round >= self.open_rounds().end => self.hold(from, frame),
            Kind::Tested => self.on_tested(from, &frame, out),
            Kind::Strategy if frame.head.round < self.open_rounds().start => Ok(()),
            Kind::Strategy => {
                self.core.received_bytes += frame.body.len() as u64;
                let message = Message { round: frame.head.round, part: frame.head.part, body: frame.body };
                self.strategy.on_message(&mut Ctx::new(&mut self.core, out), rank, message)
            }
            Kind::Hello | Kind::Membership | Kind::Service | Kind::Probe | Kind::Layers => {
                Err(Malformed::new("this frame is not for a peer"))
            }
        }
    }

    /// Of which rounds this peer can make use of what it hears.
    fn open_rounds(&self) -> Range<u32> {
        let round = self.core.place.standing.round;
        if self.is_asynchronous() && matches!(self.phase, Phase::Training | Phase::Exchanging) {
            return self.core.segment_rounds();
        }
        round..round.saturating_add(1)
    }

    /// Keeps a frame until its view or round has come.
    fn hold(&mut self, from: PeerId, frame: Frame) -> Result<(), Malformed> {
        let vector = 4 * self.core.n_exchanged();
        self.held.keep(from, frame, HELD_BYTES + 4 * vector)
    }

    /// Looks again at what came before its time.
    fn release_held(&mut self, out: &mut Outbox) {
        for (from, frame) in self.held.release() {
            if let Err(malformed) = self.on_frame(from, frame, out) {
                out.refused.push((from, malformed));
            }
        }
    }
}
