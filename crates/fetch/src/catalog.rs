//! The data sets we know how to fetch: where their publishers keep them and what they hash to.

use crate::error::UnknownDataset;

/// One data set: what it is, what one may do with it, and the files it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetEntry {
    /// The name people type and the folder's name in the cache: lower case, digits and dashes.
    pub name: &'static str,
    /// One line for `list`.
    pub about: &'static str,
    /// What the publisher says about its use.
    pub licence: &'static str,
    /// The files to bring, all of them needed.
    pub files: &'static [RemoteFile],
    /// What is done to the files once they are here.
    pub unpack: Unpack,
}

/// One file of a data set, as its publisher serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// The file's name in the cache and below a mirror's address.
    pub name: &'static str,
    /// Its exact length.
    pub n_bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// Where it can be had: the publisher's addresses first, then mirrors.
    pub urls: &'static [&'static str],
}

/// What turns the downloaded files into the data set's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpack {
    /// The files are the data set; they are kept as they came.
    KeepFiles,
    /// Each file is a gzipped tar archive. When all it holds lies in one outer folder, that
    /// folder becomes the data set's own, so `cifar-10/data_batch_1.bin` and not one deeper.
    TarGz,
}

impl DatasetEntry {
    /// How much there is to download in all.
    pub fn n_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.n_bytes).sum()
    }
}

/// Every data set we know, sorted by name.
pub fn catalog() -> &'static [DatasetEntry] {
    &CATALOG
}

/// The entry of that name, or an error that lists the names and says which is nearest.
pub fn find(name: &str) -> Result<&'static DatasetEntry, UnknownDataset> {
    let wanted = name.to_lowercase();
    CATALOG.iter().find(|entry| entry.name == wanted).ok_or_else(|| unknown(name))
}

/// How like two names must be before we suggest one for the other.
const SIMILAR_ENOUGH: f64 = 0.7;

fn unknown(name: &str) -> UnknownDataset {
    let wanted = name.to_lowercase();
    let nearest = CATALOG
        .iter()
        .map(|entry| (strsim::jaro_winkler(&wanted, entry.name), entry.name))
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .filter(|(likeness, _)| *likeness >= SIMILAR_ENOUGH)
        .map(|(_, name)| name);
    UnknownDataset { name: name.to_owned(), nearest, known: CATALOG.iter().map(|entry| entry.name).collect() }
}

// Every hash and length below agrees with those that the TensorFlow Datasets project records
// (its `url_checksums` files). What else confirms each is said beside it.
static CATALOG: [DatasetEntry; 5] = [CIFAR_10, FASHION_MNIST, IMAGENETTE, IMAGENETTE_320, MNIST];

const CIFAR_10: DatasetEntry = DatasetEntry {
    name: "cifar-10",
    about: "60 000 colour photographs of 32 x 32 pixels in ten classes",
    licence: "none stated; the publisher asks to cite Krizhevsky, Learning Multiple Layers of Features, 2009",
    // The hash is also the one in ankane/torchvision-ruby. The second address is MindSpore's copy.
    files: &[RemoteFile {
        name: "cifar-10-binary.tar.gz",
        n_bytes: 170_052_171,
        sha256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        urls: &[
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/cifar-10-binary.tar.gz",
        ],
    }],
    unpack: Unpack::TarGz,
};

const FASHION_MNIST: DatasetEntry = DatasetEntry {
    name: "fashion-mnist",
    about: "70 000 grey pictures of clothing, 28 x 28 pixels, in ten classes",
    licence: "MIT",
    // Hashes computed from the publisher's files. The bucket's website speaks no TLS, so the
    // publisher's repository goes first; the hash would catch a change on the way in any case.
    files: &[
        RemoteFile {
            name: "t10k-images-idx3-ubyte.gz",
            n_bytes: 4_422_102,
            sha256: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            urls: &[
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/t10k-images-idx3-ubyte.gz",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "t10k-labels-idx1-ubyte.gz",
            n_bytes: 5_148,
            sha256: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            urls: &[
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/t10k-labels-idx1-ubyte.gz",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "train-images-idx3-ubyte.gz",
            n_bytes: 26_421_880,
            sha256: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            urls: &[
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/train-images-idx3-ubyte.gz",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "train-labels-idx1-ubyte.gz",
            n_bytes: 29_515,
            sha256: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            urls: &[
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/train-labels-idx1-ubyte.gz",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz",
            ],
        },
    ],
    unpack: Unpack::KeepFiles,
};

const IMAGENETTE: DatasetEntry = DatasetEntry {
    name: "imagenette",
    about: "13 394 ImageNet photographs, shortest side 160 pixels, in ten classes easy to tell apart",
    licence: IMAGENET_TERMS,
    // The hash is also the one in lorenzoh/DLDatasets.jl.
    files: &[RemoteFile {
        name: "imagenette2-160.tgz",
        n_bytes: 98_948_031,
        sha256: "88daccb09b6fce93f45e6c09ddeb269cce705549e6bff322092a2a5a11489863",
        urls: &["https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz"],
    }],
    unpack: Unpack::TarGz,
};

const IMAGENETTE_320: DatasetEntry = DatasetEntry {
    name: "imagenette-320",
    about: "imagenette with a shortest side of 320 pixels",
    licence: IMAGENET_TERMS,
    // The hash is also the one in lorenzoh/DLDatasets.jl.
    files: &[RemoteFile {
        name: "imagenette2-320.tgz",
        n_bytes: 341_553_947,
        sha256: "5020a9130cea0348272823cb12d2db7e981c6f2afa3dce71ccd5b8013005c55e",
        urls: &["https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz"],
    }],
    unpack: Unpack::TarGz,
};

const IMAGENET_TERMS: &str =
    "none stated for the selection; the photographs are under ImageNet's terms (research and teaching, not commerce)";

const MNIST: DatasetEntry = DatasetEntry {
    name: "mnist",
    about: "70 000 handwritten digits, grey, 28 x 28 pixels",
    licence: "CC BY-SA 3.0",
    // Hashes computed from the publisher's files. The authors' own server refuses most programs
    // today, so the two public copies go before it.
    files: &[
        RemoteFile {
            name: "t10k-images-idx3-ubyte.gz",
            n_bytes: 1_648_877,
            sha256: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            urls: &[
                "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
                "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-images-idx3-ubyte.gz",
                "http://yann.lecun.com/exdb/mnist/t10k-images-idx3-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "t10k-labels-idx1-ubyte.gz",
            n_bytes: 4_542,
            sha256: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            urls: &[
                "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
                "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz",
                "http://yann.lecun.com/exdb/mnist/t10k-labels-idx1-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "train-images-idx3-ubyte.gz",
            n_bytes: 9_912_422,
            sha256: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            urls: &[
                "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
                "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz",
                "http://yann.lecun.com/exdb/mnist/train-images-idx3-ubyte.gz",
            ],
        },
        RemoteFile {
            name: "train-labels-idx1-ubyte.gz",
            n_bytes: 28_881,
            sha256: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            urls: &[
                "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz",
                "https://storage.googleapis.com/cvdf-datasets/mnist/train-labels-idx1-ubyte.gz",
                "http://yann.lecun.com/exdb/mnist/train-labels-idx1-ubyte.gz",
            ],
        },
    ],
    unpack: Unpack::KeepFiles,
};

#[cfg(test)]
mod tests {
    use super::{catalog, find};
    use crate::cache::is_plain_name;

    #[test]
    fn the_list_is_sorted_and_well_formed() {
        assert!(catalog().is_sorted_by(|left, right| left.name < right.name));
        for entry in catalog() {
            assert!(is_plain_name(entry.name), "{}", entry.name);
            assert!(entry.files.is_sorted_by(|left, right| left.name < right.name), "{}", entry.name);
            for file in entry.files {
                assert_eq!(file.sha256.len(), 64, "{}", file.name);
                assert!(file.sha256.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{}", file.name);
                assert!(file.urls.iter().all(|url| url.ends_with(file.name)), "{}", file.name);
                assert!(is_plain_name(file.name) && !file.urls.is_empty(), "{}", file.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_answers_with_the_nearest_and_the_list() {
        let error = find("fashon-mnist").expect_err("not a data set").to_string();
        assert!(error.contains("did you mean fashion-mnist?"), "{error}");
        assert!(error.contains("cifar-10, fashion-mnist, imagenette, imagenette-320, mnist"), "{error}");
        let error = find("zebra").expect_err("not a data set").to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn a_name_is_found_however_it_is_capitalised() {
        assert_eq!(find("MNIST").expect("known").name, "mnist");
    }
}
