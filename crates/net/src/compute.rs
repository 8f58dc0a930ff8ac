//! The thread that computes while the network is served by another.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nettorrent_engine::task::Worker;
use nettorrent_swarm::{Done, Work};
use tokio::sync::mpsc::UnboundedSender;

use crate::emulated_speed::EmulatedSpeed;

/// A thread that does a peer's work, one piece after the other. It ends, when it is dropped, after the piece it is at.
pub(crate) struct Compute {
    work: mpsc::Sender<Work>,
}

/// Work that is done, or a part of it, and how long it has taken so far.
pub(crate) type Finding = (Done, Duration);

impl Compute {
    /// Starts the thread. What it finds goes to `findings`, as late as if the machine had that speed.
    pub(crate) fn start(
        mut worker: Box<dyn Worker>,
        speed: Option<EmulatedSpeed>,
        findings: UnboundedSender<Finding>,
    ) -> std::io::Result<Self> {
        let (work, orders) = mpsc::channel::<Work>();
        thread::Builder::new().name("compute".into()).spawn(move || {
            let mut first = None;
            for work in orders {
                let began = Instant::now();
                let since_first = began - *first.get_or_insert(began);
                let lasts = speed.as_ref().map(|speed| speed.duration(work.worth(), since_first));
                // If nobody listens any more, the peer is gone, and so are we in a moment.
                let tell = |done| drop(findings.send((done, began.elapsed())));
                let computed = panic::catch_unwind(AssertUnwindSafe(|| match lasts {
                    None => work.run(worker.as_mut(), &mut |done| tell(done)),
                    Some(lasts) => {
                        let mut found = Vec::new();
                        work.run(worker.as_mut(), &mut |done| found.push(done));
                        thread::sleep(lasts.saturating_sub(began.elapsed()));
                        found.into_iter().for_each(tell);
                    }
                }));
                if let Err(payload) = computed {
                    tell(Done::Failed { problem: format!("computing panicked: {}", panic_text(payload.as_ref())) });
                    return;
                }
            }
        })?;
        Ok(Self { work })
    }

    /// Has something computed.
    pub(crate) fn order(&self, work: Work) {
        // The thread ends only by a panic, and has told of it.
        let _ = self.work.send(work);
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why")
}
