//! A block's state as it travels: a title, then its numbers piece by piece.

use std::sync::Arc;

use bytes::Bytes;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_swarm::codec::Codec;
use nettorrent_swarm::wire::{decoded, encoded};
use nettorrent_swarm::{Malformed, Place, ReplicaSetup, State};
use serde::{Deserialize, Serialize};

use crate::message::{Incoming, Label, Message, PIECE_LEN};

/// What stands before the numbers: the block's own, each vector of the strategy's state, then each of the optimizer's.
#[derive(Serialize, Deserialize)]
struct Title {
    place: Place,
    optimizer_steps: u64,
    n_state_vectors: u32,
}

/// A state as messages, from some piece on: the title, and then the pieces of one vector after the other.
pub(crate) fn to_messages(label: Label, round: u32, first: usize, state: &State) -> impl Iterator<Item = Message> {
    (first..)
        .map_while(move |piece| Some(Message { label: Label { piece, ..label }, round, body: piece_of(state, piece)? }))
}

/// One piece of a state; none behind the last.
fn piece_of(state: &State, piece: usize) -> Option<Bytes> {
    let State { values, optimizer, place, strategy_state, .. } = state;
    let (optimizer_steps, of_optimizer) = optimizer.state();
    let Some(mut piece) = piece.checked_sub(1) else {
        let n_state_vectors = strategy_state.len() as u32;
        return Some(encoded(&Title { place: place.clone(), optimizer_steps, n_state_vectors }));
    };
    let vectors = std::iter::once(values.as_slice()).chain(strategy_state.iter().map(|vector| vector.as_slice()));
    for vector in vectors.chain(of_optimizer.map(|(_, vector)| vector)) {
        let n_pieces = vector.len().div_ceil(PIECE_LEN);
        if piece < n_pieces {
            return vector.chunks(PIECE_LEN).nth(piece).map(|numbers| Codec::F32.encode(numbers));
        }
        piece -= n_pieces;
    }
    None
}

/// A state that is on its way.
pub(crate) struct IncomingState {
    setup: Arc<ReplicaSetup>,
    started: Option<Started>,
    n_pieces: usize,
}

/// One whose title is there.
struct Started {
    title: Title,
    vectors: Vec<Incoming>,
    /// Which vector comes, and how many pieces of it have.
    current: usize,
    n_pieces: usize,
}

impl IncomingState {
    pub(crate) fn new(setup: Arc<ReplicaSetup>) -> Self {
        Self { setup, started: None, n_pieces: 0 }
    }

    /// Takes a piece; the state, when it was the last.
    pub(crate) fn take(&mut self, piece: usize, body: &[u8]) -> Result<Option<State>, Malformed> {
        if piece != self.n_pieces {
            return Err(Malformed::new("a piece of a state came out of turn"));
        }
        let (n_values, n_params) = (self.setup.training.task.n_values(), self.setup.training.task.n_params());
        let mut optimizer = Optimizer::new(self.setup.training.optimizer.clone(), 0);
        match &mut self.started {
            None => {
                let title: Title = decoded(body)?;
                self.setup.training.check_ledger(&title.place.ledger)?;
                if title.n_state_vectors as usize > self.setup.strategy().n_state_vectors() {
                    return Err(Malformed::new("the state that it sends has more of a strategy than there is"));
                }
                let whole = (0..=title.n_state_vectors).map(|_| Incoming::new(n_values));
                let of_optimizer = optimizer.state().1.map(|_| Incoming::new(n_params));
                let vectors = whole.chain(of_optimizer).collect();
                self.started = Some(Started { title, vectors, current: 0, n_pieces: 0 });
            }
            Some(started) => started.take(body)?,
        }
        self.n_pieces += 1;
        let Some(Started { title, vectors, .. }) = self.started.take_if(|started| started.is_complete()) else {
            return Ok(None);
        };
        let mut vectors = vectors.into_iter().map(Incoming::into_numbers);
        let values = Arc::new(vectors.next().unwrap_or_default());
        let strategy_state = vectors.by_ref().take(title.n_state_vectors as usize).map(Arc::new).collect();
        optimizer = Optimizer::new(self.setup.training.optimizer.clone(), n_params);
        if !optimizer.restore(title.optimizer_steps, |_| vectors.next()) {
            return Err(Malformed::new("the state that came does not fit the optimizer"));
        }
        Ok(Some(State::new(values, optimizer, title.place, strategy_state)))
    }
}

impl Started {
    fn take(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let Some(vector) = self.vectors.get_mut(self.current) else {
            return Err(Malformed::new("more came of a state than there is"));
        };
        vector.take(self.n_pieces, body)?;
        self.n_pieces += 1;
        if vector.is_complete() {
            (self.current, self.n_pieces) = (self.current + 1, 0);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.vectors.iter().all(Incoming::is_complete)
    }
}
