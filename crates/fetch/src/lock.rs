//! Lets one process at a time fetch a data set; the others wait and then find it there.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::CacheError;

/// Held as long as it lives. The system gives it back when the process dies, so a lock file left
/// behind locks nobody out.
#[derive(Debug)]
pub(crate) struct FetchLock {
    _file: File,
}

/// How often a waiting process looks again. It asks rather than sleeps in the system call so that
/// it can still be stopped.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the lock, waiting for it if need be; `None` when `keep_waiting` says no.
pub(crate) fn acquire(path: &Path, keep_waiting: &mut dyn FnMut() -> bool) -> Result<Option<FetchLock>, CacheError> {
    let mut options = File::options();
    // Not truncated: another process may hold this very file.
    options.create(true).write(true).truncate(false);
    let file = options.open(path).map_err(CacheError::io("could not write ", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(FetchLock { _file: file })),
            Err(TryLockError::Error(error)) => return Err(CacheError::io("could not lock ", path)(error)),
            Err(TryLockError::WouldBlock) if !keep_waiting() => return Ok(None),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::acquire;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let first = acquire(&path, &mut || false).expect("lockable");
        assert!(first.is_some());
        assert!(acquire(&path, &mut || false).expect("lockable").is_none());
        drop(first);
        assert!(acquire(&path, &mut || false).expect("lockable").is_some());
    }
}
