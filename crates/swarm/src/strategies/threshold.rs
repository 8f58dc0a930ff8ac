//! `threshold`: peers tell each other only which parameters should move by ±τ, and keep the rest for later.
//!
//! What a peer's optimizer would change is added to a residual. Where that is beyond τ, the parameter moves by τ, here and at
//! all others, and τ is taken off the residual; so what was applied and what is left are together all that was learnt. The
//! residual holds what the peer's own momentum makes of its gradients, times its share of the samples: the sum over all
//! peers is the step that one with all their batches would take. A residual that needs many steps to be told would go on
//! moving a parameter long after its gradient has turned: so it is clipped, unless told otherwise.
//!
//! Messages, one for each piece of the vector: a byte (0: deltas, 1: a shake-up), then deltas as `sparse` writes them, or
//! plain numbers.
//! Strom (2015), "Scalable distributed DNN training using commodity GPU cloud computing".

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use nettorrent_engine::kernel::squared_norm;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::sparse::{AdaptiveTau, Coding, Deltas, longest_message, round_tau};
use crate::strategy::{
    Aggregation, AnyStrategy, CLIPPING, CostQuestion, MOST_STALENESS, Malformed, OptionDoc, OptionError, STALENESS,
    Spec, Step, Stream, Streamer, add, add_times, default_options, read_options, trained_places,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "threshold",
    about: "Peers tell each other only which parameters should move by a fixed small step, up or down, and keep the rest for \
            later. Hundreds of times less traffic, without waiting: the choice for slow links.",
    cost: "each peer sends about (N-1) * 10 to 13 bits for each of the few parameters that move, without waiting",
    paper: "Strom 2015",
    options: &[
        CLIPPING,
        OptionDoc {
            name: "clip",
            about: "what is kept for later is never more than this many steps, so that nothing old is still told when it is wrong; \
                    `0`: as much as there is, so nothing is lost",
        },
        OptionDoc {
            name: "coding",
            about: "how the deltas of a message are written: `list`, 32 bits for each; `rice`, Golomb-Rice codes of the gaps between \
                    them, 9 bits for each where one parameter in 100 moves and 13 where one in 1000 does; `bitmap`, 2 bits for \
                    every parameter, moved or not; `auto`, the shortest of these for each message",
        },
        OptionDoc {
            name: "density",
            about: "which share of the parameters should move per batch, but at least 8 of them; the step follows from it",
        },
        OptionDoc {
            name: "flush_every",
            about: "after so many batches a peer tells all that it has kept, as plain numbers; `0`: never",
        },
        STALENESS,
        OptionDoc { name: "tau", about: "the step; `0`: found by the density, and following it" },
        OptionDoc {
            name: "warmup",
            about: "over how many epochs the density falls to its value, from a quarter: while all moves, little can wait",
        },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        options.check().map_err(|problem| OptionError::Option { strategy: SPEC.name, problem })?;
        let streamer = Streamer::new(Thresholds::new(options), options.staleness);
        Ok(AnyStrategy::asynchronous(streamer.clipping(options.aggregation.clips(SPEC.name)?)))
    },
};

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Options {
    aggregation: Aggregation,
    clip: f32,
    coding: Coding,
    density: f64,
    flush_every: u32,
    staleness: u32,
    tau: f32,
    warmup: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            aggregation: Aggregation::Samples,
            clip: 1.0,
            coding: Coding::Auto,
            density: 0.01,
            flush_every: 0,
            staleness: 0,
            tau: 0.0,
            warmup: 1.0,
        }
    }
}

impl Options {
    fn check(&self) -> Result<(), String> {
        if !(self.density > 0.0 && self.density < 1.0) {
            return Err(format!("density = {}: must be above 0 and below 1", self.density));
        }
        if !(self.tau == 0.0 || self.tau > 0.0 && self.tau.is_finite()) {
            return Err(format!("tau = {}: must be 0 or a positive number", self.tau));
        }
        if !(self.clip == 0.0 || self.clip >= 1.0 && self.clip.is_finite()) {
            return Err(format!("clip = {}: must be 0 or at least 1", self.clip));
        }
        if !(self.warmup >= 0.0 && self.warmup.is_finite()) {
            return Err(format!("warmup = {}: must be a number of epochs from 0 up", self.warmup));
        }
        if self.staleness > MOST_STALENESS {
            return Err(format!("staleness = {}: at most {MOST_STALENESS}", self.staleness));
        }
        Ok(())
    }
}

/// Which share of the parameters moves in the first batch, if there is a warm-up.
const FIRST_DENSITY: f64 = 0.25;
/// So many parameters should move per batch at least, or a quarter of them: in a network of a hundred, each for a hundred batches' updates
/// together would be steps that nothing learns by.
const FEWEST: f64 = 8.0;

impl Options {
    /// Which share of the parameters should move when so many epochs are done: it falls by the same factor in equal times.
    fn density_after(&self, epochs_done: f64) -> f64 {
        if epochs_done >= self.warmup || self.density >= FIRST_DENSITY {
            return self.density;
        }
        self.density * (FIRST_DENSITY / self.density).powf(1.0 - epochs_done / self.warmup)
    }
}

/// What a peer has learnt and not told yet, and the step.
struct Thresholds {
    options: Options,
    adaptive: AdaptiveTau,
    /// The vector's pieces, bucket by bucket, and how many each bucket has.
    pieces: Vec<Range<usize>>,
    n_pieces: Vec<usize>,
    residual: Vec<f32>,
    /// What is said of the present batch, as far as it is known.
    parts: Vec<Bytes>,
    n_moved: usize,
    n_batches: u32,
    deltas: Deltas,
}

/// What a message says, and of which piece.
struct Part {
    piece: Range<usize>,
    what: What,
}

enum What {
    Deltas(Deltas),
    Shake(Vec<f32>),
}

/// The most numbers that one message is about: as plain numbers they fit into a frame.
const PIECE_LEN: usize = 1 << 19;
const DELTAS: u8 = 0;
const SHAKE: u8 = 1;

impl Thresholds {
    fn new(options: Options) -> Self {
        Self {
            options,
            adaptive: AdaptiveTau::new(options.density_after(0.0)),
            pieces: Vec::new(),
            n_pieces: Vec::new(),
            residual: Vec::new(),
            parts: Vec::new(),
            n_moved: 0,
            n_batches: 0,
            deltas: Deltas::new(),
        }
    }

    /// The step, if it is known.
    fn tau(&self) -> Option<f32> {
        if self.options.tau > 0.0 { Some(round_tau(self.options.tau)) } else { self.adaptive.tau() }
    }

    /// Has the step follow a share of the parameters.
    fn aim_at(&mut self, density: f64) {
        let floor = (FEWEST / self.residual.len().max(1) as f64).min(FIRST_DENSITY);
        self.adaptive.aim_at(density.max(floor));
    }

    /// Whether in this batch all is told that was kept.
    fn flushes(&self) -> bool {
        self.options.flush_every > 0 && self.n_batches % self.options.flush_every == self.options.flush_every - 1
    }

    /// Says of a piece which parameters move; an update that is not in the residual yet is added on the way.
    fn move_piece(&mut self, piece: Range<usize>, update: Option<&[f32]>, tau: f32, values: &mut [f32]) {
        let residual = &mut self.residual[piece];
        let scanned = match update {
            Some(update) => self.deltas.scan_with(residual, update, tau),
            None => self.deltas.scan(residual, tau),
        };
        self.n_moved += scanned.n_emitted;
        if self.options.clip > 0.0 {
            let most = self.options.clip * tau;
            residual.iter_mut().for_each(|rest| *rest = rest.clamp(-most, most));
        }
        self.deltas.add_to(values);
        let coding = self.options.coding;
        let mut body = BytesMut::with_capacity(1 + self.deltas.encoded_len(coding));
        body.put_u8(DELTAS);
        self.deltas.encode_into(coding, &mut body);
        self.parts.push(body.freeze());
    }

    /// Says all that was kept of a piece.
    fn shake_piece(&mut self, piece: Range<usize>, values: &mut [f32]) {
        let residual = &mut self.residual[piece];
        let mut body = BytesMut::with_capacity(1 + 4 * residual.len());
        body.put_u8(SHAKE);
        body.put_slice(&Codec::F32.encode(residual));
        add(values, residual);
        residual.fill(0.0);
        self.parts.push(body.freeze());
    }
}

impl Part {
    fn add_to(&self, factor: f32, numbers: &mut [f32]) {
        let numbers = &mut numbers[self.piece.clone()];
        match &self.what {
            What::Deltas(deltas) => deltas.add_times(factor, numbers),
            What::Shake(rest) => add_times(numbers, factor, rest),
        }
    }
}

impl Stream for Thresholds {
    type Part = Part;

    fn prepare(&mut self, places: &[Range<usize>], _: usize) {
        let pieces = cut(places);
        self.n_pieces = pieces.iter().map(Vec::len).collect();
        self.pieces = pieces.concat();
        self.residual.resize(places.iter().map(|place| place.end).max().unwrap_or(0), 0.0);
        self.aim_at(self.adaptive.target_density());
    }

    fn put(&mut self, part: usize, change: &[f32], values: &mut [f32]) {
        let first: usize = self.n_pieces[..part].iter().sum();
        let pieces = self.pieces[first..first + self.n_pieces[part]].to_vec();
        let start = pieces.first().map_or(0, |piece| piece.start);
        let tau = self.tau().filter(|_| !self.flushes());
        for piece in pieces {
            let here = piece.start - start..piece.end - start;
            match tau {
                Some(tau) => self.move_piece(piece, Some(&change[here.clone()]), tau, &mut values[here]),
                None => add(&mut self.residual[piece], &change[here]),
            }
        }
    }

    fn say(&mut self, step: &Step, values: &mut [f32]) -> Vec<Bytes> {
        if self.parts.is_empty() {
            let tau = self.tau().or_else(|| self.adaptive.tau_for(&self.residual));
            for piece in self.pieces.clone() {
                let values = &mut values[piece.clone()];
                match tau {
                    _ if self.flushes() => self.shake_piece(piece, values),
                    // Before anything is learnt nothing moves, whatever the step.
                    tau => self.move_piece(piece, None, tau.unwrap_or(1.0), values),
                }
            }
        }
        self.aim_at(self.options.density_after(step.epochs_done));
        if !self.flushes() {
            self.adaptive.adapt(self.n_moved, self.residual.len());
        }
        self.n_moved = 0;
        self.n_batches = self.n_batches.wrapping_add(1);
        std::mem::take(&mut self.parts)
    }

    fn read(&mut self, part: usize, body: &[u8]) -> Result<Self::Part, Malformed> {
        let piece =
            self.pieces.get(part).ok_or_else(|| Malformed::new("there is no such piece of the vector"))?.clone();
        let what = match body {
            [DELTAS, body @ ..] => {
                let mut deltas = Deltas::new();
                deltas.decode(body, piece.len())?;
                What::Deltas(deltas)
            }
            [SHAKE, body @ ..] => {
                Codec::F32.check_finite(body, piece.len())?;
                let mut numbers = vec![0.0; piece.len()];
                Codec::F32.decode(body, &mut numbers)?;
                What::Shake(numbers)
            }
            _ => return Err(Malformed::new("it is neither deltas nor a shake-up")),
        };
        Ok(Part { piece, what })
    }

    fn hear(&mut self, part: &Self::Part, factor: f32, values: &mut [f32]) {
        part.add_to(factor, values);
    }

    fn squared_norm(&self, part: &Self::Part) -> f64 {
        match &part.what {
            What::Deltas(deltas) => deltas.len() as f64 * f64::from(deltas.tau()).powi(2),
            What::Shake(rest) => squared_norm(rest),
        }
    }

    fn take_back(&mut self, part: &Self::Part) {
        part.add_to(1.0, &mut self.residual);
    }

    fn forget(&mut self) {
        self.residual.fill(0.0);
        self.parts.clear();
    }

    fn lens(&self, question: &CostQuestion<'_>) -> Vec<u64> {
        let flushes = self.options.flush_every > 0;
        let longest = |piece: &Range<usize>| {
            1 + longest_message(self.options.coding, piece.len()).max(if flushes { 4 * piece.len() } else { 0 })
        };
        let pieces = cut(&trained_places(question.buckets, question.n_params)).concat();
        pieces.iter().map(|piece| longest(piece) as u64).collect()
    }

    fn cost_is_upper_bound(&self) -> bool {
        true
    }
}

/// Each place in pieces that fit into a message.
fn cut(places: &[Range<usize>]) -> Vec<Vec<Range<usize>>> {
    let cut = |place: &Range<usize>| {
        place.clone().step_by(PIECE_LEN).map(|start| start..place.end.min(start + PIECE_LEN)).collect()
    };
    places.iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::rng::Rng;

    use super::{Options, Thresholds};
    use crate::strategy::{Step, Stream};

    const STEP: Step = Step { round: 0, epochs_done: 0.0, compute_s: 0.0, bytes_per_s: None, most_delay: 0.0 };

    /// Numbers with few bits, whose sums are exact.
    fn update(rng: &mut Rng, n: usize) -> Vec<f32> {
        (0..n).map(|_| (rng.below(257) as f32 - 128.0) / 1024.0).collect()
    }

    #[test]
    fn what_is_applied_and_what_is_kept_are_all_that_was_learnt_exactly() {
        let n = 1000;
        let places = [600..n, 0..600];
        for (seed, options) in [
            Options { clip: 0.0, ..Options::default() },
            Options { clip: 0.0, tau: 0.25, ..Options::default() },
            Options { clip: 0.0, density: 0.2, flush_every: 7, ..Options::default() },
        ]
        .into_iter()
        .enumerate()
        {
            let mut rng = Rng::new(seed as u64);
            let (mut here, mut there) = (Thresholds::new(options), Thresholds::new(options));
            here.prepare(&places, 2);
            there.prepare(&places, 2);
            let (mut sum, mut values, mut others) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            for _ in 0..100 {
                let update = update(&mut rng, n);
                sum.iter_mut().zip(&update).for_each(|(sum, u)| *sum += u);
                for (part, place) in places.iter().enumerate() {
                    here.put(part, &update[place.clone()], &mut values[place.clone()]);
                }
                for (part, body) in here.say(&STEP, &mut values).iter().enumerate() {
                    let part = there.read(part, body).unwrap();
                    there.hear(&part, 1.0, &mut others);
                }
                assert_eq!(values, others, "all apply the same");
                for ((sum, applied), kept) in sum.iter().zip(&values).zip(&here.residual) {
                    assert_eq!(applied + kept, *sum, "{seed}");
                }
            }
            assert!(values.iter().any(|&value| value != 0.0));
        }
    }

    #[test]
    fn one_step_up_or_down_is_told_of_each_number_beyond_the_threshold() {
        let mut stream = Thresholds::new(Options { clip: 0.0, tau: 0.5, ..Options::default() });
        stream.prepare(std::slice::from_ref(&(0..5)), 2);
        let mut values = vec![10.0; 5];
        // The third is beyond two steps, and still takes one; what is just at the threshold waits.
        for (update, moved, kept) in [
            ([0.25, 0.75, 1.25, -0.625, 0.5], [0.0, 0.5, 0.5, -0.5, 0.0], [0.25, 0.25, 0.75, -0.125, 0.5]),
            ([0.0, 0.0, 0.0, 0.0, 0.125], [0.0, 0.0, 0.5, 0.0, 0.5], [0.25, 0.25, 0.25, -0.125, 0.125]),
        ] {
            let before = values.clone();
            stream.put(0, &update, &mut values);
            assert_eq!(stream.say(&STEP, &mut values).len(), 1);
            let difference: Vec<f32> = values.iter().zip(&before).map(|(after, before)| after - before).collect();
            assert_eq!((difference, &stream.residual[..]), (moved.to_vec(), &kept[..]));
        }
    }

    #[test]
    fn the_density_falls_during_the_warm_up() {
        let options = Options { density: 0.0025, warmup: 2.0, ..Options::default() };
        let densities = [0.0, 1.0, 2.0, 3.0].map(|done| options.density_after(done));
        for (density, expected) in densities.iter().zip([0.25, 0.025, 0.0025, 0.0025]) {
            assert!((density / expected - 1.0).abs() < 1e-9, "{densities:?}");
        }
        assert_eq!(Options { warmup: 0.0, ..options }.density_after(0.0), 0.0025);
    }

    #[test]
    fn in_a_small_network_more_than_a_hundredth_moves() {
        let options = Options { warmup: 0.0, ..Options::default() };
        for (n, density) in [(3, 0.25), (80, 0.1), (160, 0.05), (800, 0.01), (100_000, 0.01)] {
            let mut stream = Thresholds::new(options);
            stream.prepare(std::slice::from_ref(&(0..n)), 2);
            assert_eq!(stream.adaptive.target_density(), density, "{n} parameters");
            stream.say(&STEP, &mut vec![0.0; n]);
            assert_eq!(stream.adaptive.target_density(), density, "{n} parameters");
        }
    }

    #[test]
    fn what_was_not_heard_is_kept_again() {
        let options = Options { clip: 0.0, density: 0.05, ..Options::default() };
        let mut stream = Thresholds::new(options);
        stream.prepare(std::slice::from_ref(&(0..500)), 2);
        let mut rng = Rng::new(1);
        let (mut values, mut sum) = (vec![0.0; 500], vec![0.0; 500]);
        let mut said = Vec::new();
        for _ in 0..20 {
            let update = update(&mut rng, 500);
            sum.iter_mut().zip(&update).for_each(|(sum, u)| *sum += u);
            stream.put(0, &update, &mut values);
            said.extend(stream.say(&STEP, &mut values));
        }
        for body in said {
            let part = stream.read(0, &body).unwrap();
            stream.take_back(&part);
        }
        assert_eq!(stream.residual, sum);
    }
}
