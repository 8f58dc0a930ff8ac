//! Frames that came before their time: kept until it has come, and no more of them than honest peers send.

use std::collections::{BTreeMap, VecDeque};

use crate::malformed::Malformed;
use crate::view::PeerId;
use crate::wire::Frame;

/// What is kept, and how much of it came from whom.
#[derive(Default)]
pub struct HeldFrames {
    frames: VecDeque<(PeerId, Frame)>,
    n_bytes: BTreeMap<PeerId, usize>,
}

impl HeldFrames {
    /// Keeps a frame, if not more than `most` bytes come from its sender. Honest peers are never far ahead; others can neither
    /// fill our memory nor take the room that is for somebody else's frames.
    pub fn keep(&mut self, from: PeerId, frame: Frame, most: usize) -> Result<(), Malformed> {
        let held = self.n_bytes.entry(from).or_default();
        if *held + frame.n_bytes() > most {
            return Err(Malformed::new("it is too far ahead: more came from it than can be kept"));
        }
        *held += frame.n_bytes();
        self.frames.push_back((from, frame));
        Ok(())
    }

    /// Hands out all that is kept, to be looked at again.
    pub fn release(&mut self) -> VecDeque<(PeerId, Frame)> {
        self.n_bytes.clear();
        std::mem::take(&mut self.frames)
    }
}
