//! Fetches one data set: every file from the first address that has it, then into place at once.

use std::fs;
use std::path::{Path, PathBuf};

use nettorrent_files::PartialFolder;

use crate::cache::{Cache, is_plain_name};
use crate::catalog::{DatasetEntry, RemoteFile, Unpack};
use crate::digest::sha256_of_file;
use crate::download::{Download, DownloadError};
use crate::error::{AddressFailure, CacheError, FetchError, UnpackError};
use crate::http::Client;
use crate::install::install;
use crate::lock;
use crate::options::FetchOptions;
use crate::partial::Partial;
use crate::progress::Progress;
use crate::unpack::{UnpackLimits, unpack_tar_gz};

/// Brings a data set into the cache and returns its folder; at once if it is there already.
///
/// Each file is asked for at `options.mirror`, then at each of its own addresses in turn. Several
/// processes may fetch the same data set: one does, the others wait for it.
pub fn fetch(
    entry: &DatasetEntry,
    cache: &Cache,
    options: &FetchOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, FetchError> {
    check_names(entry)?;
    if let Some(folder) = cached_unless_forced(entry, cache, options) {
        return Ok(folder);
    }
    let downloads = cache.downloads(entry.name);
    fs::create_dir_all(&downloads).map_err(CacheError::io("could not create ", &downloads))?;
    let Some(_lock) = lock::acquire(&downloads.join("lock"), &mut || {
        progress(Progress::Waiting);
        !options.is_stopped()
    })?
    else {
        return Err(FetchError::Stopped);
    };
    // While we waited, another process may have done it.
    if let Some(folder) = cached_unless_forced(entry, cache, options) {
        return Ok(folder);
    }
    let mut work = Work { entry, client: Client::new(options), options, downloads, progress };
    work.bring_all()?;
    work.put_in_place(&cache.path_of(entry.name))?;
    Ok(cache.path_of(entry.name))
}

fn check_names(entry: &DatasetEntry) -> Result<(), FetchError> {
    let mut names = entry.files.iter().map(|file| file.name).chain([entry.name]);
    match names.find(|name| !is_plain_name(name)) {
        Some(name) => Err(FetchError::Name(name.to_owned())),
        None => Ok(()),
    }
}

fn cached_unless_forced(entry: &DatasetEntry, cache: &Cache, options: &FetchOptions) -> Option<PathBuf> {
    if options.force { None } else { cache.cached(entry.name) }
}

/// A fetch under way, its lock held.
struct Work<'a> {
    entry: &'a DatasetEntry,
    client: Client,
    options: &'a FetchOptions,
    downloads: PathBuf,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Work<'_> {
    fn bring_all(&mut self) -> Result<(), FetchError> {
        for file in self.entry.files {
            let partial = Partial::new(&self.downloads, file.name);
            if self.options.force {
                partial.discard_all()?;
            }
            if !self.is_already_here(file, &partial)? {
                self.bring(file, &partial)?;
            }
        }
        Ok(())
    }

    /// Whether an earlier fetch brought this file and ended before the set was whole.
    fn is_already_here(&mut self, file: &RemoteFile, partial: &Partial) -> Result<bool, FetchError> {
        let finished = partial.finished();
        if !finished.is_file() {
            return Ok(false);
        }
        (self.progress)(Progress::Checking { file: file.name });
        let found = sha256_of_file(finished).map_err(CacheError::io("could not read ", finished))?;
        if found != file.sha256 {
            partial.discard_all()?;
        }
        Ok(found == file.sha256)
    }

    fn bring(&mut self, file: &RemoteFile, partial: &Partial) -> Result<(), FetchError> {
        let mut failures = Vec::new();
        for url in addresses(file, self.options.mirror.as_deref()) {
            if self.options.is_stopped() {
                return Err(FetchError::Stopped);
            }
            let mut download =
                Download { client: &self.client, file, options: self.options, partial, progress: &mut *self.progress };
            match download.bring_from(&url) {
                Ok(()) => return Ok(()),
                Err(DownloadError::Cache(error)) => return Err(error.into()),
                Err(DownloadError::Stopped) => return Err(FetchError::Stopped),
                Err(DownloadError::Address(why)) => {
                    (self.progress)(Progress::Failed { url: &url, why: &why });
                    failures.push(AddressFailure { url, why });
                }
            }
        }
        Err(FetchError::AllAddressesFailed {
            dataset: self.entry.name.to_owned(),
            file: file.name.to_owned(),
            failures,
        })
    }

    fn put_in_place(&mut self, target: &Path) -> Result<(), FetchError> {
        let folder = PartialFolder::begin(target).map_err(CacheError::io("could not create ", target))?;
        for file in self.entry.files {
            let finished = self.downloads.join(file.name);
            match self.entry.unpack {
                Unpack::KeepFiles => copy_into(&finished, folder.contents(), file.name)?,
                Unpack::TarGz => self.unpack(file, &finished, folder.contents())?,
            }
        }
        (self.progress)(Progress::Installing);
        install(folder).map_err(CacheError::io("could not install ", target))?;
        self.remove_downloads()
    }

    fn unpack(&mut self, file: &RemoteFile, archive: &Path, folder: &Path) -> Result<(), FetchError> {
        let progress = &mut *self.progress;
        let options = self.options;
        let result = unpack_tar_gz(archive, folder, UnpackLimits::for_archive(file.n_bytes), &mut |n_files_done| {
            progress(Progress::Unpacking { file: file.name, n_files_done });
            !options.is_stopped()
        });
        match result {
            Ok(()) => Ok(()),
            Err(UnpackError::Cache(error)) => Err(error.into()),
            Err(UnpackError::Stopped) => Err(FetchError::Stopped),
            Err(source) => {
                // It matches its hash, so the next try would find the same; it need not stay.
                Partial::new(&self.downloads, file.name).discard_all()?;
                Err(FetchError::Archive { file: file.name.to_owned(), source })
            }
        }
    }

    fn remove_downloads(&self) -> Result<(), FetchError> {
        for file in self.entry.files {
            Partial::new(&self.downloads, file.name).discard_all()?;
        }
        Ok(())
    }
}

/// Where to ask for a file, in order.
fn addresses(file: &RemoteFile, mirror: Option<&str>) -> Vec<String> {
    let mirrored = mirror.map(|mirror| format!("{}/{}", mirror.trim_end_matches('/'), file.name));
    mirrored.into_iter().chain(file.urls.iter().map(ToString::to_string)).collect()
}

/// A hard link costs nothing and leaves the download in place should the rest fail; a file system
/// without them gets a copy.
fn copy_into(finished: &Path, folder: &Path, name: &str) -> Result<(), CacheError> {
    let target = folder.join(name);
    if fs::hard_link(finished, &target).is_ok() {
        return Ok(());
    }
    fs::copy(finished, &target).map(drop).map_err(CacheError::io("could not write ", &target))
}

#[cfg(test)]
mod tests {
    use super::addresses;
    use crate::catalog::RemoteFile;

    #[test]
    fn a_mirror_goes_first_with_or_without_its_slash() {
        let file = RemoteFile { name: "a.gz", n_bytes: 1, sha256: "", urls: &["http://publisher/x/a.gz"] };
        assert_eq!(addresses(&file, None), ["http://publisher/x/a.gz"]);
        for mirror in ["http://mirror/y", "http://mirror/y/"] {
            assert_eq!(addresses(&file, Some(mirror)), ["http://mirror/y/a.gz", "http://publisher/x/a.gz"]);
        }
    }
}
