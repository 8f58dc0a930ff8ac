//! Frames of a view or a round that this peer has yet to reach.

use std::collections::VecDeque;

use super::gate::Gate;
use crate::held::{HeldFrames, HeldRoom};
use crate::malformed::Malformed;
use crate::view::PeerId;
use crate::wire::Frame;

/// What is held besides the vectors of rounds that are ahead: from each peer, and from all together.
const ROOM: HeldRoom = HeldRoom { each: 1 << 20, shared: 64 << 20 };

/// Frames that came before their time.
#[derive(Default)]
pub(super) struct EarlyFrames {
    held: HeldFrames,
    /// Where this peer was when all of them came; none if it was not all the same.
    at: Option<Gate>,
}

impl EarlyFrames {
    /// Holds a frame that came at this gate, in a swarm whose vectors have so many bytes.
    pub(super) fn hold(
        &mut self,
        gate: Gate,
        (from, frame): (PeerId, Frame),
        n_vector_bytes: usize,
    ) -> Result<(), Malformed> {
        if self.held.is_empty() {
            self.at = Some(gate);
        } else if self.at.as_ref() != Some(&gate) {
            self.at = None;
        }
        self.held.keep(from, frame, HeldRoom { each: ROOM.each + 4 * n_vector_bytes, ..ROOM })
    }

    /// What is to be looked at again at this gate: nothing if all of it would have to be held again.
    pub(super) fn release(&mut self, gate: &Gate) -> VecDeque<(PeerId, Frame)> {
        if self.at.as_ref() == Some(gate) { VecDeque::new() } else { self.held.release() }
    }

    /// The link to a peer has ended: what it said in views after this one is void.
    pub(super) fn forget(&mut self, peer: PeerId, view: u32) {
        self.held.forget(peer, view);
    }
}
