//! A peer's own copy of shards that are kept all over the swarm: what came last, and what the peer has learnt since.
//!
//! It knows by shard whose batches are in it. When the view changes, the most advanced peer's copy goes on, and what of a peer's
//! pushes is not in that, the peer has to push again.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::owner::{Answer, Kept};
use super::segments::{Label, chunk};
use crate::malformed::Malformed;
use crate::strategy::{AsyncCtx, Past};

/// The copy, in one segment of the ledger.
pub(crate) struct OwnCopy {
    /// Whether AdaGrad is used.
    uses_sums: bool,
    /// The segment that all below is about, by its first round; who this peer is in it, and by rank who has how many batches.
    segment: Option<u32>,
    pub rank: usize,
    pub n_batches: Vec<u32>,
    /// The shards as this peer got them last: together a copy of the parameters. Empty before there is any.
    pub values: Vec<f32>,
    pub shards: Vec<Shard>,
    /// AdaGrad's sums as they were when the segment began, if it is used.
    pub sums: Arc<Vec<f32>>,
    /// What this peer learnt and has not pushed, and what it pushed that is perhaps not in everybody's copy.
    pub accrued: Change,
    pushed: VecDeque<Push>,
    /// Whose batches of the segment before are in the copy, if a change of the view has ended it.
    before: Option<Heard>,
}

/// A shard as this peer sees it.
#[derive(Default)]
pub(crate) struct Shard {
    pub place: Range<usize>,
    pub owner: usize,
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
    change: Change,
}

/// Whose batches of a segment are in a copy, by shard and rank.
#[derive(Clone, Serialize, Deserialize)]
struct Heard {
    segment: u32,
    by_shard: Vec<Vec<u32>>,
}

/// When a shard that came is asked for again.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// After how many batches.
    pub n_fetch: u32,
    /// By how many of its batches a peer must be ahead of it.
    pub staleness: u32,
}

impl OwnCopy {
    /// A copy of nothing yet.
    pub(crate) fn new(uses_sums: bool) -> Self {
        Self {
            uses_sums,
            segment: None,
            rank: 0,
            n_batches: Vec::new(),
            values: Vec::new(),
            shards: Vec::new(),
            sums: Arc::default(),
            accrued: Change::default(),
            pushed: VecDeque::new(),
            before: None,
        }
    }

    /// Begins a segment if it is new, from the parameters that all hold alike; whether it is.
    pub(crate) fn enter_segment(&mut self, ctx: &AsyncCtx<'_>, n_shards: usize) -> bool {
        if self.segment == Some(ctx.first_round()) {
            return false;
        }
        // After a change of the view this comes from none; else from one that all have seen the end of.
        self.before = self.before.take().filter(|_| self.segment.is_none());
        self.segment = Some(ctx.first_round());
        let (n_params, n_peers) = (ctx.n_params(), ctx.n_peers());
        self.rank = ctx.rank();
        self.n_batches = vec![ctx.n_rounds(); n_peers];
        self.pushed.clear();
        if self.accrued.is_none() {
            self.accrued = Change::none(ctx.buckets());
        }
        if self.uses_sums {
            Arc::make_mut(&mut self.sums).resize(ctx.values().len(), 0.0);
        }
        if self.values.is_empty() {
            self.values = ctx.values()[..n_params].to_vec();
        }
        let shard = |k: usize| Shard {
            place: chunk(k, n_shards, n_params),
            owner: k % n_peers,
            heard: vec![0; n_peers],
            ..Shard::default()
        };
        self.shards = (0..n_shards).map(shard).collect();
        true
    }

    /// The shards that this peer keeps, as they begin.
    pub(crate) fn kept_here(&self) -> impl Iterator<Item = (usize, Kept)> {
        let mine = self.shards.iter().enumerate().filter(|(_, shard)| shard.owner == self.rank);
        mine.map(|(k, shard)| {
            let sums = self.sums.get(shard.place.clone()).unwrap_or_default().to_vec();
            (k, Kept::new(self.values[shard.place.clone()].to_vec(), sums, self.n_batches.len()))
        })
    }

    /// Whether all batches of all are among these, by rank.
    pub(crate) fn are_all(&self, batches: &[u32]) -> bool {
        batches.iter().zip(&self.n_batches).all(|(batches, n_batches)| batches >= n_batches)
    }

    /// All that was learnt since the last push counts as pushed from now on.
    pub(crate) fn push(&mut self, until: u32, ctx: &AsyncCtx<'_>) {
        let change = std::mem::replace(&mut self.accrued, Change::none(ctx.buckets()));
        self.pushed.push_back(Push { until, change });
    }

    /// What of the last push is for a shard.
    pub(crate) fn last_push(&self, k: usize) -> Vec<f32> {
        let push = self.pushed.back().expect("something was pushed");
        push.change.at(&self.shards[k].place)
    }

    /// Whom to ask for a shard, if it is not under way already.
    pub(crate) fn fetch(&mut self, k: usize, clock: u32) -> Option<usize> {
        let shard = &mut self.shards[k];
        if std::mem::replace(&mut shard.is_fetching, true) {
            return None;
        }
        shard.fetched_at = clock;
        Some(shard.owner)
    }

    /// Whether a shard that came late is to be asked for again at once.
    pub(crate) fn is_due(&self, k: usize, clock: u32, patience: Patience) -> bool {
        let shard = &self.shards[k];
        let is_due = clock >= shard.fetched_at + patience.n_fetch && !self.are_all(&shard.heard);
        !shard.is_fetching && is_due && clock - shard.heard[self.rank].min(clock) > patience.staleness
    }

    /// An answer begins.
    pub(crate) fn begin_answer(&mut self, from: usize, k: usize, body: &[u8]) -> Result<(), Malformed> {
        let shard = &mut self.shards[k];
        if shard.owner != from || shard.incoming.is_some() {
            return Err(Malformed::new("it sends a shard that it was not asked for"));
        }
        shard.incoming = Some(Answer::begin(body, &shard.heard, &self.n_batches, self.rank)?);
        self.take_if_complete(k);
        Ok(())
    }

    /// An answer goes on.
    pub(crate) fn add_to_answer(&mut self, from: usize, label: Label, body: &[u8]) -> Result<(), Malformed> {
        let (k, uses_sums) = (label.bucket, self.uses_sums);
        let shard = &mut self.shards[k];
        let Some(answer) = shard.incoming.as_mut().filter(|_| shard.owner == from) else {
            return Err(Malformed::new("it sends a shard that it was not asked for"));
        };
        let is_last = answer.heard.iter().zip(&self.n_batches).all(|(heard, n_batches)| heard >= n_batches);
        answer.add(label.segment, body, shard.place.len() * if is_last && uses_sums { 2 } else { 1 })?;
        self.take_if_complete(k);
        Ok(())
    }

    /// Takes over what has come if it is all there.
    fn take_if_complete(&mut self, k: usize) {
        let shard = &self.shards[k];
        let Some(answer) = &shard.incoming else { return };
        let factor = if self.uses_sums && self.are_all(&answer.heard) { 2 } else { 1 };
        if answer.numbers.len() == factor * shard.place.len() {
            let answer = self.shards[k].incoming.take().expect("there is one");
            self.take(k, answer);
        }
    }

    /// An answer is complete.
    pub(crate) fn take(&mut self, k: usize, answer: Answer) {
        let shard = &mut self.shards[k];
        let (numbers, sums) = answer.numbers.split_at(shard.place.len());
        self.values[shard.place.clone()].copy_from_slice(numbers);
        if !sums.is_empty() {
            Arc::make_mut(&mut self.sums)[shard.place.clone()].copy_from_slice(sums);
        }
        (shard.heard, shard.n_safe) = (answer.heard, answer.n_safe);
        (shard.is_fresh, shard.is_fetching) = (true, false);
    }

    /// Makes the parameters anew where there is something new: what came, and what of this peer is not in it.
    pub(crate) fn refresh(&mut self, ctx: &mut AsyncCtx<'_>) {
        self.forget_what_is_safe(ctx);
        if ctx.is_computing() {
            return;
        }
        for shard in self.shards.iter_mut().filter(|shard| shard.is_fresh) {
            shard.is_fresh = false;
            let values = &mut ctx.values_mut()[shard.place.clone()];
            values.copy_from_slice(&self.values[shard.place.clone()]);
            for push in self.pushed.iter().filter(|push| push.until > shard.heard[self.rank]) {
                push.change.add_to(&shard.place, values);
            }
            self.accrued.add_to(&shard.place, values);
        }
        self.settle(ctx);
    }

    /// What is in everybody's copy is never said again.
    fn forget_what_is_safe(&mut self, ctx: &mut AsyncCtx<'_>) {
        let n_safe = self.shards.iter().map(|shard| shard.n_safe).min().unwrap_or(0);
        while self.pushed.front().is_some_and(|push| push.until <= n_safe) {
            let vectors = self.pushed.pop_front().into_iter().flat_map(|push| push.change.into_vectors());
            vectors.for_each(|vector| ctx.give_back(vector));
        }
    }

    /// Counts whose batches are in the copy. One that is only in some of the shards counts too, or it would be trained again;
    /// but not the last one of a peer before all is complete.
    fn settle(&self, ctx: &mut AsyncCtx<'_>) {
        let is_over = self.shards.iter().all(|shard| self.are_all(&shard.heard));
        for rank in (0..self.n_batches.len()).filter(|&rank| rank != self.rank) {
            let most = if is_over { u32::MAX } else { self.n_batches[rank].saturating_sub(1) };
            let heard = self.shards.iter().map(|shard| shard.heard[rank]).max().unwrap_or(0).min(most);
            (ctx.n_applied(rank)..heard).for_each(|_| ctx.count_round(rank));
        }
    }

    /// All hold the same parameters again, and nothing is unsaid.
    pub(crate) fn start_over(&mut self, values: &[f32]) {
        self.values = values.to_vec();
        self.accrued = Change::default();
    }

    /// Whether these are the numbers of the copy, bit by bit.
    pub(crate) fn is(&self, values: &[f32]) -> bool {
        self.values.iter().map(|value| value.to_bits()).eq(values.iter().map(|value| value.to_bits()))
    }

    /// By how many batches this peer is ahead of what it has got back.
    pub(crate) fn lag(&self, ctx: &AsyncCtx<'_>) -> u32 {
        let heard = self.shards.iter().map(|shard| shard.heard[ctx.rank()]).min().unwrap_or(0);
        ctx.n_applied(ctx.rank()).saturating_sub(heard)
    }

    /// Who keeps shards that have not come to their end.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        self.shards.iter().filter(|shard| !self.are_all(&shard.heard)).map(|shard| shard.owner)
    }

    /// The view has changed: the segment is over, and what of this peer's pushes is not in the parameters that go on, counts
    /// as learnt and not pushed.
    pub(crate) fn on_view(&mut self, ctx: &mut AsyncCtx<'_>) {
        let n_params = ctx.n_params();
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
                        self.accrued.add_part(&shard.place, &push.change);
                    }
                }
            }
            None => self.accrued = Change::default(),
        }
        self.pushed.clear();
        if ctx.past() == Past::Own && !self.values.is_empty() {
            ctx.values_mut()[..n_params].copy_from_slice(&self.values);
        }
        self.values = ctx.values()[..n_params].to_vec();
        self.accrued.add_to(&(0..n_params), &mut ctx.values_mut()[..n_params]);
        self.segment = None;
    }

    /// What others have to know of the copy when it goes on as theirs.
    pub(crate) fn account(&self) -> Vec<u8> {
        let account: Vec<Heard> = self.present().into_iter().chain(self.before.clone()).collect();
        postcard::to_allocvec(&account).expect("plain numbers can be written")
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
