//! The data set that is always there: 5620 handwritten digits of 8×8 pixels, embedded in the program.
//!
//! "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository,
//! CC BY 4.0; see `assets/optdigits/CREDITS`. It lets everything be tried without a download.

use std::path::Path;

use super::in_memory::{InMemory, Normalisation};
use super::{DataError, Split, idx};

/// The pixels are counts of 0 to 16.
pub(crate) const SCALE: f32 = 16.0;

/// Opens one part; the pixels are scaled to 0 to 1.
///
/// ```
/// use nettorrent_engine::data::{Dataset, Split, digits};
/// let train = digits::open(Split::Train)?;
/// assert_eq!((train.len(), train.shape()), (3823, [8, 8, 1].as_slice()));
/// # Ok::<(), nettorrent_engine::data::DataError>(())
/// ```
pub fn open(split: Split) -> Result<InMemory, DataError> {
    let (images, labels): (&[u8], &[u8]) = match split {
        Split::Train => (
            include_bytes!("../../assets/optdigits/train-images-idx3-ubyte.gz"),
            include_bytes!("../../assets/optdigits/train-labels-idx1-ubyte.gz"),
        ),
        Split::Test => (
            include_bytes!("../../assets/optdigits/t10k-images-idx3-ubyte.gz"),
            include_bytes!("../../assets/optdigits/t10k-labels-idx1-ubyte.gz"),
        ),
    };
    let (images_path, labels_path) = (Path::new("embedded digits, images"), Path::new("embedded digits, labels"));
    let classes = (0..10).map(|digit| digit.to_string()).collect();
    let labels = idx::labels_of(labels_path, idx::parse(labels_path, labels)?)?;
    let images = idx::parse(images_path, images)?;
    idx::assemble(images_path, images, labels_path, labels, classes)?.normalised(Normalisation::scaled(SCALE))
}

#[cfg(test)]
mod tests {
    use super::open;
    use crate::data::{Dataset, Split};

    #[test]
    fn both_parts_are_whole() {
        for (split, n_samples) in [(Split::Train, 3823), (Split::Test, 1797)] {
            let set = open(split).unwrap();
            assert_eq!((set.len(), set.shape()), (n_samples, [8, 8, 1].as_slice()));
            let all = set.batch(&(0..n_samples).collect::<Vec<usize>>()).unwrap();
            assert!(all.inputs.iter().all(|x| (0.0..=1.0).contains(x)));
            assert!(all.inputs.contains(&1.0));
            assert!((0..10).all(|class| all.classes().iter().filter(|&&label| label == class).count() > 150));
        }
    }
}
