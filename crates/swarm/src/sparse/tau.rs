//! The threshold, found and kept so that a given share of the elements has a delta.
//!
//! Residuals answer slowly: an element with a delta in one batch of a thousand needs as long to come to rest. Just below the
//! threshold many elements wait, and a threshold that falls by 1 % can let out 1 % of all elements at once. So it rises fast,
//! which protects the network, and falls slowly; what was sent too much or too little is made up for later, so that over
//! some dozens of batches the mean is the target, also while updates grow or shrink.

/// How many significant bits a threshold has. Few enough that taking it out of a residual is exact.
pub(crate) const TAU_BITS: u32 = 12;

/// Thresholds stay within these, far away from where numbers lose their precision.
const LEAST: f32 = f32::from_bits(0x0d80_0000); // 2^-100
const MOST: f32 = f32::from_bits(0x7180_0000); // 2^100

/// How many elements the first update is judged by.
const N_SAMPLES: usize = 1 << 14;

/// Over how many batches what was sent too much or too little is made up for.
const HORIZON: f64 = 32.0;

/// Added to counts, so that a few deltas more or less in a small vector are no reason to change anything.
const NOISE: f64 = 4.0;

/// The nearest number of [`TAU_BITS`] significant bits in 2^-100..2^100.
pub(crate) fn round_tau(tau: f32) -> f32 {
    let half = 1 << (23 - TAU_BITS);
    let bits = tau.clamp(LEAST, MOST).to_bits();
    f32::from_bits((bits + half) & !(2 * half - 1)).min(MOST)
}

/// A threshold that follows the updates: the share of elements with a delta goes to the target and stays near it.
///
/// Only sums, products and quotients are used, so every machine comes to the same threshold.
///
/// ```
/// use nettorrent_swarm::sparse::{AdaptiveTau, Deltas};
/// let mut adaptive = AdaptiveTau::new(0.01);
/// let update: Vec<f32> = (0..1000).map(|i| i as f32).collect();
/// let mut residual = vec![0.0; 1000];
/// let mut deltas = Deltas::new();
/// let tau = adaptive.tau_for(&update).expect("not all of the update is zero");
/// let scanned = deltas.scan_with(&mut residual, &update, tau);
/// adaptive.adapt(scanned.n_emitted, residual.len());
/// assert!((5..15).contains(&scanned.n_emitted));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveTau {
    /// Not rounded; none before the first update.
    tau: Option<f64>,
    target_density: f64,
    /// What should have been sent and was not, in batches of the target's size; negative if too much was sent.
    owed: f64,
}

impl AdaptiveTau {
    /// For a share of the elements between zero and one, both excluded.
    pub fn new(target_density: f64) -> Self {
        assert!(target_density > 0.0 && target_density < 1.0, "a share of {target_density}");
        Self { tau: None, target_density, owed: 0.0 }
    }

    /// The share of elements that should have a delta.
    pub fn target_density(&self) -> f64 {
        self.target_density
    }

    /// From now on the target is another; the threshold follows it as it follows the updates.
    pub(crate) fn aim_at(&mut self, target_density: f64) {
        self.target_density = target_density;
    }

    /// The threshold, if there was an update to find it by.
    pub fn tau(&self) -> Option<f32> {
        self.tau.map(|tau| round_tau(tau as f32))
    }

    /// The threshold for this update. The first is found by the update's own size: none as long as updates are all zero, in
    /// which case there is nothing to send either.
    pub fn tau_for(&mut self, update: &[f32]) -> Option<f32> {
        if self.tau.is_none() {
            self.tau = first_tau(update, self.target_density).map(f64::from);
        }
        self.tau()
    }

    /// Learns how many of the elements had a delta in a batch.
    pub fn adapt(&mut self, n_emitted: usize, n_values: usize) {
        let Some(tau) = &mut self.tau else { return };
        let target = self.target_density * n_values as f64;
        if target == 0.0 {
            return;
        }
        let emitted = n_emitted as f64;
        self.owed = (self.owed + 1.0 - emitted / target).clamp(-HORIZON, HORIZON);
        // Between half the target and twice the target.
        let share = 1.0 + self.owed.abs() / HORIZON;
        let aim = if self.owed < 0.0 { target / share } else { target * share };
        // From -1, nothing was sent, to 1, far too much was.
        let excess = (emitted - aim) / (emitted + aim + NOISE);
        // At most doubled, at most 5 % less; near the target a tenth of the excess, for at the far end of a bell curve the
        // count changes ten times as fast as the threshold.
        *tau *= if excess > 0.0 {
            1.0 + 0.2 * excess + 0.8 * excess * excess * excess
        } else {
            1.0 / (1.0 - 0.05 * excess)
        };
        *tau = tau.clamp(f64::from(LEAST), f64::from(MOST));
    }
}

/// What the given share of an update's elements is beyond, judged by a sample; where that is zero, half of the largest.
fn first_tau(update: &[f32], density: f64) -> Option<f32> {
    // An odd stride does not fall into step with rows and columns, which are often powers of two.
    let stride = (update.len() / N_SAMPLES) | 1;
    let mut sample: Vec<f32> = update.iter().step_by(stride).map(|x| x.abs()).filter(|x| x.is_finite()).collect();
    let n_beyond = (density * sample.len() as f64) as usize;
    let at = sample.len().checked_sub(1 + n_beyond)?;
    let (_, &mut tau, _) = sample.select_nth_unstable_by(at, f32::total_cmp);
    if tau > 0.0 {
        return Some(tau);
    }
    let largest = update.iter().map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f32::max);
    (largest > 0.0).then_some(largest / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{AdaptiveTau, LEAST, MOST, TAU_BITS, round_tau};
    use crate::sparse::Deltas;
    use nettorrent_engine::rng::Rng;

    const N_VALUES: usize = 20_000;

    /// Gradients of three layers of different size, with this ratio of what is constant in them to what is noise, for as
    /// many batches as there are scales. Returns the share of elements that had a delta in each.
    fn densities(target: f64, constant: f32, scales: impl Iterator<Item = f32>) -> Vec<f64> {
        let mut rng = Rng::new(7);
        let widths = [1.0, 0.3, 0.05];
        // Drawing is what takes the time; each batch begins somewhere else in the same noise.
        let noise: Vec<f32> = (0..4 * N_VALUES).map(|_| rng.normal()).collect();
        let means: Vec<f32> = (0..N_VALUES).map(|_| constant * rng.normal()).collect();
        let mut residual = vec![0.0; N_VALUES];
        let mut adaptive = AdaptiveTau::new(target);
        let mut deltas = Deltas::new();
        scales
            .map(|scale| {
                let begin = rng.below(3 * N_VALUES);
                let gradient = |(i, mean): (usize, &f32)| scale * widths[i % 3] * (mean + noise[begin + i]);
                let update: Vec<f32> = means.iter().enumerate().map(gradient).collect();
                let tau = adaptive.tau_for(&update).unwrap();
                let scanned = deltas.scan_with(&mut residual, &update, tau);
                adaptive.adapt(scanned.n_emitted, N_VALUES);
                scanned.n_emitted as f64 / N_VALUES as f64
            })
            .collect()
    }

    fn mean(numbers: &[f64]) -> f64 {
        numbers.iter().sum::<f64>() / numbers.len() as f64
    }

    #[test]
    fn the_target_is_reached_and_held_while_updates_grow_and_shrink() {
        for target in [0.001, 0.01] {
            for constant in [0.0, 0.3, 2.0] {
                for growth in [0.98_f32, 1.0, 1.02] {
                    let densities = densities(target, constant, (0..200).map(|batch| growth.powi(batch)));
                    let early = mean(&densities[20..100]) / target;
                    let late = mean(&densities[100..]) / target;
                    let case = format!("target {target}, constant {constant}, growth {growth}: {early}, then {late}");
                    assert!((0.5..1.5).contains(&early), "{case}");
                    assert!((0.75..1.25).contains(&late), "{case}");
                }
            }
        }
    }

    #[test]
    fn a_jump_of_ten_is_over_in_ten_batches() {
        for target in [0.001, 0.01] {
            let densities = densities(target, 0.3, (0..200).map(|batch| if batch < 100 { 1.0 } else { 10.0 }));
            assert!(densities[110..].iter().all(|density| *density < 6.0 * target), "{densities:?}");
            assert!((0.4..1.2).contains(&(mean(&densities[110..]) / target)));
        }
    }

    #[test]
    fn the_first_threshold_fits_the_first_update() {
        let mut rng = Rng::new(9);
        for (n, target) in [(1_000_000, 0.001), (1_000_000, 0.01), (3000, 0.01), (1, 0.5)] {
            let update: Vec<f32> = (0..n).map(|_| 1e-4 * rng.normal()).collect();
            let tau = AdaptiveTau::new(target).tau_for(&update).unwrap();
            let n_beyond = update.iter().filter(|x| x.abs() > tau).count();
            let due = target * f64::from(n);
            assert!((n_beyond as f64) < 2.5 * due && n_beyond as f64 > due / 2.5 - 1.0, "{n_beyond} for {due}");
        }
    }

    #[test]
    fn without_an_update_there_is_no_threshold() {
        let mut adaptive = AdaptiveTau::new(0.01);
        assert_eq!(adaptive.tau_for(&[]), None);
        assert_eq!(adaptive.tau_for(&[0.0; 100]), None);
        assert_eq!(adaptive.tau_for(&[f32::NAN; 100]), None);
        adaptive.adapt(0, 100);
        // One number in many, as embeddings have it.
        let mut update = vec![0.0; 100_000];
        update[777] = -3.0;
        assert_eq!(adaptive.tau_for(&update), Some(1.5));
        assert_eq!(adaptive.tau_for(&[100.0; 100]), Some(1.5), "only the first is found so");
    }

    #[test]
    fn thresholds_stay_within_their_bounds() {
        let mut adaptive = AdaptiveTau::new(0.01);
        adaptive.tau_for(&[1.0; 10]);
        (0..10_000).for_each(|_| adaptive.adapt(0, 1000));
        assert_eq!(adaptive.tau(), Some(LEAST));
        (0..10_000).for_each(|_| adaptive.adapt(1000, 1000));
        assert_eq!(adaptive.tau(), Some(MOST));
        adaptive.adapt(0, 0);
        assert_eq!(adaptive.tau(), Some(MOST));
    }

    #[test]
    fn rounding_keeps_few_bits_and_is_near() {
        assert_eq!((LEAST, MOST), (2.0_f32.powi(-100), 2.0_f32.powi(100)));
        let mut rng = Rng::new(10);
        for _ in 0..1000 {
            let tau = 2.0_f32.powf(rng.range(-90.0, 90.0));
            let rounded = round_tau(tau);
            assert_eq!(rounded.to_bits().trailing_zeros().min(24 - TAU_BITS), 24 - TAU_BITS);
            assert!((rounded - tau).abs() <= tau / 4096.0);
            assert_eq!(round_tau(rounded), rounded);
        }
        assert_eq!(round_tau(0.0), LEAST);
        assert_eq!(round_tau(f32::INFINITY), MOST);
    }
}
