//! `partial-gradient`: after each batch every peer sends one part of what it learnt to all others, and goes on at once.
//!
//! A peer's own change goes into its own parameters in full, and into a store of what it has not told. Round by round one
//! of p parts of the store is told and emptied, so every number reaches everybody exactly once, at most p−1 batches late.
//! The number of parts follows the links: as many as are needed for the traffic to fit beside the computing, but no more than the
//! learning rate allows; where that is too few, the links set the pace.
//!
//! Messages: where in the vector the numbers begin and how many there are (u32 each), then the numbers; a long part is several
//! messages.
//! Watcharapichat et al. (2016), "Ako: decentralised deep learning with partial gradient exchange".

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use nettorrent_engine::kernel::squared_norm;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::segments::{chunk, segments};
use crate::strategy::{
    Aggregation, AnyStrategy, CLIPPING, CODEC, CostQuestion, MOST_STALENESS, Malformed, OptionDoc, OptionError,
    STALENESS, Spec, Step, Stream, Streamer, add, add_times, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "partial-gradient",
    about: "After each batch a peer tells all others a part of what it learnt, another part each time, and trains on \
            without waiting. Made for links that cannot carry whole gradients.",
    cost: "each peer sends (N-1)M/p per batch, without waiting; p follows the links",
    paper: "Watcharapichat et al. 2016",
    options: &[
        CLIPPING,
        CODEC,
        OptionDoc {
            name: "partitions",
            about: "into how many parts the vector is cut; `0`: as many as the links need, but not so many that what is told late \
                    would be learnt worse, and at most `most_partitions`",
        },
        OptionDoc { name: "most_partitions", about: "the most parts that are chosen where the links are slow" },
        STALENESS,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        let problem = match options {
            Options { staleness, .. } if staleness > MOST_STALENESS => {
                format!("staleness = {staleness}: at most {MOST_STALENESS}")
            }
            Options { most_partitions: 0, .. } => "most_partitions = 0: must be at least 1".to_owned(),
            Options { aggregation, staleness, .. } => {
                let streamer = Streamer::new(Parts::new(options), staleness);
                return Ok(AnyStrategy::asynchronous(streamer.clipping(aggregation.clips(SPEC.name)?)));
            }
        };
        Err(OptionError::Option { strategy: SPEC.name, problem })
    },
};

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Options {
    aggregation: Aggregation,
    codec: Codec,
    most_partitions: u32,
    partitions: u32,
    staleness: u32,
}

impl Default for Options {
    fn default() -> Self {
        let aggregation = Aggregation::Samples;
        Self { aggregation, codec: Codec::Int8, most_partitions: 100, partitions: 0, staleness: 0 }
    }
}

/// What a peer has learnt and not told yet, and how much of it is told next.
struct Parts {
    options: Options,
    places: Vec<Range<usize>>,
    n_peers: usize,
    unsaid: Vec<f32>,
    /// How many parts there are now, and how many have been told since it is as many.
    n_parts: u32,
    n_told: u32,
    /// How long a batch takes to compute, as a moving average.
    batch_s: Option<f64>,
}

/// Bytes before the numbers.
const HEAD_LEN: usize = 8;
/// How much of the moving average the last batch is.
const FRESH: f64 = 0.1;

impl Parts {
    fn new(options: Options) -> Self {
        let n_parts = options.partitions.max(1);
        Self { options, places: Vec::new(), n_peers: 1, unsaid: Vec::new(), n_parts, n_told: 0, batch_s: None }
    }

    /// As many parts as are needed for what is told during a batch to fit through the links meanwhile. It changes only when
    /// all parts have been told once.
    fn adapt(&mut self, step: &Step) {
        let batch_s = self.batch_s.map_or(step.compute_s, |mean| mean + FRESH * (step.compute_s - mean));
        self.batch_s = Some(batch_s);
        let Some(bytes_per_s) = step.bytes_per_s else { return };
        if self.options.partitions > 0 || self.n_told < self.n_parts {
            return;
        }
        let n_bytes = (self.n_peers - 1) as f64 * self.options.codec.encoded_len(self.unsaid.len()) as f64;
        let n_parts = (n_bytes / (bytes_per_s * batch_s)).ceil();
        // What is no number, or nothing, becomes 1.
        let n_parts = if n_parts >= 1.0 { n_parts.min(f64::from(u32::MAX)) as u32 } else { 1 };
        self.n_parts = n_parts.min(self.options.most_partitions).min(most_parts(step.most_delay));
        self.n_told = 0;
    }
}

/// Of `n` parts each is told (n−1)/2 batches late, in the mean.
fn most_parts(most_delay: f64) -> u32 {
    (1.0 + 2.0 * most_delay).min(f64::from(u32::MAX)) as u32
}

/// Some numbers as they came: they wait for as long as the receiver computes, and take less room like that.
struct Piece {
    place: Range<usize>,
    codec: Codec,
    body: Box<[u8]>,
}

impl Piece {
    fn numbers(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.place.len()];
        self.codec.decode(&self.body, &mut numbers).expect("it was checked when it came");
        numbers
    }
}

impl Stream for Parts {
    type Part = Piece;

    fn prepare(&mut self, places: &[Range<usize>], n_peers: usize) {
        (self.places, self.n_peers) = (places.to_vec(), n_peers);
        self.unsaid.resize(places.iter().map(|place| place.end).max().unwrap_or(0), 0.0);
    }

    fn put(&mut self, part: usize, change: &[f32], values: &mut [f32]) {
        add(&mut self.unsaid[self.places[part].clone()], change);
        add(values, change);
    }

    fn say(&mut self, step: &Step, _: &mut [f32]) -> Vec<Bytes> {
        self.adapt(step);
        let n_parts = self.n_parts as usize;
        self.n_told = self.n_told.saturating_add(1);
        let codec = self.options.codec;
        let pieces = pieces(step.round, n_parts, self.unsaid.len());
        let say = |segment: Range<usize>| {
            let numbers = &mut self.unsaid[segment.clone()];
            let mut body = BytesMut::with_capacity(HEAD_LEN + codec.encoded_len(numbers.len()));
            body.put_u32_le(segment.start as u32);
            body.put_u32_le(segment.len() as u32);
            let encoded = codec.encode(numbers);
            body.put_slice(&encoded);
            // What rounding took away is told later.
            let mut said = vec![0.0; numbers.len()];
            codec.decode(&encoded, &mut said).expect("it was just encoded");
            numbers.iter_mut().zip(&said).for_each(|(number, said)| *number -= said);
            body.freeze()
        };
        pieces.into_iter().map(say).collect()
    }

    fn read(&mut self, _: usize, body: &[u8]) -> Result<Self::Part, Malformed> {
        let bad = || Malformed::new("its part of the vector cannot be read");
        let (head, body) = body.split_first_chunk::<HEAD_LEN>().ok_or_else(bad)?;
        let [start, len] =
            [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize);
        if start > self.unsaid.len() || len > self.unsaid.len() - start {
            return Err(Malformed::new("its part lies outside of the vector"));
        }
        let codec = self.options.codec;
        codec.check_finite(body, len)?;
        Ok(Piece { place: start..start + len, codec, body: body.into() })
    }

    fn hear(&mut self, piece: &Self::Part, factor: f32, values: &mut [f32]) {
        add_times(&mut values[piece.place.clone()], factor, &piece.numbers());
    }

    fn squared_norm(&self, piece: &Self::Part) -> f64 {
        squared_norm(&piece.numbers())
    }

    fn take_back(&mut self, piece: &Self::Part) {
        add(&mut self.unsaid[piece.place.clone()], &piece.numbers());
    }

    fn unsaid(&self) -> &[f32] {
        &self.unsaid
    }

    fn forget(&mut self) {
        self.unsaid.fill(0.0);
    }

    fn delay(&self) -> f64 {
        f64::from(self.n_parts - 1) / 2.0
    }

    fn lens(&self, question: &CostQuestion<'_>) -> Vec<u64> {
        let n_parts = self.options.partitions.max(1) as usize;
        let len = |segment: Range<usize>| (HEAD_LEN + self.options.codec.encoded_len(segment.len())) as u64;
        pieces(question.round, n_parts, question.n_params).into_iter().map(len).collect()
    }

    fn cost_is_upper_bound(&self) -> bool {
        self.options.partitions == 0
    }
}

/// The part of a vector that is told in a round, as pieces that fit into a message; at least one, if only to be heard.
fn pieces(round: u32, n_parts: usize, len: usize) -> Vec<Range<usize>> {
    let part = chunk(round as usize % n_parts, n_parts, len);
    if part.is_empty() { vec![part] } else { segments(part).collect() }
}

#[cfg(test)]
mod tests {
    use super::{Options, Parts};
    use crate::codec::Codec;
    use crate::strategy::{Step, Stream};

    fn step(round: u32) -> Step {
        Step { round, epochs_done: 0.0, compute_s: 0.0, bytes_per_s: None, most_delay: f64::INFINITY }
    }

    #[test]
    fn one_part_after_the_other_is_told_and_every_change_reaches_the_others_once() {
        let (n, n_parts, n_rounds) = (10, 4, 12);
        let options = Options { codec: Codec::F32, partitions: n_parts, ..Options::default() };
        let (mut here, mut there) = (Parts::new(options), Parts::new(options));
        here.prepare(std::slice::from_ref(&(0..n)), 2);
        there.prepare(std::slice::from_ref(&(0..n)), 2);
        let (mut own, mut others) = (vec![0.0; n], vec![0.0; n]);
        for round in 0..n_rounds {
            // In every round each number changes by 1: here at once.
            here.put(0, &vec![1.0; n], &mut own);
            let said = here.say(&step(round), &mut own);
            assert_eq!(own, vec![(round + 1) as f32; n]);
            let before = others.clone();
            for body in &said {
                let part = there.read(0, body).unwrap();
                there.hear(&part, 1.0, &mut others);
            }
            // The others hear all that was kept of one quarter, and nothing of the rest.
            let told = (round % n_parts) as usize;
            let quarter = told * n / 4..(told + 1) * n / 4;
            for k in 0..n {
                let expected = if quarter.contains(&k) { own[k] } else { before[k] };
                assert_eq!(others[k], expected, "number {k} in round {round}");
                assert_eq!(others[k] + here.unsaid()[k], own[k], "nothing is lost, nothing comes twice");
                assert!(round + 1 < n_parts || own[k] - others[k] < n_parts as f32, "late by {n_parts} rounds");
            }
        }
    }
}
