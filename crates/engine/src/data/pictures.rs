//! Pictures in files: decoded as they are asked for and never all held in memory, those of the next batch ahead of time.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::ahead::Ahead;
use super::preparation::Preparation;
use super::{Batch, DataError, Dataset, OutsideSample, Tone, check_indices};

/// Where the pictures of a set are, and what they show.
pub(crate) trait PictureFiles: Send + Sync + 'static {
    /// What is done to each of them.
    fn preparation(&self) -> &Preparation;
    /// The names of the classes.
    fn classes(&self) -> &[String];
    /// The label of every picture.
    fn labels(&self) -> &[u32];
    /// Where a picture is, for people.
    fn origin(&self, index: usize) -> String;
    /// Decodes a picture and frames it.
    fn pixels(&self, index: usize) -> Result<Vec<u8>, DataError>;
}

/// A set of pictures.
pub(crate) struct Pictures<F> {
    files: Arc<F>,
    /// The pixels of pictures that will be asked for: a quarter of what their values take.
    ahead: Ahead<Vec<u8>>,
}

impl<F: PictureFiles> Pictures<F> {
    /// The pictures in these files.
    pub(crate) fn new(files: F) -> Self {
        let files = Arc::new(files);
        let ahead = Ahead::new({
            let files = files.clone();
            move |index| files.pixels(index).ok()
        });
        Self { files, ahead }
    }
}

impl<F: PictureFiles> Dataset for Pictures<F> {
    fn shape(&self) -> &[usize] {
        self.files.preparation().shape()
    }

    fn classes(&self) -> &[String] {
        self.files.classes()
    }

    fn labels(&self) -> &[u32] {
        self.files.labels()
    }

    fn origin(&self, index: usize) -> Option<String> {
        (index < self.len()).then(|| self.files.origin(index))
    }

    fn read_samples(&self, path: &Path, tone: Tone) -> Result<Vec<OutsideSample>, DataError> {
        Ok(vec![OutsideSample::whole(self.files.preparation().read(path, tone)?)])
    }

    /// Decodes on all threads of the pool that the caller runs in, if it runs in one.
    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
        check_indices(indices, self.len())?;
        let (ready, preparation) = (self.ahead.ready(), self.files.preparation());
        let values = |&index: &usize| match ready.get(index) {
            Some(pixels) => Ok(preparation.values(pixels)),
            None => self.files.pixels(index).map(|pixels| preparation.values(&pixels)),
        };
        let is_in_pool = rayon::current_thread_index().is_some();
        let samples: Result<Vec<Vec<f32>>, DataError> =
            if is_in_pool { indices.par_iter().map(values).collect() } else { indices.iter().map(values).collect() };
        let inputs = samples?.concat();
        self.ahead.begin(if is_in_pool { rayon::current_num_threads() } else { 1 });
        let labels = self.labels();
        Ok(Batch::labelled(inputs, indices.iter().map(|&index| labels[index]).collect()))
    }

    fn prefetch(&self, indices: &[usize]) {
        self.ahead.expect(indices.iter().copied().filter(|&index| index < self.len()).collect());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::{PictureFiles, Pictures};
    use crate::data::in_memory::Normalisation;
    use crate::data::preparation::{Framing, Preparation};
    use crate::data::{Batch, DataError, Dataset};
    use crate::team::Team;

    /// Grey pictures that tell when they are decoded; the fourth is damaged.
    struct Greys {
        preparation: Preparation,
        classes: Vec<String>,
        labels: Vec<u32>,
        told: Mutex<Sender<usize>>,
    }

    impl PictureFiles for Greys {
        fn preparation(&self) -> &Preparation {
            &self.preparation
        }

        fn classes(&self) -> &[String] {
            &self.classes
        }

        fn labels(&self) -> &[u32] {
            &self.labels
        }

        fn origin(&self, index: usize) -> String {
            index.to_string()
        }

        fn pixels(&self, index: usize) -> Result<Vec<u8>, DataError> {
            self.told.lock().unwrap().send(index).unwrap();
            if index == 3 {
                Err(DataError::malformed(Path::new("3.png"), "is damaged"))
            } else {
                Ok(vec![index as u8; 3])
            }
        }
    }

    fn greys() -> (Pictures<Greys>, Receiver<usize>) {
        let (told, decoded) = channel();
        let framing = Framing { resize: 1, size: 1 };
        let preparation = Preparation::new(framing, &Normalisation::scaled(255.0)).unwrap();
        let (classes, labels) = (vec!["a".to_owned(), "b".to_owned()], vec![0, 1, 0, 1]);
        (Pictures::new(Greys { preparation, classes, labels, told: Mutex::new(told) }), decoded)
    }

    fn sorted(decoded: &Receiver<usize>) -> Vec<usize> {
        let mut indices: Vec<usize> = decoded.try_iter().collect();
        indices.sort_unstable();
        indices
    }

    #[test]
    fn the_next_batch_is_decoded_ahead_and_is_the_same() {
        let expected: Vec<Batch> = [[0, 1], [1, 2], [2, 0]].map(|batch| greys().0.batch(&batch).unwrap()).into();
        for team in [1, 3].map(|n_threads| Team::new(n_threads).unwrap()) {
            let (set, decoded) = greys();
            let batch = |indices: &[usize]| team.install(|| set.batch(indices));
            set.prefetch(&[1, 2]);
            assert_eq!(batch(&[0, 1]).unwrap(), expected[0]);
            // Two for the batch and two ahead of time.
            let mut indices: Vec<usize> = decoded.iter().take(4).collect();
            indices.sort_unstable();
            assert_eq!(indices, [0, 1, 1, 2]);
            set.ahead.settle();
            set.prefetch(&[]);
            assert_eq!(batch(&[1, 2]).unwrap(), expected[1]);
            assert_eq!(batch(&[2, 0]).unwrap(), expected[2]);
            assert_eq!(sorted(&decoded), [0], "the others were there");
            set.prefetch(&[]);
            assert_eq!(batch(&[2, 0]).unwrap(), expected[2]);
            assert_eq!(sorted(&decoded), [0, 2], "they are not kept");
        }
    }

    #[test]
    fn what_is_damaged_spoils_its_own_batch() {
        let (set, decoded) = greys();
        set.prefetch(&[3, 9]);
        assert_eq!(set.batch(&[0]).unwrap().inputs[0], 0.0);
        assert_eq!(decoded.iter().take(2).collect::<Vec<usize>>(), [0, 3]);
        set.ahead.settle();
        set.prefetch(&[1]);
        assert!(set.batch(&[3]).unwrap_err().to_string().contains("3.png"));
        set.prefetch(&[]);
        assert_eq!(set.batch(&[1]).unwrap().classes(), [1]);
        assert!(set.batch(&[9]).is_err());
    }
}
