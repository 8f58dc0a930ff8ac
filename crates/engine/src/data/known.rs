//! What is known of well-known sets: the mean and deviation of their channels, and the names of their classes.

use std::path::Path;

use super::files;
use super::in_memory::Normalisation;

/// A set in IDX files that is known by name.
pub(crate) struct KnownIdx {
    name: &'static str,
    mean: f32,
    deviation: f32,
    pub(crate) classes: [&'static str; 10],
}

/// The known sets in IDX files, sorted.
const KNOWN_IDX: [KnownIdx; 2] = [
    KnownIdx {
        name: "fashion-mnist",
        mean: 0.2860,
        deviation: 0.3530,
        classes: ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot"],
    },
    KnownIdx {
        name: "mnist",
        mean: 0.1307,
        deviation: 0.3081,
        classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    },
];

impl KnownIdx {
    pub(crate) fn normalisation(&self) -> Normalisation {
        Normalisation::pixels(&[self.mean], &[self.deviation])
    }
}

/// The known set that is meant: by the name given, or else by the name of the folder.
pub(crate) fn known_idx(name: Option<&str>, folder: &Path) -> Option<&'static KnownIdx> {
    // The folder may be given as `.`, which says nothing.
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = name.map_or_else(|| files::name_of(&real), ToOwned::to_owned).to_lowercase().replace(['_', ' '], "-");
    KNOWN_IDX.iter().find(|known| known.name == name)
}

/// CIFAR-10's own.
pub(crate) fn cifar10() -> Normalisation {
    Normalisation::pixels(&[0.4914, 0.4822, 0.4465], &[0.2470, 0.2435, 0.2616])
}

/// ImageNet's, which suit most photographs.
pub(crate) fn photographs() -> Normalisation {
    Normalisation::pixels(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KNOWN_IDX, known_idx};

    #[test]
    fn sets_are_known_by_name_or_folder() {
        let known = |name, folder| known_idx(name, Path::new(folder)).map(|known| known.name);
        assert_eq!(known(None, "/data/MNIST"), Some("mnist"));
        assert_eq!(known(None, "/data/fashion_mnist"), Some("fashion-mnist"));
        assert_eq!(known(Some("fashion-mnist"), "/data/mnist"), Some("fashion-mnist"));
        assert_eq!(known(None, "/data/kmnist"), None);
        assert_eq!(known(Some("letters"), "/data/mnist"), None);
        assert!(KNOWN_IDX.iter().map(|known| known.name).is_sorted());
    }
}
