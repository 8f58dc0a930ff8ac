//! How far what a model takes positions for overlaps with what they are: the mean intersection over union of a segmentation.

use nettorrent_engine::data::{Batch, Dataset, IGNORED, TargetKind};
use nettorrent_engine::model::best_class;

/// The name of the mean over the classes.
const MEAN_NAME: &str = "mean_iou";

/// Counts positions, batch by batch.
pub(crate) struct Overlap {
    /// For each class; none where no positions are asked about.
    classes: Vec<Counts>,
}

/// The positions of a class.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Those that are of it and are taken for it.
    both: u64,
    /// Those that are of it or are taken for it.
    either: u64,
}

impl Overlap {
    /// For samples of these data.
    pub(crate) fn new(data: &dyn Dataset) -> Self {
        let n_classes = if matches!(data.target(), TargetKind::Positions { .. }) { data.classes().len() } else { 0 };
        Self { classes: vec![Counts::default(); n_classes] }
    }

    /// Looks at a batch and what a network with so many classes says about it.
    pub(crate) fn watch(&mut self, batch: &Batch, outputs: &[f32], n_classes: usize) {
        if self.classes.is_empty() {
            return;
        }
        let asked = outputs.chunks_exact(n_classes).zip(batch.classes()).filter(|(_, class)| **class != IGNORED);
        for (row, &class) in asked {
            let (is, taken_for) = (class as usize, best_class(row));
            // A network may have more outputs than the data have classes.
            if let Some(counts) = self.classes.get_mut(taken_for) {
                counts.either += 1;
                counts.both += u64::from(is == taken_for);
            }
            self.classes[is].either += u64::from(is != taken_for);
        }
    }

    /// The mean over all classes that there are or that something was taken for.
    pub(crate) fn found(&self) -> Option<(String, f64)> {
        let seen = || self.classes.iter().filter(|counts| counts.either > 0);
        let sum: f64 = seen().map(|counts| counts.both as f64 / counts.either as f64).sum();
        (seen().count() > 0).then(|| (MEAN_NAME.to_owned(), sum / seen().count() as f64))
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::data::{Batch, IGNORED, Targets};

    use super::{Counts, Overlap};

    #[test]
    fn classes_count_alike_however_large_they_are() {
        let mut overlap = Overlap { classes: vec![Counts::default(); 4] };
        // Four positions of class 0, of which one is taken for 1, one of class 1 that is found, and one that is not asked about.
        let taken_for = [0, 0, 0, 1, 1, 3];
        let outputs: Vec<f32> =
            taken_for.iter().flat_map(|&k| (0..4).map(move |c| f32::from(u8::from(c == k)))).collect();
        let targets = Targets::Classes(vec![0, 0, 0, 0, 1, IGNORED]);
        overlap.watch(&Batch { n: 1, inputs: Vec::new(), targets }, &outputs, 4);
        assert_eq!(overlap.found(), Some(("mean_iou".to_owned(), (0.75 + 0.5) / 2.0)));
        assert_eq!(Overlap { classes: Vec::new() }.found(), None);
    }
}
