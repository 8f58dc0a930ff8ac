//! `downpour`: peers push what they learnt to the owners of the parameters and fetch those, both without waiting.
//!
//! The parameters are cut into shards, each kept by one of the peers, so no machine is only a server. A owner adds what is
//! pushed as it comes. A peer trains on its own copy: what it fetched last, and what it has learnt since. When all batches of
//! a segment are in a shard, its owner sends it to everybody, so all are together again.
//!
//! When the view changes, the copy of the most advanced peer goes on, and the shards begin anew from it; what of its own pushes
//! is not in that copy, each peer pushes again, shard by shard. Of a batch that a lost peer had pushed to some of the
//! owners only, the rest is lost. AdaGrad's sums go on from those of the segment's beginning.
//!
//! With `clipped-mean` an owner clips what is pushed to its shard to the median length of everybody's last push to it. Nobody checks
//! the owners.
//!
//! Messages: a push (to which batch it goes, u32; numbers in segments); a request; an answer (what is known to be in
//! everybody's copy of the receiver's pushes, then by rank whose batches are in the shard, u32 each; then numbers, and at
//! the end of a segment AdaGrad's sums, in segments).
//! Dean et al. (2012), "Large scale distributed deep networks".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::sampling::rounds::RoundLength;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::own_copy::{OwnCopy, Patience};
use crate::collective::owner::{Kept, push_bodies, push_len};
use crate::collective::segments::{Label, chunk, encoded_len};
use crate::strategy::{
    Aggregation, AnyStrategy, AsyncCtx, AsyncStrategy, CLIPPING, Cost, CostQuestion, FinalSync, MOST_STALENESS,
    Malformed, Message, Mixing, OptimizerState, OptionDoc, OptionError, Payload, RoundPlan, Scale, Spec, Strategy,
    Trained, add, default_options, read_options, within,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "downpour",
    about: "Peers push changes to shards of the parameters, which live on the peers themselves, and fetch them back, both \
            without waiting for anybody.",
    cost: "each peer sends up to 2M(N-1)/N per batch with n_fetch = n_push = 1, without waiting",
    paper: "Dean et al. 2012",
    options: &[
        OptionDoc {
            name: "adagrad",
            about: "the step of AdaGrad, which the shards then take with what is pushed; `0`: it is added as it is",
        },
        CLIPPING,
        OptionDoc { name: "n_fetch", about: "after how many batches a peer fetches the parameters" },
        OptionDoc { name: "n_push", about: "after how many batches a peer pushes what it has learnt" },
        OptionDoc { name: "shards", about: "into how many parts the parameters are cut; peers keep them in turn" },
        OptionDoc {
            name: "staleness",
            about: "by how many of its batches a peer may be ahead of what it has got back, besides n_fetch and n_push",
        },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        options.check().map_err(|problem| OptionError::Option { strategy: SPEC.name, problem })?;
        let clips = options.aggregation.clips(SPEC.name)?;
        Ok(AnyStrategy::asynchronous(Downpour::new(options, clips)))
    },
};

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Options {
    adagrad: f32,
    aggregation: Aggregation,
    n_fetch: u32,
    n_push: u32,
    shards: usize,
    staleness: u32,
}

impl Default for Options {
    fn default() -> Self {
        let aggregation = Aggregation::Samples;
        Self { adagrad: 0.0, aggregation, n_fetch: 1, n_push: 1, shards: 8, staleness: 0 }
    }
}

impl Options {
    fn check(&self) -> Result<(), String> {
        if self.n_fetch == 0 || self.n_push == 0 || self.shards == 0 {
            return Err("n_fetch, n_push and shards must be at least 1".to_owned());
        }
        if self.n_fetch.max(self.n_push).max(self.staleness) > MOST_STALENESS || self.shards > MOST_SHARDS {
            return Err(format!(
                "n_fetch, n_push and staleness: at most {MOST_STALENESS}; shards: at most {MOST_SHARDS}"
            ));
        }
        if !(self.adagrad >= 0.0 && self.adagrad.is_finite()) {
            return Err(format!("adagrad = {}: must be a number from 0 up", self.adagrad));
        }
        Ok(())
    }
}

struct Downpour {
    options: Options,
    /// Whether owners clip what is pushed.
    clips: bool,
    /// The parameters as this peer got them last, and what it has learnt since.
    copy: OwnCopy,
    /// The shards that this peer keeps.
    kept: BTreeMap<usize, Kept>,
    final_sync: FinalSync,
}

const PUSH: usize = 0;
const FETCH: usize = 1;
const HEAD: usize = 2;
const VALUES: usize = 3;
const MOST_SHARDS: usize = 1 << 12;

impl Downpour {
    fn new(options: Options, clips: bool) -> Self {
        let copy = OwnCopy::new(options.adagrad > 0.0);
        Self { options, clips, copy, kept: BTreeMap::new(), final_sync: FinalSync::new(clips) }
    }

    fn uses_sums(&self) -> bool {
        self.options.adagrad > 0.0
    }

    /// Begins a segment when it is new: the shards begin from the parameters that all hold alike.
    fn enter_segment(&mut self, ctx: &AsyncCtx<'_>) {
        if self.copy.enter_segment(ctx, self.options.shards) {
            let before = std::mem::replace(&mut self.kept, self.copy.kept_here().collect());
            if self.clips {
                self.kept.iter_mut().for_each(|(k, kept)| kept.clip_like(before.get(k)));
            }
        }
    }

    /// Pushes all that was learnt since the last push.
    fn push(&mut self, ctx: &mut AsyncCtx<'_>, until: u32) {
        self.copy.push(until, ctx);
        for k in 0..self.copy.shards.len() {
            let change = self.copy.last_push(k);
            if let Some(kept) = self.kept.get_mut(&k) {
                kept.apply(ctx.rank(), until, &change, self.options.adagrad);
                self.tell_all_if_complete(ctx, k);
                continue;
            }
            let owner = self.copy.shards[k].owner;
            for (number, body) in push_bodies(until, &change).enumerate() {
                ctx.send(owner, part(k, PUSH, number), body);
            }
        }
    }

    /// Asks for all shards that are not under way already.
    fn fetch(&mut self, ctx: &mut AsyncCtx<'_>, clock: u32) {
        for k in 0..self.copy.shards.len() {
            self.fetch_shard(ctx, k, clock);
        }
    }

    fn fetch_shard(&mut self, ctx: &mut AsyncCtx<'_>, k: usize, clock: u32) {
        if let Some(kept) = self.kept.get_mut(&k) {
            self.copy.take(k, kept.copy_here(ctx.rank()));
        } else if let Some(owner) = self.copy.fetch(k, clock) {
            ctx.send(owner, part(k, FETCH, 0), Bytes::new());
        }
    }

    /// After the final_sync all hold its result, and nothing is unsaid.
    fn copy_if_together(&mut self, ctx: &mut AsyncCtx<'_>) {
        if !self.final_sync.is_on() {
            self.copy.start_over(&ctx.values()[..ctx.n_params()]);
            ctx.synced();
        }
    }

    /// Sends a shard to a peer that asked for it.
    fn answer(&mut self, ctx: &mut AsyncCtx<'_>, to: usize, k: usize) {
        self.kept.get_mut(&k).expect("only its owner answers").was_asked_by(to);
        self.tell(ctx, to, k, false);
    }

    fn tell(&mut self, ctx: &mut AsyncCtx<'_>, to: usize, k: usize, with_sums: bool) {
        let kept = &self.kept[&k];
        ctx.send(to, part(k, HEAD, 0), kept.head_for(to));
        for (number, body) in kept.bodies(with_sums).enumerate() {
            ctx.send(to, part(k, VALUES, number), body);
        }
    }

    /// When all batches of all are in a shard, everybody gets it.
    fn tell_all_if_complete(&mut self, ctx: &mut AsyncCtx<'_>, k: usize) {
        if !self.copy.are_all(&self.kept[&k].applied) {
            return;
        }
        for to in (0..ctx.n_peers()).filter(|&to| to != ctx.rank()).collect::<Vec<_>>() {
            self.tell(ctx, to, k, self.uses_sums());
        }
        self.copy.take(k, self.kept[&k].whole());
    }

    fn on_push(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        let k = label.bucket;
        let Some(kept) = self.kept.get_mut(&k) else {
            return Err(Malformed::new("it pushes to a peer that does not keep this shard"));
        };
        let Some((until, change)) = kept.take_push(from, label.segment, body, ctx.n_rounds())? else {
            return Ok(());
        };
        kept.apply(from, until, &change, self.options.adagrad);
        self.tell_all_if_complete(ctx, k);
        Ok(())
    }

    fn on_fetch(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, k: usize, body: &[u8]) -> Result<(), Malformed> {
        if !self.kept.contains_key(&k) || !body.is_empty() {
            return Err(Malformed::new("it asks a peer that does not keep this shard"));
        }
        // What is complete was told already.
        if !self.copy.are_all(&self.kept[&k].applied) {
            self.answer(ctx, from, k);
        }
        Ok(())
    }
}

impl Strategy for Downpour {
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
        let (n_peers, n_shards) = (question.n_peers, self.options.shards);
        let others = n_peers as u64 - 1;
        let (mut vector, mut kept) = (0, vec![0; n_peers]);
        for k in 0..n_shards {
            let place = chunk(k, n_shards, question.n_params);
            let push = push_len(place.len());
            let factor = if self.uses_sums() { 2 } else { 1 };
            let answer = 4 * (1 + n_peers as u64) + encoded_len(Codec::F32, 0..factor * place.len());
            vector += push;
            // One answer that was asked for, and in the last round of a segment another one.
            kept[k % n_peers] += 2 * answer + push;
        }
        let most = vector + others * kept.iter().copied().max().unwrap_or(0);
        let most = most * others.min(1);
        Cost { total: n_peers as u64 * most, most_sent: most, most_received: most, n_steps: others.min(1) as u32 }
    }

    fn cost_is_upper_bound(&self) -> bool {
        true
    }

    fn delay(&self) -> f64 {
        let Options { n_fetch, n_push, staleness, .. } = self.options;
        f64::from(staleness + n_fetch.max(n_push) - 1)
    }

    fn n_state_vectors(&self) -> usize {
        usize::from(self.uses_sums())
    }

    fn state_vector(&self, _: usize) -> Arc<Vec<f32>> {
        self.copy.sums.clone()
    }

    fn restore(&mut self, vectors: Vec<Arc<Vec<f32>>>) {
        self.copy.sums = vectors.into_iter().next().unwrap_or_default();
    }

    fn waits_for(&self) -> Vec<usize> {
        if self.final_sync.is_on() {
            return self.final_sync.waits_for();
        }
        // Who has not pushed all to the shards kept here, and who keeps those that have not come.
        let n_batches = &self.copy.n_batches;
        let applied = self.kept.values().flat_map(|kept| kept.applied.iter().zip(n_batches).enumerate());
        let late = applied.filter(|(_, (applied, n_batches))| applied < n_batches).map(|(rank, _)| rank);
        let ranks: BTreeSet<usize> = late.chain(self.copy.missing()).filter(|&rank| rank != self.copy.rank).collect();
        ranks.into_iter().collect()
    }
}

impl AsyncStrategy for Downpour {
    fn on_part(&mut self, ctx: &mut AsyncCtx<'_>, bucket: usize, change: Vec<f32>) {
        self.enter_segment(ctx);
        let place = ctx.buckets()[bucket].clone();
        // The parameters get all at once; running statistics are each peer's own until all come together.
        add(&mut ctx.values_mut()[place], &change);
        if let Some(spare) = self.copy.accrued.accrue(bucket, change) {
            ctx.give_back(spare);
        }
    }

    fn on_trained(&mut self, ctx: &mut AsyncCtx<'_>, _: &Trained) {
        let clock = ctx.n_applied(ctx.rank()) + 1;
        let is_last = clock >= ctx.n_rounds();
        if is_last || clock.is_multiple_of(self.options.n_push) {
            self.push(ctx, clock);
        }
        if clock.is_multiple_of(self.options.n_fetch) {
            self.fetch(ctx, clock);
        }
        self.copy.refresh(ctx);
    }

    fn on_message(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        if self.final_sync.is_on() {
            self.final_sync.receive(ctx, from, message)?;
            self.copy_if_together(ctx);
            return Ok(());
        }
        self.enter_segment(ctx);
        let label = Label::from_part(message.part);
        let k = label.bucket;
        if k >= self.copy.shards.len() {
            return Err(Malformed::new("there is no such shard"));
        }
        match label.step {
            PUSH => self.on_push(ctx, from, label, message.body)?,
            FETCH => return self.on_fetch(ctx, from, k, &message.body),
            HEAD => self.copy.begin_answer(from, k, &message.body)?,
            VALUES => self.copy.add_to_answer(from, label, &message.body)?,
            _ => return Err(Malformed::new("there is no such message in this strategy")),
        }
        self.copy.refresh(ctx);
        let clock = ctx.n_applied(self.copy.rank);
        let Options { n_fetch, staleness, .. } = self.options;
        if self.copy.is_due(k, clock, Patience { n_fetch, staleness }) {
            self.fetch_shard(ctx, k, clock);
        }
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut AsyncCtx<'_>) {
        self.final_sync.break_off();
        self.copy.on_view(ctx);
    }

    fn may_go_on(&mut self, ctx: &AsyncCtx<'_>) -> bool {
        self.enter_segment(ctx);
        let Options { n_fetch, n_push, staleness, .. } = self.options;
        // Not more than that is ever missing between two fetches: whoever waits here waits for one.
        self.copy.lag(ctx) <= staleness + n_fetch + n_push - 2
    }

    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        let (mut values, n) = (values.clone(), self.copy.values.len());
        // When all have come together, these are the parameters themselves.
        if !self.copy.is(&values[..n]) {
            Arc::make_mut(&mut values)[..n].copy_from_slice(&self.copy.values);
        }
        values
    }

    fn account(&self) -> Vec<u8> {
        self.copy.account()
    }

    fn sync(&mut self, ctx: &mut AsyncCtx<'_>) {
        if !ctx.is_last_epoch() {
            return ctx.synced();
        }
        let copy = &self.copy.values;
        let unsaid = if self.copy.accrued.is_none() { Vec::new() } else { self.copy.accrued.at(&(0..copy.len())) };
        self.final_sync.begin(ctx, &unsaid, |range, values| {
            let copy = within(copy, range);
            values[..copy.len()].copy_from_slice(copy);
        });
        self.copy_if_together(ctx);
    }
}

fn part(shard: usize, step: usize, segment: usize) -> u64 {
    Label { bucket: shard, step, segment }.to_part()
}
