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
//! - For larger |R| it is exact too as long as R's last bit is no larger than τ's. Any τ of at most 12 significant
//!   bits has that for all |R| ≤ 4096 τ; `round_tau` makes such numbers and [`AdaptiveTau`] hands out no others. With a τ of
//!   all 24 bits, and beyond 4096 τ, R′ is the nearest number, half a unit in the last place off at most.
//!
//! A receiver's `value + τ` is rounded as any sum is; replicas that apply the same messages in the same order stay equal.
//!
//! The method is Strom's (Scalable distributed DNN training using commodity GPU cloud computing, Interspeech 2015).

mod apply;
mod bitmap;
mod bits;
mod deltas;
mod list;
mod message;
mod rice;
mod scan;
mod tau;

pub use deltas::Deltas;
pub use message::Coding;
pub(crate) use message::longest_message;
pub use tau::AdaptiveTau;
pub(crate) use tau::round_tau;
