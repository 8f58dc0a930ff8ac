//! Where a block is, and how it addresses the others of its pipeline.

use std::ops::Range;
use std::sync::Arc;

use super::label::{Label, Purpose, Subject};
use super::network::LayerNetwork;
use super::row_sum::Ways;

/// Where a block is: in which pipeline, and in which of its slots.
#[derive(Clone)]
pub(super) struct Seat {
    pub network: Arc<LayerNetwork>,
    pub pipeline: usize,
    pub slot: usize,
}

impl Seat {
    /// A slot of the same pipeline, counted over all of them.
    pub(super) fn address(&self, slot: usize) -> usize {
        self.pipeline * self.network.n_slots() + slot
    }

    pub(super) fn label(&self, subject: Subject, key: Key, to: usize) -> Label {
        let (from, to) = (self.address(self.slot), self.address(to));
        Label { subject, purpose: key.purpose, from, to, piece: 0 }
    }
}

/// Names a pass; the same in all blocks of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub purpose: Purpose,
    pub serial: u32,
}

/// Which of some rows are among others too, counted from the first of them.
pub(super) fn overlap(rows: &Range<usize>, others: &Range<usize>) -> Range<usize> {
    let place = |row: usize| row.clamp(rows.start, rows.end) - rows.start;
    place(others.start)..place(others.end)
}

/// The ways to the other rows of a block's column.
pub(super) fn ways(seat: &Seat, key: Key) -> Ways {
    let at = seat.network.at(seat.slot);
    let column = seat.network.group(at.group).filter(|&slot| seat.network.at(slot).column == at.column);
    Ways {
        label: seat.label(Subject::RowPart, key, seat.slot),
        round: key.serial,
        slots: column.map(|slot| seat.address(slot)).collect(),
    }
}
