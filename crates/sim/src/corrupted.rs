//! A strategy in hands that pass other numbers on than were trained. All else it does as it should.

use std::sync::Arc;

use nettorrent_engine::model::Score;
use nettorrent_swarm::strategy::{
    AnyStrategy, AsyncCtx, AsyncStrategy, Cost, CostQuestion, Ctx, Malformed, Message, Payload, RoundCtx, RoundPlan,
    RoundStrategy, Scale, Strategy, Trained,
};

/// What is handed in.
pub struct HandedIn {
    /// In which round.
    pub round: u32,
    /// Which part of the vector.
    pub bucket: usize,
    /// With weights, what training began with; numbers that are changes begin at zero, and this is empty.
    pub origin: Vec<f32>,
}

/// Makes other numbers of those that are handed in.
type Corruption = Box<dyn FnMut(&HandedIn, Vec<f32>) -> Vec<f32> + Send>;

/// The same strategy with other numbers.
pub fn corrupted(
    honest: AnyStrategy,
    corruption: impl FnMut(&HandedIn, Vec<f32>) -> Vec<f32> + Send + 'static,
) -> AnyStrategy {
    let corruption: Corruption = Box::new(corruption);
    match honest {
        AnyStrategy::Round(honest) => AnyStrategy::round(Corrupted { honest, corruption }),
        AnyStrategy::Async(honest) => AnyStrategy::asynchronous(Corrupted { honest, corruption }),
    }
}

struct Corrupted<S: ?Sized> {
    honest: Box<S>,
    corruption: Corruption,
}

impl<S: Strategy + ?Sized> Corrupted<S> {
    fn corrupt(&mut self, ctx: &Ctx<'_>, bucket: usize, numbers: Vec<f32>) -> Vec<f32> {
        let round_plan = self.honest.round_plan();
        let mut origin = Vec::new();
        if round_plan.payload == Payload::Weights {
            origin = ctx.held_at_start(bucket).into_owned();
        }
        if round_plan.scale == Scale::Share {
            let n_all: usize = (0..ctx.n_peers()).map(|rank| ctx.n_samples(rank)).sum();
            let share = ctx.n_samples(ctx.rank()) as f32 / n_all.max(1) as f32;
            origin.iter_mut().for_each(|number| *number *= share);
        }
        (self.corruption)(&HandedIn { round: ctx.round(), bucket, origin }, numbers)
    }
}

impl<S: Strategy + ?Sized> Strategy for Corrupted<S> {
    fn round_plan(&self) -> RoundPlan {
        self.honest.round_plan()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        self.honest.cost(question)
    }

    fn cost_is_upper_bound(&self) -> bool {
        self.honest.cost_is_upper_bound()
    }

    fn n_held_out(&self, n_train: usize) -> usize {
        self.honest.n_held_out(n_train)
    }

    fn follows_speed(&self) -> bool {
        self.honest.follows_speed()
    }

    fn delay(&self) -> f64 {
        self.honest.delay()
    }

    fn counts_all(&self) -> bool {
        self.honest.counts_all()
    }

    fn n_state_vectors(&self) -> usize {
        self.honest.n_state_vectors()
    }

    fn state_vector(&self, k: usize) -> Arc<Vec<f32>> {
        self.honest.state_vector(k)
    }

    fn restore(&mut self, vectors: Vec<Arc<Vec<f32>>>) {
        self.honest.restore(vectors);
    }

    fn waits_for(&self) -> Vec<usize> {
        self.honest.waits_for()
    }
}

impl RoundStrategy for Corrupted<dyn RoundStrategy> {
    fn survives_divergence(&self) -> bool {
        self.honest.survives_divergence()
    }

    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        let numbers = self.corrupt(ctx, bucket, numbers);
        self.honest.on_part(ctx, bucket, numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, trained: &Trained) {
        self.honest.on_trained(ctx, trained);
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.honest.on_message(ctx, from, message)
    }

    fn on_scored(&mut self, ctx: &mut RoundCtx<'_>, score: &Score) {
        self.honest.on_scored(ctx, score);
    }

    fn on_timer(&mut self, ctx: &mut RoundCtx<'_>, timer: u32) {
        self.honest.on_timer(ctx, timer);
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        self.honest.on_view(ctx);
    }

    fn keeps_local_phase(&self) -> bool {
        self.honest.keeps_local_phase()
    }

    fn sync(&mut self, ctx: &mut RoundCtx<'_>) {
        self.honest.sync(ctx);
    }
}

impl AsyncStrategy for Corrupted<dyn AsyncStrategy> {
    fn on_part(&mut self, ctx: &mut AsyncCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        let numbers = self.corrupt(ctx, bucket, numbers);
        self.honest.on_part(ctx, bucket, numbers);
    }

    fn on_trained(&mut self, ctx: &mut AsyncCtx<'_>, trained: &Trained) {
        self.honest.on_trained(ctx, trained);
    }

    fn on_message(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.honest.on_message(ctx, from, message)
    }

    fn on_view(&mut self, ctx: &mut AsyncCtx<'_>) {
        self.honest.on_view(ctx);
    }

    fn may_go_on(&mut self, ctx: &AsyncCtx<'_>) -> bool {
        self.honest.may_go_on(ctx)
    }

    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        self.honest.common(values)
    }

    fn account(&self) -> Vec<u8> {
        self.honest.account()
    }

    fn sync(&mut self, ctx: &mut AsyncCtx<'_>) {
        self.honest.sync(ctx);
    }
}
