//! The strategy of all who average by one collective exchange in every round.

use super::aggregation::Rule;
use super::cost::{Cost, CostQuestion};
use super::interface::{RoundStrategy, Strategy};
use super::outcome::Counted;
use super::round_ctx::RoundCtx;
use super::round_plan::{Message, Payload, RoundPlan, Scale, Trained};
use crate::codec::Codec;
use crate::collective::{Collective, Exchange, Gather};
use crate::malformed::Malformed;

/// After each round's local phase, one exchange; its result ends the round.
pub(crate) struct Averager {
    round_plan: RoundPlan,
    exchange: Exchange,
    /// What brings replicas together at the end of an epoch, if they are not equal anyway.
    sync: Option<Exchange>,
    /// Whether that one sums, or makes one of whole vectors.
    sync_sums: bool,
    is_syncing: bool,
    /// Whether all results count alike, however much was trained.
    counts_alike: bool,
    /// Whether what was trained stays valid when the view changes, and the round whose local phase is over here.
    keeps_local_phase: bool,
    trained_in: Option<u32>,
}

impl Averager {
    /// Averages by this exchange, after which all replicas are equal.
    pub(crate) fn new(round_plan: RoundPlan, collective: impl Collective + 'static) -> Self {
        let exchange = Exchange::new(Box::new(collective));
        Self {
            round_plan,
            exchange,
            sync: None,
            sync_sums: true,
            is_syncing: false,
            counts_alike: false,
            keeps_local_phase: false,
            trained_in: None,
        }
    }

    /// Has every peer send its vector to all others, and a rule make one of them that outvotes a few.
    pub(crate) fn outvoting(round_plan: RoundPlan, codec: Codec, rule: Rule) -> Self {
        let round_plan = RoundPlan { scale: Scale::Plain, ..round_plan };
        Self::new(round_plan, Gather::new(codec, rule, round_plan.payload)).counting_alike()
    }

    /// Brings replicas together at the end of every epoch by another exchange, which is to sum.
    pub(crate) fn with_sync(self, collective: impl Collective + 'static) -> Self {
        Self { sync: Some(Exchange::new(Box::new(collective))), ..self }
    }

    /// Brings replicas together at the end of every epoch by a rule that outvotes a few.
    pub(crate) fn with_outvoting_sync(self, rule: Rule) -> Self {
        // What they held when their last round began does not matter: it was not the same for all.
        let gather = Gather::new(Codec::F32, rule, Payload::Gradients);
        Self { sync_sums: false, ..self.with_sync(gather) }
    }

    /// The same, where all results count alike, however much was trained.
    pub(crate) fn counting_alike(self) -> Self {
        Self { counts_alike: true, ..self }
    }

    /// The same, where what was trained is handed in again if the view changes. For whoever exchanges plain weights.
    pub(crate) fn keeping_local_phase(self) -> Self {
        Self { keeps_local_phase: true, ..self }
    }

    fn exchange(&mut self) -> &mut Exchange {
        match &mut self.sync {
            Some(sync) if self.is_syncing => sync,
            _ => &mut self.exchange,
        }
    }

    fn finish_if_complete(&mut self, ctx: &mut RoundCtx<'_>) {
        let is_syncing = self.is_syncing;
        let collective = self.exchange().now(ctx);
        if !collective.is_complete() {
            return;
        }
        let result = collective.take_result();
        if is_syncing {
            self.is_syncing = false;
            ctx.replace_values(result);
            ctx.synced();
        } else {
            ctx.finish_round(result, Counted::All);
        }
    }
}

impl Strategy for Averager {
    fn round_plan(&self) -> RoundPlan {
        self.round_plan
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        self.exchange.cost(question)
    }

    fn follows_speed(&self) -> bool {
        !self.counts_alike
    }

    fn waits_for(&self) -> Vec<usize> {
        match &self.sync {
            Some(sync) if self.is_syncing => sync.waits_for(),
            _ => self.exchange.waits_for(),
        }
    }
}

impl RoundStrategy for Averager {
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        self.exchange().now(ctx).put(ctx, bucket, numbers);
        self.finish_if_complete(ctx);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, _: &Trained) {
        self.trained_in = Some(ctx.round());
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.exchange().now(ctx).receive(ctx, from, message)?;
        self.finish_if_complete(ctx);
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        self.is_syncing = false;
        self.exchange.forget();
        self.sync.iter_mut().for_each(Exchange::forget);
        self.trained_in = self.trained_in.filter(|&round| ctx.local_phase_goes_on() && round == ctx.round());
        if self.trained_in.is_some() {
            for bucket in 0..ctx.buckets().len() {
                let held = ctx.held(bucket).into_owned();
                self.on_part(ctx, bucket, held);
            }
        }
    }

    fn keeps_local_phase(&self) -> bool {
        self.keeps_local_phase
    }

    fn sync(&mut self, ctx: &mut RoundCtx<'_>) {
        if self.sync.is_none() {
            return ctx.synced();
        }
        self.is_syncing = true;
        let share = if self.sync_sums { 1.0 / ctx.n_peers() as f32 } else { 1.0 };
        for bucket in 0..ctx.buckets().len() {
            let len = ctx.buckets()[bucket].len();
            let mut numbers = ctx.buffer(len);
            numbers.iter_mut().zip(ctx.held(bucket).iter()).for_each(|(number, held)| *number = held * share);
            self.on_part(ctx, bucket, numbers);
        }
    }
}
