//! What a peer holds besides its strategy: parameters, place, view; the strategy acts on it through its context.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::sampling::plan::Plan;
use bytes::Bytes;
use nettorrent_engine::model::Score;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::scale;
use nettorrent_engine::task::Task;

use super::average::Average;
use crate::effects::{Outbox, Phase, TimerToken};
use crate::outliers::Outliers;
use crate::place::{Place, State};
use crate::record::{Event, Record};
use crate::shared::Shared;
use crate::strategy::{Counted, Mixing, OptimizerState, Past, Payload, RoundPlan, Scale};
use crate::train_plan::TrainPlan;
use crate::view::{PeerId, View, Weight};
use crate::wire::{Frame, Kind};
use crate::work::take_spare;

/// What a strategy asked for, to be done as soon as it can be.
pub(crate) enum Request {
    /// The round has a result.
    FinishRound { result: Vec<Vec<f32>>, counted: Counted },
    /// Replicas are together.
    Synced,
}

/// A peer's steps are at most so many times as long because its batches are larger than others'.
const MOST_GAIN: f64 = 4.0;

/// Where a segment began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentStart {
    pub round: u32,
    pub step: u64,
}

/// A peer without its strategy.
pub(crate) struct Core {
    pub me: PeerId,
    pub training: Arc<TrainPlan>,
    pub round_plan: RoundPlan,
    /// The buckets of the vector that is exchanged.
    pub buckets: Arc<[Range<usize>]>,
    pub now: Duration,
    pub phase: Phase,
    pub phase_began: Duration,
    pub view: View,
    pub rank: usize,
    /// What speaks for this peer's state, and how many samples were in it, since members last agreed.
    pub weight: Weight,
    pub n_samples_agreed: u64,
    pub values: Arc<Vec<f32>>,
    pub optimizer: Optimizer,
    /// What is tested and saved as the model in the parameters' place, if the job wants that.
    pub average: Option<Average>,
    pub place: Place,
    /// Whether the parameters and the optimizer may be lent to the worker, and for which work they are.
    pub lends: bool,
    pub lent_for: Option<u64>,
    /// Whether the parameters are those of the whole network, and not of a block of it.
    pub holds_whole: bool,
    /// What the round began with, where the peer takes steps by itself before the exchange: if the round is void, so are
    /// they.
    pub round_start: Option<(Arc<Vec<f32>>, Optimizer)>,
    /// What this peer and the others train until the ledger's segment is over.
    pub plan: Option<Arc<Plan>>,
    pub request: Option<Request>,
    /// Whether the local phase from before the last change of the view is still valid.
    pub local_phase_goes_on: bool,
    /// How this peer's samples of the present epoch were classified while training.
    pub epoch_score: Score,
    /// How large the parameters were together when the last epoch ended.
    pub epoch_size: f64,
    /// How those were that had been trained when this peer began; the first member tells of them.
    pub earlier_score: Score,
    /// What is known of samples that would spoil a batch.
    pub outliers: Outliers,
    /// Where the present segment began.
    pub segment_start: SegmentStart,
    /// How many of its rounds all members have done, once that was asked for.
    pub(super) least_done: OnceCell<usize>,
    /// By how many rounds this peer's updates reach the others late.
    pub delay: f64,
    /// How fast the members of the next segment are, once that is agreed.
    pub speeds: Shared<u16>,
    /// At which site this peer was told to be, and how soon others answer its host.
    pub site: u64,
    pub round_trips: BTreeMap<PeerId, Duration>,
    /// By rank, at which site everybody is, once that is agreed: empty if all are at one. And of which members that was agreed.
    pub sites: Shared<u32>,
    pub located: Arc<[PeerId]>,
    /// Where peers train asynchronously: how many rounds of members are not in this peer's parameters yet.
    pub n_unapplied: usize,
    /// Whether a batch is being computed.
    pub is_computing: bool,
    /// The work that scores samples, if the strategy asked for it.
    pub scoring: Option<u64>,
    /// What has become of this peer's part in the past, and what is said about the parameters that went on.
    pub past: Past,
    pub account: Vec<u8>,
    /// How many bytes a second this peer's links carry, if its host has found out.
    pub uplink: Option<f64>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Vectors to be used again.
    pub spare: Vec<Vec<f32>>,
    n_works: u64,
}

impl Core {
    pub(super) fn new(me: PeerId, training: Arc<TrainPlan>, round_plan: RoundPlan, state: State) -> Self {
        let State { values, optimizer, place, strategy_state: _, average, epoch_score, left_out } = state;
        // A checkpoint may be from before an average was wanted.
        let average =
            (training.ema > 0.0).then(|| Average::new(training.ema, average.unwrap_or_else(|| values.clone())));
        let n_train = training.task.labels().len();
        Self {
            me,
            buckets: exchanged(&training, round_plan),
            training,
            round_plan,
            now: Duration::ZERO,
            phase: Phase::Agreeing,
            phase_began: Duration::ZERO,
            view: View::new(0, vec![me]),
            rank: 0,
            weight: Weight::default(),
            n_samples_agreed: 0,
            values,
            optimizer,
            place,
            lends: true,
            average,
            lent_for: None,
            holds_whole: true,
            round_start: None,
            plan: None,
            request: None,
            local_phase_goes_on: false,
            epoch_score: Score::default(),
            epoch_size: 0.0,
            earlier_score: epoch_score,
            outliers: Outliers::new(left_out, n_train),
            least_done: OnceCell::new(),
            segment_start: SegmentStart::default(),
            delay: 0.0,
            speeds: Shared::default(),
            site: 0,
            round_trips: BTreeMap::new(),
            sites: Shared::default(),
            located: Arc::default(),
            n_unapplied: 0,
            is_computing: false,
            scoring: None,
            past: Past::Own,
            account: Vec::new(),
            uplink: None,
            sent_bytes: 0,
            received_bytes: 0,
            spare: Vec::new(),
            n_works: 0,
        }
    }

    /// Another strategy's rounds follow.
    pub(super) fn set_round_plan(&mut self, round_plan: RoundPlan) {
        (self.round_plan, self.buckets) = (round_plan, exchanged(&self.training, round_plan));
    }

    /// What is learnt.
    pub(super) fn task(&self) -> &dyn Task {
        &*self.training.task
    }

    /// How many numbers peers exchange.
    pub(super) fn n_exchanged(&self) -> usize {
        self.buckets.iter().map(Range::len).sum()
    }

    /// Whether peers with the same past have the same parameters, round after round.
    pub(super) fn replicas_are_equal(&self) -> bool {
        self.round_plan.mixing == Mixing::Full && !self.is_asynchronous()
    }

    /// Whether they then have the same optimizer, too: each may keep what it remembers of its own steps.
    pub(super) fn optimizers_are_equal(&self) -> bool {
        self.round_plan.payload == Payload::Gradients || self.round_plan.optimizer_state != OptimizerState::Keep
    }

    /// How many epochs the run has, unless a strategy ended it before.
    pub(crate) fn n_epochs(&self) -> u64 {
        self.place.last_epoch(self.training.epochs)
    }

    pub(crate) fn next_work_id(&mut self) -> u64 {
        self.n_works += 1;
        self.n_works
    }

    /// What training can go on from: the state after the last round, with the strategy's.
    pub(super) fn state(&self, strategy_state: Vec<Arc<Vec<f32>>>) -> State {
        let (values, optimizer) = match &self.round_start {
            Some((values, optimizer)) => (values.clone(), optimizer.clone()),
            None => (self.values.clone(), self.optimizer.clone()),
        };
        let mut epoch_score = self.earlier_score;
        epoch_score += self.epoch_score;
        let (place, left_out) = (self.place.clone(), self.outliers.known().clone());
        let average = self.average.as_ref().map(|average| average.values().clone());
        State { values, optimizer, place, strategy_state, average, epoch_score, left_out }
    }

    /// The parameters that are to be judged.
    pub(super) fn judged(&self) -> Arc<Vec<f32>> {
        self.average.as_ref().map_or(&self.values, Average::values).clone()
    }

    /// The parameters have come so many steps further, and are those of all peers with the same past.
    pub(super) fn follow(&mut self, n_steps: u32) {
        let are_equal = self.replicas_are_equal();
        if let Some(average) = self.average.as_mut().filter(|_| are_equal) {
            average.follow(&self.values, self.place.step, n_steps);
        }
    }

    /// Takes back the steps of a round that is void.
    pub(super) fn roll_back(&mut self) {
        if let Some((values, optimizer)) = self.round_start.take() {
            (self.values, self.optimizer) = (values, optimizer);
        }
    }

    /// Bytes sent and received since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.sent_bytes), std::mem::take(&mut self.received_bytes))
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        (self.phase, self.phase_began) = (phase, self.now);
    }

    /// Whether nobody else is there, and a batch's gradient is all that the strategy would exchange: then there is nothing to exchange.
    pub(super) fn is_alone(&self) -> bool {
        self.view.len() == 1 && self.round_plan.payload == Payload::Gradients
    }

    /// Whether the next step can be left to the worker, who is lent the parameters for it: nobody else needs them. With an epoch's first
    /// batch they stay here, for whoever keeps what the last epoch came to.
    pub(super) fn may_lend(&self) -> bool {
        self.lends && self.is_alone() && self.own_round() > 0
    }

    /// For how many rounds they are lent: until the next test, or until somebody wants them. To wake the worker for every batch would cost
    /// as much as a small one does, and with a device of its own, bringing the parameters back would cost more.
    pub(super) fn n_lent_rounds(&self) -> usize {
        let (Some(plan), Some(slot)) = (&self.plan, self.slot_of(self.me)) else { return 1 };
        let tests_by_time = self.training.evaluate.interval().is_some() && self.training.optimizer.custom.is_none();
        // Whether it is time for a test is looked at after every batch, and an average has to see the parameters after every step.
        if tests_by_time || self.average.is_some() {
            return 1;
        }
        let round = self.own_round();
        let has_a_batch = |round: &usize| plan.batches_in(slot, *round).len() == 1;
        let n_left = (round..plan.n_rounds()).take_while(has_a_batch).count();
        n_left.min(self.training.evaluate.n_until_next(self.batches_done(round))).max(1)
    }

    /// Whether the parameters are lent to the worker.
    pub(super) fn is_lent(&self) -> bool {
        self.lent_for.is_some()
    }

    /// Whether it does not wait for rounds.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.round_plan.payload == Payload::Updates
    }

    /// Says something to a member, besides what the strategy says.
    pub(super) fn tell(&self, rank: usize, kind: Kind, part: u64, body: Bytes, out: &mut Outbox) {
        let (view, round) = (&self.view, self.place.version.round);
        out.frames.push((view.members[rank], Frame::in_round(kind, view.number, round, part, body)));
    }

    /// Says something to all other members.
    pub(super) fn tell_others(&self, kind: Kind, part: u64, body: &Bytes, out: &mut Outbox) {
        (0..self.view.len())
            .filter(|&rank| rank != self.rank)
            .for_each(|rank| self.tell(rank, kind, part, body.clone(), out));
    }

    pub(crate) fn record(&self, event: Event) -> Record {
        Record { peer: self.me, at_s: self.now.as_secs_f64(), event }
    }

    pub(crate) fn timer_token(&self, timer: u32) -> TimerToken {
        TimerToken { view: self.view.number, round: self.place.version.round, timer }
    }

    pub(crate) fn buffer(&mut self, len: usize) -> Vec<f32> {
        take_spare(&mut self.spare, len)
    }

    /// The learning rate in a round of the segment, when so much of the round is done. It follows the clock that all peers share:
    /// how much of the data has been trained.
    pub(super) fn lr(&self, round: usize, share: f64) -> f32 {
        let TrainPlan { schedule, swarm, optimizer, epochs, .. } = &*self.training;
        if self.plan.is_none() {
            return optimizer.lr;
        }
        let (done, n_peers) = (self.epochs_done(round, share), self.n_trainers());
        let mut step = self.epochs_done(round + 1, 0.0) - self.epochs_done(round, 0.0);
        if let (1, Some(plan), Some(slot)) = (n_peers, &self.plan, self.slot_of(self.me)) {
            // Who trains alone takes the steps of one machine, however many a round has.
            step /= plan.batches_in(slot, round).len().max(1) as f64;
        }
        let rate =
            self.place.lr_factor() * swarm.rate(schedule.rate(optimizer.lr, done, step, *epochs as f64), n_peers, done);
        match self.round_plan.payload {
            Payload::Gradients => rate,
            Payload::Weights => {
                rate * swarm.scale.own_optimizer_gain(optimizer, n_peers)
                    * self.mixing_gain(round, n_peers, rate)
                    * self.batch_gain(round)
            }
            Payload::Updates => {
                swarm.scale.delayed(rate, n_peers, self.delay, optimizer)
                    * swarm.scale.own_optimizer_gain(optimizer, n_peers)
            }
        }
    }

    /// By what the rate is multiplied because each of `n_peers` takes steps by itself until its weights are mixed with the others'.
    fn mixing_gain(&self, round: usize, n_peers: usize, rate: f32) -> f32 {
        let rule = self.training.swarm.scale;
        let n_steps = self.plan.as_deref().map_or(1.0, |plan| self.training.sampler.local_steps(plan, round));
        let noise = scale::noise(&self.training.optimizer, rate, self.training.sampler.batch_size());
        match self.round_plan.mixing {
            Mixing::Full => rule.local_gain(n_peers, n_steps, noise),
            Mixing::Partial => rule.local_gain(n_peers, n_steps * (n_peers as f64).log2(), noise),
            Mixing::None => rule.local_gain(n_peers, f64::INFINITY, noise),
        }
    }

    /// By what it is multiplied where peers of different speed have batches of different size, and their weights count alike.
    fn batch_gain(&self, round: usize) -> f32 {
        let (Some(plan), Some(slot), Some(segment)) = (&self.plan, self.slot_of(self.me), self.segment()) else {
            return 1.0;
        };
        let are_alike = segment.speeds.windows(2).all(|pair| pair[0] == pair[1]);
        let n_batches = plan.batches_in(slot, round).len();
        if self.round_plan.scale != Scale::Rate || are_alike || n_batches == 0 {
            return 1.0;
        }
        let own = plan.samples_of(slot, round) as f64 / n_batches as f64;
        let n_steps = self.training.sampler.local_steps(plan, round).max(1.0);
        let mean = plan.samples_in(round) as f64 / (n_steps * self.n_trainers() as f64);
        (own / mean.max(1e-9)).min(MOST_GAIN) as f32
    }

    /// How many members train in the present epoch.
    fn n_trainers(&self) -> usize {
        self.training.sampler.n_trainers(self.place.ledger.epoch, self.view.len())
    }
}

/// The buckets of the vector that is exchanged in such rounds.
fn exchanged(training: &TrainPlan, round_plan: RoundPlan) -> Arc<[Range<usize>]> {
    let task = &training.task;
    let sizes = (task.n_values(), task.n_params());
    round_plan.optimizer_state.exchanged(task.buckets(), sizes, &training.optimizer).into()
}
