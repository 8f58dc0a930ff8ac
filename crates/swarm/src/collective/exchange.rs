//! An exchange that is used in one round after the other.

use super::interface::Collective;
use crate::strategy::{Cost, CostQuestion, Ctx};

/// A collective, and the round it was begun in.
pub(crate) struct Exchange {
    collective: Box<dyn Collective>,
    round: Option<u32>,
}

impl Exchange {
    pub(crate) fn new(collective: Box<dyn Collective>) -> Self {
        Self { collective, round: None }
    }

    /// The exchange of the present round; whoever speaks first begins it, this peer or another.
    pub(crate) fn now(&mut self, ctx: &mut Ctx<'_>) -> &mut dyn Collective {
        if self.round != Some(ctx.round()) {
            self.collective.begin(ctx);
            self.round = Some(ctx.round());
        }
        self.collective.as_mut()
    }

    /// The round is void.
    pub(crate) fn forget(&mut self) {
        self.round = None;
    }

    pub(crate) fn waits_for(&self) -> Vec<usize> {
        self.collective.waits_for()
    }

    pub(crate) fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        self.collective.cost(question)
    }
}
