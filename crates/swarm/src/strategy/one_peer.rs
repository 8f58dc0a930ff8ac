//! The strategy of a warm-up by one peer: it trains all, and at the end of the epoch the others take over what it has.
//!
//! Who that is follows from the plan: the only member that has something to train. With its weights goes the state of its optimizer,
//! so that all can go on with any strategy as if each had trained itself. If that peer is lost, the others still stand where the epoch
//! began, and the next one trains it anew.
//!
//! Messages: the weights and the optimizer's state, in segments of buckets, to every other peer.

use crate::sampling::rounds::RoundLength;

use super::cost::{Cost, CostQuestion};
use super::interface::{RoundStrategy, Strategy};
use super::optimizer_state::OptimizerState;
use super::outcome::Counted;
use super::round_ctx::RoundCtx;
use super::round_plan::{Message, Mixing, Payload, RoundPlan, Scale, Trained};
use crate::codec::Codec;
use crate::collective::bucket::{Address, Buckets, send_segments, vector_len};
use crate::collective::segments::Label;
use crate::malformed::Malformed;

/// One peer trains, the others wait for it.
#[derive(Default)]
pub(crate) struct OnePeer {
    /// What this peer holds at the end of its local phase, bucket by bucket.
    own: Vec<Vec<f32>>,
    /// The round whose local phase is over here.
    trained_in: Option<u32>,
    incoming: Buckets,
    /// For whom this peer waits.
    waits_for: Option<usize>,
}

const STATE: usize = 0;

/// Who trains in this round; nobody if the one who did is gone.
fn trainer(ctx: &RoundCtx<'_>) -> Option<usize> {
    (0..ctx.n_peers()).find(|&rank| ctx.n_samples(rank) > 0)
}

impl OnePeer {
    /// The local phase is over: whoever trained tells all, and the others wait for that.
    fn conclude(&mut self, ctx: &mut RoundCtx<'_>) {
        self.waits_for = trainer(ctx).filter(|&trainer| trainer != ctx.rank());
        if self.waits_for.is_some() {
            return self.finish_if_complete(ctx);
        }
        if trainer(ctx).is_some() {
            let rank = ctx.rank();
            for to in (0..ctx.n_peers()).filter(|&to| to != rank) {
                for (bucket, numbers) in self.own.iter().enumerate() {
                    let address = Address { to, bucket, step: STATE };
                    send_segments(ctx, Codec::F32, address, numbers, 0..numbers.len());
                }
            }
        }
        let own = std::mem::take(&mut self.own);
        self.finish(ctx, own);
    }

    fn finish_if_complete(&mut self, ctx: &mut RoundCtx<'_>) {
        if self.trained_in == Some(ctx.round()) && self.incoming.is_complete() {
            let result = self.incoming.take_result();
            self.finish(ctx, result);
        }
    }

    fn finish(&mut self, ctx: &mut RoundCtx<'_>, result: Vec<Vec<f32>>) {
        *self = Self::default();
        ctx.finish_round(result, Counted::All);
    }
}

impl Strategy for OnePeer {
    fn round_plan(&self) -> RoundPlan {
        RoundPlan {
            payload: Payload::Weights,
            length: RoundLength::Epoch,
            scale: Scale::Plain,
            mixing: Mixing::Full,
            // What is handed over holds the optimizer's state; its mean over the one who trains is its own.
            optimizer_state: OptimizerState::Average,
        }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let (vector, others) = (vector_len(Codec::F32, question), question.n_peers as u64 - 1);
        let most_received = others.min(1) * vector;
        Cost { total: others * vector, most_sent: others * vector, most_received, n_steps: others.min(1) as u32 }
    }

    fn waits_for(&self) -> Vec<usize> {
        self.waits_for.into_iter().collect()
    }
}

impl RoundStrategy for OnePeer {
    fn on_part(&mut self, _: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        self.own.truncate(bucket);
        self.own.push(numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, _: &Trained) {
        self.trained_in = Some(ctx.round());
        self.conclude(ctx);
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if from == ctx.rank() || trainer(ctx) != Some(from) || label.step != STATE {
            return Err(Malformed::new("it hands over what it has trained, and was not to train"));
        }
        if self.incoming.iter().next().is_none() {
            self.incoming = Buckets::incoming(ctx);
        }
        self.incoming.take_incoming(Codec::F32, label, message.body)?;
        self.finish_if_complete(ctx);
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        self.incoming = Buckets::default();
        self.waits_for = None;
        self.trained_in = self.trained_in.filter(|&round| ctx.local_phase_goes_on() && round == ctx.round());
        if self.trained_in.is_some() {
            self.conclude(ctx);
        }
    }

    fn keeps_local_phase(&self) -> bool {
        true
    }
}
