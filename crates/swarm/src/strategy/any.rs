//! A strategy of either kind, and how a peer drives it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use nettorrent_engine::model::Score;

use super::async_ctx::AsyncCtx;
use super::interface::{AsyncStrategy, RoundStrategy, Strategy};
use super::round_ctx::RoundCtx;
use super::round_plan::{Message, Trained};
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::replica::core::Core;

/// A strategy of either kind.
pub enum AnyStrategy {
    /// One that exchanges in rounds.
    Round(Box<dyn RoundStrategy>),
    /// One that waits for none.
    Async(Box<dyn AsyncStrategy>),
}

impl Deref for AnyStrategy {
    type Target = dyn Strategy;

    fn deref(&self) -> &(dyn Strategy + 'static) {
        match self {
            Self::Round(strategy) => &**strategy,
            Self::Async(strategy) => &**strategy,
        }
    }
}

impl DerefMut for AnyStrategy {
    fn deref_mut(&mut self) -> &mut (dyn Strategy + 'static) {
        match self {
            Self::Round(strategy) => &mut **strategy,
            Self::Async(strategy) => &mut **strategy,
        }
    }
}

impl AnyStrategy {
    /// One that exchanges in rounds.
    pub fn round(strategy: impl RoundStrategy + 'static) -> Self {
        Self::Round(Box::new(strategy))
    }

    /// One that waits for none.
    pub fn asynchronous(strategy: impl AsyncStrategy + 'static) -> Self {
        Self::Async(Box::new(strategy))
    }

    /// See [`RoundStrategy::survives_divergence`].
    pub fn survives_divergence(&self) -> bool {
        matches!(self, Self::Round(strategy) if strategy.survives_divergence())
    }

    pub(crate) fn keeps_local_phase(&self) -> bool {
        matches!(self, Self::Round(strategy) if strategy.keeps_local_phase())
    }

    pub(crate) fn on_part(&mut self, core: &mut Core, out: &mut Outbox, bucket: usize, numbers: Vec<f32>) {
        match self {
            Self::Round(strategy) => strategy.on_part(&mut RoundCtx::new(core, out), bucket, numbers),
            Self::Async(strategy) => strategy.on_part(&mut AsyncCtx::new(core, out), bucket, numbers),
        }
    }

    pub(crate) fn on_trained(&mut self, core: &mut Core, out: &mut Outbox, trained: &Trained) {
        match self {
            Self::Round(strategy) => strategy.on_trained(&mut RoundCtx::new(core, out), trained),
            Self::Async(strategy) => strategy.on_trained(&mut AsyncCtx::new(core, out), trained),
        }
    }

    pub(crate) fn on_message(
        &mut self,
        core: &mut Core,
        out: &mut Outbox,
        from: usize,
        message: Message,
    ) -> Result<(), Malformed> {
        match self {
            Self::Round(strategy) => strategy.on_message(&mut RoundCtx::new(core, out), from, message),
            Self::Async(strategy) => strategy.on_message(&mut AsyncCtx::new(core, out), from, message),
        }
    }

    pub(crate) fn on_scored(&mut self, core: &mut Core, out: &mut Outbox, score: &Score) {
        if let Self::Round(strategy) = self {
            strategy.on_scored(&mut RoundCtx::new(core, out), score);
        }
    }

    pub(crate) fn on_timer(&mut self, core: &mut Core, out: &mut Outbox, timer: u32) {
        if let Self::Round(strategy) = self {
            strategy.on_timer(&mut RoundCtx::new(core, out), timer);
        }
    }

    pub(crate) fn on_view(&mut self, core: &mut Core, out: &mut Outbox) {
        match self {
            Self::Round(strategy) => strategy.on_view(&mut RoundCtx::new(core, out)),
            Self::Async(strategy) => strategy.on_view(&mut AsyncCtx::new(core, out)),
        }
    }

    /// Whether the next batch may begin, where no round is waited for.
    pub(crate) fn may_go_on(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        match self {
            Self::Round(_) => true,
            Self::Async(strategy) => strategy.may_go_on(&AsyncCtx::new(core, out)),
        }
    }

    /// The part of these parameters that all peers hold alike.
    pub(crate) fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        match self {
            Self::Round(_) => values.clone(),
            Self::Async(strategy) => strategy.common(values),
        }
    }

    /// What is said about these to who takes them over.
    pub(crate) fn account(&self) -> Vec<u8> {
        match self {
            Self::Round(_) => Vec::new(),
            Self::Async(strategy) => strategy.account(),
        }
    }

    pub(crate) fn sync(&mut self, core: &mut Core, out: &mut Outbox) {
        match self {
            Self::Round(strategy) => strategy.sync(&mut RoundCtx::new(core, out)),
            Self::Async(strategy) => strategy.sync(&mut AsyncCtx::new(core, out)),
        }
    }
}
