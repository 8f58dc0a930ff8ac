//! Where data sets live on this machine, and which of them are there.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::CacheError;

/// The folder that holds fetched data sets.
///
/// Inside, `datasets/NAME` is a whole data set and `downloads/NAME` what is still on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// The environment variables that say where the cache is; taken as values so that tests need not
/// change those of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheEnvironment {
    /// `HOME`, or `USERPROFILE` on Windows.
    pub home: Option<OsString>,
    /// `LOCALAPPDATA`, used on Windows.
    pub local_app_data: Option<OsString>,
    /// `NETTORRENT_CACHE`: the cache itself, before all others.
    pub nettorrent_cache: Option<OsString>,
    /// `XDG_CACHE_HOME`, used on Linux and its kin.
    pub xdg_cache_home: Option<OsString>,
}

impl CacheEnvironment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        let home = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        Self {
            home: env::var_os(home),
            local_app_data: env::var_os("LOCALAPPDATA"),
            nettorrent_cache: env::var_os("NETTORRENT_CACHE"),
            xdg_cache_home: env::var_os("XDG_CACHE_HOME"),
        }
    }
}

impl Cache {
    /// The cache in that very folder, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cache that this process's environment names.
    pub fn from_environment() -> Result<Self, CacheError> {
        Self::locate(&CacheEnvironment::of_process())
    }

    /// The cache that these variables name: `NETTORRENT_CACHE`, else `nettorrent` in the
    /// platform's folder for caches.
    pub(crate) fn locate(environment: &CacheEnvironment) -> Result<Self, CacheError> {
        if let Some(root) = non_empty(environment.nettorrent_cache.as_ref()) {
            return Ok(Self::at(root));
        }
        let folder = platform_cache(environment).ok_or(CacheError::NoFolder)?;
        Ok(Self::at(folder.join("nettorrent")))
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the data set of that name is or would be, for a name from the catalogue.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.datasets().join(name)
    }

    /// The data set's folder if it is there, whole and unpacked.
    pub fn cached(&self, name: &str) -> Option<PathBuf> {
        // A folder gets this name only by the rename that ends a fetch, so it is whole.
        is_plain_name(name).then(|| self.path_of(name)).filter(|path| path.is_dir())
    }

    pub(crate) fn datasets(&self) -> PathBuf {
        self.root.join("datasets")
    }

    pub(crate) fn downloads(&self, name: &str) -> PathBuf {
        self.root.join("downloads").join(name)
    }
}

/// Whether a name stays in its folder: no separators, no leading dot, nothing a shell or Windows
/// would read otherwise.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

fn platform_cache(environment: &CacheEnvironment) -> Option<PathBuf> {
    let home = non_empty(environment.home.as_ref());
    if cfg!(windows) {
        return non_empty(environment.local_app_data.as_ref())
            .or_else(|| home.map(|home| home.join("AppData").join("Local")));
    }
    if cfg!(target_os = "macos") {
        return home.map(|home| home.join("Library").join("Caches"));
    }
    // The XDG rules say that a relative path there is to be ignored.
    non_empty(environment.xdg_cache_home.as_ref())
        .filter(|path| path.is_absolute())
        .or_else(|| home.map(|home| home.join(".cache")))
}

fn non_empty(value: Option<&OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Cache, CacheEnvironment, is_plain_name};

    fn environment() -> CacheEnvironment {
        CacheEnvironment {
            home: Some("/home/ada".into()),
            local_app_data: Some("/home/ada/local".into()),
            nettorrent_cache: None,
            xdg_cache_home: None,
        }
    }

    #[test]
    fn our_variable_moves_the_cache() {
        let moved = CacheEnvironment { nettorrent_cache: Some("/big/disk".into()), ..environment() };
        let cache = Cache::locate(&moved).expect("a folder");
        assert_eq!(cache.root(), Path::new("/big/disk"));
        assert!(cache.path_of("mnist").starts_with("/big/disk"));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let empty = CacheEnvironment { nettorrent_cache: Some("".into()), ..environment() };
        assert_eq!(Cache::locate(&empty).expect("a folder"), Cache::locate(&environment()).expect("a folder"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_follows_xdg() {
        let root = |environment: &CacheEnvironment| Cache::locate(environment).expect("a folder").root().to_owned();
        assert_eq!(root(&environment()), Path::new("/home/ada/.cache/nettorrent"));
        let xdg = CacheEnvironment { xdg_cache_home: Some("/xdg".into()), ..environment() };
        assert_eq!(root(&xdg), Path::new("/xdg/nettorrent"));
        let relative = CacheEnvironment { xdg_cache_home: Some("xdg".into()), ..environment() };
        assert_eq!(root(&relative), Path::new("/home/ada/.cache/nettorrent"));
    }

    #[test]
    fn with_no_variables_there_is_no_folder() {
        let error = Cache::locate(&CacheEnvironment::default()).expect_err("nowhere to go").to_string();
        assert!(error.contains("NETTORRENT_CACHE"), "{error}");
    }

    #[test]
    fn names_cannot_leave_the_cache() {
        assert!(["mnist", "a.tar.gz", "x_1-2"].into_iter().all(is_plain_name));
        assert!(!["", "..", ".hidden", "a/b", "a\\b", "c:", "/"].into_iter().any(is_plain_name));
        assert_eq!(Cache::at("/").cached("../.."), None);
    }
}
