//! Rotary positions: pairs of a query's or key's numbers are turned by an angle that grows with the position, so that their product
//! depends on how far apart two positions are.

/// Turns pairs of numbers, each a half apart (as Llama's), by `position / base^(2 i / length)`.
pub struct Rotary {
    /// Sine and cosine of each position's angles, one position after the other.
    angles: Vec<(f32, f32)>,
    n_pairs: usize,
}

impl Rotary {
    /// For so many positions of rows with so many numbers, an even number of them.
    pub fn new(n_positions: usize, len: usize, base: f32) -> Self {
        let n_pairs = len / 2;
        let speed = |pair: usize| f64::from(base).powf(-(pair as f64) / n_pairs as f64);
        let angle = |position: usize, pair: usize| {
            let (sine, cosine) = (position as f64 * speed(pair)).sin_cos();
            (sine as f32, cosine as f32)
        };
        let angles =
            (0..n_positions).flat_map(|position| (0..n_pairs).map(move |pair| angle(position, pair))).collect();
        Self { angles, n_pairs }
    }

    /// Turns the row of a position.
    pub fn turn(&self, position: usize, row: &mut [f32]) {
        self.apply(position, row, 1.0);
    }

    /// Undoes it, which is also what becomes of a gradient.
    pub fn turn_back(&self, position: usize, row: &mut [f32]) {
        self.apply(position, row, -1.0);
    }

    fn apply(&self, position: usize, row: &mut [f32], direction: f32) {
        let (low, high) = row.split_at_mut(self.n_pairs);
        let angles = &self.angles[position * self.n_pairs..][..self.n_pairs];
        for ((a, b), (sine, cosine)) in low.iter_mut().zip(high).zip(angles) {
            let sine = direction * sine;
            (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
        }
    }
}
