//! Samples that are made up, for networks of any input shape.

use nettorrent_engine::data::in_memory::{InMemory, Samples};
use nettorrent_engine::rng::Rng;

/// So many samples around a centre for each class. Seeds share the centres, so that a training set and a test set belong together.
///
/// # Panics
/// If the shape is empty.
pub fn made_up(shape: &[usize], n_classes: usize, n: usize, seed: u64) -> InMemory {
    let len: usize = shape.iter().product();
    let mut rng = Rng::stream(seed, "made up", 0);
    let mut centres = Rng::stream(7, "centres", 0);
    let centres: Vec<f32> = (0..n_classes * len).map(|_| centres.normal()).collect();
    let labels: Vec<u32> = (0..n).map(|k| (k % n_classes) as u32).collect();
    let sample = |&label: &u32| centres[label as usize * len..][..len].to_vec();
    let inputs = labels.iter().flat_map(sample).map(|centre| centre + 0.5 * rng.normal()).collect();
    let classes = (0..n_classes).map(|class| class.to_string()).collect();
    InMemory::new(shape.to_vec(), classes, labels, Samples::Floats(inputs)).expect("as many numbers as the shape says")
}
