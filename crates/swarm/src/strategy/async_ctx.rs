//! What a strategy may see and do that does not wait for rounds.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::ctx::Ctx;
use super::outcome::Past;
use crate::effects::Outbox;
use crate::replica::core::Core;

/// The window of a [`super::AsyncStrategy`]: all of [`Ctx`], and whose batches are in this peer's parameters.
pub struct AsyncCtx<'a> {
    ctx: Ctx<'a>,
}

impl<'a> Deref for AsyncCtx<'a> {
    type Target = Ctx<'a>;

    fn deref(&self) -> &Ctx<'a> {
        &self.ctx
    }
}

impl<'a> DerefMut for AsyncCtx<'a> {
    fn deref_mut(&mut self) -> &mut Ctx<'a> {
        &mut self.ctx
    }
}

impl<'a> AsyncCtx<'a> {
    pub(super) fn new(core: &'a mut Core, out: &'a mut Outbox) -> Self {
        Self { ctx: Ctx::new(core, out) }
    }

    /// By how many rounds this peer's updates may reach the others late without learning worse.
    pub fn most_delay(&self) -> f64 {
        let optimizer = &self.ctx.core.training.optimizer;
        self.scale().most_delay(optimizer.lr, self.n_peers(), optimizer)
    }

    /// How many bytes a second this peer's links carry, if its host has found out.
    pub fn uplink(&self) -> Option<f64> {
        self.ctx.core.uplink
    }

    /// The first round of the present segment.
    pub(crate) fn first_round(&self) -> u32 {
        self.ctx.core.segment_start.round
    }

    /// How many of a member's rounds of the present segment are in this peer's parameters.
    pub(crate) fn n_applied(&self, rank: usize) -> u32 {
        self.ctx.core.segment().map_or(0, |segment| segment.done[rank])
    }

    /// How many rounds everybody has in the present segment.
    pub fn n_rounds(&self) -> u32 {
        self.ctx.core.plan.as_ref().map_or(0, |plan| plan.n_rounds() as u32)
    }

    /// One more round of a member has gone into this peer's parameters. Its own is counted when
    /// the local phase ends.
    pub(crate) fn count_round(&mut self, rank: usize) {
        self.ctx.core.count_round(rank);
    }

    /// Whether a batch is being computed, for which the parameters must stay as they are.
    pub fn is_computing(&self) -> bool {
        self.ctx.core.is_computing
    }

    /// The parameters, to be changed when nothing is being computed with them.
    pub fn values_mut(&mut self) -> &mut [f32] {
        Arc::make_mut(&mut self.ctx.core.values).as_mut_slice()
    }

    /// In [`super::AsyncStrategy::on_view`]: what has become of this peer's part in the past.
    pub fn past(&self) -> Past {
        self.ctx.core.past
    }

    /// In [`super::AsyncStrategy::on_view`], if another's parameters go on: what its strategy says about them. Its bytes are
    /// hostile until checked.
    pub(crate) fn account(&self) -> &[u8] {
        &self.ctx.core.account
    }
}
