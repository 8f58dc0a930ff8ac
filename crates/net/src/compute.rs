//! The thread that computes while the network is served by another.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nettorrent_engine::model::Workspace;
use nettorrent_engine::task::Task;
use nettorrent_swarm::{Done, Work, Workbench};
use tokio::sync::mpsc::UnboundedSender;

/// A thread that does a peer's work, one piece after the other. It ends, when it is dropped, after the piece it is at.
pub(crate) struct Compute {
    work: mpsc::Sender<Work>,
}

/// Work that is done, or a part of it, and how long it has taken so far.
pub(crate) type Finding = (Done, Duration);

impl Compute {
    /// Starts the thread. What it finds goes to `findings`.
    pub(crate) fn start(
        task: Arc<dyn Task>,
        room: Workspace,
        findings: UnboundedSender<Finding>,
    ) -> std::io::Result<Self> {
        let (work, orders) = mpsc::channel::<Work>();
        thread::Builder::new().name("compute".into()).spawn(move || {
            let mut bench = Workbench::new(room);
            for work in orders {
                let began = Instant::now();
                // If nobody listens any more, the peer is gone, and so are we in a moment.
                work.run(task.as_ref(), &mut bench, &mut |done| drop(findings.send((done, began.elapsed()))));
            }
        })?;
        Ok(Self { work })
    }

    /// Has something computed.
    pub(crate) fn order(&self, work: Work) {
        // The thread ends only by a panic, which its findings' end makes known.
        let _ = self.work.send(work);
    }
}
