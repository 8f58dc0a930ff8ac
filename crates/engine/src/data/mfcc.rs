//! Mel-frequency cepstral coefficients: what a sound looks like to an ear, 13 numbers for every hundredth of a second.
//!
//! The steps are those of Davis and Mermelstein (1980) with the constants usual since: pre-emphasis 0.97, windows of 25 ms
//! every 10 ms, Hamming, power spectrum, 26 triangular filters evenly spaced on the mel scale, logarithm, DCT-II. A script
//! beside the tests (`tests/fixtures/mfcc.py`) computes the same from the definitions alone.

use std::f64::consts::PI;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

/// How many coefficients a frame has.
pub(crate) const N_COEFFICIENTS: usize = 13;
/// The sample rates that make sense: below, the filters would be narrower than the spectrum is fine.
pub(crate) const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 4_000..=384_000;

const N_FILTERS: usize = 26;
const PRE_EMPHASIS: f64 = 0.97;
/// The quietest a filter can be: it keeps the logarithm of silence finite.
const FLOOR: f64 = 1e-10;

/// Everything that can be worked out before the sound is known.
pub(crate) struct Mfcc {
    n_window: usize,
    n_hop: usize,
    window: Vec<f64>,
    transform: Arc<dyn RealToComplex<f64>>,
    /// Per filter, the weight of each bin of the spectrum.
    filters: Vec<Vec<f64>>,
    /// Per coefficient, the weight of each filter.
    cosines: Vec<Vec<f64>>,
}

impl Mfcc {
    /// For sounds at this rate, in samples per second. The rate must be one of [`SAMPLE_RATES`].
    pub(crate) fn new(sample_rate: u32) -> Self {
        assert!(SAMPLE_RATES.contains(&sample_rate), "no MFCC at {sample_rate} samples per second");
        let n_window = (sample_rate as usize * 25).div_ceil(1000);
        let n_transform = n_window.next_power_of_two();
        let hamming = |n: usize| 0.54 - 0.46 * (2.0 * PI * n as f64 / (n_window - 1) as f64).cos();
        Self {
            n_window,
            n_hop: sample_rate as usize / 100,
            window: (0..n_window).map(hamming).collect(),
            transform: RealFftPlanner::new().plan_fft_forward(n_transform),
            filters: mel_filters(f64::from(sample_rate), n_transform),
            cosines: cosines(),
        }
    }

    /// How many samples make this many frames: no more than these need be read.
    pub(crate) fn n_samples(&self, n_frames: usize) -> usize {
        self.n_window + n_frames.saturating_sub(1) * self.n_hop
    }

    /// The coefficients of every whole window, frame by frame. A sound shorter than one window counts as one.
    pub(crate) fn frames(&self, sound: &[f32]) -> Vec<[f64; N_COEFFICIENTS]> {
        let emphasised: Vec<f64> = std::iter::once(0.0)
            .chain(sound.iter().map(|&x| f64::from(x)))
            .zip(sound)
            .map(|(before, &x)| f64::from(x) - PRE_EMPHASIS * before)
            .collect();
        let n_frames = 1 + emphasised.len().saturating_sub(self.n_window) / self.n_hop;
        let mut input = self.transform.make_input_vec();
        let mut spectrum = self.transform.make_output_vec();
        let mut scratch = self.transform.make_scratch_vec();
        let frame = |at: usize| {
            input.fill(0.0);
            let samples = emphasised.iter().skip(at * self.n_hop).zip(&self.window);
            input.iter_mut().zip(samples).for_each(|(x, (sample, weight))| *x = sample * weight);
            self.transform
                .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                .expect("the buffers were made by the transform itself");
            let n_transform = self.transform.len() as f64;
            let power: Vec<f64> = spectrum.iter().map(|bin| bin.norm_sqr() / n_transform).collect();
            let loudness = self.filters.iter().map(|filter| dot(filter, &power).max(FLOOR).ln());
            let loudness: Vec<f64> = loudness.collect();
            std::array::from_fn(|k| dot(&self.cosines[k], &loudness))
        };
        (0..n_frames).map(frame).collect()
    }

    /// Exactly `n_frames` frames, normalised: longer sounds lose their end, shorter ones get zeros before their beginning.
    /// Before, because a recurrent network remembers best what came last.
    ///
    /// Each coefficient gets mean 0 and deviation 1 over the sound itself, not over the set. That takes away the microphone
    /// and the loudness, which differ from recording to recording, and it needs nothing that peers would have to agree on.
    /// The zeros of the padding are then the mean.
    pub(crate) fn features(&self, sound: &[f32], n_frames: usize) -> Vec<f32> {
        let sound = &sound[..sound.len().min(self.n_samples(n_frames))];
        let mut frames = self.frames(sound);
        frames.truncate(n_frames);
        let n = frames.len() as f64;
        for k in 0..N_COEFFICIENTS {
            let mean = frames.iter().map(|frame| frame[k]).sum::<f64>() / n;
            let deviation = (frames.iter().map(|frame| (frame[k] - mean).powi(2)).sum::<f64>() / n).sqrt();
            // A coefficient that does not move, as in silence, becomes zero and not a division by zero.
            let scale = if deviation > 1e-6 { 1.0 / deviation } else { 0.0 };
            frames.iter_mut().for_each(|frame| frame[k] = (frame[k] - mean) * scale);
        }
        let silence = std::iter::repeat_n(0.0, (n_frames - frames.len()) * N_COEFFICIENTS);
        silence.chain(frames.iter().flatten().map(|&x| x as f32)).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Triangles whose corners are evenly spaced in mel from zero to half the sample rate, weighed at each bin's frequency.
fn mel_filters(sample_rate: f64, n_transform: usize) -> Vec<Vec<f64>> {
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let hertz = |mel: f64| 700.0 * (10.0_f64.powf(mel / 2595.0) - 1.0);
    let corner = |k: usize| hertz(mel(sample_rate / 2.0) * k as f64 / (N_FILTERS + 1) as f64);
    let filter = |k: usize| {
        let (low, middle, high) = (corner(k), corner(k + 1), corner(k + 2));
        let weight = |bin: usize| {
            let at = bin as f64 * sample_rate / n_transform as f64;
            ((at - low) / (middle - low)).min((high - at) / (high - middle)).max(0.0)
        };
        (0..=n_transform / 2).map(weight).collect()
    };
    (0..N_FILTERS).map(filter).collect()
}

/// The orthonormal DCT-II, its first coefficients.
fn cosines() -> Vec<Vec<f64>> {
    let n = N_FILTERS as f64;
    let row = |k: usize| {
        let scale = if k == 0 { (1.0 / n).sqrt() } else { (2.0 / n).sqrt() };
        (0..N_FILTERS).map(|m| scale * (PI * k as f64 * (m as f64 + 0.5) / n).cos()).collect()
    };
    (0..N_COEFFICIENTS).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{Mfcc, N_COEFFICIENTS};

    /// The sound of the script: 0.2 s of a tone that rises from 200 to 3400 Hz, at 8000 samples per second.
    fn chirp() -> Vec<f32> {
        let sample = |n: i32| {
            let t = f64::from(n) / 8000.0;
            (0.5 * (2.0 * std::f64::consts::PI * (200.0 * t + 3200.0 / (2.0 * 0.2) * t * t)).sin()) as f32
        };
        (0..1600).map(sample).collect()
    }

    #[test]
    fn a_chirp_gives_what_the_definitions_give() {
        let expected = include_str!("../../tests/fixtures/mfcc.csv");
        let frames = Mfcc::new(8000).frames(&chirp());
        let mut n_frames = 0;
        for (frame, line) in frames.iter().zip(expected.lines().filter(|line| !line.starts_with('#'))) {
            let values: Vec<f64> = line.split(',').map(|value| value.parse().unwrap()).collect();
            assert_eq!(values.len(), N_COEFFICIENTS);
            for (got, expected) in frame.iter().zip(values) {
                assert!((got - expected).abs() < 1e-5, "frame {n_frames}: {got} instead of {expected}");
            }
            n_frames += 1;
        }
        assert_eq!((n_frames, frames.len()), (18, 18));
    }

    #[test]
    fn features_are_normalised_and_of_fixed_length() {
        let mfcc = Mfcc::new(8000);
        let features = mfcc.features(&chirp(), 30);
        assert_eq!(features.len(), 30 * N_COEFFICIENTS);
        let (silence, sound) = features.split_at(12 * N_COEFFICIENTS);
        assert!(silence.iter().all(|&x| x == 0.0));
        for k in 0..N_COEFFICIENTS {
            let column: Vec<f32> = sound.iter().skip(k).step_by(N_COEFFICIENTS).copied().collect();
            let mean = column.iter().sum::<f32>() / 18.0;
            let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 18.0;
            assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4, "coefficient {k}: {mean}, {variance}");
        }
        // What comes after the last frame wanted does not matter, so it need not be read.
        let start = &chirp()[..mfcc.n_samples(7)];
        assert_eq!(mfcc.features(&chirp(), 7), mfcc.features(start, 7));
    }

    #[test]
    fn loudness_does_not_matter_and_silence_is_zero() {
        let mfcc = Mfcc::new(8000);
        let quiet: Vec<f32> = chirp().iter().map(|x| x * 0.25).collect();
        let (loud, quiet) = (mfcc.features(&chirp(), 18), mfcc.features(&quiet, 18));
        assert!(loud.iter().zip(&quiet).all(|(a, b)| (a - b).abs() < 1e-3));
        for sound in [vec![0.0; 4000], Vec::new(), vec![0.0; 3]] {
            assert!(mfcc.features(&sound, 5).iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn every_filter_hears_something_at_every_rate() {
        for rate in [4000, 8000, 11_025, 16_000, 22_050, 44_100, 48_000, 384_000] {
            let mfcc = Mfcc::new(rate);
            assert!(mfcc.filters.iter().all(|filter| filter.iter().sum::<f64>() > 0.1), "{rate}");
        }
    }
}
