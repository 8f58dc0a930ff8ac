//! A peer that does its work and sends nothing of it, while its host goes on answering.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nettorrent_swarm::{Input, Malformed, Outbox, Peer, Place, State, Status, View};

/// Whether a peer's frames are sent.
#[derive(Clone, Default)]
pub(crate) struct Voice {
    is_mute: Arc<AtomicBool>,
}

impl Voice {
    pub(crate) fn mute(&self) {
        self.is_mute.store(true, Ordering::Relaxed);
    }

    pub(crate) fn unmute(&self) {
        self.is_mute.store(false, Ordering::Relaxed);
    }
}

pub(crate) struct Muted {
    peer: Box<dyn Peer>,
    voice: Voice,
}

impl Muted {
    pub(crate) fn new(peer: Box<dyn Peer>, voice: Voice) -> Self {
        Self { peer, voice }
    }
}

impl Peer for Muted {
    fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        let n_frames = out.frames.len();
        let result = self.peer.handle(now, input, out);
        if self.voice.is_mute.load(Ordering::Relaxed) {
            out.frames.truncate(n_frames);
        }
        result
    }

    fn place(&self) -> &Place {
        self.peer.place()
    }

    fn view(&self) -> &View {
        self.peer.view()
    }

    fn is_finished(&self) -> bool {
        self.peer.is_finished()
    }

    fn status(&self) -> Status {
        self.peer.status()
    }

    fn values(&self) -> Arc<Vec<f32>> {
        self.peer.values()
    }

    fn state(&self) -> Option<State> {
        self.peer.state()
    }

    fn is_settled(&self) -> bool {
        self.peer.is_settled()
    }
}
