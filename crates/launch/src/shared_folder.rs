//! A folder that all peers of a run share: what they train, the script that each runs, and each one's own run.

use std::fs;
use std::path::{Path, PathBuf};

use nettorrent_files::write_private_file;
use nettorrent_session::RunFolder;
use shell_words::quote;

use crate::error::LaunchError;
use crate::package::Package;

/// What every peer runs, behind the settings.
const PEER_SCRIPT: &str = include_str!("peer.sh");
/// Its name.
pub(crate) const PEER_FILE: &str = "peer.sh";
/// What has all peers leave, once it is there.
const LEAVE_FILE: &str = "leave";

/// What all peers of a run share.
pub struct SharedFolder {
    /// Where it is, on every machine alike.
    pub(crate) path: PathBuf,
    /// How many peers there are.
    pub(crate) n_peers: usize,
    files: Vec<(String, String)>,
    /// The program that is to be copied there.
    copied: Option<PathBuf>,
}

/// What peers are told beside the job.
#[derive(Clone, Debug, Default)]
pub struct PeerSettings {
    /// How many there are.
    pub n_peers: usize,
    /// Each one's number of compute threads; else as many as it may use.
    pub threads: Option<usize>,
    /// Whether this program is copied into the folder, for machines that do not have it at the same path.
    pub copies_program: bool,
}

impl SharedFolder {
    /// Plans the folder at this path; nothing is written yet.
    pub fn plan(path: &Path, package: &Package, settings: &PeerSettings) -> Result<Self, LaunchError> {
        let path = std::path::absolute(path).map_err(LaunchError::file("find", path))?;
        let own = std::env::current_exe().map_err(LaunchError::file("find", "the running program"))?;
        let (program, copied) = match settings.copies_program {
            true => (path.join("nettorrent"), Some(own)),
            false => (own, None),
        };
        let mut files = package.files.clone();
        files.push((PEER_FILE.to_owned(), script(&path, &program, package, settings)));
        Ok(Self { path, n_peers: settings.n_peers, files, copied })
    }

    /// What would be written, as one reads it.
    pub(crate) fn describe(&self, more: &[(String, String)]) -> String {
        let mut text = String::new();
        if let Some(program) = &self.copied {
            text += &format!("# {} is copied to {}\n\n", program.display(), self.path.display());
        }
        for (name, content) in self.files.iter().chain(more) {
            text += &format!("# {}\n{}\n\n", self.path.join(name).display(), content.trim_end());
        }
        text
    }

    /// Writes it, with these files besides. Only this user can look into it.
    pub(crate) fn write(&self, more: &[(String, String)]) -> Result<(), LaunchError> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.path).map_err(LaunchError::file("make", &self.path))?;
        for (name, content) in self.files.iter().chain(more) {
            write_private_file(&self.path.join(name), content.as_bytes())
                .map_err(nettorrent_session::SessionError::from)?;
        }
        if let Some(program) = &self.copied {
            let target = self.path.join("nettorrent");
            fs::copy(program, &target).map_err(LaunchError::file("write", &target))?;
        }
        Ok(())
    }

    /// Has all peers leave, each with a checkpoint of what it has.
    pub(crate) fn leave(&self) -> Result<(), LaunchError> {
        let path = self.path.join(LEAVE_FILE);
        fs::write(&path, "").map_err(LaunchError::file("write", &path))
    }

    /// The newest attempt, if there was one.
    pub(crate) fn newest_attempt(&self) -> Option<usize> {
        (0..).take_while(|number| self.path.join(format!("attempt-{number}")).is_dir()).last()
    }

    /// A peer's run.
    pub(crate) fn peer(&self, attempt: usize, k: usize) -> PathBuf {
        self.path.join(format!("attempt-{attempt}/peer-{k}"))
    }

    /// With what a peer's process ended, if it has.
    pub(crate) fn status(&self, attempt: usize, k: usize) -> Option<i32> {
        fs::read_to_string(self.peer(attempt, k).with_extension("status")).ok()?.trim().parse().ok()
    }

    /// The last line that a peer said to people.
    pub(crate) fn last_said(&self, attempt: usize, k: usize) -> Option<String> {
        last_line(&self.peer(attempt, k).with_extension("log"))
    }

    /// The peers of an attempt, those who know most first: who finished, then by their newest checkpoints.
    pub(crate) fn by_progress(&self, attempt: usize) -> Vec<usize> {
        let newest = |k: usize| {
            RunFolder::open(&self.peer(attempt, k)).ok()?.checkpoints().ok()?.pop()?.file_name().map(Into::into)
        };
        let mut peers: Vec<(bool, Option<PathBuf>, usize)> =
            (0..self.n_peers).map(|k| (self.status(attempt, k) == Some(0), newest(k), k)).collect();
        peers.sort_by(|one, other| (other.0, &other.1).cmp(&(one.0, &one.1)));
        peers.into_iter().map(|(_, _, k)| k).collect()
    }
}

/// The last line of a file that says something.
pub(crate) fn last_line(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn script(folder: &Path, program: &Path, package: &Package, settings: &PeerSettings) -> String {
    let word = |path: &Path| quote(&path.display().to_string()).into_owned();
    let mut joins = String::new();
    let mut add = |name: &str, value: String| joins += &format!(" {name} {}", quote(&value));
    package.data.iter().for_each(|path| add("--data", path.display().to_string()));
    package.python.iter().for_each(|model| add("--model", model.clone()));
    let threads = settings.threads.map(|threads| threads.to_string()).unwrap_or_default();
    format!(
        "#!/bin/sh\nfolder={}\nn_peers={}\nthreads={threads}\nstarts() {{ exec {program} start \"$@\"; }}\njoins() {{ exec {program} join \
         \"$@\"{joins}; }}\n\n{PEER_SCRIPT}",
        word(folder),
        settings.n_peers,
        program = word(program),
    )
}
