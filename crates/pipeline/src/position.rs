//! Where a block is, and how it addresses the others of its pipeline.

use std::ops::Range;
use std::sync::Arc;

use crate::gradient_sum::Ways;
use crate::message::{Label, Purpose, Subject};
use crate::pipeline_setup::PipelineSetup;

/// Where a block is: in which pipeline, and in which of its slots.
#[derive(Clone)]
pub(crate) struct Position {
    pub setup: Arc<PipelineSetup>,
    pub pipeline: usize,
    pub slot: usize,
}

impl Position {
    /// A slot of the same pipeline, counted over all of them.
    pub(crate) fn address(&self, slot: usize) -> usize {
        self.pipeline * self.setup.n_slots() + slot
    }

    pub(crate) fn label(&self, subject: Subject, key: Key, to: usize) -> Label {
        let (from, to) = (self.address(self.slot), self.address(to));
        Label { subject, purpose: key.purpose, from, to, piece: 0 }
    }
}

/// Names a pass; the same in all blocks of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub purpose: Purpose,
    pub serial: u32,
}

/// Which of some samples are among others too, counted from the first of them.
pub(crate) fn overlap(rows: &Range<usize>, others: &Range<usize>) -> Range<usize> {
    let place = |row: usize| row.clamp(rows.start, rows.end) - rows.start;
    place(others.start)..place(others.end)
}

/// The ways to the other batch shards of a block.
pub(crate) fn ways(position: &Position, key: Key) -> Ways {
    let at = position.setup.at(position.slot);
    let shards = position.setup.stage(at.stage).filter(|&slot| position.setup.at(slot).tensor_shard == at.tensor_shard);
    Ways {
        label: position.label(Subject::GradientPart, key, position.slot),
        round: key.serial,
        slots: shards.map(|slot| position.address(slot)).collect(),
    }
}
