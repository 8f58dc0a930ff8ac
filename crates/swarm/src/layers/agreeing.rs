//! A new view of a layer network: its members agree on who holds which block, and blocks go to their new holders.

use std::collections::BTreeMap;

use super::accord::{Claim, Verdict};
use super::block::Block;
use super::label::{Label, Letter, Purpose, Subject};
use super::peer::LayerPeer;
use super::seat::Seat;
use super::snapshot::{IncomingState, to_letters};
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::place::State;
use crate::record::Event;
use crate::view::View;
use crate::wire::{decoded, encoded};

/// How far the members of a view have agreed.
pub(super) enum Agreement {
    /// This peer waits for a view, or for the first member's word.
    Waiting,
    /// This peer is the first member and hears what the others have.
    Gathering(BTreeMap<usize, Claim>),
    /// This peer waits for blocks that it is to hold, by address: who sends them.
    Receiving(BTreeMap<usize, (usize, IncomingState)>),
    /// All is agreed, and this peer has its blocks.
    Reached,
}

impl Agreement {
    /// The ranks that this peer waits for.
    pub(super) fn waits_for(&self, n_peers: usize) -> Vec<usize> {
        match self {
            Self::Waiting => vec![0],
            Self::Gathering(claims) => (0..n_peers).filter(|rank| !claims.contains_key(rank)).collect(),
            Self::Receiving(states) => states.values().map(|(donor, _)| *donor).collect(),
            Self::Reached => Vec::new(),
        }
    }
}

impl LayerPeer {
    pub(super) fn on_view(&mut self, view: View, out: &mut Outbox) -> Result<(), Malformed> {
        if view.number <= self.view.number {
            return Ok(());
        }
        let Some(rank) = view.rank(self.me) else {
            return Err(Malformed::new("a view came that this peer is not part of"));
        };
        let claim = Claim {
            had: self.blocks.keys().map(|&address| address as u32).collect(),
            marks: self.vault.list(),
            origin: self.origin.standing,
            is_done: self.has_told_done,
        };
        (self.view, self.rank) = (view, rank);
        self.drop_blocks();
        self.copies.clear();
        self.first = <_>::default();
        if rank == 0 {
            self.agreement = Agreement::Gathering(BTreeMap::from([(0, claim)]));
            self.conclude_if_gathered(out)?;
        } else {
            self.agreement = Agreement::Waiting;
            self.tell(0, Label::of_peer(Subject::Claim), 0, encoded(&claim), out);
        }
        self.release_held(out);
        Ok(())
    }

    pub(super) fn on_agreement(&mut self, rank: usize, letter: &Letter, out: &mut Outbox) -> Result<(), Malformed> {
        match (letter.label.subject, &mut self.agreement) {
            (Subject::Claim, Agreement::Gathering(claims)) => {
                claims.insert(rank, decoded(&letter.body)?);
                self.conclude_if_gathered(out)
            }
            (Subject::Verdict, Agreement::Waiting) if rank == 0 => {
                let verdict: Verdict = decoded(&letter.body)?;
                self.on_verdict(&verdict, out)
            }
            _ => Err(Malformed::new("it speaks out of turn in the agreement on a view")),
        }
    }

    fn conclude_if_gathered(&mut self, out: &mut Outbox) -> Result<(), Malformed> {
        let Agreement::Gathering(claims) = &self.agreement else { return Ok(()) };
        if claims.len() < self.view.len() {
            return Ok(());
        }
        let claims: Vec<Claim> = claims.values().cloned().collect();
        let verdict = Verdict::new(&claims, &self.network.blocks());
        let body = encoded(&verdict);
        for rank in 1..self.view.len() {
            self.tell(rank, Label::of_peer(Subject::Verdict), 0, body.clone(), out);
        }
        self.on_verdict(&verdict, out)
    }

    fn on_verdict(&mut self, verdict: &Verdict, out: &mut Outbox) -> Result<(), Malformed> {
        verdict.check(self.view.len(), self.network.n_slots())?;
        if verdict.is_done {
            self.finish(out);
            return Ok(());
        }
        let n_slots = self.network.n_slots();
        self.holders = verdict.holders.iter().map(|&rank| rank as usize).collect();
        self.has_told_done = false;
        self.marked.clear();
        // Those before it are not needed, and what came after it belongs to another past.
        self.vault.keep_only((!verdict.is_origin).then_some(verdict.mark));
        let mut awaited = BTreeMap::new();
        for address in 0..self.holders.len() {
            let donor = verdict.donors[address].map(|rank| rank as usize);
            if donor == Some(self.rank) {
                let Some(state) = self.state_at(address, verdict, out)? else { return Ok(()) };
                self.send_state(address, &state, out);
            }
            if self.holders[address] != self.rank {
                continue;
            }
            match donor {
                Some(donor) => {
                    let setup = self.network.setup(address % n_slots).clone();
                    awaited.insert(address, (donor, IncomingState::new(setup)));
                }
                None => {
                    let Some(state) = self.state_at(address, verdict, out)? else { return Ok(()) };
                    self.hold_block(address, state);
                }
            }
        }
        self.agreement = Agreement::Receiving(awaited);
        self.begin_if_complete(out);
        Ok(())
    }

    /// A block's state from where all go on. If there is none because this peer itself fails, it says so and goes no further.
    fn state_at(&self, address: usize, verdict: &Verdict, out: &mut Outbox) -> Result<Option<State>, Malformed> {
        let slot = address % self.network.n_slots();
        if verdict.is_origin {
            let state = (self.origin.block)(slot, self.network.part(slot));
            return Ok(state.map_err(|problem| out.failure = Some(problem)).ok());
        }
        let state = self.vault.get(self.network.block(slot), verdict.mark).cloned();
        let state =
            state.ok_or_else(|| Malformed::new("it takes this peer for one who has a block that is not here"))?;
        Ok(Some(state))
    }

    fn send_state(&self, address: usize, state: &State, out: &mut Outbox) {
        let label = Label { subject: Subject::State, purpose: Purpose::Train, from: address, to: address, piece: 0 };
        for Letter { label, round, body } in to_letters(label, state.place.standing.round, 0, state) {
            self.tell(self.holders[address], label, round, body, out);
        }
    }

    /// A piece of a block that this peer is to hold.
    pub(super) fn on_state(&mut self, rank: usize, letter: &Letter, out: &mut Outbox) -> Result<(), Malformed> {
        let address = letter.label.to;
        let Agreement::Receiving(awaited) = &mut self.agreement else {
            return Err(Malformed::new("it sends a block to one who waits for none"));
        };
        let Some((_, incoming)) = awaited.get_mut(&address).filter(|(donor, _)| *donor == rank) else {
            return Err(Malformed::new("it sends a block that is not its to send"));
        };
        let Some(state) = incoming.take(letter.label.piece, &letter.body)? else { return Ok(()) };
        awaited.remove(&address);
        self.vault.put(self.network.block(address % self.network.n_slots()), state.clone());
        self.hold_block(address, state);
        self.begin_if_complete(out);
        Ok(())
    }

    fn hold_block(&mut self, address: usize, state: State) {
        let n_slots = self.network.n_slots();
        let seat = Seat { network: self.network.clone(), pipeline: address / n_slots, slot: address % n_slots };
        self.marked.insert(address, (state.place.standing.round, state.place.ledger.epoch));
        self.blocks.insert(address, Block::new(seat, state));
    }

    /// If this peer has all its blocks, it begins.
    fn begin_if_complete(&mut self, out: &mut Outbox) {
        if !matches!(&self.agreement, Agreement::Receiving(awaited) if awaited.is_empty()) {
            return;
        }
        self.agreement = Agreement::Reached;
        let (view, members) = (self.view.number, self.view.members.to_vec());
        let (donor, round) = (members[0], self.place().standing.round);
        out.records.push(self.record(Event::View { view, members, donor, was_behind: false, round }));
        self.start_blocks(out);
    }
}
