//! Who takes part, and who holds which block.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::wire::{Frame, Kind, encoded};
use nettorrent_swarm::{Outbox, PeerId, View};
use serde::Serialize;

use crate::message::{Label, Message, Subject};
use crate::pipeline_setup::PipelineSetup;

/// What all parts of a peer have to know.
pub(crate) struct Directory {
    pub me: PeerId,
    pub setup: Arc<PipelineSetup>,
    pub now: Duration,
    pub view: View,
    pub rank: usize,
    /// By address (a slot, counted over all pipelines), who holds the block, by rank.
    pub holders: Vec<usize>,
}

impl Directory {
    pub(crate) fn new(me: PeerId, setup: Arc<PipelineSetup>) -> Self {
        Self { me, setup, now: Duration::ZERO, view: View::new(0, vec![me]), rank: 0, holders: Vec::new() }
    }

    pub(crate) fn n_pipelines(&self) -> usize {
        self.holders.len() / self.setup.n_slots()
    }

    /// The slot at an address.
    pub(crate) fn slot(&self, address: usize) -> usize {
        address % self.setup.n_slots()
    }

    /// The peer that holds the block at an address.
    pub(crate) fn holder(&self, address: usize) -> PeerId {
        self.view.members[self.holders[address]]
    }

    /// Who keeps a copy of a block, by rank: the next peer of the pipeline, if nobody else has the block.
    pub(crate) fn buddy_of(&self, address: usize) -> Option<usize> {
        let n_slots = self.setup.n_slots();
        let (first, slot) = (address / n_slots * n_slots, address % n_slots);
        let mut others = (1..n_slots).map(|k| self.holders[first + (slot + k) % n_slots]);
        let buddy = others.find(|&rank| rank != self.holders[address]);
        buddy.filter(|_| self.setup.needs_copies(slot, self.n_pipelines()))
    }

    /// Says something to a member.
    pub(crate) fn tell(&self, rank: usize, message: Message, out: &mut Outbox) {
        let Message { label, round, body } = message;
        let frame = Frame::in_round(Kind::Layers, self.view.number, round, label.to_part(), body);
        out.frames.push((self.view.members[rank], frame));
    }

    /// Says something to all members but the first, which this peer is.
    pub(crate) fn tell_others(&self, subject: Subject, round: u32, body: &Bytes, out: &mut Outbox) {
        for rank in 1..self.view.len() {
            self.tell(rank, Message { label: Label::of_peer(subject), round, body: body.clone() }, out);
        }
    }

    pub(crate) fn record(&self, event: Event) -> Record {
        Record { peer: self.me, at_s: self.now.as_secs_f64(), event }
    }
}

/// What a peer says for itself.
pub(crate) fn of_peer(subject: Subject, round: u32, what: &impl Serialize) -> Message {
    Message { label: Label::of_peer(subject), round, body: encoded(what) }
}
