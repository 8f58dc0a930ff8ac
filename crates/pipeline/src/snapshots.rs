//! Snapshots of blocks, copies of them, saving the whole, and the end: what a peer does beside training.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use nettorrent_swarm::wire::{decoded, encoded};
use nettorrent_swarm::{Malformed, Outbox, Peer, Place, State, StateVersion};

use crate::block::Block;
use crate::blocks::Blocks;
use crate::directory::{Directory, of_peer};
use crate::message::{Label, Message, Purpose, Subject};
use crate::saving::Saving;
use crate::snapshot_store::{Held, SnapshotLedger, SnapshotStore};
use crate::state_transfer::{IncomingState, to_messages};

/// How many pieces of a block that is to be saved are asked for at a time.
const ASKED_PIECES: usize = 16;

/// Why a peer ends that is to save the network and cannot.
const CANNOT_SAVE: &str = "this peer is the one that keeps the network, and its last checkpoint could not be written: another member keeps \
                           it instead; make room on the disk";

/// What a peer keeps of its own blocks and of others', and how far all are with that.
#[derive(Default)]
pub(crate) struct Snapshots {
    store: SnapshotStore,
    /// By address, the round and the epoch of the last snapshot.
    last: BTreeMap<usize, (u32, u64)>,
    /// Copies of others' snapshots that are on their way, by slot.
    copies: BTreeMap<usize, IncomingState>,
    first: FirstMember,
    /// The epochs of a block that the host is writing: there is not to be another in memory meanwhile.
    writing: Option<u64>,
    /// How far this peer was when it told that its blocks have done everything.
    told_done: Option<Place>,
    /// How far all are, when all have done everything.
    finished: Option<Place>,
}

/// What the first member knows besides.
#[derive(Default)]
struct FirstMember {
    ledger: SnapshotLedger,
    saving: Option<Saving>,
    /// The round of the newest snapshot that is to be saved after that.
    next: Option<u32>,
    /// The round of the last one that the host was given whole, or could not write.
    saved: Option<u32>,
    /// Those whose blocks have done everything, by rank, and how far they are.
    done: BTreeMap<usize, Place>,
}

impl Snapshots {
    /// How far all are, if all have done everything.
    pub(crate) fn finished(&self) -> Option<&Place> {
        self.finished.as_ref()
    }

    /// How far this peer's blocks are, if they have done everything.
    pub(crate) fn done(&self) -> Option<&Place> {
        self.finished.as_ref().or(self.told_done.as_ref())
    }

    /// The ranks that a peer waits for whose blocks have done everything.
    pub(crate) fn waits_for(&self, directory: &Directory) -> Vec<usize> {
        if self.told_done.is_none() || self.finished.is_some() {
            return Vec::new();
        }
        if directory.rank > 0 {
            return vec![0];
        }
        let FirstMember { ledger, saving, done, .. } = &self.first;
        match saving.as_ref().and_then(|saving| saving.slots.front()) {
            Some(&slot) => vec![directory.holders[slot]],
            None => {
                let is_awaited = |holder: &usize| ledger.is_waiting() || !done.contains_key(holder);
                directory.holders.iter().copied().filter(is_awaited).collect()
            }
        }
    }

    /// All that is kept, by block.
    pub(crate) fn list(&self) -> Vec<(u32, StateVersion)> {
        self.store.list()
    }

    /// A block from which all go on.
    pub(crate) fn get(&self, block: usize, at: StateVersion) -> Option<&State> {
        self.store.get(block, at)
    }

    /// There is a new view.
    pub(crate) fn on_view(&mut self) {
        self.copies.clear();
        self.first = FirstMember::default();
    }

    /// All go on from this snapshot, or from what the run began with, which is saved where there is anything in it. Those before it are
    /// not needed, and what came after it belongs to another past.
    pub(crate) fn go_back_to(&mut self, snapshot: StateVersion, is_origin: bool) {
        self.told_done = None;
        self.last.clear();
        self.first.saved = is_origin.then_some(snapshot.round);
        self.store.keep_only((!is_origin).then_some(snapshot));
    }

    /// A block came from another peer.
    pub(crate) fn put(&mut self, block: usize, state: State) {
        self.store.put(block, state);
    }

    /// A block begins with what it had in a snapshot.
    pub(crate) fn begin(&mut self, address: usize, state: &State) {
        self.last.insert(address, (state.place.version.round, state.place.ledger.epoch));
    }

    /// Takes snapshots of those blocks whose round is one for that.
    pub(crate) fn take_if_due(&mut self, blocks: &Blocks, directory: &Directory, out: &mut Outbox) {
        for address in blocks.addresses() {
            let replica = &blocks.get(address).replica;
            let (round, epoch) = (replica.place().version.round, replica.place().ledger.epoch);
            let (last_round, last_epoch) = self.last[&address];
            let every = directory.setup.snapshot_every;
            // Who trains asynchronously has a state in common with others only at an epoch's end.
            let is_due = every > 0 && round.is_multiple_of(every) && !replica.is_asynchronous();
            let ends_epoch = epoch > last_epoch;
            if round == last_round || !(is_due || ends_epoch) {
                continue;
            }
            self.last.insert(address, (round, epoch));
            let (block, state) =
                (directory.setup.block(directory.slot(address)), replica.state().expect("a replica has a state"));
            let epoch = ends_epoch.then_some(epoch);
            send_copy(address, (round, epoch), &state, directory, out);
            self.store.put(block, state);
            let held = Held { address: address as u32, is_copy: false, epoch };
            self.tell_first(of_peer(Subject::Held, round, &held), directory, out);
        }
    }

    /// A piece of a copy of another's block.
    pub(crate) fn on_copy(
        &mut self,
        (rank, message): (usize, &Message),
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let address = message.label.from;
        let is_due =
            directory.holders.get(address) == Some(&rank) && directory.buddy_of(address) == Some(directory.rank);
        if !is_due {
            return Err(Malformed::new("it sends a copy of a block that is not for this peer to keep"));
        }
        let slot = directory.slot(address);
        let setup = directory.setup.replica(slot);
        let incoming = self.copies.entry(slot).or_insert_with(|| IncomingState::new(setup.clone()));
        let Some(state) = incoming.take(message.label.piece, &message.body)? else { return Ok(()) };
        self.copies.remove(&slot);
        let epoch = (message.label.to == 1).then_some(state.place.ledger.epoch);
        self.store.put(directory.setup.block(slot), state);
        let held = Held { address: address as u32, is_copy: true, epoch };
        self.tell_first(of_peer(Subject::Held, message.round, &held), directory, out);
        Ok(())
    }

    /// A member says something about snapshots, or that it has done all.
    pub(crate) fn on_message(
        &mut self,
        (rank, message): (usize, &Message),
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let is_first = directory.rank == 0;
        match message.label.subject {
            Subject::Held if is_first => {
                let held: Held = decoded(&message.body)?;
                let address = held.address as usize;
                let holder = directory.holders.get(address).copied();
                let buddy = if held.is_copy { holder.and_then(|_| directory.buddy_of(address)) } else { holder };
                if buddy != Some(rank) {
                    return Err(Malformed::new("it tells of a snapshot that is not its to keep"));
                }
                self.first.ledger.count(message.round, held)?;
                self.conclude(directory, out);
            }
            Subject::Done if is_first => {
                self.first.done.insert(rank, place_of_end(message, directory)?);
                self.end_if_all_done(directory, out);
            }
            Subject::Save if is_first => return self.on_saved_piece(rank, message, directory, out),
            Subject::Complete if rank == 0 => {
                let to_save: Vec<u32> = decoded(&message.body)?;
                self.store.forget_before(message.round, &to_save);
            }
            Subject::AllDone if rank == 0 => self.finished = Some(place_of_end(message, directory)?),
            Subject::Ask if rank == 0 => {
                let block = directory.setup.block(directory.slot(message.label.to));
                let Some(state) = self.store.after(block, message.round) else {
                    return Err(Malformed::new("it asks for a snapshot that is not here"));
                };
                let label = Label { subject: Subject::Save, from: message.label.to, to: 0, ..message.label };
                let asked = to_messages(label, message.round, message.label.piece, state).take(ASKED_PIECES);
                asked.for_each(|piece| directory.tell(0, piece, out));
            }
            _ => return Err(Malformed::new("that is not its to say")),
        }
        Ok(())
    }

    /// Tells the first member something, which may be this peer.
    fn tell_first(&mut self, message: Message, directory: &Directory, out: &mut Outbox) {
        if directory.rank > 0 {
            return directory.tell(0, message, out);
        }
        let taken = self.on_message((0, &message), directory, out);
        taken.expect("what this peer itself says is not malformed");
    }

    /// If a snapshot is complete, those before it are forgotten; and it is saved if that is due. Training does not wait for that, and of
    /// snapshots that wait to be saved only the newest is kept.
    fn conclude(&mut self, directory: &Directory, out: &mut Outbox) {
        let n_blocks = directory.holders.len();
        let n_copies = (0..n_blocks).filter(|&address| directory.buddy_of(address).is_some()).count();
        let Some((round, epoch)) = self.first.ledger.take_complete(n_blocks + n_copies) else { return };
        let setup = &directory.setup;
        let (every, epochs) = (setup.save_every, setup.epochs());
        let is_due = |epoch: u64| every > 0 && epoch.is_multiple_of(every) || epoch >= epochs;
        if epoch.is_some_and(is_due) {
            self.first.next = Some(round);
        }
        self.forget_before(round, directory, out);
        self.begin_saving(directory, out);
        self.end_if_all_done(directory, out);
    }

    /// All forget the snapshots before a complete one, but for those that are yet to be saved.
    fn forget_before(&mut self, round: u32, directory: &Directory, out: &mut Outbox) {
        let FirstMember { saving, next, .. } = &self.first;
        let to_save: Vec<u32> = saving.iter().map(|saving| saving.round).chain(*next).collect();
        self.store.forget_before(round, &to_save);
        directory.tell_others(Subject::Complete, round, &encoded(&to_save), out);
    }

    /// Begins to save what waits for that, if nothing is being saved.
    fn begin_saving(&mut self, directory: &Directory, out: &mut Outbox) {
        if self.first.saving.is_none()
            && let Some(round) = self.first.next.take()
        {
            self.first.saving = Some(Saving::new(round, directory.setup.whole()));
            self.save_next(directory, out);
        }
    }

    /// Fetches the next block of a snapshot that is being saved, if the host has written the one before.
    fn save_next(&mut self, directory: &Directory, out: &mut Outbox) {
        let Some(saving) = self.first.saving.as_mut().filter(|_| self.writing.is_none()) else { return };
        let Some(&slot) = saving.slots.front() else {
            self.first.saved = Some(saving.round);
            self.first.saving = None;
            self.begin_saving(directory, out);
            return self.end_if_all_done(directory, out);
        };
        if directory.holders[slot] != directory.rank {
            saving.incoming = Some(IncomingState::new(directory.setup.replica(slot).clone()));
            return ask(slot, saving.round, 0, directory, out);
        }
        let state = self.store.after(slot, saving.round).cloned();
        let state = state.expect("what is in a snapshot is kept until all have saved it");
        self.writing = Some(state.place.ledger.epoch);
        out.saved.push(saving.take(Arc::clone(directory.setup.part(slot)), state));
    }

    /// The host has written a block, or could not, and has time for the next. Who cannot write the last snapshot leaves that to another: all
    /// wait for it, and the first of those who are left saves it again.
    pub(crate) fn on_block_written(&mut self, is_written: bool, directory: &Directory, out: &mut Outbox) {
        let epoch = self.writing.take();
        if !is_written {
            let is_last = epoch.is_some_and(|epoch| epoch >= directory.setup.epochs());
            if is_last && directory.view.len() > 1 {
                out.failure = Some(CANNOT_SAVE.to_owned());
                return;
            }
            // The rest of a snapshot that has a hole is not wanted.
            self.first.saving.iter_mut().for_each(|saving| saving.slots.clear());
        }
        self.save_next(directory, out);
    }

    fn on_saved_piece(
        &mut self,
        rank: usize,
        message: &Message,
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let out_of_turn = || Malformed::new("it sends a block that was not asked for");
        let Some(saving) = &mut self.first.saving else { return Err(out_of_turn()) };
        let slot = message.label.from;
        let is_asked =
            saving.slots.front() == Some(&slot) && directory.holders[slot] == rank && saving.round == message.round;
        let incoming = saving.incoming.as_mut().filter(|_| is_asked).ok_or_else(out_of_turn)?;
        let next = message.label.piece + 1;
        let Some(state) = incoming.take(message.label.piece, &message.body)? else {
            if next.is_multiple_of(ASKED_PIECES) {
                ask(slot, message.round, next, directory, out);
            }
            return Ok(());
        };
        self.writing = Some(state.place.ledger.epoch);
        out.saved.push(saving.take(Arc::clone(directory.setup.part(slot)), state));
        Ok(())
    }

    /// Tells the first member when this peer's blocks have done everything. Who stands by has done nothing. Nobody goes before all
    /// have.
    pub(crate) fn tell_if_done(&mut self, blocks: &Blocks, directory: &Directory, out: &mut Outbox) {
        let Some(place) = blocks.iter().next().map(|block| block.replica.place()) else { return };
        if self.told_done.is_some() || !blocks.iter().all(Block::is_finished) {
            return;
        }
        self.told_done = Some(place.clone());
        self.tell_first(of_peer(Subject::Done, 0, place), directory, out);
    }

    fn end_if_all_done(&mut self, directory: &Directory, out: &mut Outbox) {
        let FirstMember { ledger, saving, next, saved, done } = &self.first;
        let is_done = directory.holders.iter().all(|holder| done.contains_key(holder));
        if !is_done || saving.is_some() || next.is_some() || ledger.is_waiting() {
            return;
        }
        let Some(place) = done.values().next().cloned() else { return };
        let round = place.version.round;
        if *saved != Some(round) {
            // Whoever was first before may not have saved it.
            self.first.next = Some(round);
            return self.begin_saving(directory, out);
        }
        self.first.done.clear();
        directory.tell_others(Subject::AllDone, 0, &encoded(&place), out);
        self.finished = Some(place);
    }

    /// The members of a new view know that all is done already.
    pub(crate) fn finish(&mut self, place: Place) {
        self.finished = Some(place);
    }
}

/// How far all is done, as a member tells.
fn place_of_end(message: &Message, directory: &Directory) -> Result<Place, Malformed> {
    let place: Place = decoded(&message.body)?;
    directory.setup.replica(0).training.check_ledger(&place.ledger)?;
    Ok(place)
}

fn send_copy(
    address: usize,
    (round, epoch): (u32, Option<u64>),
    state: &State,
    directory: &Directory,
    out: &mut Outbox,
) {
    let Some(buddy) = directory.buddy_of(address) else { return };
    // Where it is said to go tells whether it is an epoch's end.
    let to = usize::from(epoch.is_some());
    let label = Label { subject: Subject::Copy, purpose: Purpose::Train, from: address, to, piece: 0 };
    to_messages(label, round, 0, state).for_each(|piece| directory.tell(buddy, piece, out));
}

/// Asks for the next pieces of a block, so that no more is on its way than a few.
fn ask(slot: usize, round: u32, piece: usize, directory: &Directory, out: &mut Outbox) {
    let label = Label { subject: Subject::Ask, purpose: Purpose::Train, from: 0, to: slot, piece };
    directory.tell(directory.holders[slot], Message { label, round, body: Bytes::new() }, out);
}
