//! `two-level`: a ring within a site after every local phase, and now and then one outer step with momentum between sites.
//!
//! A *site* is where links are fast: a room, an institute, a machine. A peer says the name of its own (`--site`), or is at one with those to
//! whom it is near by measured round trips; all members learn with every view who is where. In every round the members of a site go on with the mean
//! of their weights, by samples. In every so-manieth round, and at the end of an epoch, the first member of each site tells the others its
//! site's weights, and how far their mean has come from the last outer step's result is the gradient of an outer step as in `diloco`: all
//! go on from it. The first such step is the mean itself. So the links between sites carry 2M(S−1)/S now and then, from one peer of each of S sites; all else stays within.
//!
//! A site counts by how many peers it has. The result of the last outer step and the momentum are the strategy's state, the same at all
//! peers; late comers get it with the parameters. Between outer steps sites hold different weights, and who joins has those of whoever
//! gave them to it, until its site's next mean.
//!
//! Messages: those of a ring all-reduce within the site, of one among the first members, and of one within the site again, into which the
//! first member puts the mean and the others put zeros.
//! Lin et al. (2020), "Don't use large mini-batches, use local SGD" (hierarchical local SGD); the outer step by Douillard et al. (2023).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::diloco::Outer;
use crate::codec::Codec;
use crate::collective::{Collective, Extent, Ring};
use crate::strategy::{
    AnyStrategy, Cost, CostQuestion, Counted, Ctx, LOCAL_STEPS, LocalSteps, Malformed, Message, Mixing, OptimizerState,
    OptionDoc, OptionError, Payload, RoundCtx, RoundPlan, RoundStrategy, Scale, Spec, Strategy, Trained,
    default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "two-level",
    about: "Peers of one site average their weights round a ring after every local phase; now and then the first of each site exchange, and \
            all take one outer step with momentum. For fast links within sites and slow ones between them.",
    cost: "in a site of s each peer sends 2M(s-1)/s in 2(s-1) steps; with every outer step among several sites twice that, and one peer of each of S sites \
           2M(S-1)/S in 2(S-1) steps more",
    paper: "Lin et al. 2020, Douillard et al. 2023",
    options: &[
        LOCAL_STEPS,
        OptionDoc {
            name: "outer_every",
            about: "after how many rounds there is an outer step between sites; there is one at the end of every epoch, too",
        },
        OptionDoc {
            name: "outer_lr",
            about: "the outer step's learning rate; with `1` and no momentum it is the mean; `0`: as much as makes the outer \
                    steps as long as the mean's where peers share a batch, and 0.7 where each has its own",
        },
        OptionDoc { name: "outer_momentum", about: "the outer step's momentum, from 0 to below 1" },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { local_steps, outer_every, outer_lr, outer_momentum } = read_options(SPEC.name, table)?;
        let outer = Outer { lr: outer_lr, momentum: outer_momentum };
        outer.check(SPEC.name)?;
        if outer_every == 0 {
            let problem = "outer_every = 0: must be a number of rounds from 1 up".to_owned();
            return Err(OptionError::Option { strategy: SPEC.name, problem });
        }
        Ok(AnyStrategy::round(TwoLevel::new(local_steps, outer_every, outer)))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    local_steps: LocalSteps,
    outer_every: u32,
    outer_lr: f32,
    outer_momentum: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { local_steps: LocalSteps::Batches(1), outer_every: 16, outer_lr: 0.0, outer_momentum: 0.5 }
    }
}

/// One of the rings of a round, and who is in it.
struct Group {
    /// Ranks in the view; none if this peer is not in it.
    ranks: Vec<usize>,
    ring: Ring,
    /// What tells its messages from those of the others.
    channel: u64,
    is_on: bool,
}

/// The mean within the site, the one among the first members, and its way to their sites.
const SITE: usize = 0;
const FIRST: usize = 1;
const BACK: usize = 2;

impl Group {
    fn new(channel: usize) -> Self {
        let ring = Ring::new(Codec::F32, Extent::AllReduce);
        Self { ranks: Vec::new(), ring, channel: channel as u64, is_on: false }
    }

    fn begin(&mut self, ctx: &mut Ctx<'_>, ranks: Vec<usize>) {
        (self.ranks, self.is_on) = (ranks, true);
        self.ring.begin(&mut ctx.among(&self.ranks, self.channel));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, numbers: Vec<Vec<f32>>) {
        for (bucket, numbers) in numbers.into_iter().enumerate() {
            self.ring.put(&mut ctx.among(&self.ranks, self.channel), bucket, numbers);
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let place = self.ranks.iter().position(|&rank| rank == from).filter(|_| self.is_on);
        let Some(place) = place else {
            return Err(Malformed::new("it sends a part of a sum to a peer that has no part in that"));
        };
        self.ring.receive(&mut ctx.among(&self.ranks, self.channel), place, message)
    }

    /// The result, once and as soon as it is there.
    fn take(&mut self) -> Option<Vec<Vec<f32>>> {
        (self.is_on && self.ring.is_complete()).then(|| {
            self.is_on = false;
            self.ring.take_result()
        })
    }

    fn waits_for(&self) -> Vec<usize> {
        self.ring.waits_for().into_iter().map(|place| self.ranks[place]).collect()
    }
}

struct TwoLevel {
    local_steps: LocalSteps,
    outer_every: u32,
    outer: Outer,
    groups: [Group; 3],
    /// In which round these exchange, and whether an outer step follows.
    begun: Option<u32>,
    takes_outer_step: bool,
    is_syncing: bool,
    /// This peer's weights as they are handed over, bucket by bucket.
    own: Vec<Vec<f32>>,
    /// What the last outer step came to, and its memory; empty means zeros.
    anchor: Arc<Vec<f32>>,
    momentum: Arc<Vec<f32>>,
    /// The round whose local phase is over here: its weights are handed in, and again if the view changes.
    trained_in: Option<u32>,
}

impl TwoLevel {
    fn new(local_steps: LocalSteps, outer_every: u32, outer: Outer) -> Self {
        Self {
            local_steps,
            outer_every,
            outer,
            groups: [SITE, FIRST, BACK].map(Group::new),
            begun: None,
            takes_outer_step: false,
            is_syncing: false,
            own: Vec::new(),
            anchor: Arc::default(),
            momentum: Arc::default(),
            trained_in: None,
        }
    }

    /// Whoever speaks first begins the round's exchange, this peer or another.
    fn begin_if_new(&mut self, ctx: &mut Ctx<'_>) {
        if self.begun == Some(ctx.round()) {
            return;
        }
        self.begun = Some(ctx.round());
        self.takes_outer_step = self.is_syncing || (ctx.round() + 1).is_multiple_of(self.outer_every);
        let (sites, rank) = (ctx.sites(), ctx.rank());
        let own = sites.iter().find(|site| site.binary_search(&rank).is_ok()).cloned().unwrap_or_else(|| vec![rank]);
        let firsts: Vec<usize> = sites.iter().map(|site| site[0]).collect();
        self.groups.iter_mut().for_each(|group| group.is_on = false);
        if self.takes_outer_step && firsts.len() > 1 {
            if own[0] == rank {
                self.groups[FIRST].begin(ctx, firsts);
            }
            self.groups[BACK].begin(ctx, own.clone());
        }
        self.groups[SITE].begin(ctx, own);
    }

    fn hand_in(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, weights: Vec<f32>) {
        self.own.truncate(bucket);
        self.own.push(weights);
        if self.own.len() < ctx.buckets().len() {
            return;
        }
        self.begin_if_new(ctx);
        let share = self.share_of_site(ctx);
        let mut weights = std::mem::take(&mut self.own);
        weights.iter_mut().flatten().for_each(|weight| *weight *= share);
        self.groups[SITE].put(ctx, weights);
        self.proceed(ctx);
    }

    fn hand_in_what_is_held(&mut self, ctx: &mut RoundCtx<'_>) {
        for bucket in 0..ctx.buckets().len() {
            let held = ctx.held(bucket).into_owned();
            self.hand_in(ctx, bucket, held);
        }
    }

    /// This peer's share of its site's mean.
    fn share_of_site(&self, ctx: &RoundCtx<'_>) -> f32 {
        let site = &self.groups[SITE].ranks;
        let n_all: usize = site.iter().map(|&rank| ctx.n_samples(rank)).sum();
        if self.is_syncing || n_all == 0 {
            return 1.0 / site.len() as f32;
        }
        (ctx.n_samples(ctx.rank()) as f64 / n_all as f64) as f32
    }

    /// Does what follows from what has come.
    fn proceed(&mut self, ctx: &mut RoundCtx<'_>) {
        if let Some(mean) = self.groups[SITE].take() {
            if !self.takes_outer_step {
                return ctx.finish_round(mean, Counted::All);
            }
            // With one site there is nobody else to hear of it.
            if !self.groups[BACK].is_on {
                return self.take_outer_step(ctx, mean);
            }
            self.speak_for_site(ctx, mean);
        }
        if let Some(mut mean) = self.groups[FIRST].take() {
            // A zero has a sign, which the sum with others' zeros takes away.
            mean.iter_mut().flatten().for_each(|number| *number += 0.0);
            self.groups[BACK].put(ctx, mean);
        }
        if let Some(mean) = self.groups[BACK].take() {
            self.take_outer_step(ctx, mean);
        }
    }

    /// The first of a site tells its mean, by its share of the peers; the others have nothing to add.
    fn speak_for_site(&mut self, ctx: &mut RoundCtx<'_>, mut mean: Vec<Vec<f32>>) {
        let site = &self.groups[SITE].ranks;
        if site[0] != ctx.rank() {
            mean.iter_mut().flatten().for_each(|number| *number = 0.0);
            return self.groups[BACK].put(ctx, mean);
        }
        let share = (site.len() as f64 / ctx.n_peers() as f64) as f32;
        mean.iter_mut().flatten().for_each(|number| *number *= share);
        self.groups[FIRST].put(ctx, mean);
    }

    /// Makes the new parameters of the mean of all sites, with which the round is over.
    fn take_outer_step(&mut self, ctx: &mut RoundCtx<'_>, mut mean: Vec<Vec<f32>>) {
        mean.iter_mut().enumerate().for_each(|(bucket, numbers)| self.step_from(ctx, bucket, numbers));
        self.anchor = Arc::new(joined(ctx, &mean));
        if std::mem::take(&mut self.is_syncing) {
            ctx.replace_values(mean);
            ctx.synced();
        } else {
            ctx.finish_round(mean, Counted::All);
        }
    }

    /// Makes new parameters of their mean. The first time they are that mean: nothing is known to begin from.
    fn step_from(&mut self, ctx: &RoundCtx<'_>, bucket: usize, mean: &mut [f32]) {
        if self.anchor.iter().all(|&number| number == 0.0) {
            return;
        }
        let range = ctx.buckets()[bucket].clone();
        let n_trained = ctx.n_params().clamp(range.start, range.end) - range.start;
        let start = &self.anchor[range.clone()];
        mean.iter_mut().zip(start).for_each(|(number, start)| *number = start - *number);
        let momentum = Arc::make_mut(&mut self.momentum);
        momentum.resize(ctx.values().len(), 0.0);
        let memory = &mut momentum[range.start..range.start + n_trained];
        self.outer.step(ctx.scale().shares_batch(), mean, start, (n_trained, memory));
    }
}

/// A vector of its buckets.
fn joined(ctx: &Ctx<'_>, buckets: &[Vec<f32>]) -> Vec<f32> {
    let mut whole = vec![0.0; ctx.values().len()];
    for (numbers, range) in buckets.iter().zip(ctx.buckets()) {
        whole[range.clone()].copy_from_slice(numbers);
    }
    whole
}

impl Strategy for TwoLevel {
    fn round_plan(&self) -> RoundPlan {
        RoundPlan {
            payload: Payload::Weights,
            length: self.local_steps.into(),
            scale: Scale::Plain,
            mixing: Mixing::Partial,
            optimizer_state: OptimizerState::Keep,
        }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let asked = Ring::new(Codec::F32, Extent::AllReduce);
        let ring = |n_peers: usize| asked.sent_by_rank(&CostQuestion { n_peers, ..*question });
        let n_steps = |n_peers: usize| 2 * (n_peers as u32 - 1);
        let sites = question.sites();
        let takes_outer_step = (question.round + 1).is_multiple_of(self.outer_every);
        let is_told_back = takes_outer_step && sites.len() > 1;
        let (n_times, firsts) = if is_told_back { (2, ring(sites.len())) } else { (1, vec![0; sites.len()]) };
        let most_in_site = sites.iter().copied().max().unwrap_or(1);
        let between = if is_told_back { n_steps(sites.len()) } else { 0 };
        let mut cost = Cost { n_steps: n_times as u32 * n_steps(most_in_site) + between, ..Cost::default() };
        for (k, &len) in sites.iter().enumerate() {
            let sent = ring(len);
            for place in 0..len {
                // What a peer receives is what the one before it in the ring sends.
                let before = |ring: &[u64], place: usize| ring[(place + ring.len() - 1) % ring.len()];
                let (own, heard) = if place == 0 { (firsts[k], before(&firsts, k)) } else { (0, 0) };
                cost.total += n_times * sent[place] + own;
                cost.most_sent = cost.most_sent.max(n_times * sent[place] + own);
                cost.most_received = cost.most_received.max(n_times * before(&sent, place) + heard);
            }
        }
        cost
    }

    fn follows_sites(&self) -> bool {
        true
    }

    fn n_state_vectors(&self) -> usize {
        2
    }

    fn state_vector(&self, k: usize) -> Arc<Vec<f32>> {
        [&self.anchor, &self.momentum][k].clone()
    }

    fn restore(&mut self, vectors: Vec<Arc<Vec<f32>>>) {
        let mut vectors = vectors.into_iter();
        self.anchor = vectors.next().unwrap_or_default();
        self.momentum = vectors.next().unwrap_or_default();
    }

    fn waits_for(&self) -> Vec<usize> {
        self.groups.iter().find(|group| group.is_on).map(Group::waits_for).unwrap_or_default()
    }
}

impl RoundStrategy for TwoLevel {
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        self.hand_in(ctx, bucket, numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, _: &Trained) {
        self.trained_in = Some(ctx.round());
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.begin_if_new(ctx);
        let (channel, part) = Ctx::channel_of(message.part);
        let Some(group) = self.groups.get_mut(channel as usize) else {
            return Err(Malformed::new("there is no such sum in this strategy"));
        };
        group.receive(ctx, from, Message { part, ..message })?;
        self.proceed(ctx);
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        (self.begun, self.is_syncing) = (None, false);
        self.groups.iter_mut().for_each(|group| group.is_on = false);
        self.own.clear();
        self.trained_in = self.trained_in.filter(|&round| ctx.local_phase_goes_on() && round == ctx.round());
        if self.trained_in.is_some() {
            self.hand_in_what_is_held(ctx);
        }
    }

    fn keeps_local_phase(&self) -> bool {
        true
    }

    fn sync(&mut self, ctx: &mut RoundCtx<'_>) {
        self.is_syncing = true;
        self.hand_in_what_is_held(ctx);
    }
}
