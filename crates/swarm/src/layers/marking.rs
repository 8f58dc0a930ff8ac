//! Marking blocks, keeping copies, saving the whole, and the end: what a peer does beside training.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::block::Block;
use super::label::{Label, Letter, Purpose, Subject};
use super::marks::{Held, Ledger};
use super::peer::LayerPeer;
use super::saving::Saving;
use super::snapshot::{IncomingState, to_letters};
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::record::Event;
use crate::wire::{decoded, encoded};

/// How many pieces of a block that is to be saved are asked for at a time.
const ASKED_PIECES: usize = 16;

/// What the first member knows besides.
#[derive(Default)]
pub(super) struct FirstMember {
    ledger: Ledger,
    saving: Option<Saving>,
    /// Those who have done all, by rank.
    done: BTreeSet<usize>,
}

impl LayerPeer {
    /// Marks those blocks whose round is one to be marked.
    pub(super) fn mark_blocks(&mut self, out: &mut Outbox) {
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            let replica = &self.blocks[&address].replica;
            let (round, epoch) = (replica.place().standing.round, replica.place().ledger.epoch);
            let (last_round, last_epoch) = self.marked[&address];
            let every = self.network.mark_every;
            // Who trains asynchronously has a state in common with others only at an epoch's end.
            let is_due = every > 0 && round.is_multiple_of(every) && !replica.is_asynchronous();
            let ends_epoch = epoch > last_epoch;
            if round == last_round || !(is_due || ends_epoch) {
                continue;
            }
            self.marked.insert(address, (round, epoch));
            let (block, state) = (self.network.block(address % self.network.n_slots()), replica.state());
            self.send_copy(address, round, ends_epoch.then_some(epoch), &state, out);
            self.vault.put(block, state);
            let held = Held { address: address as u32, is_copy: false, epoch: ends_epoch.then_some(epoch) };
            self.tell_first(Subject::Held, round, &held, out);
        }
    }

    /// Who keeps a copy of a block, by rank: the next peer of the pipeline, if nobody else has the block.
    fn keeper_of(&self, address: usize) -> Option<usize> {
        let n_slots = self.network.n_slots();
        let (first, slot) = (address / n_slots * n_slots, address % n_slots);
        let mut others = (1..n_slots).map(|k| self.holders[first + (slot + k) % n_slots]);
        let keeper = others.find(|&rank| rank != self.holders[address]);
        keeper.filter(|_| self.network.needs_copies(slot, self.holders.len() / n_slots))
    }

    fn send_copy(
        &mut self,
        address: usize,
        round: u32,
        epoch: Option<u64>,
        state: &crate::place::State,
        out: &mut Outbox,
    ) {
        let Some(keeper) = self.keeper_of(address) else { return };
        // Where it is said to go tells whether it is an epoch's end.
        let to = usize::from(epoch.is_some());
        let label = Label { subject: Subject::Copy, purpose: Purpose::Train, from: address, to, piece: 0 };
        for Letter { label, round, body } in to_letters(label, round, 0, state) {
            self.tell(keeper, label, round, body, out);
        }
    }

    /// A piece of a copy of another's block.
    pub(super) fn on_copy(&mut self, rank: usize, letter: &Letter, out: &mut Outbox) -> Result<(), Malformed> {
        let address = letter.label.from;
        let is_due = self.holders.get(address) == Some(&rank) && self.keeper_of(address) == Some(self.rank);
        if !is_due {
            return Err(Malformed::new("it sends a copy of a block that is not for this peer to keep"));
        }
        let slot = address % self.network.n_slots();
        let setup = self.network.setup(slot);
        let incoming = self.copies.entry(slot).or_insert_with(|| IncomingState::new(setup.clone()));
        let Some(state) = incoming.take(letter.label.piece, &letter.body)? else { return Ok(()) };
        self.copies.remove(&slot);
        let epoch = (letter.label.to == 1).then_some(state.place.ledger.epoch);
        self.vault.put(self.network.block(slot), state);
        let held = Held { address: address as u32, is_copy: true, epoch };
        self.tell_first(Subject::Held, letter.round, &held, out);
        Ok(())
    }

    pub(super) fn on_mark_letter(&mut self, rank: usize, letter: &Letter, out: &mut Outbox) -> Result<(), Malformed> {
        let is_first = self.rank == 0;
        match letter.label.subject {
            Subject::Held if is_first => {
                let held: Held = decoded(&letter.body)?;
                let address = held.address as usize;
                let holder = self.holders.get(address).copied().filter(|_| !held.is_copy);
                let keeper = self.holders.get(address).filter(|_| held.is_copy).and_then(|_| self.keeper_of(address));
                if holder.or(keeper) != Some(rank) {
                    return Err(Malformed::new("it tells of a mark that is not its to keep"));
                }
                self.first.ledger.count(letter.round, held)?;
                self.settle_marks(out);
            }
            Subject::Done if is_first => self.on_done_told(rank, out),
            Subject::Save if is_first => return self.on_saved_piece(rank, letter, out),
            Subject::Settled if rank == 0 => self.vault.forget_before(letter.round),
            Subject::AllDone if rank == 0 => self.finish(out),
            Subject::Ask if rank == 0 => {
                let block = self.network.block(letter.label.to % self.network.n_slots());
                let Some(state) = self.vault.after(block, letter.round) else {
                    return Err(Malformed::new("it asks for a mark that is not here"));
                };
                let label = Label { subject: Subject::Save, from: letter.label.to, to: 0, ..letter.label };
                let asked = to_letters(label, letter.round, letter.label.piece, state).take(ASKED_PIECES);
                for Letter { label, round, body } in asked {
                    self.tell(0, label, round, body, out);
                }
            }
            _ => return Err(Malformed::new("that is not its to say")),
        }
        Ok(())
    }

    /// Tells the first member something, which may be this peer.
    fn tell_first(&mut self, subject: Subject, round: u32, what: &impl serde::Serialize, out: &mut Outbox) {
        let letter = Letter { label: Label::of_peer(subject), round, body: encoded(what) };
        if self.rank > 0 {
            let Letter { label, round, body } = letter;
            return self.tell(0, label, round, body, out);
        }
        self.on_mark_letter(0, &letter, out).expect("what this peer itself says is not malformed");
    }

    fn tell_all(&self, subject: Subject, round: u32, out: &mut Outbox) {
        for rank in 1..self.view.len() {
            self.tell(rank, Label::of_peer(subject), round, bytes::Bytes::new(), out);
        }
    }

    /// If a mark is whole: it is saved if that is due, and then those before it are forgotten.
    fn settle_marks(&mut self, out: &mut Outbox) {
        if self.first.saving.is_some() {
            return;
        }
        let n_copies = (0..self.holders.len()).filter(|&address| self.keeper_of(address).is_some()).count();
        let Some((round, epoch)) = self.first.ledger.take_whole(self.holders.len() + n_copies) else { return };
        let every = self.network.save_every;
        let is_due = |epoch: u64| every > 0 && epoch.is_multiple_of(every) || epoch >= self.setup.training().epochs;
        if epoch.is_some_and(is_due) {
            self.first.saving = Some(Saving::new(round, self.network.whole()));
            return self.save_next(out);
        }
        self.settle_mark(round, out);
    }

    fn settle_mark(&mut self, round: u32, out: &mut Outbox) {
        self.vault.forget_before(round);
        self.tell_all(Subject::Settled, round, out);
        self.settle_marks(out);
        self.end_if_all_done(out);
    }

    /// Fetches the next block of a mark that is being saved.
    fn save_next(&mut self, out: &mut Outbox) {
        while let Some(saving) = &mut self.first.saving {
            let Some(&slot) = saving.slots.front() else {
                let round = saving.round;
                self.first.saving = None;
                return self.settle_mark(round, out);
            };
            let (round, part) = (saving.round, Arc::clone(self.network.part(slot)));
            if self.holders[slot] != self.rank {
                saving.incoming = Some(IncomingState::new(self.network.setup(slot).clone()));
                return self.ask(slot, round, 0, out);
            }
            let state = self.vault.after(slot, round).cloned().expect("what is marked is kept until all have saved it");
            let saved = self.first.saving.as_mut().expect("it is there").take(part, state);
            out.saved.push(saved);
        }
    }

    /// Asks for the next pieces of a block, so that no more is on its way than a few.
    fn ask(&self, slot: usize, round: u32, piece: usize, out: &mut Outbox) {
        let label = Label { subject: Subject::Ask, purpose: Purpose::Train, from: 0, to: slot, piece };
        self.tell(self.holders[slot], label, round, bytes::Bytes::new(), out);
    }

    fn on_saved_piece(&mut self, rank: usize, letter: &Letter, out: &mut Outbox) -> Result<(), Malformed> {
        let out_of_turn = || Malformed::new("it sends a block that was not asked for");
        let Some(saving) = &mut self.first.saving else { return Err(out_of_turn()) };
        let slot = letter.label.from;
        let is_asked =
            saving.slots.front() == Some(&slot) && self.holders[slot] == rank && saving.round == letter.round;
        let incoming = saving.incoming.as_mut().filter(|_| is_asked).ok_or_else(out_of_turn)?;
        let next = letter.label.piece + 1;
        let Some(state) = incoming.take(letter.label.piece, &letter.body)? else {
            if next.is_multiple_of(ASKED_PIECES) {
                self.ask(slot, letter.round, next, out);
            }
            return Ok(());
        };
        let part = Arc::clone(self.network.part(slot));
        out.saved.push(saving.take(part, state));
        self.save_next(out);
        Ok(())
    }

    /// Tells the first member when this peer has done all. Nobody goes before all have.
    pub(super) fn finish_if_done(&mut self, out: &mut Outbox) {
        if self.has_told_done || !self.blocks.values().all(Block::is_finished) {
            return;
        }
        self.has_told_done = true;
        self.tell_first(Subject::Done, 0, &(), out);
    }

    fn on_done_told(&mut self, rank: usize, out: &mut Outbox) {
        self.first.done.insert(rank);
        self.end_if_all_done(out);
    }

    fn end_if_all_done(&mut self, out: &mut Outbox) {
        let FirstMember { ledger, saving, done } = &self.first;
        if done.len() < self.view.len() || saving.is_some() || ledger.is_waiting() {
            return;
        }
        self.first.done.clear();
        self.tell_all(Subject::AllDone, 0, out);
        self.finish(out);
    }

    pub(super) fn finish(&mut self, out: &mut Outbox) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        let rounds = self.place().standing.round;
        out.records.push(self.record(Event::Finished { rounds }));
    }
}
