//! A peer that holds blocks of the network: inputs in, outbox out.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_swarm::record::Event;
use nettorrent_swarm::view::Weight;
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{
    BlockView, HeldFrames, HeldRoom, Input, Malformed, Outbox, Peer, PeerId, Phase, Place, State, Status, View,
};

use crate::agreement::Agreement;
use crate::assignment::{Claim, Verdict};
use crate::block::Block;
use crate::blocks::Blocks;
use crate::directory::Directory;
use crate::early::Sender;
use crate::message::{Label, Message, Purpose, Subject};
use crate::origin::Origin;
use crate::pipeline_setup::PipelineSetup;
use crate::snapshots::Snapshots;
use crate::state_transfer::{IncomingState, to_messages};

/// Why peers end who have trained everything, and of whom none knows whether that was saved.
const END_UNKNOWN: &str = "all epochs are trained, but the peer that keeps the network is gone, and nobody here knows whether it wrote the \
                           last checkpoint: look for it there; if it is not whole, resume from the one before";

/// What is kept until the members have agreed on who holds what.
const HELD_ROOM: HeldRoom = HeldRoom { each: 16 << 20, shared: 256 << 20 };

/// A peer that holds blocks of the network, or none until it is known who takes part.
pub struct PipelinePeer {
    directory: Directory,
    origin: Origin,
    agreement: Agreement,
    blocks: Blocks,
    snapshots: Snapshots,
    held: HeldFrames,
    /// What its blocks were before the view changed: if it turns out that all was done, they are the end.
    former: Vec<BlockView>,
    /// How far its blocks were when it gave them up.
    place: Place,
    phase: Phase,
    phase_began: Duration,
    has_told_end: bool,
    /// What speaks for its snapshots.
    weight: Weight,
}

impl Peer for PipelinePeer {
    fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        self.directory.now = now;
        match input {
            Input::View(view) => self.on_view(view, out)?,
            Input::Frame { from, frame } => self.on_frame(from, frame, out)?,
            Input::LinkEnded(peer) => self.held.forget(peer, self.directory.view.number),
            Input::Done { done, took } => self.blocks.on_done(done, took, &self.directory, out),
            Input::Timer(token) => self.blocks.feed_all(&|| Input::Timer(token), &self.directory, out),
            Input::BlockWritten { is_written } => self.snapshots.on_block_written(is_written, &self.directory, out),
            // Pipelines lie across sites.
            Input::Stop | Input::Site(_) | Input::RoundTrips(_) => {}
            Input::Uplink(bytes_per_s) => self.blocks.on_uplink(bytes_per_s, &self.directory, out),
        }
        self.go_on(out);
        Ok(())
    }

    fn blocks(&self) -> Vec<BlockView> {
        if self.is_finished() && self.blocks.iter().next().is_none() {
            return self.former.clone();
        }
        let view = |block: &Block| BlockView {
            pipeline: block.position.pipeline,
            slot: block.position.slot,
            part: self.directory.setup.part(block.position.slot).clone(),
            values: block.replica.values(),
        };
        self.blocks.iter().map(view).collect()
    }

    fn place(&self) -> &Place {
        let held = self.blocks.iter().next().map(|block| block.replica.place());
        held.or(self.snapshots.finished()).unwrap_or(&self.place)
    }

    fn view(&self) -> &View {
        &self.directory.view
    }

    fn is_finished(&self) -> bool {
        self.snapshots.finished().is_some()
    }

    fn status(&self) -> Status {
        let (place, view) = (self.place(), &self.directory.view);
        let mut waits_for = match &self.agreement {
            Agreement::Reached => {
                let mut awaited = self.blocks.waits_for(&self.directory);
                awaited.extend(self.snapshots.waits_for(&self.directory));
                awaited
            }
            agreement => agreement.waits_for(view.len()),
        };
        waits_for.sort_unstable();
        waits_for.dedup();
        let others = waits_for.into_iter().filter(|&rank| rank != self.directory.rank);
        Status {
            phase: self.phase,
            epoch: place.ledger.epoch,
            round: place.version.round,
            waits_for: others.filter_map(|rank| view.members.get(rank).copied()).collect(),
            began: self.phase_began,
        }
    }
}

impl PipelinePeer {
    /// A peer that holds nothing yet.
    pub fn new(me: PeerId, setup: Arc<PipelineSetup>, origin: Origin) -> Self {
        Self {
            directory: Directory::new(me, setup),
            origin,
            agreement: Agreement::default(),
            blocks: Blocks::default(),
            snapshots: Snapshots::default(),
            held: HeldFrames::default(),
            former: Vec::new(),
            place: Place::default(),
            phase: Phase::Agreeing,
            phase_began: Duration::ZERO,
            has_told_end: false,
            weight: Weight::default(),
        }
    }

    fn on_frame(&mut self, from: PeerId, frame: Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let directory = &self.directory;
        if frame.head.view > directory.view.number {
            return self.held.keep(from, frame, HELD_ROOM);
        }
        if frame.head.view < directory.view.number {
            // What was said in a view that is over is void.
            return Ok(());
        }
        let rank = directory.view.rank(from).ok_or_else(|| Malformed::new("it does not belong to this view"))?;
        if frame.head.kind != Kind::Layers {
            if !self.agreement.is_reached() {
                return self.held.keep(from, frame, HELD_ROOM);
            }
            return self.blocks.on_replica_frame((rank, frame), directory, out);
        }
        let label = Label::from_part(frame.head.part)?;
        // Who sends a state may be quicker than the first member, who says that this peer needs it.
        let is_early = match label.subject {
            Subject::Claim | Subject::Verdict => false,
            Subject::State => self.agreement.is_waiting(),
            _ => !self.agreement.is_reached(),
        };
        if is_early {
            return self.held.keep(from, frame, HELD_ROOM);
        }
        let message = Message { label, round: frame.head.round, body: frame.body };
        match label.subject {
            Subject::Claim | Subject::Verdict => match self.agreement.on_message((rank, &message), directory, out)? {
                Some(verdict) => self.on_verdict(&verdict, out),
                None => Ok(()),
            },
            Subject::State => self.on_state(rank, &message, out),
            Subject::Copy => self.snapshots.on_copy((rank, &message), directory, out),
            Subject::Held | Subject::Complete | Subject::Ask | Subject::Save | Subject::Done | Subject::AllDone => {
                self.snapshots.on_message((rank, &message), directory, out)?;
                self.tell_end(out);
                Ok(())
            }
            _ if directory.holders.get(label.from) != Some(&rank) => {
                Err(Malformed::new("it speaks for a block that it does not hold"))
            }
            _ => self.blocks.on_message((message, Sender::Another), directory, out),
        }
    }

    /// Looks again at what came before its time.
    fn release_held(&mut self, out: &mut Outbox) {
        for (from, frame) in self.held.release() {
            if let Err(malformed) = self.on_frame(from, frame, out) {
                out.refused.push((from, malformed));
            }
        }
    }

    fn on_view(&mut self, view: View, out: &mut Outbox) -> Result<(), Malformed> {
        if view.number <= self.directory.view.number {
            return Ok(());
        }
        let Some(rank) = view.rank(self.directory.me) else {
            return Err(Malformed::new("a view came that this peer is not part of"));
        };
        self.origin.look_for_newer();
        let claim = Claim {
            weight: self.weight,
            had: self.blocks.addresses().into_iter().map(|address| address as u32).collect(),
            snapshots: self.snapshots.list(),
            origin: self.origin.version,
            done: self.snapshots.done().cloned(),
            is_over: self.is_finished(),
        };
        (self.directory.view, self.directory.rank) = (view, rank);
        self.place = self.place().clone();
        // If the view changes again before all have agreed, there is nothing new.
        let held = self.blocks();
        if !held.is_empty() {
            self.former = held;
        }
        self.blocks.clear();
        self.snapshots.on_view();
        if let Some(verdict) = self.agreement.begin(claim, &self.directory, out) {
            self.on_verdict(&verdict, out)?;
        }
        self.release_held(out);
        Ok(())
    }

    /// It is decided who holds which block, and from where all go on.
    fn on_verdict(&mut self, verdict: &Verdict, out: &mut Outbox) -> Result<(), Malformed> {
        let setup = self.directory.setup.clone();
        let n_slots = setup.n_slots();
        verdict.check(self.directory.view.len(), n_slots)?;
        if let Some(place) = &verdict.done {
            setup.replica(0).training.check_ledger(&place.ledger)?;
            if !verdict.is_saved {
                self.place = place.clone();
                out.failure = Some(END_UNKNOWN.to_owned());
                return Ok(());
            }
            self.snapshots.finish(place.clone());
            self.tell_end(out);
            return Ok(());
        }
        self.former.clear();
        self.directory.holders = verdict.holders.iter().map(|&rank| rank as usize).collect();
        self.snapshots.go_back_to(verdict.snapshot, verdict.is_origin);
        let mut awaited = std::collections::BTreeMap::new();
        for (address, donor) in verdict.donors.iter().enumerate() {
            let donor = donor.map(|rank| rank as usize);
            if donor == Some(self.directory.rank) {
                let Some(state) = self.state_at(address, verdict, out)? else { return Ok(()) };
                self.send_state(address, &state, out);
            }
            if self.directory.holders[address] != self.directory.rank {
                continue;
            }
            match donor {
                Some(donor) => {
                    let incoming = IncomingState::new(setup.replica(address % n_slots).clone());
                    awaited.insert(address, (donor, incoming));
                }
                None => {
                    let Some(state) = self.state_at(address, verdict, out)? else { return Ok(()) };
                    self.hold_block(address, state);
                }
            }
        }
        self.agreement = Agreement::Receiving(awaited);
        self.begin_if_complete(out);
        if !self.agreement.is_reached() {
            // Blocks may have come before the word that this peer is to hold them.
            self.release_held(out);
        }
        Ok(())
    }

    /// A block's state from where all go on. If there is none because this peer itself fails, it says so and goes no further.
    fn state_at(&self, address: usize, verdict: &Verdict, out: &mut Outbox) -> Result<Option<State>, Malformed> {
        let (setup, slot) = (&self.directory.setup, self.directory.slot(address));
        if verdict.is_origin {
            let state = (self.origin.block)(slot, setup.part(slot));
            return Ok(state.map_err(|problem| out.failure = Some(problem)).ok());
        }
        let state = self.snapshots.get(setup.block(slot), verdict.snapshot).cloned();
        let state =
            state.ok_or_else(|| Malformed::new("it takes this peer for one who has a block that is not here"))?;
        Ok(Some(state))
    }

    fn send_state(&self, address: usize, state: &State, out: &mut Outbox) {
        let label = Label { subject: Subject::State, purpose: Purpose::Train, from: address, to: address, piece: 0 };
        let holder = self.directory.holders[address];
        let pieces = to_messages(label, state.place.version.round, 0, state);
        pieces.for_each(|piece| self.directory.tell(holder, piece, out));
    }

    /// A piece of a block that this peer is to hold.
    fn on_state(&mut self, rank: usize, message: &Message, out: &mut Outbox) -> Result<(), Malformed> {
        let Some((address, state)) = self.agreement.on_state(rank, message)? else { return Ok(()) };
        self.snapshots.put(self.directory.setup.block(self.directory.slot(address)), state.clone());
        self.hold_block(address, state);
        self.begin_if_complete(out);
        Ok(())
    }

    fn hold_block(&mut self, address: usize, state: State) {
        self.snapshots.begin(address, &state);
        self.blocks.add(address, state, &self.directory);
    }

    /// If this peer has all its blocks, it begins.
    fn begin_if_complete(&mut self, out: &mut Outbox) {
        if !self.agreement.reach_if_complete() {
            return;
        }
        self.weight = self.directory.view.weight();
        let (view, members) = (self.directory.view.number, self.directory.view.members.to_vec());
        let (donor, round) = (members[0], self.place().version.round);
        out.records.push(self.directory.record(Event::View {
            view,
            members,
            donor,
            was_behind: false,
            round,
            sites: Vec::new(),
        }));
        self.blocks.start(&self.directory, out);
        self.release_held(out);
    }

    /// Has its blocks go on, and looks after snapshots and the end.
    fn go_on(&mut self, out: &mut Outbox) {
        if !self.agreement.is_reached() {
            return self.enter(Phase::Agreeing);
        }
        self.blocks.go_on(&self.directory, out);
        self.snapshots.take_if_due(&self.blocks, &self.directory, out);
        self.snapshots.tell_if_done(&self.blocks, &self.directory, out);
        self.tell_end(out);
        let phase = self.blocks.iter().next().map(|block| block.replica.status().phase);
        self.enter(match phase {
            _ if self.is_finished() => Phase::Finished,
            Some(Phase::Finished) | None => Phase::Testing,
            Some(phase) => phase,
        });
    }

    /// Tells people once that all is done.
    fn tell_end(&mut self, out: &mut Outbox) {
        if self.is_finished() && !std::mem::replace(&mut self.has_told_end, true) {
            let rounds = self.place().version.round;
            out.records.push(self.directory.record(Event::Finished { rounds }));
        }
    }

    fn enter(&mut self, phase: Phase) {
        if self.phase != phase {
            (self.phase, self.phase_began) = (phase, self.directory.now);
        }
    }
}
