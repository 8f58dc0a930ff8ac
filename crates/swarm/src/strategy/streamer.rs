//! The strategy of all who tell everybody what they learn, batch by batch, and do not wait for an answer.
//!
//! Each batch of a peer becomes one message, perhaps in several parts, to every other peer. It is heard when all parts are
//! there, and goes into the parameters as soon as nothing is being computed with them. Nobody begins a batch while it is
//! ahead of another peer by more than a bound.
//!
//! What was said is remembered until it is certain that everybody has heard it: when the view changes and the parameters of
//! one go on who has not, it is taken back and said again. So each change is in everybody's parameters exactly once.
//!
//! Where changes are clipped, one waits until its bound is known; this peer's own, which is in its parameters at once, is taken back
//! by as much then.
//!
//! A message is one or more frames; a frame's part says which of how many, 32 bits each, and its round of which batch. Its body:
//! parts of what is said, each after its length (u32).

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::sampling::rounds::RoundLength;
use bytes::Bytes;
use nettorrent_engine::kernel::vectorised;

use super::async_ctx::AsyncCtx;
use super::bounds::Bounds;
use super::cost::{Cost, CostQuestion};
use super::final_sync::{FinalSync, within};
use super::interface::{AsyncStrategy, Strategy};
use super::optimizer_state::OptimizerState;
use super::options::OptionDoc;
use super::outcome::Past;
use super::packing::{LEN_LEN, next_part, pack};
use super::round_plan::{Message, Mixing, Payload, RoundPlan, Scale, Trained};
use crate::malformed::Malformed;

/// What `staleness` does.
pub(crate) const STALENESS: OptionDoc = OptionDoc {
    name: "staleness",
    about: "by how many batches a peer may be ahead of the slowest; `0`: all go in step",
};

/// The most batches by which a peer may be ahead: what was said is kept in memory as long.
pub(crate) const MOST_STALENESS: u32 = 1000;

/// How a peer's changes become messages, and messages changes.
pub(crate) trait Stream: Send {
    /// A part of a message, read and found to be sound.
    type Part: Send;

    /// Says where in the vector the parts of a change lie, and how many peers there are. What was not said yet stays.
    fn prepare(&mut self, places: &[Range<usize>], n_peers: usize);

    /// Takes a part of this peer's change, and adds what this peer's own parameters get of it to those at its place.
    fn put(&mut self, part: usize, change: &[f32], values: &mut [f32]);

    /// All parts of a batch are there: what to say of it, in parts; what of it this peer's own parameters have not got yet is
    /// added to them.
    fn say(&mut self, step: &Step, values: &mut [f32]) -> Vec<Bytes>;

    /// Reads a part of a message, and refuses what no honest peer says.
    fn read(&mut self, part: usize, body: &[u8]) -> Result<Self::Part, Malformed>;

    /// Adds what it says, times a factor, to the parameters.
    fn hear(&mut self, part: &Self::Part, factor: f32, values: &mut [f32]);

    /// The square of the length of what it says.
    fn squared_norm(&self, part: &Self::Part) -> f64;

    /// What was said was not heard and never will be: it is to be said again.
    fn take_back(&mut self, part: &Self::Part);

    /// What this peer's parameters hold that it has not said yet; empty means nothing.
    fn unsaid(&self) -> &[f32] {
        &[]
    }

    /// Forgets what was not said: it does not count, or all have it.
    fn forget(&mut self);

    /// By how many batches, in the mean, a number is said late.
    fn delay(&self) -> f64 {
        0.0
    }

    /// How many bytes each part has of what a peer says of a batch.
    fn lens(&self, question: &CostQuestion<'_>) -> Vec<u64>;

    /// Whether it may be less than that.
    fn cost_is_upper_bound(&self) -> bool;
}

/// What there is to know when something is said.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The peer's round.
    pub round: u32,
    /// How many epochs are done.
    pub epochs_done: f64,
    /// How long the batch took to compute, in seconds.
    pub compute_s: f64,
    /// How many bytes a second this peer's links carry, if it is known.
    pub bytes_per_s: Option<f64>,
    /// By how many batches, in the mean, what is said may be late without learning worse.
    pub most_delay: f64,
}

/// The strategy of all who stream.
pub(crate) struct Streamer<S: Stream> {
    stream: S,
    staleness: u32,
    /// The segment that all below is about, by its first round.
    segment: Option<u32>,
    /// What came from each rank and is not in the parameters yet, oldest first.
    heard: Vec<VecDeque<Said<S::Part>>>,
    /// What this peer said and perhaps not everybody has heard, oldest first, and the clock of the first.
    said: VecDeque<Vec<Bytes>>,
    first_said: u32,
    /// Whom this peer waits for since it asked last whether to go on: in which segment, before which batch.
    waits_for: BTreeSet<usize>,
    asked: Option<(u32, u32)>,
    final_sync: FinalSync,
    /// How much of each change counts, if they are clipped.
    bounds: Option<Bounds>,
    /// What this peer said and is not clipped yet: of which batch, and what.
    unclipped: VecDeque<(u32, Vec<S::Part>)>,
}

/// A message on its way in.
struct Said<P> {
    n_frames: usize,
    n_come: usize,
    n_bytes: usize,
    parts: Vec<P>,
}

impl<P> Said<P> {
    fn is_complete(&self) -> bool {
        self.n_come == self.n_frames
    }
}

/// More frames than any message needs: a gigabyte of plain numbers.
const MOST_FRAMES: usize = 1 << 14;
/// More bytes than stand before the parts of any message.
const MOST_EXTRA: usize = 1 << 20;

impl<S: Stream> Streamer<S> {
    /// Streams with this bound.
    pub(crate) fn new(stream: S, staleness: u32) -> Self {
        Self {
            stream,
            staleness,
            segment: None,
            heard: Vec::new(),
            said: VecDeque::new(),
            first_said: 0,
            waits_for: BTreeSet::new(),
            asked: None,
            final_sync: FinalSync::default(),
            bounds: None,
            unclipped: VecDeque::new(),
        }
    }

    /// The same, where no change that is longer than the median one counts for more than that, if so.
    pub(crate) fn clipping(self, clips: bool) -> Self {
        Self { bounds: clips.then(Bounds::default), final_sync: FinalSync::new(clips), ..self }
    }

    /// Begins a segment when it is new: all of the last one was heard by all, or taken back.
    fn enter_segment(&mut self, ctx: &AsyncCtx<'_>) {
        if self.segment == Some(ctx.first_round()) {
            return;
        }
        self.segment = Some(ctx.first_round());
        self.heard = (0..ctx.n_peers()).map(|_| VecDeque::new()).collect();
        self.said.clear();
        self.first_said = 0;
        self.stream.prepare(&places(ctx), ctx.n_peers());
        self.bounds = self.bounds.as_ref().map(|_| Bounds::new(ctx.n_peers(), self.staleness));
        self.unclipped.clear();
    }

    /// Takes what is complete of one peer's into the parameters, in its order.
    fn take_in(&mut self, ctx: &mut AsyncCtx<'_>, rank: usize) {
        if ctx.is_computing() {
            return;
        }
        while self.heard[rank].front().is_some_and(Said::is_complete) {
            let Some(factor) = self.factor(rank, ctx.n_applied(rank)) else { break };
            let said = self.heard[rank].pop_front().expect("there is one");
            said.parts.iter().for_each(|part| self.stream.hear(part, factor, ctx.values_mut()));
            ctx.count_round(rank);
        }
        if self.waits_for.contains(&rank) && !self.holds_up(ctx, rank) {
            self.waits_for.remove(&rank);
        }
    }

    /// By what a peer's change is multiplied; `None` as long as that is not known.
    fn factor(&self, rank: usize, batch: u32) -> Option<f32> {
        self.bounds.as_ref().map_or(Some(1.0), |bounds| bounds.factor(rank, batch))
    }

    /// What somebody told may be what changes of others have waited for, and this peer's own.
    fn take_in_all(&mut self, ctx: &mut AsyncCtx<'_>) {
        (0..ctx.n_peers()).for_each(|rank| self.take_in(ctx, rank));
        if ctx.is_computing() {
            return;
        }
        let me = ctx.rank();
        while let Some(factor) = self.unclipped.front().and_then(|(batch, _)| self.factor(me, *batch)) {
            let (_, parts) = self.unclipped.pop_front().expect("there is one");
            if factor < 1.0 {
                parts.iter().for_each(|part| self.stream.hear(part, factor - 1.0, ctx.values_mut()));
            }
        }
        let others = (0..ctx.n_peers()).filter(|&rank| rank != me).map(|rank| ctx.n_applied(rank));
        let first = others.chain(self.unclipped.front().map(|(batch, _)| *batch)).min();
        if let (Some(bounds), Some(first)) = (&mut self.bounds, first) {
            bounds.forget_before(first);
        }
    }

    /// This peer has told of a batch: others will clip it, and so must this one.
    fn clip_own(&mut self, rank: usize, batch: u32, parts: &[Bytes]) {
        let Some(bounds) = &mut self.bounds else { return };
        // Numbers that are none the others refuse too, and this peer with them.
        let read = |(k, body): (usize, &Bytes)| self.stream.read(k, body).ok();
        let parts: Vec<S::Part> = parts.iter().enumerate().filter_map(read).collect();
        bounds.told(rank, batch, parts.iter().map(|part| self.stream.squared_norm(part)).sum::<f64>().sqrt());
        self.unclipped.push_back((batch, parts));
    }

    /// Forgets what everybody is known to have heard: whoever has begun its batch c has heard all others up to c − staleness.
    fn forget_what_is_heard(&mut self, ctx: &AsyncCtx<'_>) {
        let others = (0..ctx.n_peers()).filter(|&rank| rank != ctx.rank());
        let known = others.map(|rank| ctx.n_applied(rank).saturating_sub(self.staleness + 1)).min();
        while self.first_said < known.unwrap_or(0) && self.said.pop_front().is_some() {
            self.first_said += 1;
        }
    }

    /// Whether this peer must hear more of another before its next batch, or if it has none, before the segment is over.
    fn holds_up(&self, ctx: &AsyncCtx<'_>, rank: usize) -> bool {
        let (clock, applied) = (ctx.n_applied(ctx.rank()), ctx.n_applied(rank));
        let is_done = clock >= ctx.n_rounds();
        let is_behind = clock > applied.saturating_add(self.staleness);
        rank != ctx.rank() && applied < ctx.n_rounds() && (is_done || is_behind)
    }

    /// After the final_sync everybody has everything.
    fn forget_if_together(&mut self, ctx: &mut AsyncCtx<'_>) {
        if !self.final_sync.is_on() {
            self.stream.forget();
            ctx.synced();
        }
    }
}

impl<S: Stream> Strategy for Streamer<S> {
    fn round_plan(&self) -> RoundPlan {
        RoundPlan {
            payload: Payload::Updates,
            length: RoundLength::Batches(1),
            scale: Scale::Share,
            mixing: Mixing::Full,
            optimizer_state: OptimizerState::Keep,
        }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let others = question.n_peers as u64 - 1;
        let most = others * self.stream.lens(question).iter().map(|len| LEN_LEN as u64 + len).sum::<u64>();
        Cost { total: (others + 1) * most, most_sent: most, most_received: most, n_steps: u32::from(others > 0) }
    }

    fn cost_is_upper_bound(&self) -> bool {
        self.stream.cost_is_upper_bound()
    }

    fn delay(&self) -> f64 {
        f64::from(self.staleness) + self.stream.delay()
    }

    fn waits_for(&self) -> Vec<usize> {
        if self.final_sync.is_on() { self.final_sync.waits_for() } else { self.waits_for.iter().copied().collect() }
    }
}

impl<S: Stream> AsyncStrategy for Streamer<S> {
    fn on_part(&mut self, ctx: &mut AsyncCtx<'_>, bucket: usize, change: Vec<f32>) {
        self.enter_segment(ctx);
        let (place, n_params) = (ctx.buckets()[bucket].clone(), ctx.n_params());
        let n_trained = n_params.clamp(place.start, place.end) - place.start;
        // Running statistics are each peer's own until all come together.
        let (changed, moved) = change.split_at(n_trained);
        let (values, statistics) = ctx.values_mut()[place].split_at_mut(n_trained);
        statistics.iter_mut().zip(moved).for_each(|(value, moved)| *value += moved);
        self.stream.put(bucket, changed, values);
        ctx.give_back(change);
    }

    fn on_trained(&mut self, ctx: &mut AsyncCtx<'_>, trained: &Trained) {
        let step = Step {
            round: ctx.round(),
            epochs_done: ctx.epochs_done(),
            compute_s: trained.compute.as_secs_f64(),
            bytes_per_s: ctx.uplink(),
            most_delay: ctx.most_delay(),
        };
        let parts = self.stream.say(&step, ctx.values_mut());
        let (rank, n_peers) = (ctx.rank(), ctx.n_peers());
        let frames = pack(&parts);
        for to in (0..n_peers).filter(|&to| to != rank) {
            for (k, frame) in frames.iter().enumerate() {
                ctx.send(to, k as u64 | (frames.len() as u64) << 32, frame.clone());
            }
        }
        self.clip_own(rank, ctx.n_applied(rank), &parts);
        self.said.push_back(parts);
        self.take_in_all(ctx);
        self.forget_what_is_heard(ctx);
    }

    fn on_message(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        if self.final_sync.is_on() {
            self.final_sync.receive(ctx, from, message)?;
            self.forget_if_together(ctx);
            return Ok(());
        }
        self.enter_segment(ctx);
        let (frame, n_frames) = ((message.part & u64::from(u32::MAX)) as usize, (message.part >> 32) as usize);
        let heard = &mut self.heard[from];
        let is_new = heard.back().is_none_or(Said::is_complete);
        let clock = ctx.n_applied(from) + heard.len() as u32 - u32::from(!is_new);
        let own = ctx.n_applied(ctx.rank());
        // Nobody waits for one who is done.
        let is_too_far = own < ctx.n_rounds() && clock > own.saturating_add(self.staleness + 1);
        if message.round != ctx.first_round() + clock || clock >= ctx.n_rounds() || is_too_far {
            return Err(Malformed::new("it is not its turn to tell of this batch"));
        }
        if is_new && frame == 0 && (1..=MOST_FRAMES).contains(&n_frames) {
            heard.push_back(Said { n_frames, n_come: 0, n_bytes: 0, parts: Vec::new() });
        }
        let said = heard.back_mut().filter(|said| said.n_frames == n_frames && said.n_come == frame);
        let Some(said) = said else {
            return Err(Malformed::new("there is no such part of what it tells of a batch"));
        };
        // All numbers once, plain and with what stands before them, is the most that anybody has to say.
        said.n_bytes += message.body.len();
        if said.n_bytes > 8 * ctx.n_params() + MOST_EXTRA {
            return Err(Malformed::new("it tells more of a batch than there is to tell"));
        }
        let mut rest = message.body;
        while !rest.is_empty() {
            let part = next_part(&mut rest)?;
            said.parts.push(self.stream.read(said.parts.len(), &part)?);
        }
        said.n_come += 1;
        match &mut self.bounds {
            None => self.take_in(ctx, from),
            Some(bounds) => {
                if said.is_complete() {
                    let squares = said.parts.iter().map(|part| self.stream.squared_norm(part));
                    bounds.told(from, clock, squares.sum::<f64>().sqrt());
                }
                self.take_in_all(ctx);
            }
        }
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut AsyncCtx<'_>) {
        self.final_sync.break_off();
        // What was said in the segment before the one that this peer comes from, all have heard.
        self.enter_segment(ctx);
        match ctx.past() {
            Past::Own => {}
            Past::Adopted { n_heard } => {
                let n_old = n_heard.saturating_sub(self.first_said) as usize;
                for (part, body) in self.said.iter().skip(n_old).flat_map(|parts| parts.iter().enumerate()) {
                    let part = self.stream.read(part, body).expect("this peer said it");
                    self.stream.take_back(&part);
                }
                add(ctx.values_mut(), self.stream.unsaid());
            }
            Past::Stranger => self.stream.forget(),
        }
        self.segment = None;
        self.asked = None;
    }

    fn may_go_on(&mut self, ctx: &AsyncCtx<'_>) -> bool {
        // While this peer waits, nobody falls behind who was not: who has caught up was taken off when it was heard.
        let now = Some((ctx.first_round(), ctx.n_applied(ctx.rank())));
        if std::mem::replace(&mut self.asked, now) != now {
            self.waits_for = (0..ctx.n_peers()).filter(|&rank| self.holds_up(ctx, rank)).collect();
        }
        self.waits_for.is_empty()
    }

    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        let mut values = values.clone();
        if !self.stream.unsaid().is_empty() {
            subtract(Arc::make_mut(&mut values).as_mut_slice(), self.stream.unsaid());
        }
        values
    }

    /// In the end what nobody has said yet counts too.
    fn sync(&mut self, ctx: &mut AsyncCtx<'_>) {
        if !ctx.is_last_epoch() {
            return ctx.synced();
        }
        let unsaid = self.stream.unsaid();
        self.final_sync.begin(ctx, unsaid, |range, values| subtract(values, within(unsaid, range)));
        self.forget_if_together(ctx);
    }
}

/// Where the trained numbers of each bucket lie.
fn places(ctx: &AsyncCtx<'_>) -> Vec<Range<usize>> {
    trained_places(ctx.buckets(), ctx.n_params())
}

/// The part of each bucket that is trained.
pub(crate) fn trained_places(buckets: &[Range<usize>], n_params: usize) -> Vec<Range<usize>> {
    buckets.iter().map(|place| place.start.min(n_params)..place.end.min(n_params)).collect()
}

/// Adds numbers to the first of others.
pub(crate) fn add(values: &mut [f32], numbers: &[f32]) {
    vectorised(|| values.iter_mut().zip(numbers).for_each(|(value, number)| *value += number));
}

/// Adds numbers, times a factor, to the first of others.
pub(crate) fn add_times(values: &mut [f32], factor: f32, numbers: &[f32]) {
    vectorised(|| values.iter_mut().zip(numbers).for_each(|(value, number)| *value += factor * number));
}

fn subtract(values: &mut [f32], numbers: &[f32]) {
    vectorised(|| values.iter_mut().zip(numbers).for_each(|(value, number)| *value -= number));
}
