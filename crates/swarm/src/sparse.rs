//! A few ±τ instead of a whole vector: what moved by more than a threshold, found at the speed of memory, in few bits.
//!
//! Each peer keeps a residual R, the part of its updates that nobody has heard of yet. [`Deltas::scan_with`] adds an update u
//! to it and takes out one ±τ from each element beyond τ; the message says which. With one element in a hundred a delta takes
//! 9.1 bits, with one in a thousand 12.6: 350 and 2500 times less than the vector itself. The threshold comes from
//! [`AdaptiveTau`], which holds the share of elements with a delta near a target.
//!
//! # What "nothing is lost" means
//!
//! What is applied and what stays behind must together be what the updates were. In single precision this is so:
//!
//! - R + u is rounded once, as any sum of two numbers. That rounding is part of what is to be sent: R after it is the truth.
//! - Taking out ±τ is one plain subtraction of single precision, R′ = fl(R ∓ τ), on every processor and in every path: who
//!   knows R, τ and the message can compute R′ bit for bit.
//! - For τ < |R| ≤ 2τ the subtraction is exact (Sterbenz's lemma), so R′ ± τ = R as real numbers.
//! - For larger |R| it is exact too as long as R's last bit is no larger than τ's. Any τ of at most [`TAU_BITS`] significant
//!   bits has that for all |R| ≤ 4096 τ; [`round_tau`] makes such numbers and [`AdaptiveTau`] hands out no others. With a τ of
//!   all 24 bits, and beyond 4096 τ, R′ is the nearest number, half a unit in the last place off at most.
//!
//! A receiver's `value + τ` is rounded as any sum is; replicas that apply the same messages in the same order stay equal.
//!
//! The method is Strom's (Scalable distributed DNN training using commodity GPU cloud computing, Interspeech 2015).

mod apply;
mod bitmap;
mod bits;
mod list;
mod message;
mod rice;
mod scan;
mod tau;

pub use message::{Coding, HEADER_LEN, longest_message};
pub use scan::Scanned;
pub use tau::{AdaptiveTau, TAU_BITS, round_tau};

/// The most elements a vector may have: an index takes 31 bits.
pub const MOST_VALUES: usize = 1 << 31;

/// Some elements of a vector, each with +τ or −τ, in ascending order.
///
/// What is in here always fits the vector it was made for: a message that does not leaves it empty. One that is used again
/// for each batch allocates nothing.
///
/// ```
/// use nettorrent_swarm::sparse::Deltas;
/// let mut residual = vec![0.0, 0.5, -0.25, 0.0];
/// let mut deltas = Deltas::new();
/// deltas.scan_with(&mut residual, &[0.125, 0.25, -0.5, 0.0], 0.5);
/// assert_eq!(deltas.iter().collect::<Vec<_>>(), [(1, 0.5), (2, -0.5)]);
/// assert_eq!(residual, [0.125, 0.25, -0.25, 0.0]);
///
/// let message = deltas.encode();
/// let mut received = Deltas::new();
/// received.decode(&message, 4)?;
/// let mut values = vec![1.0; 4];
/// received.add_to(&mut values);
/// assert_eq!(values, [1.0, 1.5, 0.5, 1.0]);
/// # Ok::<(), nettorrent_swarm::strategy::Malformed>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Deltas {
    /// How many elements the vector has.
    n_values: usize,
    tau: f32,
    /// `index << 1 | sign`, where 1 is plus; indices ascend strictly and are below `n_values`.
    marks: Vec<u32>,
}

impl Default for Deltas {
    fn default() -> Self {
        Self { n_values: 0, tau: 1.0, marks: Vec::new() }
    }
}

impl Deltas {
    /// None, for a vector without elements: to be filled by a scan or from a message.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many elements have a delta.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether no element has a delta.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The size of each delta.
    pub fn tau(&self) -> f32 {
        self.tau
    }

    /// How many elements the vector has.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// Each index with its delta, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, f32)> + '_ {
        self.marks.iter().map(|&mark| (index(mark), signed(mark, self.tau)))
    }

    /// Empty, for a vector of this length.
    fn reset(&mut self, n_values: usize, tau: f32) {
        assert!(n_values <= MOST_VALUES, "{n_values} elements have indices of more than 31 bits");
        self.n_values = n_values;
        self.tau = tau;
        self.marks.clear();
    }
}

/// Which element a mark is for.
fn index(mark: u32) -> usize {
    (mark >> 1) as usize
}

/// `tau` with the sign of a mark.
fn signed(mark: u32, tau: f32) -> f32 {
    f32::from_bits(tau.to_bits() ^ ((!mark & 1) << 31))
}

/// The numbers that a message's τ may be.
fn is_threshold(tau: f32) -> bool {
    tau.is_finite() && tau > 0.0
}
