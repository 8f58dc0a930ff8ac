//! Makes sure that a folder and all in it have reached the disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many files are synced at a time. A journal commits together what asks together, so with as
/// many files as imagenette has (13 394) sixteen threads end about ten times sooner than one.
const N_THREADS: usize = 16;

/// Syncs every file and folder below, and the folder itself. Done once all are written, when most
/// bytes have reached the disk anyhow.
pub(crate) fn sync_tree(folder: &Path) -> io::Result<()> {
    let mut tree = Tree::default();
    tree.gather(folder)?;
    sync_files(&tree.files)?;
    // Names last: a name without its file would be worse than a file without its name.
    tree.folders.iter().try_for_each(|folder| sync_folder(folder))
}

/// Makes a file's or folder's own name durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

/// Makes the names in a folder durable. Windows has no such call and needs none.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[derive(Default)]
struct Tree {
    files: Vec<PathBuf>,
    /// Inner ones before those that hold them.
    folders: Vec<PathBuf>,
}

impl Tree {
    fn gather(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.gather(&entry.path())?;
            } else {
                self.files.push(entry.path());
            }
        }
        self.folders.push(folder.to_owned());
        Ok(())
    }
}

fn sync_files(files: &[PathBuf]) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync_file(file)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..N_THREADS.min(files.len())).map(|_| scope.spawn(work)).collect();
        // All are joined, whatever the first says.
        let results: Vec<io::Result<()>> =
            workers.into_iter().map(|worker| worker.join().expect("syncing does not panic")).collect();
        results.into_iter().collect()
    })
}

fn sync_file(file: &Path) -> io::Result<()> {
    // Opened for writing, without which Windows syncs nothing.
    File::options().write(true).open(file)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{N_THREADS, Tree, sync_tree};

    #[test]
    fn every_file_and_folder_is_found_and_synced() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("a").join("b");
        fs::create_dir_all(&inner).expect("created");
        let n_files = 3 * N_THREADS;
        for index in 0..n_files {
            fs::write(inner.join(index.to_string()), "x").expect("written");
        }
        let mut tree = Tree::default();
        tree.gather(folder.path()).expect("readable");
        assert_eq!(tree.files.len(), n_files);
        assert_eq!(tree.folders, [inner, folder.path().join("a"), folder.path().to_owned()]);
        sync_tree(folder.path()).expect("synced");
    }

    #[test]
    fn an_empty_folder_is_no_trouble_and_a_missing_one_is() {
        let folder = tempfile::tempdir().expect("a folder");
        sync_tree(folder.path()).expect("synced");
        sync_tree(&folder.path().join("missing")).expect_err("not there");
    }
}
