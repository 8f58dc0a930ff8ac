//! Numbers of some samples that come from several blocks.

use std::ops::Range;

use nettorrent_engine::model::Columns;
use nettorrent_swarm::Malformed;

use crate::message::Incoming;

/// What one block sends: some rows, of them some columns.
#[derive(Debug)]
struct Source {
    slot: usize,
    /// Which rows, counted from the receiver's first.
    rows: Range<usize>,
    columns: Columns,
    incoming: Incoming,
}

/// What several blocks send, and what it is to become.
#[derive(Debug)]
pub(crate) struct Gather {
    n_rows: usize,
    row_len: usize,
    sources: Vec<Source>,
    n_missing: usize,
}

impl Gather {
    /// Rows of so many numbers each, for which nobody sends anything yet.
    pub(crate) fn new(n_rows: usize, row_len: usize) -> Self {
        Self { n_rows, row_len, sources: Vec::new(), n_missing: 0 }
    }

    /// Some rows' columns are to come from a slot. Who sends nothing is not waited for.
    pub(crate) fn expect(&mut self, slot: usize, rows: Range<usize>, columns: Columns) {
        let len = rows.len() * columns.len();
        if len > 0 {
            self.sources.push(Source { slot, rows, columns, incoming: Incoming::new(len) });
            self.n_missing += 1;
        }
    }

    /// A piece came from a slot.
    pub(crate) fn take(&mut self, slot: usize, piece: usize, body: &[u8]) -> Result<(), Malformed> {
        let Some(source) = self.sources.iter_mut().find(|source| source.slot == slot) else {
            return Err(Malformed::new("it sends numbers that are not its to send"));
        };
        source.incoming.take(piece, body)?;
        self.n_missing -= usize::from(source.incoming.is_complete());
        Ok(())
    }

    /// This block's own numbers, where it is one of those who make the whole.
    pub(crate) fn put(&mut self, slot: usize, columns: Columns, numbers: &[f32]) {
        self.sources.push(Source { slot, rows: 0..self.n_rows, columns, incoming: Incoming::of(numbers.to_vec()) });
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.n_missing == 0
    }

    /// Those from whom something is missing.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = usize> {
        self.sources.iter().filter(|source| !source.incoming.is_complete()).map(|source| source.slot)
    }

    /// All columns beside each other.
    pub(crate) fn join(self) -> Vec<f32> {
        let mut whole = vec![0.0; self.n_rows * self.row_len];
        for Source { rows, columns, incoming, .. } in &self.sources {
            columns.put(incoming.numbers(), &mut whole[rows.start * self.row_len..rows.end * self.row_len]);
        }
        whole
    }

    /// The sum of what came for each row, always in the same order.
    pub(crate) fn sum(self) -> Vec<f32> {
        let mut sums = vec![0.0; self.n_rows * self.row_len];
        for Source { rows, incoming, .. } in &self.sources {
            let sums = &mut sums[rows.start * self.row_len..rows.end * self.row_len];
            sums.iter_mut().zip(incoming.numbers()).for_each(|(sum, number)| *sum += number);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::Gather;
    use nettorrent_engine::model::Columns;
    use nettorrent_swarm::codec::Codec;

    fn columns(channels: std::ops::Range<usize>) -> Columns {
        Columns { n_pixels: 1, n_channels: 3, channels }
    }

    #[test]
    fn columns_come_beside_each_other_whoever_comes_first() {
        let mut gather = Gather::new(2, 3);
        gather.expect(4, 0..1, columns(0..2));
        gather.expect(5, 1..2, columns(0..2));
        gather.expect(6, 0..2, columns(2..3));
        gather.expect(7, 2..2, columns(0..2));
        assert_eq!(gather.waits_for().collect::<Vec<_>>(), [4, 5, 6]);
        let mut take = |slot, numbers: &[f32]| gather.take(slot, 0, &Codec::F32.encode(numbers));
        take(6, &[3.0, 6.0]).unwrap();
        assert!(take(6, &[3.0, 6.0]).is_err(), "it came before");
        assert!(take(7, &[]).is_err(), "nothing is due from it");
        assert!(take(5, &[1.0]).is_err(), "that is too little");
        take(5, &[4.0, 5.0]).unwrap();
        take(4, &[1.0, 2.0]).unwrap();
        assert!(gather.is_complete());
        assert_eq!(gather.join(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn sums_are_of_those_who_have_the_row() {
        let mut gather = Gather::new(2, 1);
        let all = Columns { n_pixels: 1, n_channels: 1, channels: 0..1 };
        gather.expect(0, 0..1, all.clone());
        gather.expect(1, 0..1, all.clone());
        gather.expect(2, 1..2, all);
        for (slot, number) in [(2, 5.0), (1, 2.0), (0, 1.0)] {
            gather.take(slot, 0, &Codec::F32.encode(&[number])).unwrap();
        }
        assert_eq!(gather.sum(), [3.0, 5.0]);
    }
}
