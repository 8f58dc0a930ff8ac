//! A peer's whole state for those who are behind, in pieces.

use std::sync::Arc;

use nettorrent_engine::kernel::is_finite;
use serde::{Deserialize, Serialize};

use super::agreement::{Accord, decoded, encoded};
use super::asynchronous::Ending;
use super::{Outbox, Replica};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::place::{Place, State};
use crate::strategy::{Past, Payload};
use crate::wire::{Frame, Kind};

/// How many numbers travel in one piece.
const PIECE_LEN: usize = 1 << 16;

/// What stands before the numbers: the parameters, each of the strategy's memories, then each of the optimizer's.
#[derive(Serialize, Deserialize)]
struct Title {
    place: Place,
    optimizer_steps: u64,
    /// Where peers train asynchronously: how the donor's last segments ended.
    endings: Vec<Ending>,
    /// What its strategy says about its parameters.
    account: Vec<u8>,
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
}

impl Replica {
    pub(super) fn send_snapshot(&self, to: &[u32], endings: Vec<Ending>, out: &mut Outbox) {
        self.send_state(&self.state(), self.strategy.account(), to, endings, out);
    }

    pub(super) fn send_state(
        &self,
        state: &State,
        account: Vec<u8>,
        to: &[u32],
        endings: Vec<Ending>,
        out: &mut Outbox,
    ) {
        if to.is_empty() {
            return;
        }
        let State { values, optimizer, place, memories: strategy } = state;
        let (optimizer_steps, memories) = optimizer.state();
        let vectors = std::iter::once(values.as_slice()).chain(strategy.iter().map(Vec::as_slice));
        let vectors: Vec<&[f32]> = vectors.chain(memories.map(|(_, memory)| memory)).collect();
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
                self.tell(rank as usize, Kind::Snapshot, part as u64, body.clone(), out);
            }
        }
    }

    pub(super) fn on_snapshot(&mut self, rank: usize, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let Accord::Behind(incoming) = &mut self.accord else {
            return Err(Malformed::new("it sends its state to one who is not behind"));
        };
        if rank != incoming.donor || frame.head.part != incoming.n_pieces {
            return Err(Malformed::new("a piece of a state came out of turn"));
        }
        incoming.n_pieces += 1;
        let core = &self.core;
        let Some(title) = &incoming.title else {
            let title: Title = decoded(&frame.body)?;
            core.check(&title.place.ledger)?;
            incoming.title = Some(title);
            return Ok(());
        };
        // Its memories are those of the strategy of its epoch.
        let epoch = title.place.ledger.epoch;
        let n_memories = match self.setup.is_warming_up(epoch) == self.is_warming_up {
            true => self.strategy.n_memories(),
            false => self.setup.strategy_at(epoch).n_memories(),
        };
        let (n_values, n_params) = (core.training.task.n_values(), core.training.task.n_params());
        let n_whole = n_values * (1 + n_memories);
        let expected = n_whole + core.optimizer.state().1.count() * n_params;
        // Pieces end where vectors end.
        let done = incoming.numbers.len();
        let vector_end = if done < n_whole {
            (done / n_values + 1) * n_values
        } else {
            n_whole + ((done - n_whole) / n_params + 1) * n_params
        };
        let len = PIECE_LEN.min(vector_end.min(expected) - done);
        Codec::F32.check_finite(&frame.body, len)?;
        incoming.numbers.resize(done + len, 0.0);
        Codec::F32.decode(&frame.body, &mut incoming.numbers[done..])?;
        if incoming.numbers.len() < expected {
            return Ok(());
        }
        self.take_over(out)
    }

    /// All pieces are there.
    fn take_over(&mut self, out: &mut Outbox) -> Result<(), Malformed> {
        let Accord::Behind(Incoming { donor, title: Some(title), mut numbers, .. }) =
            std::mem::replace(&mut self.accord, Accord::Waiting)
        else {
            return Ok(());
        };
        self.choose_strategy(title.place.ledger.epoch);
        let core = &mut self.core;
        let (n_values, n_params) = (core.training.task.n_values(), core.training.task.n_params());
        let memories = numbers.split_off(n_values * (1 + self.strategy.n_memories()));
        let strategy = numbers.split_off(n_values);
        let mut memories = memories.chunks(n_params.max(1)).map(<[f32]>::to_vec);
        core.past = if core.turn.payload == Payload::Updates {
            Ending::past_of(&title.endings, core.clock(), core.seat_of(core.me))
        } else {
            Past::Own
        };
        // Who trains asynchronously keeps what its own optimizer remembers of its own gradients.
        let keeps_own = matches!(core.past, Past::Adopted { .. });
        if !keeps_own && !core.optimizer.restore(title.optimizer_steps, |_| memories.next()) {
            return Err(Malformed::new("the state that came does not fit the optimizer"));
        }
        core.account = title.account;
        self.ending = title.endings.into_iter().next();
        self.strategy.recall(strategy.chunks(n_values.max(1)).map(<[f32]>::to_vec).collect());
        core.values = Arc::new(numbers);
        core.round_start = None;
        core.place = title.place;
        core.reopen();
        self.epoch_evaluation.begin_anew(self.core.place.ledger.epoch);
        self.evaluations.forget();
        self.begin_anew();
        self.go_on(donor, true, out);
        Ok(())
    }
}
