//! How a peer's whole state travels to one that is behind: what the two say to each other.
//!
//! The state is cut into chunks, each with a SHA-256 digest. The main donor tells the title and the digests; who is behind asks all
//! donors for chunks, so as many links carry them as there are donors. What does not fit its digest is not taken.

use std::ops::Range;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::asynchronous::Ending;
use super::core::Core;
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::place::Place;
use crate::wire::{Frame, Kind, decoded, encoded};

/// How many numbers are a chunk.
const CHUNK_LEN: usize = 1 << 16;
/// How many digests are told at once: they are computed when they are asked for, on the thread that answers everybody.
pub(super) const DIGESTS_AT_ONCE: usize = 16;
/// How many chunks are on their way from one donor: enough for a long and fast link.
pub(super) const WINDOW: usize = 8;

/// What stands before the numbers.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Title {
    pub place: Place,
    pub optimizer_steps: u64,
    /// Where peers train asynchronously: how the donor's last segments ended.
    pub endings: Vec<Ending>,
    /// What its strategy says about its parameters.
    pub account: Vec<u8>,
}

/// What tells one chunk from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(chunk: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, chunk).as_ref());
        Self(bytes)
    }
}

/// What is said about a state. The main donor begins, with the title, the first digests and the first chunks: a small state is
/// there without a question.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    Title(Box<Title>),
    Digests {
        first: u32,
        digests: Vec<Digest>,
    },
    /// To the main donor: the digests from this chunk on?
    AskDigests(u32),
    /// To any donor: this chunk?
    AskChunk(u32),
    /// To all donors: nothing more is needed.
    Done,
    /// To another donor, when nothing comes from the main one: be that in its place, and begin.
    AskTitle,
}

/// What a frame says.
pub(super) enum Said {
    Message(Message),
    Chunk { index: usize, body: Bytes },
}

/// One transfer of a state to those who are behind, by its number in the view: the first one follows on the view itself, and each time
/// that the swarm goes back there is another. What belongs to an earlier one is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer(pub u32);

/// A chunk is sent as it is, under its number; this tells it from a message.
const CHUNK: u64 = 1 << 32;

impl Transfer {
    /// What a frame says, if it belongs to this one.
    pub(super) fn read(self, frame: &Frame) -> Result<Option<Said>, Malformed> {
        let part = frame.head.part;
        if part >> 33 != u64::from(self.0) {
            return Ok(None);
        }
        if part & CHUNK == 0 {
            return Ok(Some(Said::Message(decoded(&frame.body)?)));
        }
        Ok(Some(Said::Chunk { index: part as u32 as usize, body: frame.body.clone() }))
    }

    pub(super) fn say(self, message: &Message, rank: usize, core: &Core, out: &mut Outbox) {
        core.tell(rank, Kind::Snapshot, u64::from(self.0) << 33, encoded(message), out);
    }

    pub(super) fn send_chunk(self, index: usize, body: Bytes, rank: usize, core: &Core, out: &mut Outbox) {
        core.tell(rank, Kind::Snapshot, u64::from(self.0) << 33 | CHUNK | index as u64, body, out);
    }
}

/// Where the chunks lie: the parameters, then each vector of the strategy's state, then each of the optimizer's. Chunks end where
/// vectors end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// How long each vector is.
    lens: Vec<usize>,
}

impl Chunks {
    pub(super) fn new(lens: impl IntoIterator<Item = usize>) -> Self {
        Self { lens: lens.into_iter().collect() }
    }

    pub(super) fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// How many there are.
    pub(super) fn n(&self) -> usize {
        self.lens.iter().map(|len| len.div_ceil(CHUNK_LEN)).sum()
    }

    /// In which vector a chunk lies, and where.
    pub(super) fn place(&self, mut index: usize) -> Option<(usize, Range<usize>)> {
        for (vector, &len) in self.lens.iter().enumerate() {
            let n = len.div_ceil(CHUNK_LEN);
            if index < n {
                let start = index * CHUNK_LEN;
                return Some((vector, start..len.min(start + CHUNK_LEN)));
            }
            index -= n;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_LEN, Chunks};

    #[test]
    fn chunks_cover_every_vector_once() {
        let chunks = Chunks::new([2 * CHUNK_LEN + 1, 0, CHUNK_LEN, 5]);
        let places: Vec<_> = (0..chunks.n()).map(|index| chunks.place(index).unwrap()).collect();
        let of =
            |wanted: usize| places.iter().filter(move |(vector, _)| *vector == wanted).map(|(_, range)| range.clone());
        assert_eq!(
            of(0).collect::<Vec<_>>(),
            [0..CHUNK_LEN, CHUNK_LEN..2 * CHUNK_LEN, 2 * CHUNK_LEN..2 * CHUNK_LEN + 1]
        );
        assert_eq!((of(1).count(), of(2).count(), of(3).next()), (0, 1, Some(0..5)));
        assert_eq!(chunks.place(chunks.n()), None);
    }
}
