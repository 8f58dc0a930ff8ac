//! Which numbers of a value belong to one of the columns that make it together.

use std::ops::Range;

/// Which numbers of a value that all columns share belong to one of them: of each pixel, these channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Pixels of a sample (1 for a flat row).
    pub n_pixels: usize,
    /// Channels of a pixel, over all columns.
    pub n_channels: usize,
    /// Those that this column makes.
    pub channels: Range<usize>,
}

impl Columns {
    /// Numbers of a sample.
    pub fn len(&self) -> usize {
        self.n_pixels * self.channels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers of a sample over all columns.
    pub fn whole_len(&self) -> usize {
        self.n_pixels * self.n_channels
    }

    /// Writes this column's numbers of some samples to their places among all columns'.
    ///
    /// # Panics
    /// If these are not as many samples.
    pub fn put(&self, mine: &[f32], whole: &mut [f32]) {
        assert_eq!(mine.len() * self.n_channels, whole.len() * self.channels.len(), "as many samples as there");
        if self.is_empty() {
            return;
        }
        let pixels = mine.chunks_exact(self.channels.len()).zip(whole.chunks_exact_mut(self.n_channels));
        pixels.for_each(|(mine, whole)| whole[self.channels.clone()].copy_from_slice(mine));
    }

    /// This column's numbers of some samples, from among all columns'.
    ///
    /// # Panics
    /// If the samples are not whole.
    pub fn take(&self, whole: &[f32]) -> Vec<f32> {
        assert_eq!(whole.len() % self.whole_len().max(1), 0, "samples have {} numbers", self.whole_len());
        let mut mine = Vec::with_capacity(whole.len() / self.n_channels.max(1) * self.channels.len());
        let pixels = whole.chunks_exact(self.n_channels.max(1));
        pixels.for_each(|pixel| mine.extend_from_slice(&pixel[self.channels.clone()]));
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    #[test]
    fn what_is_put_can_be_taken() {
        // Two samples of two pixels of five channels, cut after the second.
        let columns = [0..2, 2..5].map(|channels| Columns { n_pixels: 2, n_channels: 5, channels });
        let whole: Vec<f32> = (0_u8..20).map(f32::from).collect();
        assert_eq!(columns[0].take(&whole), [0.0, 1.0, 5.0, 6.0, 10.0, 11.0, 15.0, 16.0]);
        let mut copy = vec![f32::NAN; 20];
        columns.iter().for_each(|columns| columns.put(&columns.take(&whole), &mut copy));
        assert_eq!(copy, whole);
        assert_eq!((columns[1].len(), columns[1].whole_len()), (6, 10));
    }
}
