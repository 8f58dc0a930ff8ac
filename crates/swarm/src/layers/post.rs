//! The post of a layer network: what blocks say goes to those who hold the blocks that it is for.

use bytes::Bytes;

use super::block::BlockOutbox;
use super::label::{Label, Letter};
use super::peer::LayerPeer;
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::record::{Event, Record};
use crate::view::PeerId;
use crate::wire::{Frame, Kind};

impl LayerPeer {
    /// Sends what a block wants sent, and tells what there is to tell.
    pub(super) fn post(&mut self, address: usize, posted: BlockOutbox, out: &mut Outbox) {
        let BlockOutbox { letters, replica, refused } = posted;
        let (n_slots, slot) = (self.network.n_slots(), address % self.network.n_slots());
        let holder = |id: PeerId| self.view.members[self.holders[id.seat() as usize * n_slots + slot]];
        out.frames.extend(replica.frames.into_iter().map(|(to, frame)| (holder(to), frame)));
        out.refused.extend(replica.refused.into_iter().map(|(from, problem)| (holder(from), problem)));
        let of_address = |(from, problem): (usize, Malformed)| (self.view.members[self.holders[from]], problem);
        out.refused.extend(refused.into_iter().map(of_address));
        out.timers.extend(replica.timers);
        out.failure = out.failure.take().or(replica.failure);
        // Where a peer holds several blocks, the first tells of the rounds; views and the end are told for all of them.
        let tells = self.blocks.keys().next() == Some(&address);
        let is_told = |event: &Event| !matches!(event, Event::View { .. } | Event::Finished { .. }) && tells;
        let records = replica.records.into_iter().filter(|record| is_told(&record.event));
        out.records.extend(records.map(|record| Record { peer: self.me, ..record }));
        for letter in letters {
            self.send(letter, out);
        }
    }

    /// Sends a letter to the block it is addressed to.
    pub(super) fn send(&mut self, letter: Letter, out: &mut Outbox) {
        let holder = self.holders[letter.label.to];
        if holder == self.rank {
            return self.local.push_back(letter);
        }
        if let Some(block) = self.blocks.get_mut(&letter.label.from) {
            block.count_sent(letter.body.len());
        }
        let Letter { label, round, body } = letter;
        self.tell(holder, label, round, body, out);
    }

    /// Says something to a member.
    pub(super) fn tell(&self, rank: usize, label: Label, round: u32, body: Bytes, out: &mut Outbox) {
        let frame = Frame::in_round(Kind::Layers, self.view.number, round, label.to_part(), body);
        out.frames.push((self.view.members[rank], frame));
    }
}
