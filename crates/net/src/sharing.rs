//! What the two ends of a link say about a directory that they may share.
//!
//! ```text
//! both       hello, with the name of a token file that lies in the directory
//! both       `Seen`, if the other's token lies in this side's directory too: files for this side may be put there
//! sender     `Stored` in place of a frame: its head, and what opens the file that its body lies in
//! receiver   `Taken`: it has read the oldest file that it had not taken before
//! ```
//!
//! These are frames of the kind of hellos, and never leave the link. They keep their place among the other frames, so that
//! whoever receives sees no difference.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::{Frame, HEAD_LEN, Head, Kind};
use serde::{Deserialize, Serialize};

use crate::frames::Outgoing;
use crate::link_state::{Closing, LinkState};
use crate::sealed_file::{Name, Refused, Seal};
use crate::shared_folder::{SharedFolder, Stored};

#[derive(Debug, Serialize, Deserialize)]
enum Notice {
    Seen,
    Stored { head: [u8; HEAD_LEN], seal: Seal },
    Taken,
}

/// A link's part in a directory.
pub(crate) struct Sharing {
    folder: Arc<SharedFolder>,
    peer: PeerId,
    their_token: Name,
    we_see: AtomicBool,
    they_see: AtomicBool,
    /// What they have not read yet, oldest first, and how long the frames were.
    not_taken: Mutex<VecDeque<(Arc<Stored>, usize)>>,
}

impl Sharing {
    /// For a link between two that each have a directory.
    pub(crate) fn new(folder: Arc<SharedFolder>, peer: PeerId, their_token: Name) -> Self {
        let (we_see, they_see) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { folder, peer, their_token, we_see, they_see, not_taken: Mutex::default() }
    }

    /// Looks whether it is the same directory, and says so.
    pub(crate) async fn look(&self, link: &LinkState) {
        let sees = self.folder.sees(self.peer, self.their_token).await;
        self.we_see.store(sees, Ordering::Relaxed);
        if sees {
            link.say(Notice::Seen.to_frame());
        }
    }

    /// Whether large frames go through the directory.
    pub(crate) fn is_agreed(&self) -> bool {
        self.they_see.load(Ordering::Relaxed)
    }

    /// Moves queued frames to those on their way, and bodies into files.
    pub(crate) async fn take(&self, link: &LinkState, outgoing: &mut Outgoing) -> Option<Closing> {
        loop {
            let (frame, closing) = link.pop();
            let Some(frame) = frame else { return closing };
            let Some(notice) = self.put(&frame).await else {
                outgoing.push(frame);
                continue;
            };
            link.count_notice(notice.n_bytes());
            outgoing.push(notice);
            // The other side can read this file while we write the next one.
            return closing;
        }
    }

    /// What goes over the wire in place of a frame, if its body can go through the directory.
    async fn put(&self, frame: &Frame) -> Option<Frame> {
        if !self.is_agreed() {
            return None;
        }
        let stored = self.folder.put(&frame.body).await?;
        let notice = Notice::Stored { head: frame.head.to_bytes(), seal: stored.seal() }.to_frame();
        self.not_taken.lock().unwrap_or_else(PoisonError::into_inner).push_back((stored, frame.n_bytes()));
        Some(notice)
    }

    /// Nothing of what is left will be read.
    pub(crate) fn forget(&self) {
        self.not_taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Makes of a frame what it stands for; nothing, if it was for the link alone.
    pub(crate) async fn hear(&self, link: &LinkState, frame: Frame) -> Result<Option<Frame>, Refused> {
        if frame.head.kind != Kind::Hello {
            return Ok(Some(frame));
        }
        match postcard::from_bytes(&frame.body).map_err(|_| Refused::Malformed)? {
            Notice::Seen => {
                if !self.they_see.swap(true, Ordering::Relaxed) {
                    self.folder.shared_with(self.peer);
                }
                Ok(None)
            }
            Notice::Stored { head, seal } => {
                if !self.we_see.load(Ordering::Relaxed) {
                    return Err(Refused::NotShared);
                }
                let head = Head::from_bytes(&head).map_err(|_| Refused::Malformed)?;
                // Who has closed the link wants no bodies any more; but the other side waits for the answer.
                let body = if link.is_closing() {
                    None
                } else {
                    Some(self.folder.get(self.peer, seal, head.n_bytes as usize).await?)
                };
                link.say(Notice::Taken.to_frame());
                Ok(body.map(|body| Frame { head, body }))
            }
            Notice::Taken => {
                let oldest = self.not_taken.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let (_, n_bytes) = oldest.ok_or(Refused::Malformed)?;
                link.count_taken(n_bytes);
                Ok(None)
            }
        }
    }
}

impl Notice {
    fn to_frame(&self) -> Frame {
        let body = postcard::to_allocvec(self).expect("a notice has nothing that cannot be written");
        Frame::new(Kind::Hello, Bytes::from(body))
    }
}
