//! A data set that sits in memory: pixels as bytes, or features as floats, normalised as they are read.
//!
//! Pixels stay bytes: MNIST is 47 MB so, and would be 188 MB as floats.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use super::answers::{Answers, Spread};
use super::normalisation::ByteTable;
use super::origins::Origins;
use super::outside::{OutsideReader, OutsideSample};
use super::{Batch, DataError, Dataset, TargetKind, Targets, Tone, check_indices, picture};

pub use super::normalisation::Normalisation;

/// The raw values of all samples, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// One byte a value: pixels.
    Bytes(Vec<u8>),
    /// One float a value: measured features.
    Floats(Vec<f32>),
}

impl Samples {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => values.len(),
        }
    }

    /// Looks into some samples of so many values each. They lie anywhere in memory, and who waits for all of them at the same time waits
    /// once.
    fn look_ahead(&self, samples: &[usize], per_sample: usize) {
        fn look<T: Copy>(values: &[T], samples: &[usize], per_sample: usize) {
            let step = LINE / size_of::<T>();
            for &sample in samples {
                let lines = values[sample * per_sample..(sample + 1) * per_sample].iter().step_by(step);
                lines.for_each(|&value| _ = black_box(value));
            }
        }
        match self {
            Self::Bytes(values) => look(values, samples, per_sample),
            Self::Floats(values) => look(values, samples, per_sample),
        }
    }
}

/// The length of a cache line.
const LINE: usize = 64;
/// So many values are looked at ahead: as bytes and as floats they fit into the first two caches.
const LOOKED_AHEAD: usize = 32 << 10;

/// Labelled samples held in memory.
///
/// ```
/// use nettorrent_engine::data::Dataset;
/// use nettorrent_engine::data::in_memory::{InMemory, Normalisation, Samples};
/// let names = vec!["dark".to_owned(), "light".to_owned()];
/// let set = InMemory::new(vec![1, 2, 1], names, vec![0, 1], Samples::Bytes(vec![0, 51, 204, 255]))?
///     .normalised(Normalisation::scaled(255.0))?;
/// assert_eq!(set.batch(&[1])?.inputs, [0.8, 1.0]);
/// # Ok::<(), nettorrent_engine::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct InMemory {
    shape: Vec<usize>,
    classes: Vec<String>,
    labels: Vec<u32>,
    samples: Samples,
    normalisation: Normalisation,
    table: ByteTable,
    origins: Origins,
    answers: Option<Answers>,
    /// That of the training part's answers.
    spread: Spread,
    /// For files that are no part of the set, where they are no pictures.
    reader: Option<Arc<dyn OutsideReader>>,
}

impl InMemory {
    /// Samples of this shape, as raw as they are. Fails when counts, shape, labels and class names do not fit together.
    pub fn new(shape: Vec<usize>, classes: Vec<String>, labels: Vec<u32>, samples: Samples) -> Result<Self, DataError> {
        let per_sample: usize = shape.iter().product();
        if per_sample == 0 {
            return Err(DataError::Setting(format!("a sample of shape {shape:?} holds nothing")));
        }
        if per_sample.checked_mul(labels.len()) != Some(samples.len()) {
            let (n_labels, n_values) = (labels.len(), samples.len());
            return Err(DataError::Setting(format!(
                "{n_labels} labels and shape {shape:?} need {per_sample} values each, but there are {n_values} in all"
            )));
        }
        if let Some(label) = labels.iter().find(|&&label| label as usize >= classes.len()) {
            return Err(DataError::Setting(format!("label {label} has no name: there are {} classes", classes.len())));
        }
        let normalisation = Normalisation::scaled(1.0);
        let table = ByteTable::new(&normalisation, 1);
        Ok(Self {
            shape,
            classes,
            labels,
            samples,
            normalisation,
            table,
            origins: Origins::Unknown,
            answers: None,
            spread: Spread::default(),
            reader: None,
        })
    }

    /// Samples that have no one class; `names` says what each of their values is, or what their positions' classes are called.
    pub(crate) fn with_answers(
        shape: Vec<usize>,
        names: Vec<String>,
        answers: Answers,
        samples: Samples,
    ) -> Result<Self, DataError> {
        let n_samples = samples.len() / shape.iter().product::<usize>().max(1);
        // Numbers may be asked for at each position; then the names say what there is at one of them.
        let each = if matches!(answers, Answers::Positions(_)) { 1 } else { names.len() };
        if n_samples * each == 0 || !answers.len().is_multiple_of(n_samples * each) {
            let n = answers.len();
            return Err(DataError::Setting(format!("{n} answers are not {each} for each of {n_samples} samples")));
        }
        let set = Self::new(shape, names, vec![0; n_samples], samples)?;
        Ok(Self { answers: Some(answers), ..set })
    }

    /// How the answers are spread, and with `standardise` would be when brought to mean 0 and deviation 1.
    pub(crate) fn spread(&self, standardise: bool) -> Spread {
        self.answers.as_ref().map(|answers| answers.spread(self.classes.len(), standardise)).unwrap_or_default()
    }

    /// The same samples, whose answers are prepared as those of the training part are.
    pub(crate) fn judged_by(mut self, spread: Spread) -> Self {
        self.answers = self.answers.map(|answers| answers.prepared(&spread));
        let own = self.spread(false);
        Self { spread: spread.with_variance_of(&own), ..self }
    }

    /// The same samples, with what reads files that are no part of the set.
    pub(crate) fn with_reader(self, reader: Arc<dyn OutsideReader>) -> Self {
        Self { reader: Some(reader), ..self }
    }

    /// The same samples, of which it is known where they came from.
    pub(crate) fn with_origins(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// The same samples, normalised so from now on (instead of, not on top of, what was set before).
    pub fn normalised(mut self, normalisation: Normalisation) -> Result<Self, DataError> {
        let n_channels = self.n_channels();
        normalisation.check(n_channels)?;
        // One mean and one deviation for all channels need but one table.
        let alike = normalisation.mean.len() == 1 && normalisation.deviation.len() == 1;
        self.table = match self.samples {
            Samples::Bytes(_) => ByteTable::new(&normalisation, if alike { 1 } else { n_channels }),
            Samples::Floats(_) => ByteTable::empty(),
        };
        self.normalisation = normalisation;
        Ok(self)
    }

    /// Whether the raw values are bytes.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.samples, Samples::Bytes(_))
    }

    /// How raw values are normalised.
    pub fn normalisation(&self) -> &Normalisation {
        &self.normalisation
    }

    /// How many answers there are about a sample.
    fn n_answers(&self) -> usize {
        self.answers.as_ref().map_or(0, |answers| answers.len() / self.labels.len().max(1))
    }

    /// The channels are the last dimension: colours of a pixel, coefficients of a frame, or the features themselves.
    fn n_channels(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Only the samples with these indices, in this order.
    pub fn only(&self, indices: &[usize]) -> Result<Self, DataError> {
        check_indices(indices, self.labels.len())?;
        let per_sample: usize = self.shape.iter().product();
        let range = |&index: &usize| index * per_sample..(index + 1) * per_sample;
        let samples = match &self.samples {
            Samples::Bytes(values) => Samples::Bytes(indices.iter().flat_map(|i| &values[range(i)]).copied().collect()),
            Samples::Floats(values) => {
                Samples::Floats(indices.iter().flat_map(|i| &values[range(i)]).copied().collect())
            }
        };
        Ok(Self {
            shape: self.shape.clone(),
            classes: self.classes.clone(),
            labels: indices.iter().map(|&index| self.labels[index]).collect(),
            samples,
            normalisation: self.normalisation.clone(),
            table: self.table.clone(),
            origins: self.origins.only(indices),
            answers: self.answers.as_ref().map(|answers| answers.of(indices, self.n_answers())),
            spread: self.spread.clone(),
            reader: self.reader.clone(),
        })
    }

    /// The mean and deviation of each feature over the raw samples, for sets of floats.
    pub(crate) fn measure(&self) -> Normalisation {
        match &self.samples {
            Samples::Floats(values) => {
                Normalisation::measured(values.chunks_exact(self.n_channels()), self.n_channels())
            }
            Samples::Bytes(_) => self.normalisation.clone(),
        }
    }

    /// Reads a picture that is no part of the set.
    fn picture(&self, path: &Path, tone: Tone) -> Result<Vec<f32>, DataError> {
        let (Samples::Bytes(_), Ok(shape)) = (&self.samples, <[usize; 3]>::try_from(self.shape.as_slice())) else {
            let problem = format!(
                "cannot be read as a sample: those of this set are arrays of the shape {:?}; put it into a data set of that \
                 kind and use `nettorrent eval --data`",
                self.shape
            );
            return Err(DataError::malformed(path, problem));
        };
        // A set whose brightest value is 16 wants pictures in the same range.
        let range = self.normalisation.scale / 255.0;
        let raw: Vec<u8> = picture::read_at(path, shape, tone)?
            .iter()
            .map(|&pixel| (f32::from(pixel) * range).round() as u8)
            .collect();
        let mut values = Vec::with_capacity(raw.len());
        self.table.extend(&mut values, &raw);
        Ok(values)
    }

    fn extend_floats(&self, out: &mut Vec<f32>, raw: &[f32]) {
        let scale = self.normalisation.scale;
        let n_channels = self.n_channels();
        for pixel in raw.chunks_exact(n_channels) {
            out.extend(pixel.iter().enumerate().map(|(channel, &x)| {
                let (mean, deviation) = self.normalisation.channel(channel);
                (x / scale - mean) / deviation
            }));
        }
    }
}

impl Dataset for InMemory {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn target(&self) -> TargetKind {
        match self.answers {
            None => TargetKind::Class,
            Some(Answers::Labels(_)) => TargetKind::Labels,
            Some(Answers::Numbers(_)) => {
                let (n, variance) = (self.classes.len(), self.spread.variance());
                TargetKind::Numbers { n, n_positions: self.n_answers() / n.max(1), variance }
            }
            Some(Answers::Positions(_)) => TargetKind::Positions { n: self.n_answers() },
        }
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
        check_indices(indices, self.labels.len())?;
        let per_sample: usize = self.shape.iter().product();
        let mut inputs = Vec::with_capacity(indices.len() * per_sample);
        for group in indices.chunks((LOOKED_AHEAD / per_sample.max(1)).max(1)) {
            self.samples.look_ahead(group, per_sample);
            for &index in group {
                let range = index * per_sample..(index + 1) * per_sample;
                match &self.samples {
                    Samples::Bytes(values) => self.table.extend(&mut inputs, &values[range]),
                    Samples::Floats(values) => self.extend_floats(&mut inputs, &values[range]),
                }
            }
        }
        let targets = match &self.answers {
            None => Targets::Classes(indices.iter().map(|&index| self.labels[index]).collect()),
            Some(answers) => answers.of(indices, self.n_answers()).into_targets(),
        };
        Ok(Batch { n: indices.len(), inputs, targets })
    }

    fn origin(&self, index: usize) -> Option<String> {
        self.origins.of(index)
    }

    fn read_samples(&self, path: &Path, tone: Tone) -> Result<Vec<OutsideSample>, DataError> {
        let Some(reader) = &self.reader else { return Ok(vec![OutsideSample::whole(self.picture(path, tone)?)]) };
        tone.check_no_picture(path)?;
        let normalised = |sample: OutsideSample| {
            let mut inputs = Vec::with_capacity(sample.inputs.len());
            self.extend_floats(&mut inputs, &sample.inputs);
            OutsideSample { inputs, ..sample }
        };
        Ok(reader.read(path)?.into_iter().map(normalised).collect())
    }

    fn restore(&self, numbers: &mut [f32]) {
        self.spread.restore(numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::{InMemory, Normalisation, Samples};
    use crate::data::answers::Answers;
    use crate::data::{Dataset, TargetKind, Targets};

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| i.to_string()).collect()
    }

    #[test]
    fn bytes_and_floats_are_normalised_alike() {
        let raw: Vec<u8> = (0..24).map(|x| x * 10).collect();
        let floats: Vec<f32> = raw.iter().map(|&x| f32::from(x)).collect();
        for n_channels in [1, 2, 3] {
            let shape = vec![2, 6 / n_channels, n_channels];
            let values: Vec<f32> = (0..n_channels).map(|c| 0.2 + 0.1 * c as f32).collect();
            let normalisation = Normalisation::pixels(&values, &values);
            let of = |samples| {
                let set = InMemory::new(shape.clone(), names(2), vec![0, 1], samples).unwrap();
                set.normalised(normalisation.clone()).unwrap().batch(&[1, 0]).unwrap()
            };
            let bytes = of(Samples::Bytes(raw.clone()));
            assert_eq!(bytes, of(Samples::Floats(floats.clone())));
            assert_eq!(bytes.classes(), [1, 0]);
            let expected = (120.0 / 255.0 - values[0]) / values[0];
            assert_eq!(bytes.inputs[0], expected);
        }
    }

    #[test]
    fn some_samples_can_be_taken_alone() {
        let set = InMemory::new(vec![2], names(2), vec![0, 1, 1], Samples::Floats(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        let some = set.unwrap().only(&[2, 0]).unwrap();
        assert_eq!((some.labels(), some.batch(&[0]).unwrap().inputs), ([1, 0].as_slice(), vec![4.0, 5.0]));
        assert_eq!(some.measure().mean, [2.0, 3.0]);
        assert!(some.only(&[2]).is_err());
    }

    #[test]
    fn answers_are_measured_and_prepared_by_the_training_part() {
        let set = |answers: &[f32]| {
            let samples = Samples::Floats(vec![0.0; answers.len() / 2]);
            InMemory::with_answers(vec![1], names(2), Answers::Numbers(answers.to_vec()), samples).unwrap()
        };
        let (train, test) = (set(&[1.0, 10.0, 3.0, 10.0]), set(&[5.0, 11.0, 9.0, 11.0]));
        let plain = test.clone().judged_by(train.spread(false));
        assert_eq!(
            plain.target(),
            TargetKind::Numbers { n: 2, n_positions: 1, variance: 2.0 },
            "that of the test part"
        );
        assert_eq!(plain.batch(&[0]).unwrap().targets, Targets::Numbers(vec![5.0, 11.0]));
        let prepared = test.judged_by(train.spread(true));
        assert_eq!(
            prepared.target(),
            TargetKind::Numbers { n: 2, n_positions: 1, variance: 2.0 },
            "one of them never varies"
        );
        assert_eq!(prepared.targets(&[0]).unwrap(), Targets::Numbers(vec![3.0, 1.0]));
        let mut numbers = [3.0, 1.0];
        prepared.restore(&mut numbers);
        assert_eq!(numbers, [5.0, 11.0], "in the units of the data");
        assert_eq!(train.only(&[1]).unwrap().targets(&[0]).unwrap(), Targets::Numbers(vec![3.0, 10.0]));
        assert!(
            InMemory::with_answers(vec![1], names(2), Answers::Labels(vec![0.0; 3]), Samples::Bytes(vec![0])).is_err()
        );
    }

    #[test]
    fn one_mean_serves_all_channels() {
        let set = InMemory::new(vec![1, 1, 2], names(1), vec![0], Samples::Bytes(vec![0, 255])).unwrap();
        let set = set.normalised(Normalisation::pixels(&[0.5], &[0.5])).unwrap();
        assert_eq!(set.batch(&[0]).unwrap().inputs, [-1.0, 1.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bytes = |n| Samples::Bytes(vec![0; n]);
        assert!(InMemory::new(vec![2, 0], names(1), vec![], bytes(0)).is_err());
        assert!(InMemory::new(vec![2], names(1), vec![0, 0], bytes(3)).is_err());
        assert!(InMemory::new(vec![2], names(1), vec![1], bytes(2)).is_err());
        let set = InMemory::new(vec![1, 1, 3], names(1), vec![0], bytes(3)).unwrap();
        assert!(set.batch(&[1]).unwrap_err().to_string().contains("no sample 1"));
        for (mean, deviation) in [(vec![0.0; 2], vec![1.0]), (vec![0.0], vec![0.0]), (vec![f32::NAN], vec![1.0])] {
            assert!(set.clone().normalised(Normalisation::pixels(&mean, &deviation)).is_err());
        }
    }
}
