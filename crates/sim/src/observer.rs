//! Who wants to see what happens in a simulation while it runs.

use std::time::Duration;

use nettorrent_swarm::record::Record;
use nettorrent_swarm::wire::Frame;
use nettorrent_swarm::{Peer, PeerId, SavedBlock};

/// Sees what happens. A list of records keeps them; a closure is handed each of them.
pub trait Observer {
    /// A peer tells people something.
    fn record(&mut self, record: Record) {
        let _ = record;
    }

    /// A block of a network that no peer holds whole is to be kept; how long writing it takes.
    fn saved(&mut self, block: SavedBlock) -> Duration {
        let _ = block;
        Duration::ZERO
    }

    /// A peer hands a frame to its link.
    fn frame(&mut self, at: Duration, from: PeerId, to: PeerId, frame: &Frame) {
        let _ = (at, from, to, frame);
    }

    /// A peer has taken an input, and what it wanted is under way.
    fn handled(&mut self, at: Duration, peer: PeerId, state: &dyn Peer) {
        let _ = (at, peer, state);
    }

    /// A clock, for who wants peers to take as long to think as they really do on this machine; without it they take no time, and the
    /// same simulation is always the same.
    fn clock(&mut self) -> Option<Duration> {
        None
    }

    /// Whether it wants to see more; if not, the simulation ends where it is.
    fn wants_more(&mut self) -> bool {
        true
    }
}

impl Observer for Vec<Record> {
    fn record(&mut self, record: Record) {
        self.push(record);
    }
}

impl<F: FnMut(Record)> Observer for F {
    fn record(&mut self, record: Record) {
        self(record);
    }
}
