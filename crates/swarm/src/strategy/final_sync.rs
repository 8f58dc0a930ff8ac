//! Peers whose replicas differ come together: all end with the same bits.

use std::ops::Range;

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

    /// Begins it with what this peer has not said, and with the parameters that all peers should hold alike: `make_common` makes
    /// them of this peer's own, range by range, so that nobody holds them whole.
    pub(crate) fn begin(&mut self, ctx: &mut Ctx<'_>, unsaid: &[f32], make_common: impl Fn(&Range<usize>, &mut [f32])) {
        self.is_on = true;
        self.ring.begin(ctx);
        let share = 1.0 / ctx.n_peers() as f32;
        for (bucket, range) in ctx.buckets().to_vec().into_iter().enumerate() {
            let mut numbers = ctx.buffer(range.len());
            numbers.copy_from_slice(&ctx.values()[range.clone()]);
            make_common(&range, &mut numbers);
            let unsaid = within(unsaid, &range).iter().copied().chain(std::iter::repeat(0.0));
            numbers.iter_mut().zip(unsaid).for_each(|(number, unsaid)| *number = *number * share + unsaid);
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

/// What a vector, which may end before the range does, has there.
pub(crate) fn within<'a>(vector: &'a [f32], range: &Range<usize>) -> &'a [f32] {
    &vector[range.start.min(vector.len())..range.end.min(vector.len())]
}
