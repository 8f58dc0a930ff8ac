//! Peers whose replicas differ come together: all end with the same bits.

use std::ops::Range;

use super::aggregation::{Aggregation, Rule};
use super::ctx::Ctx;
use super::round_plan::{Message, Payload};
use crate::codec::Codec;
use crate::collective::{Collective, Gather, Total};
use crate::malformed::Malformed;

/// A sum over all peers of what they hold alike, divided by their number, and of what each has not said.
///
/// Or, where nobody's word is to be taken for it, the median of what they hold alike. What somebody has not said by then is left
/// out: nobody could tell whether it had been learnt.
pub(crate) struct FinalSync {
    exchange: Box<dyn Collective>,
    sums: bool,
    is_on: bool,
}

impl Default for FinalSync {
    fn default() -> Self {
        Self { exchange: Box::new(Total::default()), sums: true, is_on: false }
    }
}

impl FinalSync {
    /// One that sums, or one by the median of all.
    pub(crate) fn new(outvotes: bool) -> Self {
        if !outvotes {
            return Self::default();
        }
        let median = Rule { aggregation: Aggregation::Median, ..Rule::default() };
        let exchange = Box::new(Gather::new(Codec::F32, median, Payload::Updates));
        Self { exchange, sums: false, is_on: false }
    }

    /// Whether it is going on: what comes now is for it. When it has begun and is not, all are together.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Begins it with what this peer has not said, and with the parameters that all peers should hold alike: `make_common` makes
    /// them of this peer's own, range by range, so that nobody holds them whole.
    pub(crate) fn begin(&mut self, ctx: &mut Ctx<'_>, unsaid: &[f32], make_common: impl Fn(&Range<usize>, &mut [f32])) {
        self.is_on = true;
        self.exchange.begin(ctx);
        let (share, unsaid) = if self.sums { (1.0 / ctx.n_peers() as f32, unsaid) } else { (1.0, &[][..]) };
        for (bucket, range) in ctx.buckets().to_vec().into_iter().enumerate() {
            let mut numbers = ctx.buffer(range.len());
            numbers.copy_from_slice(&ctx.values()[range.clone()]);
            make_common(&range, &mut numbers);
            let unsaid = within(unsaid, &range).iter().copied().chain(std::iter::repeat(0.0));
            numbers.iter_mut().zip(unsaid).for_each(|(number, unsaid)| *number = *number * share + unsaid);
            self.exchange.put(ctx, bucket, numbers);
        }
        self.finish_if_complete(ctx);
    }

    /// Takes what another peer sent.
    pub(crate) fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.exchange.receive(ctx, from, message)?;
        self.finish_if_complete(ctx);
        Ok(())
    }

    /// Breaks it off: the view has changed.
    pub(crate) fn break_off(&mut self) {
        self.is_on = false;
    }

    /// Whom this peer waits for.
    pub(crate) fn waits_for(&self) -> Vec<usize> {
        self.exchange.waits_for()
    }

    fn finish_if_complete(&mut self, ctx: &mut Ctx<'_>) {
        if self.is_on && self.exchange.is_complete() {
            self.is_on = false;
            ctx.replace_values(self.exchange.take_result());
        }
    }
}

/// What a vector, which may end before the range does, has there.
pub(crate) fn within<'a>(vector: &'a [f32], range: &Range<usize>) -> &'a [f32] {
    &vector[range.start.min(vector.len())..range.end.min(vector.len())]
}
