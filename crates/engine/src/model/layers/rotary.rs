//! Rotary positions: pairs of a query's or key's numbers are turned by an angle that grows with the position, so that their product
//! depends on how far apart two positions are.

/// Turns pairs of numbers, each a half apart (as Llama's), by `position / base^(2 i / length)`.
pub struct Rotary {
    /// Sine and cosine of each position's angles, one position after the other.
    angles: Vec<(f32, f32)>,
    /// How much each pair's angle grows from one position to the next.
    speeds: Vec<f64>,
}

impl Rotary {
    /// For so many positions of rows with so many numbers, an even number of them.
    pub fn new(n_positions: usize, len: usize, base: f32) -> Self {
        let n_pairs = len / 2;
        let speeds: Vec<f64> = (0..n_pairs).map(|pair| f64::from(base).powf(-(pair as f64) / n_pairs as f64)).collect();
        let angles = (0..n_positions).flat_map(|position| angles(&speeds, position)).collect();
        Self { angles, speeds }
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
        let n_pairs = self.speeds.len();
        let (low, high) = row.split_at_mut(n_pairs);
        // A sequence that is read position by position may go on beyond those that are known beforehand.
        let beyond: Vec<(f32, f32)>;
        let angles = match self.angles.get(position * n_pairs..(position + 1) * n_pairs) {
            Some(known) => known,
            None => {
                beyond = angles(&self.speeds, position).collect();
                &beyond
            }
        };
        for ((a, b), (sine, cosine)) in low.iter_mut().zip(high).zip(angles) {
            let sine = direction * sine;
            (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
        }
    }
}

/// Sine and cosine of the angles at a position.
fn angles(speeds: &[f64], position: usize) -> impl Iterator<Item = (f32, f32)> {
    speeds.iter().map(move |speed| {
        let (sine, cosine) = (position as f64 * speed).sin_cos();
        (sine as f32, cosine as f32)
    })
}
