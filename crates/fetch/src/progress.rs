//! What a fetch tells its caller while it goes on.

use crate::error::AddressError;

/// One step of a fetch, in the order in which they come.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Another process fetches the same data set; we wait for it. Told again at every look.
    Waiting,
    /// An address is asked for the file, or for the rest of it.
    Connecting {
        /// The file's name.
        file: &'a str,
        /// The address.
        url: &'a str,
        /// How much of the file is already here.
        n_bytes_done: u64,
    },
    /// Bytes arrived.
    Downloading {
        /// The file's name.
        file: &'a str,
        /// How much of it is here; falls back to zero when a download starts over.
        n_bytes_done: u64,
        /// How much it has.
        n_bytes_total: u64,
    },
    /// An address failed; it is asked again or the next one is tried.
    Failed {
        /// The address.
        url: &'a str,
        /// Why.
        why: &'a AddressError,
    },
    /// The file is here in full and its hash is computed.
    Checking {
        /// The file's name.
        file: &'a str,
    },
    /// An archive is being unpacked.
    Unpacking {
        /// The archive's name.
        file: &'a str,
        /// How many files came out of it so far.
        n_files_done: u64,
    },
    /// All is here and is made sure to be on the disk.
    Installing,
}
