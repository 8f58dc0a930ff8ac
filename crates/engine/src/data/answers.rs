//! What is asked about samples that have no one class.

use super::Targets;
use super::normalisation::Normalisation;

/// What is asked about samples that have no one class: so many answers for each sample, one sample's after the other's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answers {
    /// Whether each class applies, 0 or 1.
    Labels(Vec<f32>),
    /// Numbers to predict.
    Numbers(Vec<f32>),
    /// The class of each position, or [`IGNORED`](super::IGNORED).
    Positions(Vec<u32>),
}

impl Answers {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Labels(values) | Self::Numbers(values) => values.len(),
            Self::Positions(classes) => classes.len(),
        }
    }

    /// Those about some samples, `n` about each.
    pub(crate) fn of(&self, indices: &[usize], n: usize) -> Self {
        match self {
            Self::Labels(values) => Self::Labels(chosen(values, indices, n)),
            Self::Numbers(values) => Self::Numbers(chosen(values, indices, n)),
            Self::Positions(classes) => Self::Positions(chosen(classes, indices, n)),
        }
    }

    /// As what a network should say.
    pub(crate) fn into_targets(self) -> Targets {
        match self {
            Self::Labels(values) | Self::Numbers(values) => Targets::Numbers(values),
            Self::Positions(classes) => Targets::Classes(classes),
        }
    }

    fn values(&self) -> &[f32] {
        match self {
            Self::Labels(values) | Self::Numbers(values) => values,
            Self::Positions(_) => &[],
        }
    }

    /// How they are spread, `n` about each sample or position, and with `standardise` would be when brought to mean 0 and deviation 1.
    pub(crate) fn spread(&self, n: usize, standardise: bool) -> Spread {
        let values = self.values();
        let measured = Normalisation::measured(values.chunks_exact(n), n);
        let distance = |(index, &value): (usize, &f32)| {
            let (mean, deviation) = measured.channel(index % n);
            let scale = if standardise { f64::from(deviation) } else { 1.0 };
            ((f64::from(value) - f64::from(mean)) / scale).powi(2)
        };
        let variance = values.iter().enumerate().map(distance).sum::<f64>() / values.len().max(1) as f64;
        Spread { normalisation: standardise.then_some(measured), n, variance: variance as f32 }
    }

    /// The same, prepared as those of the training part are.
    pub(crate) fn prepared(&self, spread: &Spread) -> Self {
        let Some(normalisation) = &spread.normalisation else { return self.clone() };
        let prepared = |(index, &value): (usize, &f32)| {
            let (mean, deviation) = normalisation.channel(index % spread.n);
            (value - mean) / deviation
        };
        match self {
            Self::Numbers(values) => Self::Numbers(values.iter().enumerate().map(prepared).collect()),
            Self::Labels(_) | Self::Positions(_) => self.clone(),
        }
    }
}

fn chosen<T: Copy>(values: &[T], indices: &[usize], n: usize) -> Vec<T> {
    indices.iter().flat_map(|&index| &values[index * n..(index + 1) * n]).copied().collect()
}

/// How the numbers that a training part asks for are spread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// What each number is brought to, if that is wanted.
    normalisation: Option<Normalisation>,
    /// How many there are for each sample, or for each of its positions.
    n: usize,
    /// The mean squared distance from the mean, after that.
    variance: f32,
}

impl Spread {
    /// The same for other numbers, which are prepared alike and are spread by themselves.
    pub(crate) fn with_variance_of(self, own: &Self) -> Self {
        Self { variance: own.variance, ..self }
    }

    /// The mean squared distance from the mean.
    pub(crate) fn variance(&self) -> f32 {
        self.variance
    }

    /// Brings numbers back to what they were before they were prepared.
    pub(crate) fn restore(&self, numbers: &mut [f32]) {
        let Some(normalisation) = &self.normalisation else { return };
        for (index, number) in numbers.iter_mut().enumerate() {
            let (mean, deviation) = normalisation.channel(index % self.n);
            *number = *number * deviation + mean;
        }
    }
}
