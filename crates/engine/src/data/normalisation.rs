//! How raw values become those that are trained on.
//!
//! Each byte becomes a float through a table of 256 values per channel, which costs less than the division and subtraction it
//! stands for.

use super::DataError;

/// How raw values become the values that are trained on: `(raw / scale - mean) / deviation`, per channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalisation {
    /// The raw value that becomes 1 before mean and deviation apply: 255 for most pixels, 1 for features.
    pub scale: f32,
    /// The mean of each channel, or one for all, after scaling.
    pub mean: Vec<f32>,
    /// The deviation of each channel, or one for all, after scaling.
    pub deviation: Vec<f32>,
}

impl Normalisation {
    /// Divides by `scale` and does nothing more.
    pub fn scaled(scale: f32) -> Self {
        Self { scale, mean: vec![0.0], deviation: vec![1.0] }
    }

    /// Pixels of 0 to 255 with this mean and deviation per channel.
    pub fn pixels(mean: &[f32], deviation: &[f32]) -> Self {
        Self { scale: 255.0, mean: mean.to_vec(), deviation: deviation.to_vec() }
    }

    /// The mean and deviation of each feature over rows of `n_features` values.
    ///
    /// A feature that never varies gets the deviation 1, so that it becomes zero and not a division by zero.
    pub fn measured<'a>(rows: impl Iterator<Item = &'a [f32]> + Clone, n_features: usize) -> Self {
        let mut mean = vec![0.0_f64; n_features];
        let mut square = vec![0.0_f64; n_features];
        let n_rows = rows.clone().count().max(1) as f64;
        // Two passes: the sum of squares alone loses all its digits when the mean is large.
        for row in rows.clone() {
            mean.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) / n_rows);
        }
        for row in rows {
            for ((sum, mean), &x) in square.iter_mut().zip(&mean).zip(row) {
                *sum += (f64::from(x) - mean).powi(2) / n_rows;
            }
        }
        let deviation = square.iter().zip(&mean).map(|(square, mean)| {
            let deviation = square.sqrt();
            if deviation > mean.abs() * 1e-7 && deviation as f32 > 0.0 { deviation as f32 } else { 1.0 }
        });
        let deviation = deviation.collect();
        Self { scale: 1.0, mean: mean.iter().map(|&x| x as f32).collect(), deviation }
    }

    /// Fails unless there are one or `n_channels` usable values of each kind.
    pub fn check(&self, n_channels: usize) -> Result<(), DataError> {
        for (name, values) in [("mean", &self.mean), ("deviation", &self.deviation)] {
            if values.len() != 1 && values.len() != n_channels {
                return Err(DataError::Setting(format!(
                    "`{name}` has {} values; give one, or one for each of the {n_channels} channels",
                    values.len()
                )));
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(DataError::Setting(format!("`{name}` holds {value}, which is not a number")));
            }
        }
        if let Some(value) = self.deviation.iter().chain([&self.scale]).find(|&&value| value <= 0.0) {
            return Err(DataError::Setting(format!("`deviation` holds {value}; it must be above zero")));
        }
        Ok(())
    }

    /// The mean and the deviation of one channel.
    pub(crate) fn channel(&self, channel: usize) -> (f32, f32) {
        let of = |values: &[f32]| values[if values.len() == 1 { 0 } else { channel }];
        (of(&self.mean), of(&self.deviation))
    }
}

/// Bytes to floats: what each of the 256 values becomes, in each channel.
#[derive(Clone, Debug)]
pub(crate) struct ByteTable {
    by_channel: Vec<[f32; 256]>,
}

impl ByteTable {
    pub(crate) fn new(normalisation: &Normalisation, n_channels: usize) -> Self {
        let table = |channel| {
            let (mean, deviation) = normalisation.channel(channel);
            std::array::from_fn(|raw| (raw as f32 / normalisation.scale - mean) / deviation)
        };
        Self { by_channel: (0..n_channels).map(table).collect() }
    }

    /// A table of nothing, for samples that are no bytes.
    pub(crate) fn empty() -> Self {
        Self { by_channel: Vec::new() }
    }

    /// Appends the normalised values of whole pixels.
    pub(crate) fn extend(&self, out: &mut Vec<f32>, raw: &[u8]) {
        // One and three channels are what images have; written out, they are free of inner loops.
        match self.by_channel.as_slice() {
            [only] => out.extend(raw.iter().map(|&x| only[usize::from(x)])),
            [red, green, blue] => out.extend(
                raw.as_chunks::<3>()
                    .0
                    .iter()
                    .flat_map(|&[r, g, b]| [red[usize::from(r)], green[usize::from(g)], blue[usize::from(b)]]),
            ),
            tables => out.extend(raw.iter().zip(tables.iter().cycle()).map(|(&x, table)| table[usize::from(x)])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Normalisation;

    #[test]
    fn measured_features_have_mean_zero_and_deviation_one() {
        let rows = [[1.0, 5.0, 1e6], [3.0, 5.0, 1e6 + 2.0]];
        let normalisation = Normalisation::measured(rows.iter().map(<[f32; 3]>::as_slice), 3);
        assert_eq!(normalisation.mean, [2.0, 5.0, 1e6 + 1.0]);
        assert_eq!(normalisation.deviation, [1.0, 1.0, 1.0]);
        assert_eq!(Normalisation::measured(std::iter::empty(), 1).deviation, [1.0]);
    }
}
