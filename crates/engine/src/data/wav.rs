//! Folders of WAV recordings, turned into MFCC features once and kept in memory.
//!
//! The recordings of a class lie in a folder of its name, or all lie in one folder and are named `<class>_<anything>.wav`.

use std::ffi::OsStr;
use std::io::Cursor;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use hound::{SampleFormat, WavReader};
use rayon::prelude::*;

use super::files;
use super::folders::{self, Layout, Listing};
use super::in_memory::{InMemory, Samples};
use super::mfcc::{Mfcc, N_COEFFICIENTS, SAMPLE_RATES};
use super::origins::Origins;
use super::outside::{OutsideReader, OutsideSample};
use super::{DataError, Split};
use crate::team::Team;

/// How many frames a sample has unless it is said otherwise: two thirds of a second, enough for a spoken word.
pub(crate) const DEFAULT_FRAMES: usize = 64;

/// The recordings of one part of a set; all of them where the set has no parts.
pub(crate) fn list(root: &Path, split: Split) -> Result<Listing, DataError> {
    folders::list_part(&innermost(root)?, split, layout, is_wav)
}

/// Computes the features of all recordings, on all cores, with threads that are gone when it is done.
pub(crate) fn compute(listing: &Listing, n_frames: usize) -> Result<InMemory, DataError> {
    if n_frames == 0 {
        return Err(DataError::Setting("`frames` must be at least 1".to_owned()));
    }
    let sample_rate = read(&listing.path(0), 0)?.sample_rate;
    let mfcc = Mfcc::new(sample_rate);
    let features = |index: usize| {
        let path = listing.path(index);
        let sound = read(&path, mfcc.n_samples(n_frames))?;
        if sound.sample_rate != sample_rate {
            return Err(DataError::malformed(
                &path,
                format!(
                    "has {} samples per second, {} has {sample_rate}; all recordings of a set need the same rate: \
                     convert them",
                    sound.sample_rate,
                    listing.path(0).display()
                ),
            ));
        }
        Ok(mfcc.features(&sound.samples, n_frames))
    };
    let team = Team::new(available_parallelism().map_or(1, NonZero::get))?;
    let samples: Vec<Vec<f32>> =
        team.install(|| (0..listing.labels.len()).into_par_iter().map(features).collect::<Result<_, DataError>>())?;
    let shape = vec![n_frames, N_COEFFICIENTS];
    let set = InMemory::new(shape, listing.classes.clone(), listing.labels.clone(), Samples::Floats(samples.concat()))?;
    let reader = Recordings { sample_rate, n_frames };
    Ok(set.with_origins(Origins::Files(listing.clone())).with_reader(Arc::new(reader)))
}

/// Reads recordings that are no part of a set.
#[derive(Debug)]
struct Recordings {
    /// That of the set's own, in samples per second.
    sample_rate: u32,
    n_frames: usize,
}

impl OutsideReader for Recordings {
    fn read(&self, path: &Path) -> Result<Vec<OutsideSample>, DataError> {
        let mfcc = Mfcc::new(self.sample_rate);
        let sound = read(path, mfcc.n_samples(self.n_frames))?;
        if sound.sample_rate != self.sample_rate {
            let (here, there) = (sound.sample_rate, self.sample_rate);
            let problem = format!(
                "has {here} samples per second, the recordings that the model was trained on {there}: convert it"
            );
            return Err(DataError::malformed(path, problem));
        }
        Ok(vec![OutsideSample::whole(mfcc.features(&sound.samples, self.n_frames))])
    }
}

/// Whether a name ends like a recording.
pub(crate) fn is_wav(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| extension.eq_ignore_ascii_case("wav"))
}

/// One recording, its channels mixed into one.
#[derive(Debug, PartialEq)]
struct Sound {
    sample_rate: u32,
    samples: Vec<f32>,
}

/// Reads the beginning of a recording: this many samples, or all it has.
fn read(path: &Path, n_samples: usize) -> Result<Sound, DataError> {
    parse(&files::read(path)?, n_samples).map_err(|problem| DataError::malformed(path, problem))
}

fn parse(bytes: &[u8], n_samples: usize) -> Result<Sound, String> {
    let mut reader = WavReader::new(Cursor::new(bytes)).map_err(|error| problem(&error))?;
    let spec = reader.spec();
    if !SAMPLE_RATES.contains(&spec.sample_rate) {
        let (low, high) = (SAMPLE_RATES.start(), SAMPLE_RATES.end());
        return Err(format!("has {} samples per second; {low} to {high} are understood", spec.sample_rate));
    }
    let n_claimed = u64::from(reader.len()) * u64::from(spec.bits_per_sample / 8);
    if n_claimed > bytes.len() as u64 {
        return Err(format!(
            "claims {n_claimed} bytes of sound, and the whole file has {}; it was cut off: fetch it again",
            bytes.len()
        ));
    }
    if reader.len() == 0 {
        return Err("holds no sound; remove it".to_owned());
    }
    let n_channels = usize::from(spec.channels);
    let n_wanted = n_samples.saturating_mul(n_channels);
    let values: Vec<f32> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().take(n_wanted).collect::<Result<_, _>>(),
        SampleFormat::Int => {
            let scale = 0.5_f64.powi(i32::from(spec.bits_per_sample) - 1);
            let samples = reader.samples::<i32>().take(n_wanted);
            samples.map(|sample| sample.map(|x| (f64::from(x) * scale) as f32)).collect()
        }
    }
    .map_err(|error| problem(&error))?;
    if values.iter().any(|value| !value.is_finite()) {
        return Err("holds samples that are not numbers; record it again or remove it".to_owned());
    }
    let mixed = values.chunks_exact(n_channels).map(|channels| channels.iter().sum::<f32>() / n_channels as f32);
    Ok(Sound { sample_rate: spec.sample_rate, samples: mixed.collect() })
}

fn problem(error: &hound::Error) -> String {
    match error {
        hound::Error::FormatError(text) => format!("is no WAV file: {text}"),
        hound::Error::IoError(_) => "ends too early; it was cut off: fetch it again".to_owned(),
        _ => "is a WAV file of a kind that is not understood (plain PCM or float is); convert it".to_owned(),
    }
}

/// The folder with the recordings: the one given, or the only one inside it that has any. Sets are published with their
/// recordings beside other folders, and one folder alone would be one class, of which there is nothing to learn.
fn innermost(root: &Path) -> Result<PathBuf, DataError> {
    let has_sound = |folder: &PathBuf| files::list(folder).is_ok_and(|paths| paths.iter().any(|path| is_wav(path)));
    let mut with_sound = files::list(root)?.into_iter().filter(has_sound);
    match (with_sound.next(), with_sound.next()) {
        (Some(only), None) if !has_sound(&root.to_owned()) => Ok(only),
        _ => Ok(root.to_owned()),
    }
}

/// Folders of classes if there is any folder, names that begin with the class otherwise.
fn layout(root: &Path) -> Result<Layout, DataError> {
    let any_folder = files::list(root)?.iter().any(|path| path.is_dir());
    Ok(if any_folder { Layout::Folders } else { Layout::Prefixes })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use hound::{SampleFormat, WavSpec, WavWriter};

    use super::{compute, list, parse};
    use crate::data::in_memory::Normalisation;
    use crate::data::{Dataset, Split, Tone};
    use crate::rng::Rng;

    fn spec(sample_rate: u32, channels: u16, bits_per_sample: u16) -> WavSpec {
        let sample_format = if bits_per_sample == 32 { SampleFormat::Float } else { SampleFormat::Int };
        WavSpec { channels, sample_rate, bits_per_sample, sample_format }
    }

    /// A tone of this many samples, the same in every channel.
    fn wav(spec: WavSpec, n_samples: usize, hertz: f32) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut file, spec).unwrap();
        for n in 0..n_samples {
            let x = 0.5 * (std::f32::consts::TAU * hertz * n as f32 / spec.sample_rate as f32).sin();
            for _ in 0..spec.channels {
                match spec.sample_format {
                    SampleFormat::Float => writer.write_sample(x).unwrap(),
                    SampleFormat::Int => {
                        let scale = 2.0_f32.powi(i32::from(spec.bits_per_sample) - 1);
                        writer.write_sample((x * scale) as i32).unwrap();
                    }
                }
            }
        }
        writer.finalize().unwrap();
        file.into_inner()
    }

    #[test]
    fn all_kinds_of_samples_sound_alike() {
        let exact = parse(&wav(spec(8000, 1, 32), 500, 440.0), 400).unwrap();
        assert_eq!((exact.sample_rate, exact.samples.len()), (8000, 400));
        for (channels, bits) in [(1, 16), (2, 16), (1, 24), (3, 8), (2, 32)] {
            let sound = parse(&wav(spec(8000, channels, bits), 500, 440.0), 400).unwrap();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 0.02;
            assert!(sound.samples.iter().zip(&exact.samples).all(near), "{channels} channels, {bits} bits");
        }
    }

    #[test]
    fn both_layouts_are_read() {
        let sound = wav(spec(8000, 1, 16), 4000, 440.0);
        let prefixes = tempfile::tempdir().unwrap();
        let folders = tempfile::tempdir().unwrap();
        for (class, name) in [("no", "a"), ("no", "b"), ("yes", "a")] {
            std::fs::write(prefixes.path().join(format!("{class}_{name}.wav")), &sound).unwrap();
            std::fs::create_dir_all(folders.path().join("train").join(class)).unwrap();
            std::fs::write(folders.path().join("train").join(class).join(format!("{name}.WAV")), &sound).unwrap();
        }
        std::fs::write(prefixes.path().join("readme"), "no sound").unwrap();
        // As the Free Spoken Digit Dataset is published: the recordings in a folder beside others.
        let nested = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(nested.path().join("tools")).unwrap();
        std::fs::create_dir_all(nested.path().join("recordings")).unwrap();
        for name in ["no_a.wav", "no_b.wav", "yes_a.wav"] {
            std::fs::write(nested.path().join("recordings").join(name), &sound).unwrap();
        }
        for root in [prefixes.path(), folders.path(), nested.path()] {
            let set = compute(&list(root, Split::Train).unwrap(), 64).unwrap();
            assert_eq!((set.shape(), set.labels()), ([64, 13].as_slice(), [0, 0, 1].as_slice()));
            let batch = set.batch(&[0, 2]).unwrap();
            assert_eq!(batch.inputs[..64 * 13], batch.inputs[64 * 13..]);
            assert!(batch.inputs.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn a_recording_from_elsewhere_is_prepared_as_the_set_is() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("a_1.wav", &wav(spec(8000, 1, 16), 4000, 440.0));
        put("b_1.wav", &wav(spec(8000, 1, 16), 6000, 900.0));
        let set = compute(&list(folder.path(), Split::Train).unwrap(), 40).unwrap();
        let set = set.normalised(Normalisation { scale: 1.0, mean: vec![0.5], deviation: vec![2.0] }).unwrap();
        let read = |name: &str, tone| set.only(&[0]).unwrap().read_samples(&folder.path().join(name), tone);
        for (index, name) in ["a_1.wav", "b_1.wav"].into_iter().enumerate() {
            let samples = read(name, Tone::AsIs).unwrap();
            assert_eq!((samples.len(), samples[0].line, samples[0].position), (1, None, None));
            assert_eq!(samples[0].inputs, set.batch(&[index]).unwrap().inputs);
        }
        put("fast", &wav(spec(16_000, 1, 16), 4000, 440.0));
        put("other", b"no sound");
        put("empty", b"");
        for (name, tone, answer) in [
            (
                "fast",
                Tone::AsIs,
                "fast: has 16000 samples per second, the recordings that the model was trained on 8000",
            ),
            ("other", Tone::AsIs, "no WAV file"),
            ("empty", Tone::AsIs, "cut off"),
            ("none", Tone::AsIs, "none"),
            ("a_1.wav", Tone::Inverted, "does not consist of pictures"),
        ] {
            let error = read(name, tone).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
    }

    #[test]
    fn a_bad_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("a_1.wav", &wav(spec(8000, 1, 16), 4000, 440.0));
        let whole = wav(spec(8000, 1, 16), 1000, 300.0);
        let mut nan = wav(spec(8000, 1, 32), 1000, 300.0);
        let end = nan.len();
        nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        for (bytes, answer) in [
            (whole[..1500].to_vec(), "cut off"),
            (whole[..30].to_vec(), "cut off"),
            (b"RIFFxxxxWAVX".to_vec(), "no WAV file"),
            (Vec::new(), "cut off"),
            (wav(spec(8000, 1, 16), 0, 1.0), "holds no sound"),
            (wav(spec(16_000, 1, 16), 100, 1.0), "16000 samples per second"),
            (wav(spec(100, 1, 16), 100, 1.0), "4000 to 384000 are understood"),
            (nan, "not numbers"),
        ] {
            put("b_1.wav", &bytes);
            let error = compute(&list(folder.path(), Split::Train).unwrap(), 64).unwrap_err().to_string();
            assert!(error.contains(answer) && error.contains("b_1.wav"), "{error}");
        }
        assert!(compute(&list(folder.path(), Split::Train).unwrap(), 0).is_err());
        std::fs::remove_file(folder.path().join("b_1.wav")).unwrap();
        std::fs::create_dir(folder.path().join("b_1.wav")).unwrap();
        assert!(list(folder.path(), Split::Train).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let bits = [8, 16, 24, 32][rng.below(4)];
            let mut bytes = wav(spec(8000, 1 + rng.below(2) as u16, bits), 50, 440.0);
            for _ in 0..rng.below(5) {
                let at = rng.below(80).min(bytes.len() - 1);
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() * 2) + 1);
            if let Ok(sound) = parse(&bytes, 1 << 40) {
                assert!(sound.samples.len() <= bytes.len(), "seed {seed}");
            }
        }
    }
}
