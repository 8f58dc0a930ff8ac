//! Brings well-known data sets from their publishers into a local cache, checked by hash.
//!
//! A data set is either whole under its final name or not there at all:
//!
//! 1. each file is downloaded beside a name ending in `.part`, resumed where the last try ended;
//! 2. its length and SHA-256 are checked against the catalogue;
//! 3. archives are unpacked into a temporary folder beside the target;
//! 4. that folder is synced and renamed into place.
//!
//! So a process may be killed at any moment, and the next one goes on from there.
//!
//! ```no_run
//! use nettorrent_fetch::{Cache, FetchOptions, fetch, find};
//!
//! let cache = Cache::from_environment()?;
//! let entry = find("mnist")?;
//! let folder = fetch(entry, &cache, &FetchOptions::default(), &mut |progress| println!("{progress:?}"))?;
//! println!("MNIST is in {}", folder.display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod catalog;
mod digest;
mod download;
mod error;
mod fetch;
mod http;
mod install;
mod lock;
mod options;
mod partial;
mod progress;
mod unpack;

pub use cache::{Cache, CacheEnvironment};
pub use catalog::{DatasetEntry, RemoteFile, Unpack, catalog, find};
pub use error::{AddressError, AddressFailure, CacheError, FetchError, UnknownDataset, UnpackError};
pub use fetch::fetch;
pub use options::{FetchOptions, ProxyChoice};
pub use progress::Progress;
