//! What happened in a run, as lines of JSON: in the run's folder for later, on standard output for other programs.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nettorrent_engine::checkpoint::CheckpointError;
use nettorrent_swarm::PeerId;
use serde::Serialize;

use crate::swarm::messages::Times;

/// One thing that happened.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// Training begins, or goes on.
    Start {
        run: &'a Path,
        model: &'a str,
        n_params: usize,
        n_train: usize,
        n_test: usize,
        threads: usize,
        seed: u64,
        epoch: u64,
        step: u64,
        version: &'a str,
    },
    /// Once a second while an epoch goes on.
    Progress { epoch: u64, step: u64, loss: f64, accuracy: f64, lr: f32, samples_per_s: f64, seconds: f64 },
    /// An epoch is done and was tested. `seconds` counts training only; a swarm's members test while others train, so there
    /// is no time to tell that its test took.
    Epoch {
        epoch: u64,
        step: u64,
        train_loss: f64,
        train_accuracy: f64,
        test_loss: f64,
        test_accuracy: f64,
        lr: f32,
        samples_per_s: f64,
        seconds: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        test_seconds: Option<f64>,
    },
    /// Where a peer's time went since it was told last, about once a second: of `elapsed_s` it computed, worked on what it
    /// had computed and on what others had sent, and waited for them; meanwhile its links wrote.
    Times {
        peer: PeerId,
        #[serde(flatten)]
        times: Times,
    },
    /// A process of a swarm on this machine can be reached.
    Peer { peer: PeerId, address: SocketAddr, pid: u32 },
    /// A peer has something to tell: somebody came, went, was given up or not let in.
    Note { peer: PeerId, text: &'a str },
    /// The members of a swarm have changed and agreed on whose parameters go on.
    View { peer: PeerId, view: u32, members: &'a [PeerId], donor: PeerId, was_behind: bool, round: u32 },
    /// A checkpoint is whole on the disk.
    Checkpoint { path: &'a Path, epoch: u64, step: u64 },
    /// Training ends.
    Stop { reason: Reason<'a>, epoch: u64, step: u64, seconds: f64, peak_rss_bytes: Option<u64> },
}

/// Why training ends.
#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason<'a> {
    Finished,
    Interrupted,
    Failed(&'a str),
}

/// Where events go.
pub(crate) struct EventLog {
    path: PathBuf,
    file: File,
    to_stdout: bool,
}

impl EventLog {
    /// Appends to a run's file; `to_stdout` also prints each line.
    ///
    /// The file is locked as long as this lives: two processes that train the same run would spoil each other's work.
    pub(crate) fn append(path: &Path, to_stdout: bool) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        // Some file systems have no locks; there people must take care themselves.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            bail!("another process is training this run ({} is locked); stop it first", path.display());
        }
        drop_half_line(path).with_context(|| format!("cannot repair {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, to_stdout })
    }

    /// Whether another program may be reading the events on standard output.
    pub(crate) fn is_printed(&self) -> bool {
        self.to_stdout
    }

    /// Writes one event, as one line.
    pub(crate) fn write(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(event).expect("events are plain data");
        line.push('\n');
        if self.to_stdout {
            print!("{line}");
        }
        let written = self.file.write_all(line.as_bytes());
        Ok(written.map_err(|source| CheckpointError::Write { path: self.path.clone(), source })?)
    }
}

/// A full disk or a power cut may have left half a line at the end; the next one must not be glued to it.
fn drop_half_line(path: &Path) -> std::io::Result<()> {
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        File::options().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(())
}
