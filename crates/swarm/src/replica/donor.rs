//! A peer whose state others take over: it answers what they ask, and trains on meanwhile.

use std::collections::BTreeSet;

use nettorrent_engine::kernel::is_finite;

use super::asynchronous::Ending;
use super::core::Core;
use super::transfer::{Chunks, DIGESTS_AT_ONCE, Digest, Message, Said, Title, Transfer, WINDOW};
use crate::codec::Codec;
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::place::State;
use crate::wire::Frame;

/// A state that others fetch, as it was when the members agreed on it. Its vectors are shared with the running one until they change.
pub(super) struct Donor {
    transfer: Transfer,
    state: State,
    title: Title,
    chunks: Chunks,
    /// Who has not got it whole yet, by rank.
    behind: BTreeSet<usize>,
}

impl Donor {
    /// A state for these ranks; with how the last segments ended, and what the strategy says about the parameters.
    pub(super) fn new(
        transfer: Transfer,
        state: State,
        endings: Vec<Ending>,
        account: Vec<u8>,
        behind: &[u32],
    ) -> Self {
        let (optimizer_steps, _) = state.optimizer.state();
        let title = Title { place: state.place.clone(), optimizer_steps, endings, account };
        let chunks = Chunks::new(vectors(&state).map(<[f32]>::len));
        Self { transfer, state, title, chunks, behind: behind.iter().map(|&rank| rank as usize).collect() }
    }

    /// The main donor begins.
    pub(super) fn begin(&self, core: &Core, out: &mut Outbox) {
        self.begin_with(&self.behind.iter().copied().collect::<Vec<_>>(), core, out);
    }

    fn begin_with(&self, ranks: &[usize], core: &Core, out: &mut Outbox) {
        let (title, digests) = (Message::Title(Box::new(self.title.clone())), self.digests_from(0));
        for &rank in ranks {
            self.transfer.say(&title, rank, core, out);
            self.transfer.say(&digests, rank, core, out);
        }
        for index in 0..WINDOW.min(self.chunks.n()) {
            self.give(index, ranks.iter().copied(), core, out);
        }
    }

    /// Whether nobody needs it any more.
    pub(super) fn is_done(&self) -> bool {
        self.behind.is_empty()
    }

    /// Answers one who is behind.
    pub(super) fn on_frame(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &Core,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let message = match self.transfer.read(frame)? {
            None => return Ok(()),
            Some(Said::Message(message)) => message,
            Some(Said::Chunk { .. }) => return Err(Malformed::new("it sends its state to one who is not behind")),
        };
        if !self.behind.contains(&rank) {
            return Err(Malformed::new("it asks for a state though it is not behind"));
        }
        match message {
            Message::AskDigests(first) => self.transfer.say(&self.digests_from(first), rank, core, out),
            Message::AskChunk(index) if (index as usize) < self.chunks.n() => {
                self.give(index as usize, std::iter::once(rank), core, out);
            }
            Message::AskChunk(_) => return Err(Malformed::new("it asks for a chunk that there is not")),
            Message::AskTitle => self.begin_with(&[rank], core, out),
            Message::Done => drop(self.behind.remove(&rank)),
            Message::Title(_) | Message::Digests { .. } => {
                return Err(Malformed::new("it sends its state to one who is not behind"));
            }
        }
        Ok(())
    }

    fn digests_from(&self, first: u32) -> Message {
        let numbers = (first as usize..self.chunks.n()).take(DIGESTS_AT_ONCE).filter_map(|index| self.numbers(index));
        Message::Digests { first, digests: numbers.map(|numbers| Digest::of(&Codec::F32.encode(numbers))).collect() }
    }

    /// Sends a chunk; encoded once, whoever takes it.
    fn give(&self, index: usize, to: impl Iterator<Item = usize>, core: &Core, out: &mut Outbox) {
        let Some(numbers) = self.numbers(index) else { return };
        if !is_finite(numbers) {
            // Nobody would take it, and all would wait for another; without this peer they go on.
            let why = "the parameters became infinite or no number, and others were to take them over";
            out.failure = Some(why.to_owned());
            return;
        }
        let body = Codec::F32.encode(numbers);
        to.for_each(|rank| self.transfer.send_chunk(index, body.clone(), rank, core, out));
    }

    fn numbers(&self, index: usize) -> Option<&[f32]> {
        let (vector, range) = self.chunks.place(index)?;
        vectors(&self.state).nth(vector)?.get(range)
    }
}

/// All numbers of a state, in the order in which they travel.
fn vectors(state: &State) -> impl Iterator<Item = &[f32]> {
    let strategy = state.strategy_state.iter().map(|vector| vector.as_slice());
    let optimizer = state.optimizer.state().1.map(|(_, vector)| vector);
    let average = state.average.iter().map(|vector| vector.as_slice());
    std::iter::once(state.values.as_slice()).chain(strategy).chain(average).chain(optimizer)
}
