//! A new view: its members agree on who holds which block, and blocks go to their new holders.

use std::collections::BTreeMap;

use nettorrent_swarm::wire::{decoded, encoded};
use nettorrent_swarm::{Malformed, Outbox, State};

use crate::assignment::{Claim, Verdict};
use crate::directory::{Directory, of_peer};
use crate::message::{Message, Subject};
use crate::state_transfer::IncomingState;

/// How far the members of a view have agreed.
#[derive(Default)]
pub(crate) enum Agreement {
    /// This peer waits for a view, or for the first member's word.
    #[default]
    Waiting,
    /// This peer is the first member and hears what the others have.
    Gathering(BTreeMap<usize, Claim>),
    /// This peer waits for blocks that it is to hold, by address: who sends them.
    Receiving(BTreeMap<usize, (usize, IncomingState)>),
    /// All is agreed, and this peer has its blocks.
    Reached,
}

impl Agreement {
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    pub(crate) fn is_reached(&self) -> bool {
        matches!(self, Self::Reached)
    }

    /// The ranks that this peer waits for.
    pub(crate) fn waits_for(&self, n_peers: usize) -> Vec<usize> {
        match self {
            Self::Waiting => vec![0],
            Self::Gathering(claims) => (0..n_peers).filter(|rank| !claims.contains_key(rank)).collect(),
            Self::Receiving(states) => states.values().map(|(donor, _)| *donor).collect(),
            Self::Reached => Vec::new(),
        }
    }

    /// There is a new view. A first member who is alone knows at once what to say.
    pub(crate) fn begin(&mut self, claim: Claim, directory: &Directory, out: &mut Outbox) -> Option<Verdict> {
        if directory.rank == 0 {
            *self = Self::Gathering(BTreeMap::from([(0, claim)]));
            return self.conclude_if_gathered(directory, out);
        }
        *self = Self::Waiting;
        directory.tell(0, of_peer(Subject::Claim, 0, &claim), out);
        None
    }

    /// A member says what it has, or the first one who holds what.
    pub(crate) fn on_message(
        &mut self,
        (rank, message): (usize, &Message),
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<Option<Verdict>, Malformed> {
        match (message.label.subject, &mut *self) {
            (Subject::Claim, Self::Gathering(claims)) => {
                claims.insert(rank, decoded(&message.body)?);
                Ok(self.conclude_if_gathered(directory, out))
            }
            (Subject::Verdict, Self::Waiting) if rank == 0 => Ok(Some(decoded(&message.body)?)),
            _ => Err(Malformed::new("it speaks out of turn in the agreement on a view")),
        }
    }

    /// If this first member knows what all have, it says who holds what.
    fn conclude_if_gathered(&self, directory: &Directory, out: &mut Outbox) -> Option<Verdict> {
        let Self::Gathering(claims) = self else { return None };
        if claims.len() < directory.view.len() {
            return None;
        }
        let claims: Vec<Claim> = claims.values().cloned().collect();
        let verdict = Verdict::new(&claims, &directory.setup.blocks());
        directory.tell_others(Subject::Verdict, 0, &encoded(&verdict), out);
        Some(verdict)
    }

    /// A piece of a block that this peer is to hold; the block's address and state, when it was the last.
    pub(crate) fn on_state(&mut self, rank: usize, message: &Message) -> Result<Option<(usize, State)>, Malformed> {
        let address = message.label.to;
        let Self::Receiving(awaited) = self else {
            return Err(Malformed::new("it sends a block to one who waits for none"));
        };
        let Some((_, incoming)) = awaited.get_mut(&address).filter(|(donor, _)| *donor == rank) else {
            return Err(Malformed::new("it sends a block that is not its to send"));
        };
        let Some(state) = incoming.take(message.label.piece, &message.body)? else { return Ok(None) };
        awaited.remove(&address);
        Ok(Some((address, state)))
    }

    /// Whether this peer has just got all its blocks; if so, all is agreed.
    pub(crate) fn reach_if_complete(&mut self) -> bool {
        let is_complete = matches!(self, Self::Receiving(awaited) if awaited.is_empty());
        if is_complete {
            *self = Self::Reached;
        }
        is_complete
    }
}
