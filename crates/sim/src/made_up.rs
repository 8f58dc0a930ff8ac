//! Samples that are made up, for networks of any input shape.

use nettorrent_engine::data::{Batch, DataError, Dataset};
use nettorrent_engine::rng::Rng;

/// Samples around a centre for each class.
pub struct MadeUp {
    shape: Vec<usize>,
    classes: Vec<String>,
    labels: Vec<u32>,
    inputs: Vec<f32>,
}

impl MadeUp {
    /// So many samples of a shape. Seeds share the centres, so that a training set and a test set belong together.
    pub fn new(shape: &[usize], n_classes: usize, n: usize, seed: u64) -> Self {
        let len: usize = shape.iter().product();
        let mut rng = Rng::stream(seed, "made up", 0);
        let mut centres = Rng::stream(7, "centres", 0);
        let centres: Vec<f32> = (0..n_classes * len).map(|_| centres.normal()).collect();
        let labels: Vec<u32> = (0..n).map(|k| (k % n_classes) as u32).collect();
        let sample = |&label: &u32| centres[label as usize * len..][..len].to_vec();
        let inputs = labels.iter().flat_map(sample).map(|centre| centre + 0.5 * rng.normal()).collect();
        let classes = (0..n_classes).map(|class| class.to_string()).collect();
        Self { shape: shape.to_vec(), classes, labels, inputs }
    }
}

impl Dataset for MadeUp {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
        let len: usize = self.shape.iter().product();
        let inputs = indices.iter().flat_map(|&k| &self.inputs[k * len..][..len]).copied().collect();
        Ok(Batch { inputs, labels: indices.iter().map(|&k| self.labels[k]).collect() })
    }
}
