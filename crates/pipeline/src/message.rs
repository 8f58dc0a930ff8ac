//! What a frame between blocks is about, as it stands in the frame's head.

use bytes::Bytes;

use nettorrent_swarm::Malformed;
use nettorrent_swarm::codec::Codec;

/// How many numbers travel in one piece.
pub(crate) const PIECE_LEN: usize = 1 << 16;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Subject {
    /// To the first member: which blocks this peer has.
    Claim,
    /// From the first member: who holds which block from here on.
    Verdict,
    /// A block's state, for who holds it from here on.
    State,
    /// A block's state, for a neighbour that keeps a copy.
    Copy,
    /// To the first member: a block, or the copy of one, is in a snapshot.
    Held,
    /// From the first member: this snapshot is whole, those before it may be forgotten.
    Complete,
    /// From the first member: send me this block's snapshot.
    Ask,
    /// A block's state, for the first member that saves it.
    Save,
    /// To the first member: this peer has done all.
    Done,
    /// From the first member: all have.
    AllDone,
    /// Outputs, for the stage above.
    Up,
    /// The gradient by its inputs, for the stage below.
    Down,
    /// Outputs of the last layer, for its other tensor shards.
    Outputs,
    /// How well some samples were classified.
    Score,
    /// A batch shard's part of a gradient, for the shard that adds them up.
    GradientPart,
    /// Their sum.
    GradientSum,
}

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A gradient.
    Train,
    /// A test.
    Test,
    /// A judgement by training samples.
    Judge,
}

/// What a frame is about, besides its round: who says it to whom, by slot, and which piece it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub subject: Subject,
    pub purpose: Purpose,
    /// Slots over all pipelines; or 0, where a peer speaks for itself.
    pub from: usize,
    pub to: usize,
    pub piece: usize,
}

/// How many slots can be told apart.
pub(crate) const MOST_SLOTS: usize = 1 << 20;
const MOST_PIECES: usize = 1 << 17;

const SUBJECTS: [Subject; 16] = [
    Subject::Claim,
    Subject::Verdict,
    Subject::State,
    Subject::Copy,
    Subject::Held,
    Subject::Complete,
    Subject::Ask,
    Subject::Save,
    Subject::Done,
    Subject::AllDone,
    Subject::Up,
    Subject::Down,
    Subject::Outputs,
    Subject::Score,
    Subject::GradientPart,
    Subject::GradientSum,
];
const PURPOSES: [Purpose; 3] = [Purpose::Train, Purpose::Test, Purpose::Judge];

impl Label {
    /// What a peer says for itself.
    pub(crate) fn of_peer(subject: Subject) -> Self {
        Self { subject, purpose: Purpose::Train, from: 0, to: 0, piece: 0 }
    }

    pub(crate) fn to_part(self) -> u64 {
        let Self { subject, purpose, from, to, piece } = self;
        assert!(from < MOST_SLOTS && to < MOST_SLOTS && piece < MOST_PIECES, "{self:?} cannot be written");
        (((subject as u64 * 4 + purpose as u64) * MOST_SLOTS as u64 + from as u64) * MOST_SLOTS as u64 + to as u64)
            * MOST_PIECES as u64
            + piece as u64
    }

    pub(crate) fn from_part(part: u64) -> Result<Self, Malformed> {
        let digit = |rest: &mut u64, base: usize| {
            let digit = *rest % base as u64;
            *rest /= base as u64;
            digit as usize
        };
        let mut rest = part;
        let (piece, to, from) =
            (digit(&mut rest, MOST_PIECES), digit(&mut rest, MOST_SLOTS), digit(&mut rest, MOST_SLOTS));
        let purpose = PURPOSES.get(digit(&mut rest, 4)).copied();
        let subject = usize::try_from(rest).ok().and_then(|subject| SUBJECTS.get(subject).copied());
        match (subject, purpose) {
            (Some(subject), Some(purpose)) => Ok(Self { subject, purpose, from, to, piece }),
            _ => Err(Malformed::new("it speaks of something that there is not in a pipeline")),
        }
    }
}

/// Something to be said by one block to another.
#[derive(Debug)]
pub(crate) struct Message {
    pub label: Label,
    pub round: u32,
    pub body: Bytes,
}

/// A vector as the messages that bring it, piece by piece.
pub(crate) fn messages(label: Label, round: u32, numbers: &[f32]) -> impl Iterator<Item = Message> {
    let body = |numbers: &[f32]| Codec::F32.encode(numbers);
    let message = move |(piece, numbers)| Message { label: Label { piece, ..label }, round, body: body(numbers) };
    numbers.chunks(PIECE_LEN).enumerate().map(message)
}

/// A vector that comes piece by piece. A link keeps order, so the pieces come in theirs.
#[derive(Debug)]
pub(crate) struct Incoming {
    numbers: Vec<f32>,
    len: usize,
}

impl Incoming {
    pub(crate) fn new(len: usize) -> Self {
        Self { numbers: Vec::new(), len }
    }

    /// One that is there already.
    pub(crate) fn of(numbers: Vec<f32>) -> Self {
        Self { len: numbers.len(), numbers }
    }

    pub(crate) fn take(&mut self, piece: usize, body: &[u8]) -> Result<(), Malformed> {
        let done = self.numbers.len();
        if self.is_complete() || piece * PIECE_LEN != done {
            return Err(Malformed::new("a piece of a vector came out of turn"));
        }
        let len = PIECE_LEN.min(self.len - done);
        if done == 0 {
            // No more than is needed: what is sent may be as large as all that this peer holds.
            self.numbers.reserve_exact(self.len);
        }
        Codec::F32.check_finite(body, len)?;
        self.numbers.resize(done + len, 0.0);
        Codec::F32.decode(body, &mut self.numbers[done..])
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.numbers.len() == self.len
    }

    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    pub(crate) fn into_numbers(self) -> Vec<f32> {
        self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::{Incoming, Label, MOST_PIECES, MOST_SLOTS, PIECE_LEN, PURPOSES, SUBJECTS, messages};

    #[test]
    fn labels_come_back_as_they_were() {
        for subject in SUBJECTS {
            for purpose in PURPOSES {
                for (from, to, piece) in [(0, 0, 0), (MOST_SLOTS - 1, 7, MOST_PIECES - 1), (3, MOST_SLOTS - 1, 1)] {
                    let label = Label { subject, purpose, from, to, piece };
                    assert_eq!(Label::from_part(label.to_part()), Ok(label));
                }
            }
        }
        assert!(Label::from_part(u64::MAX).is_err());
    }

    #[test]
    fn vectors_come_back_as_they_were_and_only_in_order() {
        let label = Label::of_peer(SUBJECTS[0]);
        for len in [0, 1, PIECE_LEN, PIECE_LEN + 1, 3 * PIECE_LEN] {
            let numbers: Vec<f32> = (0..len).map(|k| k as f32).collect();
            let mut incoming = Incoming::new(len);
            for message in messages(label, 0, &numbers) {
                assert!(incoming.take(message.label.piece + 1, &message.body).is_err());
                incoming.take(message.label.piece, &message.body).unwrap();
            }
            assert!(incoming.is_complete() && incoming.take(0, &[]).is_err());
            assert_eq!(incoming.into_numbers(), numbers);
        }
        let mut incoming = Incoming::new(1);
        assert!(incoming.take(0, &f32::NAN.to_le_bytes()).is_err());
        assert!(incoming.take(0, &[0; 8]).is_err());
    }
}
