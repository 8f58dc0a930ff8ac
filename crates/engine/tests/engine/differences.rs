//! A gradient held against differences of the function's own values.

use nettorrent_engine::rng::Rng;

const STEP: f32 = 0.02;
const TOLERANCE: f64 = 1e-3;

/// At most this many numbers of a tensor are probed.
const MOST_PROBES: usize = 100;

pub(crate) fn random(n: usize, rng: &mut Rng) -> Vec<f32> {
    (0..n).map(|_| rng.range(-1.0, 1.0)).collect()
}

/// Compares a gradient at `point` with differences of `function`'s values, weighed by `functional`.
pub(crate) fn compare(
    name: &str,
    gradient: &[f32],
    point: &[f32],
    functional: &[f32],
    function: impl Fn(&[f32]) -> Vec<f32>,
    rng: &mut Rng,
) {
    assert_eq!(gradient.len(), point.len(), "{name}");
    let largest = gradient.iter().fold(0.0, |largest: f64, g| largest.max(f64::from(g.abs())));
    let mut places: Vec<usize> = (0..point.len()).collect();
    rng.shuffle(&mut places);
    for &place in places.iter().take(MOST_PROBES) {
        let moved = |steps: f32| {
            let mut moved = point.to_vec();
            moved[place] += steps * STEP;
            (function(&moved), f64::from(moved[place]))
        };
        // The differences are weighed and not the values, so that outputs that do not change bring no rounding.
        let slope = |steps: f32| {
            let ((high, above), (low, below)) = (moved(steps), moved(-steps));
            let pairs = high.iter().zip(&low).zip(functional);
            pairs.map(|((h, l), f)| (f64::from(*h) - f64::from(*l)) * f64::from(*f)).sum::<f64>() / (above - below)
        };
        let expected = (4.0 * slope(1.0) - slope(2.0)) / 3.0;
        let found = f64::from(gradient[place]);
        let close = (found - expected).abs() <= TOLERANCE * largest + 1e-7;
        assert!(close, "{name}: {found} and not {expected} at {place} of {}; the largest is {largest}", point.len());
    }
}
