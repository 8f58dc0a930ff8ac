//! Peers whose replicas differ come together: all end with the same bits.

use super::ctx::Ctx;
use super::turn::Message;
use crate::codec::Codec;
use crate::collective::{Collective, Extent, Ring};
use crate::malformed::Malformed;

/// A sum over all peers of what they hold alike, divided by their number, and of what each has not said.
pub(crate) struct FinalSync {
    ring: Ring,
    is_on: bool,
}

impl Default for FinalSync {
    fn default() -> Self {
        Self { ring: Ring::new(Codec::F32, Extent::AllReduce), is_on: false }
    }
}

impl FinalSync {
    /// Whether it is going on: what comes now is for it. When it has begun and is not, all are together.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Begins it with the parameters that all peers should hold alike, and what this one has not said.
    pub(crate) fn begin(&mut self, ctx: &mut Ctx<'_>, common: &[f32], unsaid: &[f32]) {
        self.is_on = true;
        self.ring.begin(ctx);
        let share = 1.0 / ctx.n_peers() as f32;
        for (bucket, range) in ctx.buckets().to_vec().into_iter().enumerate() {
            let unsaid = range.clone().map(|k| unsaid.get(k).copied().unwrap_or(0.0));
            let numbers =
                common[range.clone()].iter().zip(unsaid).map(|(value, unsaid)| value * share + unsaid).collect();
            self.ring.put(ctx, bucket, numbers);
        }
        self.finish_if_complete(ctx);
    }

    /// Takes what another peer sent.
    pub(crate) fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.ring.receive(ctx, from, message)?;
        self.finish_if_complete(ctx);
        Ok(())
    }

    /// Breaks it off: the view has changed.
    pub(crate) fn break_off(&mut self) {
        self.is_on = false;
    }

    /// Whom this peer waits for.
    pub(crate) fn waits_for(&self) -> Vec<usize> {
        self.ring.waits_for()
    }

    fn finish_if_complete(&mut self, ctx: &mut Ctx<'_>) {
        if self.is_on && self.ring.is_complete() {
            self.is_on = false;
            ctx.replace_values(self.ring.take_result());
        }
    }
}
