//! `diloco`: many local steps, then one outer step with momentum on the mean of what they changed.
//!
//! Each peer trains H batches with its own optimizer. How far it has come from where the round began, w_start − w_i, is
//! averaged by samples and taken as a gradient: m = μm + Δ, w = w_start − lr (Δ + μm) (Nesterov's momentum). Running
//! statistics, and the inner optimizers' state if it is exchanged, are averaged and nothing else: with momentum a variance could fall below zero. The momentum is the same at all
//! peers; late comers get it with the parameters. Replicas are equal after every round.
//!
//! Messages: with 32 bits, those of a ring all-reduce. With fewer, segments of shards, pushed to their owners and sent back:
//! so numbers are rounded twice however many peers there are. What rounding takes away is added to the next difference, at
//! the contributor and at the owner; it belongs to one peer, and is forgotten when the view changes. With a rule that outvotes a
//! few, every peer sends its difference to all others. Body: numbers.
//! Douillard et al. (2023), "DiLoCo: distributed low-communication training of language models".

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::{Collective, Exchange, Extent, Gather, Ring, Shards};
use crate::strategy::{
    Aggregation, AnyStrategy, BAD_PEERS, Cost, CostQuestion, Counted, LOCAL_STEPS, LocalSteps, Malformed, Message,
    Mixing, OPTIMIZER_STATE, OUTVOTING, OptimizerState, OptionDoc, OptionError, Payload, RoundCtx, RoundPlan,
    RoundStrategy, Rule, Scale, Spec, Strategy, TRIM, Trained, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "diloco",
    about: "Each peer takes many steps by itself; the mean of what they changed is one step of an outer optimizer with \
            momentum. Very little traffic: made for slow links.",
    cost: "each peer sends 2M(N-1)/N in 2(N-1) steps per exchange; with b bits 2M(N-1)/N * b/32 in 2 steps",
    paper: "Douillard et al. 2023",
    options: &[
        OUTVOTING,
        BAD_PEERS,
        BITS,
        LOCAL_STEPS,
        OPTIMIZER_STATE,
        OptionDoc {
            name: "outer_lr",
            about: "the outer step's learning rate; with `1` and no momentum it is the mean; `0`: as much as makes the outer \
                    steps as long as the mean's where peers share a batch, and 0.7 where each has its own",
        },
        OptionDoc { name: "outer_momentum", about: "the outer step's momentum, from 0 to below 1" },
        TRIM,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { local, outer_lr, outer_momentum } = read_options(SPEC.name, table)?;
        local.build(SPEC.name, Outer { lr: outer_lr, momentum: outer_momentum })
    },
};

/// What `bits` does.
pub(super) const BITS: OptionDoc = OptionDoc {
    name: "bits",
    about: "how differences travel: `32` as they are; `8` or `4` rounded, and what that takes away is added to the next",
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    local: Local,
    outer_lr: f32,
    outer_momentum: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { local: Local::default(), outer_lr: 0.0, outer_momentum: 0.5 }
    }
}

/// How much is trained alone, and how differences travel.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Local {
    bits: u32,
    local_steps: LocalSteps,
    optimizer_state: OptimizerState,
    #[serde(flatten)]
    rule: Rule,
}

impl Default for Local {
    fn default() -> Self {
        let rule = Rule { aggregation: Aggregation::Samples, ..Rule::default() };
        Self { bits: 32, local_steps: LocalSteps::Auto, optimizer_state: OptimizerState::Keep, rule }
    }
}

/// What is done with the mean of the differences.
#[derive(Clone, Copy)]
pub(super) struct Outer {
    pub lr: f32,
    pub momentum: f32,
}

impl Outer {
    /// The learning rate. In time momentum makes steps 1/(1 - momentum) times as long, which is undone where the peers together take
    /// the steps of one; where they take fewer, they may be longer.
    fn rate(self, shares_batch: bool) -> f32 {
        match (self.lr > 0.0, shares_batch) {
            (true, _) => self.lr,
            (false, true) => 1.0 - self.momentum,
            (false, false) => 0.7,
        }
    }
}

impl Outer {
    /// Refuses what makes no sense.
    pub(super) fn check(self, strategy: &'static str) -> Result<(), OptionError> {
        let refuse = |problem: String| Err(OptionError::Option { strategy, problem });
        if !(self.lr >= 0.0 && self.lr.is_finite()) {
            return refuse(format!("outer_lr = {}: must be a number from 0 up", self.lr));
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return refuse(format!("outer_momentum = {}: must be from 0 to below 1", self.momentum));
        }
        Ok(())
    }

    /// Makes new parameters of a mean difference to those that it began with. The first `n_trained` are trained, and have a memory, if there
    /// is momentum; the rest are running statistics.
    pub(super) fn step(
        self,
        shares_batch: bool,
        difference: &mut [f32],
        start: &[f32],
        (n_trained, memory): (usize, &mut [f32]),
    ) {
        let (lr, momentum) = (self.rate(shares_batch), self.momentum);
        let (trained, statistics) = difference.split_at_mut(n_trained);
        let (start, start_statistics) = start.split_at(n_trained);
        for (step, memory) in trained.iter_mut().zip(memory) {
            *memory = momentum * *memory + *step;
            *step += momentum * *memory;
        }
        trained.iter_mut().zip(start).for_each(|(step, start)| *step = start - lr * *step);
        statistics.iter_mut().zip(start_statistics).for_each(|(step, start)| *step = start - *step);
    }
}

impl Local {
    /// The strategy with these options and this outer step, if they make sense.
    pub(super) fn build(self, strategy: &'static str, outer: Outer) -> Result<AnyStrategy, OptionError> {
        let refuse = |problem: String| Err(OptionError::Option { strategy, problem });
        if ![32, 8, 4].contains(&self.bits) {
            return refuse(format!("bits = {}: must be 32, 8 or 4", self.bits));
        }
        self.optimizer_state.check(strategy, self.codec())?;
        self.rule.outvoting(strategy, self.optimizer_state)?;
        outer.check(strategy)?;
        let exchange = Exchange::new(self.collective());
        Ok(AnyStrategy::round(Diloco { local: self, outer, exchange, momentum: Arc::default(), trained_in: None }))
    }

    fn codec(self) -> Codec {
        match self.bits {
            8 => Codec::Int8,
            4 => Codec::Int4,
            _ => Codec::F32,
        }
    }

    /// Whether all results count alike, so that a few can be outvoted.
    fn outvotes(self) -> bool {
        self.rule.aggregation != Aggregation::Samples
    }

    fn collective(self) -> Box<dyn Collective> {
        match self.codec() {
            Codec::F32 if self.outvotes() => Box::new(Gather::new(Codec::F32, self.rule, Payload::Updates)),
            codec if self.outvotes() => Box::new(Gather::new(codec, self.rule, Payload::Updates).with_feedback()),
            Codec::F32 => Box::new(Ring::new(Codec::F32, Extent::AllReduce)),
            codec => Box::new(Shards::new(codec, 0).with_feedback()),
        }
    }
}

struct Diloco {
    local: Local,
    outer: Outer,
    exchange: Exchange,
    /// The outer step's memory; empty means zeros.
    momentum: Arc<Vec<f32>>,
    /// The round whose local phase is over here: its difference is handed in, and again if the view changes.
    trained_in: Option<u32>,
}

impl Diloco {
    /// Hands in how far this peer has come, by its share of the samples that all train in this round, or as far as that is where all
    /// count alike.
    fn hand_in(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, mut weights: Vec<f32>) {
        let n_all: usize = (0..ctx.n_peers()).map(|rank| ctx.n_samples(rank)).sum();
        let share = (ctx.n_samples(ctx.rank()) as f64 / n_all.max(1) as f64) as f32;
        let share = if self.local.outvotes() { 1.0 } else { share };
        let start = ctx.held_at_start(bucket);
        weights.iter_mut().zip(start.iter()).for_each(|(weight, start)| *weight = share * (start - *weight));
        self.exchange.now(ctx).put(ctx, bucket, weights);
        self.finish_if_complete(ctx);
    }

    fn finish_if_complete(&mut self, ctx: &mut RoundCtx<'_>) {
        let collective = self.exchange.now(ctx);
        if !collective.is_complete() {
            return;
        }
        let mut result = collective.take_result();
        for (bucket, difference) in result.iter_mut().enumerate() {
            self.take_outer_step(ctx, bucket, difference);
        }
        ctx.finish_round(result, Counted::All);
    }

    /// Makes the new parameters of a mean difference.
    fn take_outer_step(&mut self, ctx: &RoundCtx<'_>, bucket: usize, difference: &mut [f32]) {
        let range = ctx.buckets()[bucket].clone();
        let n_trained = ctx.n_params().clamp(range.start, range.end) - range.start;
        let start = ctx.held_at_start(bucket);
        let mut memory: &mut [f32] = &mut [];
        if self.outer.momentum > 0.0 && n_trained > 0 {
            let momentum = Arc::make_mut(&mut self.momentum);
            momentum.resize(ctx.values().len(), 0.0);
            memory = &mut momentum[range.start..range.start + n_trained];
        }
        self.outer.step(ctx.scale().shares_batch(), difference, &start, (n_trained, memory));
    }
}

impl Strategy for Diloco {
    fn round_plan(&self) -> RoundPlan {
        let length = self.local.local_steps.into();
        let optimizer_state = self.local.optimizer_state;
        RoundPlan { payload: Payload::Weights, length, scale: Scale::Plain, mixing: Mixing::Full, optimizer_state }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        self.exchange.cost(question)
    }

    fn follows_speed(&self) -> bool {
        !self.local.outvotes()
    }

    fn n_state_vectors(&self) -> usize {
        usize::from(self.outer.momentum > 0.0)
    }

    fn state_vector(&self, _: usize) -> Arc<Vec<f32>> {
        self.momentum.clone()
    }

    fn restore(&mut self, vectors: Vec<Arc<Vec<f32>>>) {
        self.momentum = vectors.into_iter().next().unwrap_or_default();
    }

    fn waits_for(&self) -> Vec<usize> {
        self.exchange.waits_for()
    }
}

impl RoundStrategy for Diloco {
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        self.hand_in(ctx, bucket, numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, _: &Trained) {
        self.trained_in = Some(ctx.round());
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.exchange.now(ctx).receive(ctx, from, message)?;
        self.finish_if_complete(ctx);
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        // A new one owes nobody anything.
        self.exchange = Exchange::new(self.local.collective());
        self.trained_in = self.trained_in.filter(|&round| ctx.local_phase_goes_on() && round == ctx.round());
        if self.trained_in.is_some() {
            for bucket in 0..ctx.buckets().len() {
                let held = ctx.held(bucket).into_owned();
                self.hand_in(ctx, bucket, held);
            }
        }
    }

    fn keeps_local_phase(&self) -> bool {
        true
    }
}
