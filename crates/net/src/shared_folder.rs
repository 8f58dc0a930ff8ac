//! A directory that peers share: bodies of large frames lie in it as sealed files, and only their names travel.
//!
//! Each file is sealed (AES-128-GCM) with a key of its own, which travels over the link with the file's name. So what lies in
//! the directory is as secret as what goes over the link, and nobody can change it unnoticed. Names are random and are made
//! from 16 bytes here, so that nothing from the network is ever a path.
//!
//! A file is there under its name only when it is whole. A body that goes to several peers is written once. Whoever has
//! written a file removes it: when all receivers have read it or their links have ended, and whatever is left at the end.
//! What a killed process has left is removed by later ones, after a day.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use nettorrent_swarm::view::PeerId;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::sealed_file::{Name, Refused, Seal, create, open};
use crate::ticket::random_bytes;

/// Bodies from here on go through the directory; for shorter ones the way to a file and back takes longer than the wire.
pub const MIN_BYTES: usize = 256 << 10;

/// Files of ours that are older than this belong to nobody who lives.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// How often a process shows that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3600);

const PREFIX: &str = "nettorrent-";
const TOKEN: &str = ".token";
const PART: &str = ".part";

/// Why a directory cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("the shared directory {path} cannot be used: {source}; give the path of a directory that is there")]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

/// Something that the person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// What.
    pub text: String,
    /// Whether something is not as it should be.
    pub is_warning: bool,
}

/// A directory that peers share. It is this process's own view of it: others have theirs, and perhaps another path to it.
pub struct SharedFolder {
    path: PathBuf,
    min_bytes: usize,
    token: Name,
    state: Mutex<State>,
}

struct State {
    /// Whether files can be written, as far as we know.
    is_usable: bool,
    /// What this process has written and not yet removed.
    files: BTreeSet<Name>,
    /// Bodies that are in files now, by where they lie in memory.
    bodies: BTreeMap<(usize, usize), Weak<Stored>>,
    /// Whose files could not be read once: a second time would only cost another link.
    distrusted: BTreeSet<PeerId>,
    news: Vec<News>,
    /// Those of whom it was told that they share it.
    sharers: BTreeSet<PeerId>,
    sign_of_life: Instant,
}

/// A body in a file, for as long as somebody has not read it.
pub(crate) struct Stored {
    // Keeps its place in memory from being another body's, where others may still come with it.
    _body: Option<Bytes>,
    sealed: OnceCell<SealedFile>,
}

/// A file of ours; it is removed when this is dropped.
struct SealedFile {
    folder: Arc<SharedFolder>,
    seal: Seal,
}

impl SharedFolder {
    /// Opens a directory, which must be there. If nothing can be written into it, that is [news](Self::news), and peers use
    /// the wire.
    pub fn open(path: &Path) -> Result<Arc<Self>, OpenError> {
        Self::with_min_bytes(path, MIN_BYTES)
    }

    /// The same for bodies from another length on.
    #[doc(hidden)]
    pub fn with_min_bytes(path: &Path, min_bytes: usize) -> Result<Arc<Self>, OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        // A relative path must mean the same as long as the process lives.
        let path = path.canonicalize().map_err(failed)?;
        remove_stale(&path, SystemTime::now()).map_err(failed)?;
        let token = random_bytes();
        let written = create(&path.join(file_name(&token, TOKEN)));
        let state = State {
            is_usable: true,
            files: BTreeSet::new(),
            bodies: BTreeMap::new(),
            distrusted: BTreeSet::new(),
            news: Vec::new(),
            sharers: BTreeSet::new(),
            sign_of_life: Instant::now(),
        };
        let folder = Self { path, min_bytes, token, state: Mutex::new(state) };
        if let Err(problem) = written {
            folder.give_up(&problem);
        }
        Ok(Arc::new(folder))
    }

    /// What the person should know and has not heard yet. To be asked now and then: it also shows that this process lives.
    pub fn news(self: &Arc<Self>) -> Vec<News> {
        let mut state = self.lock();
        if state.sign_of_life.elapsed() > SIGN_OF_LIFE {
            state.sign_of_life = Instant::now();
            let folder = self.clone();
            in_background(move || {
                let token = File::options().write(true).open(folder.path_of(&folder.token, TOKEN));
                // If it has been removed, joiners use the wire.
                let _ = token.and_then(|token| token.set_modified(SystemTime::now()));
            });
        }
        std::mem::take(&mut state.news)
    }

    /// The name of this process's token; where it could not be written, nobody will see it.
    pub(crate) fn token(&self) -> Name {
        self.token
    }

    /// Whether another's token is in this directory, so that it is the other's directory too.
    pub(crate) async fn sees(self: &Arc<Self>, peer: PeerId, token: Name) -> bool {
        if self.lock().distrusted.contains(&peer) {
            return false;
        }
        let path = self.path_of(&token, TOKEN);
        spawn_blocking(move || open(&path).and_then(|file| file.metadata()).is_ok_and(|found| found.is_file()))
            .await
            .unwrap_or(false)
    }

    /// From now on bodies for this peer may lie here. It is told once: two that call each other at the same time have two links
    /// for a moment.
    pub(crate) fn shared_with(&self, peer: PeerId) {
        let text = format!("{peer} shares {}: what is large goes through it", self.path.display());
        let mut state = self.lock();
        if state.sharers.insert(peer) {
            state.news.push(News { text, is_warning: false });
        }
    }

    /// Puts a body into a file, or finds the file that it is in; nothing if it is too short or cannot be written.
    pub(crate) async fn put(self: &Arc<Self>, body: &Bytes) -> Option<Arc<Stored>> {
        if body.len() < self.min_bytes || !self.lock().is_usable {
            return None;
        }
        let stored = self.place_for(body);
        let sealed = stored.sealed.get_or_try_init(|| async {
            let (folder, body) = (self.clone(), body.clone());
            spawn_blocking(move || folder.write(&body)).await.map_err(io::Error::other)?
        });
        if let Err(problem) = sealed.await {
            self.give_up(&problem);
            return None;
        }
        Some(stored)
    }

    /// The body that another peer has put into a file.
    pub(crate) async fn get(self: &Arc<Self>, from: PeerId, seal: Seal, n_bytes: usize) -> Result<Bytes, Refused> {
        let path = self.path_of(&seal.name, "");
        let read = spawn_blocking(move || seal.open(&path, &file_name(&seal.name, ""), n_bytes)).await;
        let body = read.unwrap_or_else(|error| {
            Err(Refused::Unreadable { file: file_name(&seal.name, ""), source: io::Error::other(error) })
        });
        if body.is_err() {
            self.lock().distrusted.insert(from);
        }
        body
    }

    /// The file that this body is in, or is to be in.
    fn place_for(&self, body: &Bytes) -> Arc<Stored> {
        if body.is_unique() {
            return Arc::new(Stored { _body: None, sealed: OnceCell::new() });
        }
        // While a `Stored` lives its body does, so another body cannot lie there.
        let place = (body.as_ptr() as usize, body.len());
        let mut state = self.lock();
        if let Some(stored) = state.bodies.get(&place).and_then(Weak::upgrade) {
            return stored;
        }
        state.bodies.retain(|_, stored| stored.strong_count() > 0);
        let stored = Arc::new(Stored { _body: Some(body.clone()), sealed: OnceCell::new() });
        state.bodies.insert(place, Arc::downgrade(&stored));
        stored
    }

    /// Writes a file; it has its name when it is whole.
    fn write(self: &Arc<Self>, body: &[u8]) -> io::Result<SealedFile> {
        let (seal, sealed) = Seal::close(body);
        let name = seal.name;
        self.lock().files.insert(name);
        // From here on it is removed, whatever happens.
        let file = SealedFile { folder: self.clone(), seal };
        let part = self.path_of(&name, PART);
        create(&part)?.write_all(&sealed)?;
        fs::rename(&part, self.path_of(&name, ""))?;
        Ok(file)
    }

    fn remove(&self, name: &Name) {
        // One of them is not there; and what cannot be removed now is tried once more at the end.
        let removed = [PART, ""].map(|ending| fs::remove_file(self.path_of(name, ending)));
        if removed.iter().any(Result::is_ok) {
            self.lock().files.remove(name);
        }
    }

    /// Nothing more is written, and it is said once why.
    fn give_up(&self, problem: &io::Error) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_usable, false) {
            let path = self.path.display();
            let text = format!(
                "cannot write into the shared directory {path}: {problem}; from now on all goes over the network"
            );
            state.news.push(News { text, is_warning: true });
        }
    }

    fn path_of(&self, name: &Name, ending: &str) -> PathBuf {
        self.path.join(file_name(name, ending))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is made in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path_of(&self.token, TOKEN));
        let files = std::mem::take(&mut self.lock().files);
        files.iter().for_each(|name| self.remove(name));
    }
}

impl std::fmt::Debug for SharedFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedFolder {}", self.path.display())
    }
}

impl Stored {
    /// What opens its file.
    pub(crate) fn seal(&self) -> Seal {
        self.sealed.get().expect("it is handed out when it is written").seal
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        let (folder, name) = (self.folder.clone(), self.seal.name);
        in_background(move || folder.remove(&name));
    }
}

/// Where disks may be slow, nobody waits for them.
fn in_background(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(handle) => drop(handle.spawn_blocking(work)),
        Err(_) => work(),
    }
}

fn file_name(name: &Name, ending: &str) -> String {
    format!("{PREFIX}{}{ending}", HEXLOWER.encode(name))
}

/// Whether we have given a file this name.
fn is_ours(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let rest = rest.strip_suffix(TOKEN).or(rest.strip_suffix(PART)).unwrap_or(rest);
    HEXLOWER.decode(rest.as_bytes()).is_ok_and(|name| name.len() == size_of::<Name>())
}

/// Removes what processes have left that could not clean up.
fn remove_stale(folder: &Path, now: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        // Another process may be cleaning up too, and what cannot be removed stays.
        let Ok(found) = entry.metadata() else { continue };
        let age = found.modified().ok().and_then(|modified| now.duration_since(modified).ok());
        if found.is_file() && age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Name, STALE, Seal, SharedFolder, file_name, is_ours, remove_stale};
    use bytes::Bytes;
    use nettorrent_swarm::view::PeerId;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::SystemTime;

    const OTHER: PeerId = PeerId(7);

    fn n_files(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    /// Files are removed in the background.
    async fn wait_for_files(path: &Path, n: usize) {
        while n_files(path) != n {
            tokio::task::yield_now().await;
        }
    }

    fn path_of(folder: &SharedFolder, name: &Name) -> std::path::PathBuf {
        folder.path_of(name, "")
    }

    async fn stored(folder: &Arc<SharedFolder>, body: &Bytes) -> (Arc<super::Stored>, Seal) {
        let stored = folder.put(body).await.expect("it is stored");
        let seal = stored.seal();
        (stored, seal)
    }

    #[tokio::test]
    async fn a_body_is_written_once_sealed_and_is_gone_when_nobody_needs_it() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) =
            (SharedFolder::with_min_bytes(place.path(), 10).unwrap(), SharedFolder::open(place.path()).unwrap());
        assert!(other.sees(OTHER, one.token()).await);
        assert!(!other.sees(OTHER, [0; 16]).await);
        assert!(one.put(&Bytes::from(vec![1; 9])).await.is_none(), "too short");
        assert_eq!(n_files(place.path()), 2);

        let body = Bytes::from(vec![7; 100_000]);
        let clone = body.clone();
        let (first, second) = tokio::join!(stored(&one, &body), stored(&one, &clone));
        assert_eq!(first.1, second.1);
        assert_eq!(n_files(place.path()), 3);
        let written = fs::read(path_of(&one, &first.1.name)).unwrap();
        assert!(written.len() == body.len() && !written.windows(16).any(|window| window == [7; 16]), "it is sealed");
        assert_eq!(other.get(OTHER, first.1, body.len()).await.unwrap(), body);
        drop(first);
        assert_eq!(other.get(OTHER, second.1, body.len()).await.unwrap(), body);
        drop(second);
        wait_for_files(place.path(), 2).await;
    }

    #[test]
    fn nothing_is_left_when_the_runtime_ends() {
        let place = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let folder = SharedFolder::with_min_bytes(place.path(), 10).unwrap();
            let files =
                [stored(&folder, &Bytes::from(vec![1; 50])).await, stored(&folder, &Bytes::from(vec![2; 50])).await];
            assert_eq!(n_files(place.path()), 3);
            drop(files);
        });
        drop(runtime);
        assert_eq!(n_files(place.path()), 0);
    }

    #[tokio::test]
    async fn what_is_not_as_announced_is_refused_and_stays_where_it_is() {
        let place = tempfile::tempdir().unwrap();
        let folder = SharedFolder::with_min_bytes(place.path(), 10).unwrap();
        let body = Bytes::from(vec![7; 1000]);
        let (_stored, seal) = stored(&folder, &body).await;
        let path = path_of(&folder, &seal.name);
        let sealed = fs::read(&path).unwrap();
        let refused = async |seal: Seal, n_bytes: usize, wanted: &str| {
            let text = folder.get(OTHER, seal, n_bytes).await.unwrap_err().to_string();
            assert!(text.contains(wanted) && text.contains(&file_name(&seal.name, "")), "{text}");
        };
        assert!(folder.get(OTHER, seal, 1000).await.is_ok());
        refused(seal, 999, "has 1000 bytes, and 999 were announced").await;
        refused(seal, 4 << 20, "4194304 were announced").await;
        refused(Seal { name: [3; 16], ..seal }, 1000, "cannot be read").await;
        refused(Seal { key: [3; 16], ..seal }, 1000, "is not what was announced").await;
        let mut changed = sealed.clone();
        changed[500] ^= 1;
        fs::write(&path, &changed).unwrap();
        refused(seal, 1000, "is not what was announced").await;
        fs::write(&path, &sealed).unwrap();

        let at = |name: u8| path_of(&folder, &[name; 16]);
        fs::create_dir(at(4)).unwrap();
        refused(Seal { name: [4; 16], ..seal }, 1000, "is no ordinary file").await;
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&path, at(5)).unwrap();
            refused(Seal { name: [5; 16], ..seal }, 1000, "is no ordinary file").await;
            let elsewhere = tempfile::tempdir().unwrap();
            let linked = elsewhere.path().join("precious");
            fs::write(&linked, &sealed).unwrap();
            std::os::unix::fs::symlink(&linked, at(6)).unwrap();
            refused(Seal { name: [6; 16], ..seal }, 1000, "is no ordinary file").await;
            assert!(linked.exists() && at(5).symlink_metadata().is_ok());
        }
        assert!(path.exists() && at(4).exists());
        // Who has been caught once is not believed again.
        assert!(!folder.sees(OTHER, folder.token()).await);
        assert!(folder.sees(PeerId::new(3, 4), folder.token()).await);
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_said_once_and_not_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("shared");
        assert!(SharedFolder::open(&path).unwrap_err().to_string().contains("cannot be used"));
        fs::write(&path, "a file").unwrap();
        assert!(SharedFolder::open(&path).unwrap_err().to_string().contains("cannot be used"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let folder = SharedFolder::with_min_bytes(&path, 10).unwrap();
        assert!(folder.news().is_empty());
        fs::remove_dir_all(&path).unwrap();
        for _ in 0..3 {
            assert!(folder.put(&Bytes::from(vec![1; 100])).await.is_none());
        }
        let news = folder.news();
        assert!(news.len() == 1 && news[0].is_warning, "{news:?}");
        assert!(news[0].text.contains("from now on all goes over the network"), "{news:?}");
        assert!(folder.news().is_empty());
    }

    #[test]
    fn only_old_files_of_ours_are_stale() {
        let place = tempfile::tempdir().unwrap();
        let ours = [file_name(&[1; 16], ""), file_name(&[2; 16], ".part"), file_name(&[3; 16], ".token")];
        let others = ["nettorrent-notes.txt", "nettorrent-0101", "weights", "nettorrent-", ".token"];
        for name in ours.iter().map(String::as_str).chain(others) {
            fs::write(place.path().join(name), "").unwrap();
        }
        assert!(ours.iter().all(|name| is_ours(name)) && !others.iter().any(|name| is_ours(name)));
        assert!(!is_ours(&format!("{}/../x", ours[0])) && !is_ours(&ours[0].to_uppercase()));
        remove_stale(place.path(), SystemTime::now()).unwrap();
        assert_eq!(n_files(place.path()), 8);
        remove_stale(place.path(), SystemTime::now() + 2 * STALE).unwrap();
        assert_eq!(n_files(place.path()), 5);
        assert!(others.iter().all(|name| place.path().join(name).exists()));
    }
}
