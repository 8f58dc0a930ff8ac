//! Frames that came before their time: kept until it has come, and no more of them than honest peers send.

use std::collections::{BTreeMap, VecDeque};

use crate::malformed::Malformed;
use crate::view::PeerId;
use crate::wire::Frame;

/// How many bytes are kept.
#[derive(Clone, Copy, Debug)]
pub struct HeldRoom {
    /// What there is for each sender, whatever others send.
    pub each: usize,
    /// What there is besides, for all senders together.
    pub shared: usize,
}

/// What is kept, and how much of it came from whom.
#[derive(Default)]
pub struct HeldFrames {
    frames: VecDeque<(PeerId, Frame)>,
    n_bytes: BTreeMap<PeerId, usize>,
}

impl HeldFrames {
    /// Keeps a frame, if there is room for it. Honest peers are never far ahead; others can neither fill our memory nor take the
    /// room that is for somebody else's frames.
    pub fn keep(&mut self, from: PeerId, frame: Frame, room: HeldRoom) -> Result<(), Malformed> {
        let beyond = |n_bytes: usize| n_bytes.saturating_sub(room.each);
        let others = self.n_bytes.iter().filter(|(peer, _)| **peer != from).map(|(_, n_bytes)| beyond(*n_bytes));
        let n_bytes = self.n_bytes.get(&from).copied().unwrap_or(0) + cost(&frame);
        if beyond(n_bytes) > 0 && others.sum::<usize>() + beyond(n_bytes) > room.shared {
            return Err(Malformed::new("it is too far ahead: more came from it than can be kept"));
        }
        self.n_bytes.insert(from, n_bytes);
        self.frames.push_back((from, frame));
        Ok(())
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Hands out all that is kept, to be looked at again.
    pub fn release(&mut self) -> VecDeque<(PeerId, Frame)> {
        self.n_bytes.clear();
        std::mem::take(&mut self.frames)
    }

    /// The link to a peer has ended: what it said in views after this one is void, for it cannot take part in them over that link.
    pub fn forget(&mut self, peer: PeerId, view: u32) {
        self.frames.retain(|(from, frame)| *from != peer || frame.head.view <= view);
        let rest = self.frames.iter().filter(|(from, _)| *from == peer).map(|(_, frame)| cost(frame)).sum();
        match rest {
            0 => drop(self.n_bytes.remove(&peer)),
            rest => drop(self.n_bytes.insert(peer, rest)),
        }
    }
}

/// How much memory a frame takes. Empty ones are not for nothing.
fn cost(frame: &Frame) -> usize {
    size_of::<(PeerId, Frame)>() + frame.body.len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{HeldFrames, HeldRoom};
    use crate::view::PeerId;
    use crate::wire::{Frame, Kind};

    const ROOM: HeldRoom = HeldRoom { each: 1 << 20, shared: 4 << 20 };

    fn frame(view: u32, n_bytes: usize) -> Frame {
        Frame::in_round(Kind::Strategy, view, 0, 0, Bytes::from(vec![0; n_bytes]))
    }

    /// How many frames of half a megabyte are taken from a peer.
    fn fill(held: &mut HeldFrames, from: u64) -> usize {
        (0..1000).take_while(|_| held.keep(PeerId(from), frame(2, 512 << 10), ROOM).is_ok()).count()
    }

    #[test]
    fn many_senders_share_one_budget_and_each_has_a_little_for_itself() {
        let mut held = HeldFrames::default();
        assert_eq!(fill(&mut held, 1), 9);
        for from in 2..100 {
            assert_eq!(fill(&mut held, from), 2, "sender {from}");
        }
        held.release();
        assert_eq!(fill(&mut held, 7), 9);
        // Frames without a body fill the memory too.
        let mut held = HeldFrames::default();
        let n_empty = (0..1 << 20).take_while(|_| held.keep(PeerId(1), frame(2, 0), ROOM).is_ok()).count();
        assert!(n_empty < 100_000, "{n_empty}");
    }

    #[test]
    fn who_is_gone_leaves_nothing_behind_for_later_views() {
        let mut held = HeldFrames::default();
        held.keep(PeerId(1), frame(1, 100), ROOM).unwrap();
        assert_eq!(fill(&mut held, 1), 9);
        held.forget(PeerId(1), 1);
        assert_eq!(fill(&mut held, 2), 9);
        assert_eq!(held.release().iter().filter(|(from, _)| *from == PeerId(1)).count(), 1);
    }
}
