//! A replica: one of several holders of the same parameters. Inputs in, outbox out.
//!
//! It owns the parameters and drives its strategy: a local phase, rounds of exchange, epochs, tests. When the view
//! changes, the members first agree on whose parameters go on. All of that is written once, here, for all strategies.
//!
//! Each of these is a machine with a state of its own, which takes what it needs and returns what it wants done:
//! [`Agreement`], and [`Training`] with its parameters and strategy, rounds, evaluations and recovery. A replica hands them
//! what happens when its time has come, and carries out what they return.
//!
//! What it holds is the whole network, or where no peer holds that, a block of it.

mod agreement;
mod asynchronous;
mod average;
pub(crate) mod core;
mod donor;
mod early;
mod epoch_evaluation;
mod evaluations;
mod fetch;
mod gate;
mod learner;
mod local_phase;
mod pace;
mod partial_score;
mod recovery;
mod rollback;
mod rounds;
mod span;
mod steps;
mod training;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use agreement::{Agreement, Verdict};
use core::Core;
use donor::Donor;
use early::EarlyFrames;
use fetch::{Fetch, Partial};
use gate::Gate;
use learner::Learner;
use pace::{DIVERGED, Pace};
use recovery::Recovery;
use training::{Applied, InView, Training, Want};

use crate::effects::{Input, Outbox, Phase, Status};
use crate::malformed::Malformed;
use crate::peer::Peer;
use crate::place::{Place, State};
use crate::record::Event;
use crate::replica_setup::ReplicaSetup;
use crate::strategy::{AnyStrategy, Past};
use crate::train_plan::TrainPlan;
use crate::view::{PeerId, View};
use crate::wire::{Frame, Kind};

/// One of the holders of the same parameters.
pub struct Replica {
    training: Training,
    agreement: Agreement,
    /// This peer's state, as long as others fetch it.
    donor: Option<Donor>,
    /// What has come of another's state before the view changed.
    partial: Partial,
    /// What came before its time: in a view or a round that this peer has yet to reach.
    early: EarlyFrames,
    /// A view that came while the parameters are lent.
    next_view: Option<View>,
    /// Whether its host wants to stop.
    is_stopping: bool,
}

impl Peer for Replica {
    fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        self.training.learner.core.now = now;
        match input {
            Input::Done { done, took } => {
                let want = self.training.on_done(done, took, out);
                self.carry_out(want, out);
            }
            Input::Frame { from, frame } => self.on_frame(from, frame, out)?,
            Input::LinkEnded(peer) => self.early.forget(peer, self.core().view.number),
            Input::Timer(token) if token.timer == fetch::TIMER => {
                self.agreement.on_timer(token, &self.training.learner.core, out);
            }
            Input::Timer(token) if self.agreement.is_reached() => self.training.on_timer(token, out),
            Input::Timer(_) | Input::BlockWritten { .. } => {}
            Input::Site(site) => self.training.learner.core.site = site,
            Input::RoundTrips(round_trips) => self.training.learner.core.round_trips = round_trips,
            Input::Uplink(bytes_per_s) => self.training.learner.core.uplink = Some(bytes_per_s),
            Input::View(view) => {
                self.next_view = Some(view);
                self.training.rounds.end_loan();
            }
            Input::Stop => {
                self.is_stopping = true;
                self.training.rounds.end_loan();
            }
        }
        if let Some(view) = self.next_view.take_if(|_| !self.training.learner.core.is_lent()) {
            self.on_view(view, out)?;
        }
        self.apply_requests(out);
        self.go_on_asynchronously(out);
        self.keep_pace(out);
        self.go_on_alone(out);
        Ok(())
    }

    fn place(&self) -> &Place {
        &self.core().place
    }

    fn view(&self) -> &View {
        &self.core().view
    }

    fn is_finished(&self) -> bool {
        self.core().phase == Phase::Finished
    }

    fn status(&self) -> Status {
        let core = self.core();
        let members = &core.view.members;
        // Before the first view a peer is the only one that it knows of, and it does not wait for itself.
        let others = |rank: usize| members.get(rank).copied().filter(|peer| *peer != core.me);
        let waits_for = match core.phase {
            Phase::Agreeing => self.agreement.waits_for(core),
            _ => self.training.waits_for(),
        };
        Status {
            phase: core.phase,
            epoch: core.place.ledger.epoch,
            round: core.place.version.round,
            waits_for: waits_for.into_iter().filter_map(others).collect(),
            began: core.phase_began,
        }
    }

    fn values(&self) -> Arc<Vec<f32>> {
        self.core().values.clone()
    }

    fn state(&self) -> Option<State> {
        (!self.core().is_lent()).then(|| self.training.learner.state())
    }

    fn is_settled(&self) -> bool {
        !self.core().is_lent()
    }

    fn is_healthy(&self) -> bool {
        self.training.recovery.is_healthy() && self.core().is_finite()
    }

    fn good_step(&self) -> Option<u64> {
        self.training.recovery.good_step()
    }
}

impl Replica {
    /// A replica with the job's strategy, that waits for its first view.
    pub fn new(id: PeerId, setup: Arc<ReplicaSetup>, state: State) -> Self {
        let strategy = setup.strategy_at(state.place.ledger.epoch);
        Self::with_strategy(id, setup, strategy, state)
    }

    /// A replica with a strategy that need not be in the list.
    pub fn with_strategy(id: PeerId, setup: Arc<ReplicaSetup>, strategy: AnyStrategy, state: State) -> Self {
        let training = Training::new(Learner::new(id, setup, strategy, state));
        Self {
            training,
            agreement: Agreement::default(),
            donor: None,
            partial: Partial::default(),
            early: EarlyFrames::default(),
            next_view: None,
            is_stopping: false,
        }
    }

    /// The same, if others look after runs that diverge: then this one stops.
    pub fn without_recovery(mut self) -> Self {
        self.training.recovery = Recovery::none();
        (self.training.learner.core.lends, self.training.learner.core.holds_whole) = (false, false);
        self
    }

    /// The plan of its training.
    pub fn training(&self) -> &TrainPlan {
        &self.core().training
    }

    /// Whether it does not wait for rounds.
    pub fn is_asynchronous(&self) -> bool {
        self.core().is_asynchronous()
    }

    fn core(&self) -> &Core {
        &self.training.learner.core
    }

    fn on_frame(&mut self, from: PeerId, frame: Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let Training { learner, rounds, .. } = &mut self.training;
        let core = &mut learner.core;
        if frame.head.view < core.view.number {
            // What was said in a view that is over is void.
            return Ok(());
        }
        if frame.head.view > core.view.number {
            return self.hold(from, frame);
        }
        let rank = core.view.rank(from).ok_or_else(|| Malformed::new("it does not belong to this view"))?;
        match frame.head.kind {
            Kind::Agreement => match self.agreement.on_frame((rank, &frame), core, out)? {
                Some(verdict) => self.on_verdict(&verdict, out),
                None => Ok(()),
            },
            // Who is behind may be quicker than the first member, who says that this peer is a donor.
            Kind::Snapshot if matches!(self.agreement, Agreement::Waiting(_)) => self.hold(from, frame),
            Kind::Snapshot => self.on_snapshot(rank, &frame, out),
            Kind::Strategy | Kind::Tested | Kind::Pace if !self.agreement.is_reached() => self.hold(from, frame),
            // What was said before the swarm went back is void.
            Kind::Pace | Kind::Tested if frame.head.round < core.place.first_round => Ok(()),
            Kind::Pace if frame.head.part == DIVERGED => {
                let why = Recovery::on_frame(&frame, core)?;
                self.carry_out(why.map_or(Want::Nothing, Want::Recover), out);
                Ok(())
            }
            Kind::Pace if Pace::is_early(&frame, core) => self.hold(from, frame),
            Kind::Pace => rounds.pace.on_frame((rank, &frame), core, out),
            // Others have been told how the next segment is dealt out, and this peer will be.
            Kind::Strategy | Kind::Tested if rounds.pace.is_waiting() => self.hold(from, frame),
            Kind::Strategy | Kind::Tested if frame.head.round >= core.open_rounds().end => self.hold(from, frame),
            Kind::Strategy if frame.head.round < core.open_rounds().start => Ok(()),
            Kind::Strategy | Kind::Tested => {
                let want = self.training.on_frame((from, rank), frame, out)?;
                self.carry_out(want, out);
                Ok(())
            }
            Kind::Hello | Kind::Membership | Kind::Service | Kind::Probe | Kind::Layers | Kind::Telemetry => {
                Err(Malformed::new("this frame is not for a peer"))
            }
        }
    }

    /// Keeps a frame until its view or round has come.
    fn hold(&mut self, from: PeerId, frame: Frame) -> Result<(), Malformed> {
        let n_vector_bytes = 4 * self.core().n_exchanged();
        self.early.hold(self.gate(), (from, frame), n_vector_bytes)
    }

    fn gate(&self) -> Gate {
        Gate::of(self.core(), &self.agreement, &self.training.rounds.pace)
    }

    /// Looks again at what came before its time, unless it would have to be held again.
    fn release_held(&mut self, out: &mut Outbox) {
        let gate = self.gate();
        for (from, frame) in self.early.release(&gate) {
            if let Err(malformed) = self.on_frame(from, frame, out) {
                out.refused.push((from, malformed));
            }
        }
    }

    fn on_view(&mut self, view: View, out: &mut Outbox) -> Result<(), Malformed> {
        let Some(claim) = self.training.on_view(view)? else { return Ok(()) };
        self.donor = None;
        if let Agreement::Behind(_) = &self.agreement {
            self.partial = self.agreement.take_partial();
        }
        if let Some(verdict) = self.agreement.begin(claim, &self.training.learner.core, out) {
            self.on_verdict(&verdict, out)?;
        }
        self.release_held(out);
        Ok(())
    }

    /// It is decided whose state goes on.
    fn on_verdict(&mut self, verdict: &Verdict, out: &mut Outbox) -> Result<(), Malformed> {
        if verdict.is_rollback {
            self.training.abandon();
        }
        self.donor = None;
        let Training { learner, rounds, .. } = &mut self.training;
        learner.core.learn_speeds(&verdict.speeds);
        learner.core.learn_sites(&verdict.sites);
        let donor = verdict.donor as usize;
        if verdict.is_behind(learner.core.rank) {
            let partial = std::mem::take(&mut self.partial);
            let fetch = Fetch::begin(verdict.transfer(), &verdict.donors(), partial, &learner.core, out);
            self.agreement = Agreement::Behind(Box::new(fetch));
            self.release_held(out);
            return Ok(());
        }
        self.partial = Partial::default();
        let endings = rounds.last_endings.count_others(&mut learner.core, &verdict.clocks)?;
        if !verdict.behind.is_empty() && verdict.donors().contains(&(learner.core.rank as u32)) {
            let (state, account) = (learner.state(), learner.strategy.account());
            let giver = Donor::new(verdict.transfer(), state, endings, account, &verdict.behind);
            if donor == learner.core.rank {
                giver.begin(&learner.core, out);
            }
            self.donor = Some(giver);
        }
        learner.core.past = Past::Own;
        self.go_on(donor, false, out);
        Ok(())
    }

    /// A question about this peer's state, or a part of one that this peer is to take over.
    fn on_snapshot(&mut self, rank: usize, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let Training { learner, rounds, .. } = &mut self.training;
        if let Some(donor) = &mut self.donor {
            donor.on_frame((rank, frame), &learner.core, out)?;
            self.donor.take_if(|donor| donor.is_done());
            return Ok(());
        }
        let n_state_vectors_at = |epoch| learner.n_state_vectors_at(epoch);
        let taken = self.agreement.on_snapshot((rank, frame), &learner.core, n_state_vectors_at, out)?;
        let Some((donor, snapshot)) = taken else { return Ok(()) };
        let core = &learner.core;
        if core.weight.is_alone() {
            let n_samples = core.place.version.n_samples.saturating_sub(core.n_samples_agreed);
            out.records.push(core.record(Event::GivenUp { n_samples, donor: core.view.members[donor] }));
        }
        rounds.last_endings.replace(learner.take_over(snapshot)?);
        self.training.begin_anew();
        self.go_on(donor, true, out);
        Ok(())
    }

    /// The agreement is reached; this peer's state is the one that goes on.
    fn go_on(&mut self, donor: usize, was_behind: bool, out: &mut Outbox) {
        self.agreement = Agreement::Reached;
        let core = &mut self.training.learner.core;
        (core.weight, core.n_samples_agreed) = (core.view.weight(), core.place.version.n_samples);
        let (members, sites) = (core.view.members.to_vec(), core.sites.to_vec());
        let (view, round, donor) = (core.view.number, core.place.version.round, members[donor]);
        out.records.push(core.record(Event::View { view, members, donor, was_behind, round, sites }));
        let want = self.training.last_report();
        self.carry_out(want, out);
        match self.training.go_on(was_behind, out) {
            InView::AsBefore => self.release_held(out),
            InView::Anew => self.proceed(out),
        }
    }

    /// Does what the training cannot do by itself. What is to be handed over or told waits while the members of a new view agree:
    /// nobody knows whether it counts, and nobody could do anything with it.
    fn carry_out(&mut self, want: Want, out: &mut Outbox) {
        match want {
            Want::HandOver if self.agreement.is_reached() => self.training.end_turn(out),
            Want::Tell(report) if self.agreement.is_reached() => {
                let want = self.training.tell(report, out);
                self.carry_out(want, out);
            }
            // A new view, or the end, comes first; but what the worker trains meanwhile counts.
            Want::Proceed if self.core().is_lent() || (self.next_view.is_none() && !self.is_stopping) => {
                self.proceed(out);
            }
            Want::Recover(why) => self.on_divergence(&why, out),
            Want::Nothing | Want::HandOver | Want::Tell(_) | Want::Proceed => {}
        }
    }

    /// Does what the strategy asked for, as long as it asks.
    fn apply_requests(&mut self, out: &mut Outbox) {
        while let Some(applied) = self.training.apply_request(out) {
            if let Applied::Epoch(next, want) = applied {
                let n_rollbacks = self.core().place.n_rollbacks;
                self.carry_out(want, out);
                if self.core().place.n_rollbacks > n_rollbacks {
                    // The epoch has shown that training diverged, and another state goes on.
                    continue;
                }
                self.training.begin_epoch(next);
            }
            self.proceed(out);
        }
    }

    /// Another round, another segment, or the end of the epoch; and what others have said about it already.
    fn proceed(&mut self, out: &mut Outbox) {
        self.training.proceed(out);
        self.release_held(out);
        self.training.finish_if_tested(out);
    }

    /// Goes on if what this peer has just heard allows it.
    fn go_on_asynchronously(&mut self, out: &mut Outbox) {
        let position = |core: &Core| (core.place.version, core.place.ledger.epoch);
        while self.training.waits_asynchronously() {
            let before = position(self.core());
            self.proceed(out);
            self.apply_requests(out);
            if before == position(self.core()) {
                return;
            }
        }
    }

    /// Who is alone goes on when its test is over.
    fn go_on_alone(&mut self, out: &mut Outbox) {
        while self.agreement.is_reached() && self.training.take_held() {
            self.proceed(out);
            self.apply_requests(out);
        }
    }

    /// Tells how fast this peer is when it is time to, and goes on when it has waited for the answer.
    fn keep_pace(&mut self, out: &mut Outbox) {
        while self.agreement.is_reached() && self.training.keep_pace(out) {
            self.proceed(out);
            self.apply_requests(out);
            self.go_on_asynchronously(out);
        }
    }
}
