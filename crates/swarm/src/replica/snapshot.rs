//! A peer's whole state for those who are behind, in pieces.

use std::sync::Arc;

use nettorrent_engine::kernel::is_finite;
use serde::{Deserialize, Serialize};

use super::asynchronous::Ending;
use super::core::Core;
use crate::codec::Codec;
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::place::{Place, State};
use crate::wire::{Frame, Kind, decoded, encoded};

/// How many numbers travel in one piece.
const PIECE_LEN: usize = 1 << 16;

/// What stands before the numbers: the parameters, each vector of the strategy's state, then each of the optimizer's.
#[derive(Serialize, Deserialize)]
struct Title {
    place: Place,
    optimizer_steps: u64,
    /// Where peers train asynchronously: how the donor's last segments ended.
    endings: Vec<Ending>,
    /// What its strategy says about its parameters.
    account: Vec<u8>,
}

/// Another peer's whole state.
pub(super) struct Snapshot {
    pub place: Place,
    pub optimizer_steps: u64,
    pub endings: Vec<Ending>,
    pub account: Vec<u8>,
    pub values: Vec<f32>,
    /// The strategy's state, and the optimizer's.
    pub strategy: Vec<Arc<Vec<f32>>>,
    pub optimizer: Vec<Vec<f32>>,
}

/// A state that is on its way.
pub(super) struct Incoming {
    /// Whose it is, by rank.
    pub donor: usize,
    title: Option<Title>,
    numbers: Vec<f32>,
    n_pieces: u64,
}

impl Incoming {
    pub(super) fn new(donor: usize) -> Self {
        Self { donor, title: None, numbers: Vec::new(), n_pieces: 0 }
    }

    /// Takes a piece in, given how many vectors are the state of an epoch's strategy; when it was the last one, the whole.
    pub(super) fn take(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &Core,
        n_state_vectors_at: impl Fn(u64) -> usize,
    ) -> Result<Option<Snapshot>, Malformed> {
        if rank != self.donor || frame.head.part != self.n_pieces {
            return Err(Malformed::new("a piece of a state came out of turn"));
        }
        self.n_pieces += 1;
        let Some(title) = &self.title else {
            let title: Title = decoded(&frame.body)?;
            core.training.check_ledger(&title.place.ledger)?;
            self.title = Some(title);
            return Ok(None);
        };
        // The strategy is that of its epoch.
        let n_state_vectors = n_state_vectors_at(title.place.ledger.epoch);
        let (n_values, n_params) = (core.training.task.n_values(), core.training.task.n_params());
        let n_whole = n_values * (1 + n_state_vectors);
        let expected = n_whole + core.optimizer.state().1.count() * n_params;
        // Pieces end where vectors end.
        let done = self.numbers.len();
        let vector_end = if done < n_whole {
            (done / n_values + 1) * n_values
        } else {
            n_whole + ((done - n_whole) / n_params + 1) * n_params
        };
        let len = PIECE_LEN.min(vector_end.min(expected) - done);
        Codec::F32.check_finite(&frame.body, len)?;
        self.numbers.resize(done + len, 0.0);
        Codec::F32.decode(&frame.body, &mut self.numbers[done..])?;
        if self.numbers.len() < expected {
            return Ok(None);
        }
        let mut values = std::mem::take(&mut self.numbers);
        let optimizer = vectors(&values.split_off(n_whole), n_params);
        let strategy = vectors(&values.split_off(n_values), n_values).into_iter().map(Arc::new).collect();
        let whole = |title| {
            let Title { place, optimizer_steps, endings, account } = title;
            Snapshot { place, optimizer_steps, endings, account, values, strategy, optimizer }
        };
        Ok(self.title.take().map(whole))
    }
}

/// Vectors of this length that follow on one another.
fn vectors(numbers: &[f32], len: usize) -> Vec<Vec<f32>> {
    numbers.chunks(len.max(1)).map(<[f32]>::to_vec).collect()
}

/// A state that others take over.
pub(super) struct Outgoing<'a> {
    pub state: &'a State,
    /// How the last segments ended.
    pub endings: Vec<Ending>,
    /// What the strategy says about the parameters.
    pub account: Vec<u8>,
}

impl Outgoing<'_> {
    /// Sends it to these ranks.
    pub(super) fn send(self, to: &[u32], core: &Core, out: &mut Outbox) {
        if to.is_empty() {
            return;
        }
        let Self { state: State { values, optimizer, place, strategy_state: strategy, .. }, endings, account } = self;
        let (optimizer_steps, of_optimizer) = optimizer.state();
        let vectors = std::iter::once(values.as_slice()).chain(strategy.iter().map(|vector| vector.as_slice()));
        let vectors: Vec<&[f32]> = vectors.chain(of_optimizer.map(|(_, vector)| vector)).collect();
        if !vectors.iter().all(|vector| is_finite(vector)) {
            // Nobody would take it, and all would wait for another; without this peer they go on.
            out.failure =
                Some("the parameters became infinite or no number, and others were to take them over".to_owned());
            return;
        }
        let pieces =
            vectors.into_iter().flat_map(|vector| vector.chunks(PIECE_LEN)).map(|piece| Codec::F32.encode(piece));
        let title = encoded(&Title { place: place.clone(), optimizer_steps, endings, account });
        // Encoded once, whoever takes it.
        for (part, body) in std::iter::once(title).chain(pieces).enumerate() {
            for &rank in to {
                core.tell(rank as usize, Kind::Snapshot, part as u64, body.clone(), out);
            }
        }
    }
}
