//! `downpour`: peers push what they learnt to the keepers of the parameters and fetch those, both without waiting.
//!
//! The parameters are cut into shards, each kept by one of the peers, so no machine is only a server. A keeper adds what is
//! pushed as it comes. A peer trains on its own copy: what it fetched last, and what it has learnt since. When all batches of
//! a segment are in a shard, its keeper sends it to everybody, so all are together again.
//!
//! When the view changes, the copy of the foremost peer goes on, and the shards begin anew from it; what of its own pushes
//! is not in that copy, each peer pushes again, shard by shard. Of a batch that a lost peer had pushed to some of the
//! keepers only, the rest is lost. AdaGrad's sums go on from those of the segment's beginning.
//!
//! Messages: a push (to which batch it goes, u32; numbers in segments); a request; an answer (what is known to be in
//! everybody's copy of the receiver's pushes, then by rank whose batches are in the shard, u32 each; then numbers, and at
//! the end of a segment AdaGrad's sums, in segments).
//! Dean et al. (2012), "Large scale distributed deep networks".

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::keeper::{Answer, Kept, push_bodies, push_len};
use crate::collective::segments::{Label, chunk, encoded_len};
use crate::strategy::{
    Cost, CostQuestion, Ctx, MOST_STALENESS, Malformed, Message, OptionDoc, OptionError, Past, Payload, Reunion, Scale,
    Spec, Strategy, Trained, Turn, TurnLength, add, default_options, read_options,
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
        Ok(Box::new(Downpour::new(options)))
    },
};

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Options {
    adagrad: f32,
    n_fetch: u32,
    n_push: u32,
    shards: usize,
    staleness: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { adagrad: 0.0, n_fetch: 1, n_push: 1, shards: 8, staleness: 4 }
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
    /// The segment that all below is about, by its first round; who this peer is in it, and by rank who has how many batches.
    segment: Option<u32>,
    rank: usize,
    n_batches: Vec<u32>,
    /// The shards as this peer got them last: together a copy of the parameters. Empty before there is any.
    copy: Vec<f32>,
    shards: Vec<Shard>,
    /// AdaGrad's sums as they were when the segment began, if it is used.
    sums: Vec<f32>,
    /// What this peer learnt and has not pushed, and what it pushed that is perhaps not in everybody's copy.
    accrued: Vec<f32>,
    pushed: VecDeque<Push>,
    /// The same of the segment before, if a change of the view has ended it.
    before: Option<Heard>,
    /// The shards that this peer keeps.
    kept: BTreeMap<usize, Kept>,
    reunion: Reunion,
}

/// A shard as this peer sees it.
#[derive(Default)]
struct Shard {
    place: Range<usize>,
    keeper: usize,
    /// By rank, how many batches of each are in the copy.
    heard: Vec<u32>,
    /// How many of this peer's batches are in everybody's copy.
    n_safe: u32,
    /// Whether the parameters were not made from the copy yet.
    is_fresh: bool,
    is_fetching: bool,
    /// After which batch this peer asked for it last.
    fetched_at: u32,
    incoming: Option<Answer>,
}

/// What was pushed.
struct Push {
    /// To which of this peer's batches it goes.
    until: u32,
    change: Arc<Vec<f32>>,
}

/// Whose batches of a segment are in a copy, by shard and rank.
#[derive(Clone, Serialize, Deserialize)]
struct Heard {
    segment: u32,
    by_shard: Vec<Vec<u32>>,
}

const PUSH: usize = 0;
const FETCH: usize = 1;
const HEAD: usize = 2;
const VALUES: usize = 3;
const MOST_SHARDS: usize = 1 << 12;

impl Downpour {
    fn new(options: Options) -> Self {
        Self {
            options,
            segment: None,
            rank: 0,
            n_batches: Vec::new(),
            copy: Vec::new(),
            shards: Vec::new(),
            sums: Vec::new(),
            accrued: Vec::new(),
            pushed: VecDeque::new(),
            before: None,
            kept: BTreeMap::new(),
            reunion: Reunion::default(),
        }
    }

    fn uses_sums(&self) -> bool {
        self.options.adagrad > 0.0
    }

    /// Whether all batches of all are among these, by rank.
    fn are_all(&self, batches: &[u32]) -> bool {
        batches.iter().zip(&self.n_batches).all(|(batches, n_batches)| batches >= n_batches)
    }

    /// Begins a segment when it is new: the shards begin from the parameters that all hold alike.
    fn enter_segment(&mut self, ctx: &Ctx<'_>) {
        if self.segment == Some(ctx.first_round()) {
            return;
        }
        // After a change of the view this comes from none; else from one that all have seen the end of.
        self.before = self.before.take().filter(|_| self.segment.is_none());
        self.segment = Some(ctx.first_round());
        let (n_params, n_peers, n_shards) = (ctx.n_params(), ctx.n_peers(), self.options.shards);
        self.rank = ctx.rank();
        self.n_batches = (0..n_peers).map(|rank| ctx.n_batches(rank)).collect();
        self.pushed.clear();
        self.accrued.resize(n_params, 0.0);
        if self.uses_sums() {
            self.sums.resize(ctx.values().len(), 0.0);
        }
        if self.copy.is_empty() {
            self.copy = ctx.values()[..n_params].to_vec();
        }
        let shard = |k: usize| Shard {
            place: chunk(k, n_shards, n_params),
            keeper: k % n_peers,
            heard: vec![0; n_peers],
            ..Shard::default()
        };
        self.shards = (0..n_shards).map(shard).collect();
        let kept = self.shards.iter().enumerate().filter(|(_, shard)| shard.keeper == ctx.rank()).map(|(k, shard)| {
            let sums = self.sums.get(shard.place.clone()).unwrap_or_default().to_vec();
            (k, Kept::new(self.copy[shard.place.clone()].to_vec(), sums, n_peers))
        });
        self.kept = kept.collect();
    }

    /// Pushes all that was learnt since the last push.
    fn push(&mut self, ctx: &mut Ctx<'_>, until: u32) {
        let change = Arc::new(std::mem::take(&mut self.accrued));
        self.accrued = vec![0.0; change.len()];
        for k in 0..self.shards.len() {
            let (place, keeper) = (self.shards[k].place.clone(), self.shards[k].keeper);
            if let Some(kept) = self.kept.get_mut(&k) {
                kept.apply(ctx.rank(), until, &change[place], self.options.adagrad);
                self.tell_all_if_complete(ctx, k);
                continue;
            }
            for (number, body) in push_bodies(until, &change[place]).enumerate() {
                ctx.send(keeper, part(k, PUSH, number), body);
            }
        }
        self.pushed.push_back(Push { until, change });
    }

    /// Asks for all shards that are not under way already.
    fn fetch(&mut self, ctx: &mut Ctx<'_>, clock: u32) {
        for k in 0..self.shards.len() {
            self.fetch_shard(ctx, k, clock);
        }
    }

    fn fetch_shard(&mut self, ctx: &mut Ctx<'_>, k: usize, clock: u32) {
        if let Some(kept) = self.kept.get_mut(&k) {
            let answer = kept.copy_here(ctx.rank());
            self.take(k, answer);
        } else if !std::mem::replace(&mut self.shards[k].is_fetching, true) {
            self.shards[k].fetched_at = clock;
            ctx.send(self.shards[k].keeper, part(k, FETCH, 0), Bytes::new());
        }
    }

    /// An answer is complete.
    fn take(&mut self, k: usize, answer: Answer) {
        let shard = &mut self.shards[k];
        let (numbers, sums) = answer.numbers.split_at(shard.place.len());
        self.copy[shard.place.clone()].copy_from_slice(numbers);
        if !sums.is_empty() {
            self.sums[shard.place.clone()].copy_from_slice(sums);
        }
        (shard.heard, shard.n_safe) = (answer.heard, answer.n_safe);
        (shard.is_fresh, shard.is_fetching) = (true, false);
    }

    /// Makes the parameters anew where there is something new: what came, and what of this peer is not in it.
    fn refresh(&mut self, ctx: &mut Ctx<'_>) {
        if ctx.is_computing() {
            return;
        }
        let rank = ctx.rank();
        for shard in self.shards.iter_mut().filter(|shard| shard.is_fresh) {
            shard.is_fresh = false;
            let values = &mut ctx.values_mut()[shard.place.clone()];
            values.copy_from_slice(&self.copy[shard.place.clone()]);
            for push in self.pushed.iter().filter(|push| push.until > shard.heard[rank]) {
                add(values, &push.change[shard.place.clone()]);
            }
            add(values, &self.accrued[shard.place.clone()]);
        }
        let n_safe = self.shards.iter().map(|shard| shard.n_safe).min().unwrap_or(0);
        while self.pushed.front().is_some_and(|push| push.until <= n_safe) {
            self.pushed.pop_front();
        }
        self.settle(ctx);
    }

    /// Counts whose batches are in the copy. One that is only in some of the shards counts too, or it would be trained again;
    /// but not the last one of a peer before all is complete.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        let is_over = self.shards.iter().all(|shard| self.are_all(&shard.heard));
        for rank in (0..self.n_batches.len()).filter(|&rank| rank != self.rank) {
            let most = if is_over { u32::MAX } else { self.n_batches[rank].saturating_sub(1) };
            let heard = self.shards.iter().map(|shard| shard.heard[rank]).max().unwrap_or(0).min(most);
            (ctx.n_settled(rank)..heard).for_each(|_| ctx.settle(rank));
        }
    }

    /// After the reunion all hold its result, and nothing is unsaid.
    fn copy_if_together(&mut self, ctx: &Ctx<'_>) {
        if !self.reunion.is_on() {
            self.copy = ctx.values()[..ctx.n_params()].to_vec();
            self.accrued.fill(0.0);
        }
    }

    /// By how many batches this peer is ahead of what it has got back.
    fn lag(&self, ctx: &Ctx<'_>) -> u32 {
        let heard = self.shards.iter().map(|shard| shard.heard[ctx.rank()]).min().unwrap_or(0);
        ctx.n_settled(ctx.rank()).saturating_sub(heard)
    }

    /// Sends a shard to a peer that asked for it.
    fn answer(&mut self, ctx: &mut Ctx<'_>, to: usize, k: usize) {
        self.kept.get_mut(&k).expect("only its keeper answers").was_asked_by(to);
        self.tell(ctx, to, k, false);
    }

    fn tell(&mut self, ctx: &mut Ctx<'_>, to: usize, k: usize, with_sums: bool) {
        let kept = &self.kept[&k];
        ctx.send(to, part(k, HEAD, 0), kept.head_for(to));
        for (number, body) in kept.bodies(with_sums).enumerate() {
            ctx.send(to, part(k, VALUES, number), body);
        }
    }

    /// When all batches of all are in a shard, everybody gets it.
    fn tell_all_if_complete(&mut self, ctx: &mut Ctx<'_>, k: usize) {
        if !self.are_all(&self.kept[&k].applied) {
            return;
        }
        for to in (0..ctx.n_peers()).filter(|&to| to != ctx.rank()).collect::<Vec<_>>() {
            self.tell(ctx, to, k, self.uses_sums());
        }
        let answer = self.kept[&k].whole();
        self.take(k, answer);
    }

    fn on_push(&mut self, ctx: &mut Ctx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        let k = label.bucket;
        let Some(kept) = self.kept.get_mut(&k) else {
            return Err(Malformed::new("it pushes to a peer that does not keep this shard"));
        };
        let Some((until, change)) = kept.take_push(from, label.segment, body, ctx.n_batches(from))? else {
            return Ok(());
        };
        kept.apply(from, until, &change, self.options.adagrad);
        self.tell_all_if_complete(ctx, k);
        Ok(())
    }

    fn on_head(&mut self, ctx: &Ctx<'_>, from: usize, k: usize, body: &[u8]) -> Result<(), Malformed> {
        let shard = &mut self.shards[k];
        if shard.keeper != from || shard.incoming.is_some() {
            return Err(Malformed::new("it sends a shard that it was not asked for"));
        }
        shard.incoming = Some(Answer::begin(body, &shard.heard, &self.n_batches, ctx.rank())?);
        Ok(())
    }

    fn on_values(&mut self, from: usize, label: Label, body: &[u8]) -> Result<(), Malformed> {
        let (k, uses_sums) = (label.bucket, self.uses_sums());
        let shard = &mut self.shards[k];
        let Some(answer) = shard.incoming.as_mut().filter(|_| shard.keeper == from) else {
            return Err(Malformed::new("it sends a shard that it was not asked for"));
        };
        let is_last = answer.heard.iter().zip(&self.n_batches).all(|(heard, n_batches)| heard >= n_batches);
        answer.add(label.segment, body, shard.place.len() * if is_last && uses_sums { 2 } else { 1 })
    }

    /// Takes over what has come if it is all there.
    fn take_if_complete(&mut self, k: usize) {
        let shard = &self.shards[k];
        let Some(answer) = &shard.incoming else { return };
        let factor = if self.uses_sums() && self.are_all(&answer.heard) { 2 } else { 1 };
        if answer.numbers.len() == factor * shard.place.len() {
            let answer = self.shards[k].incoming.take().expect("there is one");
            self.take(k, answer);
        }
    }

    /// Whose batches are in the copy, in the present segment.
    fn present(&self) -> Option<Heard> {
        let segment = self.segment?;
        Some(Heard { segment, by_shard: self.shards.iter().map(|shard| shard.heard.clone()).collect() })
    }

    /// By shard, how many of this peer's batches of the present segment are in another's parameters, by what that one says.
    fn heard_by(&self, account: &[Heard], n_heard: u32) -> Vec<u32> {
        let same = account.iter().find(|heard| Some(heard.segment) == self.segment);
        let by_shard = same.filter(|heard| heard.by_shard.len() == self.shards.len()).map(|heard| &heard.by_shard);
        let of_mine = |shard: &Vec<u32>| shard.get(self.rank).copied().unwrap_or(n_heard);
        // Who does not speak of it has seen its end, and all of it is in its parameters.
        by_shard.map_or(vec![n_heard; self.shards.len()], |by_shard| by_shard.iter().map(of_mine).collect())
    }
}

impl Strategy for Downpour {
    fn turn(&self) -> Turn {
        Turn { payload: Payload::Updates, length: TurnLength::Batches(1), scale: Scale::Share }
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

    fn may_cost_less(&self) -> bool {
        true
    }

    fn on_part(&mut self, ctx: &mut Ctx<'_>, bucket: usize, change: Vec<f32>) {
        self.enter_segment(ctx);
        let (place, n_params) = (ctx.buckets()[bucket].clone(), ctx.n_params());
        let n_trained = n_params.clamp(place.start, place.end) - place.start;
        // The peer's own copy gets all at once; running statistics are each peer's own until all come together.
        add(&mut ctx.values_mut()[place.clone()], &change);
        add(&mut self.accrued[place.start.min(n_params)..place.start.min(n_params) + n_trained], &change);
        ctx.give_back(change);
    }

    fn on_trained(&mut self, ctx: &mut Ctx<'_>, _: &Trained) {
        let clock = ctx.n_settled(ctx.rank()) + 1;
        let is_last = clock >= ctx.n_batches(ctx.rank());
        if is_last || clock.is_multiple_of(self.options.n_push) {
            self.push(ctx, clock);
        }
        if clock.is_multiple_of(self.options.n_fetch) {
            self.fetch(ctx, clock);
        }
        self.refresh(ctx);
    }

    fn on_message(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        if self.reunion.is_on() {
            self.reunion.receive(ctx, from, message)?;
            self.copy_if_together(ctx);
            return Ok(());
        }
        self.enter_segment(ctx);
        let label = Label::from_part(message.part);
        let k = label.bucket;
        if k >= self.shards.len() {
            return Err(Malformed::new("there is no such shard"));
        }
        match label.step {
            PUSH => self.on_push(ctx, from, label, message.body)?,
            FETCH => {
                if !self.kept.contains_key(&k) || !message.body.is_empty() {
                    return Err(Malformed::new("it asks a peer that does not keep this shard"));
                }
                // What is complete was told already.
                if !self.are_all(&self.kept[&k].applied) {
                    self.answer(ctx, from, k);
                }
                return Ok(());
            }
            HEAD => {
                self.on_head(ctx, from, k, &message.body)?;
                self.take_if_complete(k);
            }
            VALUES => {
                self.on_values(from, label, &message.body)?;
                self.take_if_complete(k);
            }
            _ => return Err(Malformed::new("there is no such message in this strategy")),
        }
        self.refresh(ctx);
        // What came late is asked for again at once, if it is time.
        let (clock, shard) = (ctx.n_settled(self.rank), &self.shards[k]);
        let is_due = clock >= shard.fetched_at + self.options.n_fetch && !self.are_all(&shard.heard);
        if !shard.is_fetching && is_due && clock - shard.heard[self.rank].min(clock) > self.options.staleness {
            self.fetch_shard(ctx, k, clock);
        }
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut Ctx<'_>) {
        self.reunion.break_off();
        let n_params = ctx.n_params();
        self.accrued.resize(n_params, 0.0);
        // What of this peer's pushes is not in the parameters that go on, it pushes again.
        let account: Vec<Heard> = match ctx.past() {
            Past::Own => self.present().into_iter().collect(),
            Past::Adopted { .. } | Past::Stranger => postcard::from_bytes(ctx.account()).unwrap_or_default(),
        };
        let heard = match ctx.past() {
            Past::Own => Some(self.heard_by(&account, 0)),
            Past::Adopted { n_heard } => Some(self.heard_by(&account, n_heard)),
            Past::Stranger => None,
        };
        self.before = account.into_iter().next();
        match heard {
            Some(heard) => {
                for (shard, heard) in self.shards.iter().zip(heard) {
                    for push in self.pushed.iter().filter(|push| push.until > heard) {
                        add(&mut self.accrued[shard.place.clone()], &push.change[shard.place.clone()]);
                    }
                }
            }
            None => self.accrued.fill(0.0),
        }
        self.pushed.clear();
        if ctx.past() == Past::Own && !self.copy.is_empty() {
            ctx.values_mut()[..n_params].copy_from_slice(&self.copy);
        }
        self.copy = ctx.values()[..n_params].to_vec();
        add(ctx.values_mut(), &self.accrued);
        self.segment = None;
    }

    fn may_go_on(&mut self, ctx: &Ctx<'_>) -> bool {
        self.enter_segment(ctx);
        self.lag(ctx) <= self.options.staleness + self.options.n_fetch + self.options.n_push
    }

    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        let mut values = values.clone();
        Arc::make_mut(&mut values)[..self.copy.len()].copy_from_slice(&self.copy);
        values
    }

    fn account(&self) -> Vec<u8> {
        let account: Vec<Heard> = self.present().into_iter().chain(self.before.clone()).collect();
        postcard::to_allocvec(&account).expect("plain numbers can be written")
    }

    fn n_memories(&self) -> usize {
        usize::from(self.uses_sums())
    }

    fn memory(&self, _: usize) -> &[f32] {
        &self.sums
    }

    fn recall(&mut self, memories: Vec<Vec<f32>>) {
        self.sums = memories.into_iter().next().unwrap_or_default();
    }

    fn sync(&mut self, ctx: &mut Ctx<'_>) {
        if !ctx.is_last_epoch() {
            return ctx.synced();
        }
        let mut common = ctx.values().to_vec();
        common[..self.copy.len()].copy_from_slice(&self.copy);
        self.reunion.begin(ctx, &common, &self.accrued);
        self.copy_if_together(ctx);
    }

    fn waits_for(&self) -> Vec<usize> {
        if self.reunion.is_on() {
            return self.reunion.waits_for();
        }
        // Who has not pushed all to the shards kept here, and who keeps those that have not come.
        let applied = self.kept.values().flat_map(|kept| kept.applied.iter().zip(&self.n_batches).enumerate());
        let late = applied.filter(|(_, (applied, n_batches))| applied < n_batches).map(|(rank, _)| rank);
        let missing = self.shards.iter().filter(|shard| !self.are_all(&shard.heard)).map(|shard| shard.keeper);
        let ranks: BTreeSet<usize> = late.chain(missing).filter(|&rank| rank != self.rank).collect();
        ranks.into_iter().collect()
    }
}

fn part(shard: usize, step: usize, segment: usize) -> u64 {
    Label { bucket: shard, step, segment }.to_part()
}
