//! The sum of a gradient over the rows of a column: each row adds up one chunk of it, in the order of the rows, and tells the others.

use nettorrent_engine::model::block;

use super::label::{Incoming, Label, Letter, Subject, letters};
use crate::malformed::Malformed;

/// A sum that is going on.
#[derive(Debug)]
pub(super) struct RowSum {
    row: usize,
    n_rows: usize,
    len: usize,
    /// What this row computed, once it has; in the end, the sum.
    own: Option<Vec<f32>>,
    /// Others' parts of this row's chunk, and their sums of theirs, by row.
    parts: Vec<Incoming>,
    sums: Vec<Incoming>,
    is_told: bool,
}

impl RowSum {
    pub(super) fn new(row: usize, n_rows: usize, len: usize) -> Self {
        let chunk = |row| block(row, n_rows, len).len();
        let incoming = |of: &dyn Fn(usize) -> usize| {
            (0..n_rows).map(|other| Incoming::new(if other == row { 0 } else { of(other) })).collect()
        };
        Self {
            row,
            n_rows,
            len,
            own: None,
            parts: incoming(&|_| chunk(row)),
            sums: incoming(&|other| chunk(other)),
            is_told: false,
        }
    }

    /// This row's own gradient is there. `label` addresses the first row of this column; the others follow at a distance.
    pub(super) fn put(&mut self, own: Vec<f32>, ways: &Ways, out: &mut Vec<Letter>) {
        for row in (0..self.n_rows).filter(|&row| row != self.row) {
            let chunk = &own[block(row, self.n_rows, self.len)];
            out.extend(letters(ways.label(Subject::RowPart, row), ways.round, chunk));
        }
        self.own = Some(own);
        self.go_on(ways, out);
    }

    /// Another row sent a piece.
    pub(super) fn take(
        &mut self,
        (label, row): (Label, usize),
        body: &[u8],
        ways: &Ways,
        out: &mut Vec<Letter>,
    ) -> Result<(), Malformed> {
        let incoming = match label.subject {
            Subject::RowPart => &mut self.parts,
            _ => &mut self.sums,
        };
        incoming[row].take(label.piece, body)?;
        self.go_on(ways, out);
        Ok(())
    }

    fn go_on(&mut self, ways: &Ways, out: &mut Vec<Letter>) {
        let Some(own) = &mut self.own else { return };
        if !self.is_told && self.parts.iter().all(Incoming::is_complete) {
            self.is_told = true;
            let chunk = &mut own[block(self.row, self.n_rows, self.len)];
            let mine = chunk.to_vec();
            chunk.fill(0.0);
            for (row, part) in self.parts.iter().enumerate() {
                let part = if row == self.row { &mine } else { part.numbers() };
                chunk.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
            }
            for row in (0..self.n_rows).filter(|&row| row != self.row) {
                out.extend(letters(ways.label(Subject::RowSum, row), ways.round, chunk));
            }
        }
    }

    /// The sum, once it is there.
    pub(super) fn take_sum(&mut self) -> Option<Vec<f32>> {
        if !self.is_told || !self.sums.iter().all(Incoming::is_complete) {
            return None;
        }
        let mut sum = self.own.take()?;
        for (row, incoming) in self.sums.iter().enumerate().filter(|(row, _)| *row != self.row) {
            sum[block(row, self.n_rows, self.len)].copy_from_slice(incoming.numbers());
        }
        Some(sum)
    }

    /// The rows of which something is missing.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = usize> {
        (0..self.n_rows).filter(|&row| !self.parts[row].is_complete() || !self.sums[row].is_complete())
    }
}

/// How letters to the other rows are addressed.
pub(super) struct Ways {
    pub label: Label,
    pub round: u32,
    /// By row, the slot.
    pub slots: Vec<usize>,
}

impl Ways {
    fn label(&self, subject: Subject, row: usize) -> Label {
        Label { subject, to: self.slots[row], ..self.label }
    }
}

#[cfg(test)]
mod tests {
    use super::{RowSum, Ways};
    use crate::layers::label::{Label, Letter, Subject};

    #[test]
    fn all_rows_get_the_same_sum_in_whatever_order() {
        for len in [1, 2, 5, 200_000] {
            for reversed in [false, true] {
                let mut rows: Vec<RowSum> = (0..3).map(|row| RowSum::new(row, 3, len)).collect();
                let ways = |row: usize| Ways {
                    label: Label { from: row, ..Label::of_peer(Subject::RowPart) },
                    round: 0,
                    slots: vec![0, 1, 2],
                };
                let mut letters: Vec<Letter> = Vec::new();
                for (row, sum) in rows.iter_mut().enumerate() {
                    sum.put((0..len).map(|k| (k + row) as f32).collect(), &ways(row), &mut letters);
                }
                while !letters.is_empty() {
                    // Links may be of any speed, but each keeps its order.
                    let last = letters.last().unwrap().label.from;
                    let from = if reversed { last } else { letters[0].label.from };
                    let at = letters.iter().position(|letter| letter.label.from == from).unwrap();
                    let Letter { label, body, .. } = letters.remove(at);
                    let way = ways(label.to);
                    rows[label.to].take((label, label.from), &body, &way, &mut letters).unwrap();
                }
                let expected: Vec<f32> = (0..len).map(|k| (3 * k + 3) as f32).collect();
                assert!(rows.iter_mut().all(|row| row.take_sum().as_deref() == Some(&expected)));
            }
        }
    }
}
