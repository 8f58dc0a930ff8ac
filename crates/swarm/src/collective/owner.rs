//! A shard of the parameters that one peer keeps: what others push into it, and what they get back.
//!
//! A push says to which of its sender's batches it goes (u32), then its numbers, in segments. An answer begins with how many
//! of the receiver's batches are in everybody's copy and by rank how many of each are in the shard (u32 each); its numbers
//! follow in segments.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use nettorrent_engine::kernel::{squared_norm, vectorised};

use super::segments::{n_segments, segment, segments};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{clip_factor, median_norm};

/// A shard as its owner holds it.
pub(crate) struct Kept {
    values: Vec<f32>,
    /// AdaGrad's sums, if it is used.
    sums: Vec<f32>,
    /// By rank, how many batches of each are in it.
    pub applied: Vec<u32>,
    /// By rank, what was in the last answer, and in the last one that is known to have arrived.
    answered: Vec<Vec<u32>>,
    arrived: Vec<Vec<u32>>,
    /// Pushes that are on their way, by rank.
    incoming: BTreeMap<usize, Vec<Bytes>>,
    /// By rank, how long the last push was, if pushes are clipped.
    norms: Option<Vec<f64>>,
}

/// A shard as it comes to others.
pub(crate) struct Answer {
    /// How many of the receiver's batches are in everybody's copy.
    pub n_safe: u32,
    /// By rank, how many batches of each are in it.
    pub heard: Vec<u32>,
    /// The numbers, and behind them AdaGrad's sums if they come too.
    pub numbers: Vec<f32>,
}

const CLOCK_LEN: usize = 4;
/// With fewer lengths than that none is in the minority.
const FEWEST_PUSHED: usize = 3;

impl Kept {
    /// A shard that nothing was pushed into yet.
    pub(crate) fn new(values: Vec<f32>, sums: Vec<f32>, n_peers: usize) -> Self {
        let none = vec![vec![0; n_peers]; n_peers];
        Self {
            values,
            sums,
            applied: vec![0; n_peers],
            answered: none.clone(),
            arrived: none,
            incoming: BTreeMap::new(),
            norms: None,
        }
    }

    /// Has what is pushed clipped to the median length of everybody's last push, those before this segment included, if this peer
    /// kept the shard for as many then.
    pub(crate) fn clip_like(&mut self, before: Option<&Self>) {
        let n_peers = self.applied.len();
        let known = before.and_then(|before| before.norms.clone()).filter(|norms| norms.len() == n_peers);
        self.norms = Some(known.unwrap_or_else(|| vec![0.0; n_peers]));
    }

    /// How much of a push counts. As long as few have pushed anything, the shortest push of another is the measure, and the very
    /// first one only says how long pushes are.
    fn share_of(&mut self, rank: usize, change: &[f32]) -> f32 {
        let Some(norms) = self.norms.as_mut().filter(|norms| norms.len() > 1) else { return 1.0 };
        norms[rank] = squared_norm(change).sqrt();
        let pushed = norms.iter().filter(|&&norm| norm > 0.0);
        let bound = if pushed.count() >= FEWEST_PUSHED {
            median_norm(norms.iter().copied())
        } else {
            let others = norms.iter().enumerate().filter(|&(other, &norm)| other != rank && norm > 0.0);
            others.map(|(_, &norm)| norm).min_by(f64::total_cmp)
        };
        clip_factor(norms[rank], bound.unwrap_or(0.0))
    }

    /// Takes a segment of a push from one that has so many batches. When it is the last: to which batch it goes, and what.
    pub(crate) fn take_push(
        &mut self,
        from: usize,
        segment: usize,
        body: Bytes,
        n_batches: u32,
    ) -> Result<Option<(u32, Vec<f32>)>, Malformed> {
        let len = self.values.len();
        let before = self.incoming.entry(from).or_default();
        let Some(piece) = pieces(len).nth(segment).filter(|_| segment == before.len()) else {
            return Err(Malformed::new("there is no such segment of what it pushes"));
        };
        let until = clock_of(&body)?;
        let is_due = (self.applied[from] + 1..=n_batches).contains(&until);
        if !is_due || before.first().is_some_and(|first| clock_of(first) != Ok(until)) {
            return Err(Malformed::new("it pushes batches that it cannot have trained"));
        }
        Codec::F32.check_finite(&body[CLOCK_LEN..], piece.len())?;
        before.push(body);
        if before.len() < pieces(len).count() {
            return Ok(None);
        }
        let bodies = self.incoming.remove(&from).unwrap_or_default();
        let mut change = vec![0.0; len];
        for (piece, body) in pieces(len).zip(&bodies) {
            Codec::F32.decode(&body[CLOCK_LEN..], &mut change[piece])?;
        }
        Ok(Some((until, change)))
    }

    /// Adds a change that goes to this batch of a peer: as it is, or with the step of AdaGrad if that is not 0.
    pub(crate) fn apply(&mut self, rank: usize, until: u32, change: &[f32], adagrad: f32) {
        self.applied[rank] = until;
        let share = self.share_of(rank, change);
        let Self { values, sums, .. } = self;
        vectorised(
            #[inline(always)]
            || {
                if adagrad == 0.0 {
                    values.iter_mut().zip(change).for_each(|(value, change)| *value += share * change);
                    return;
                }
                for ((value, sum), change) in
                    values.iter_mut().zip(sums).zip(change.iter().map(|change| share * change))
                {
                    *sum += change * change;
                    // Where nothing was ever pushed, nothing changes.
                    *value += if *sum > 0.0 { adagrad * change / sum.sqrt() } else { 0.0 };
                }
            },
        );
    }

    /// Who asks again has got the last answer.
    pub(crate) fn was_asked_by(&mut self, rank: usize) {
        self.arrived[rank] = std::mem::replace(&mut self.answered[rank], self.applied.clone());
    }

    /// The owner's own copy.
    pub(crate) fn copy_here(&mut self, rank: usize) -> Answer {
        self.arrived[rank] = self.applied.clone();
        Answer { n_safe: self.n_safe(rank), heard: self.applied.clone(), numbers: self.values.clone() }
    }

    /// All that there is.
    pub(crate) fn whole(&self) -> Answer {
        let numbers = [self.values.as_slice(), self.sums.as_slice()].concat();
        Answer { n_safe: 0, heard: self.applied.clone(), numbers }
    }

    /// What an answer to a peer begins with.
    pub(crate) fn head_for(&self, rank: usize) -> Bytes {
        let mut head = BytesMut::with_capacity(4 * (1 + self.applied.len()));
        head.put_u32_le(self.n_safe(rank));
        self.applied.iter().for_each(|&applied| head.put_u32_le(applied));
        head.freeze()
    }

    /// The numbers of an answer, segment by segment.
    pub(crate) fn bodies(&self, with_sums: bool) -> impl Iterator<Item = Bytes> {
        let sums: &[f32] = if with_sums { &self.sums } else { &[] };
        let numbers = [self.values.as_slice(), sums].concat();
        segments(0..numbers.len()).map(move |piece| Codec::F32.encode(&numbers[piece]))
    }

    /// How many of a peer's batches are in everybody's copy.
    fn n_safe(&self, rank: usize) -> u32 {
        self.arrived.iter().map(|arrived| arrived[rank]).min().unwrap_or(0)
    }
}

impl Answer {
    /// Reads what an answer begins with: since the last one nothing was taken out, and there is not more than there can be.
    pub(crate) fn begin(body: &[u8], last: &[u32], n_batches: &[u32], me: usize) -> Result<Self, Malformed> {
        let bad = || Malformed::new("its answer says what cannot be");
        let (numbers, rest) = body.as_chunks();
        let mut numbers = numbers.iter().map(|&bytes| u32::from_le_bytes(bytes));
        let n_safe = numbers.next().ok_or_else(bad)?;
        let heard: Vec<u32> = numbers.collect();
        let can_be = |((heard, last), most): ((&u32, &u32), &u32)| (last..=most).contains(&heard);
        let is_sound = rest.is_empty() && heard.len() == last.len() && n_safe <= heard[me];
        if !is_sound || !heard.iter().zip(last).zip(n_batches).all(can_be) {
            return Err(bad());
        }
        Ok(Self { n_safe, heard, numbers: Vec::new() })
    }

    /// Takes the next segment of an answer of so many numbers.
    pub(crate) fn add(&mut self, number: usize, body: &[u8], n_expected: usize) -> Result<(), Malformed> {
        let piece = segment(&(0..n_expected), number).filter(|piece| piece.start == self.numbers.len());
        let Some(piece) = piece else { return Err(Malformed::new("there is no such segment of a shard")) };
        Codec::F32.check_finite(body, piece.len())?;
        self.numbers.resize(piece.end, 0.0);
        Codec::F32.decode(body, &mut self.numbers[piece])
    }
}

/// The messages of a push.
pub(crate) fn push_bodies(until: u32, change: &[f32]) -> impl Iterator<Item = Bytes> {
    pieces(change.len()).map(move |piece| {
        let mut body = BytesMut::with_capacity(CLOCK_LEN + 4 * piece.len());
        body.put_u32_le(until);
        body.put_slice(&Codec::F32.encode(&change[piece]));
        body.freeze()
    })
}

/// How many bytes they have.
pub(crate) fn push_len(len: usize) -> u64 {
    pieces(len).map(|piece| (CLOCK_LEN + 4 * piece.len()) as u64).sum()
}

/// A shard's pieces that fit into a message; at least one.
fn pieces(len: usize) -> impl Iterator<Item = Range<usize>> {
    let empty = (n_segments(&(0..len)) == 0).then_some(0..0);
    empty.into_iter().chain(segments(0..len))
}

fn clock_of(body: &[u8]) -> Result<u32, Malformed> {
    let head = body.first_chunk().ok_or_else(|| Malformed::new("its push cannot be read"))?;
    Ok(u32::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn a_push_that_is_longer_than_most_counts_as_one_of_the_median_length() {
        let mut kept = Kept::new(vec![0.0], Vec::new(), 4);
        kept.clip_like(None);
        let mut push = |rank, until, change: f32| {
            let before = kept.values[0];
            kept.apply(rank, until, &[change], 0.0);
            kept.values[0] - before
        };
        assert_eq!(push(3, 1, -500.0), 0.0, "nobody knows yet how long pushes are");
        assert_eq!(push(0, 1, 1.0), 1.0);
        assert_eq!(push(3, 2, -500.0), -1.0);
        assert_eq!(push(1, 1, 4.0), 4.0, "the median of 1, 4 and 500");
        assert_eq!(push(2, 1, 2.0), 2.0);
        assert_eq!(push(3, 3, -500.0), -2.0, "that of 1, 2, 4 and 500");
        let mut next = Kept::new(vec![0.0], Vec::new(), 4);
        next.clip_like(Some(&kept));
        next.apply(3, 1, &[-500.0], 0.0);
        assert_eq!(next.values, [-2.0]);
    }
}
