//! Exchanges that strategies are made of: sums that go round a ring, along a chain, or to those who keep a shard.
//!
//! Vectors come in buckets, and what travels is cut into segments, so that receiving, adding and sending overlap. Sums are
//! taken in an order that does not depend on when messages arrive, so all peers end with the same bits, in every run.

pub(crate) mod bucket;
mod chain;
mod exchange;
pub(crate) mod keeper;
pub(crate) mod own_copy;
mod ring;
pub(crate) mod segments;
mod shards;

pub use chain::{Chain, Spread};
pub(crate) use exchange::Exchange;
pub use ring::{Extent, Ring};
pub use segments::SEGMENT_LEN;
pub use shards::Shards;

use crate::strategy::{Cost, CostQuestion, Ctx, Malformed, Message};

/// One exchange in which every peer hands in a vector and every peer gets one back.
pub trait Collective: Send {
    /// Begins an exchange; what is left of another is forgotten.
    fn begin(&mut self, ctx: &Ctx<'_>);

    /// Hands in a bucket of this peer's numbers.
    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>);

    /// Takes what another peer sent; its bytes are hostile until checked.
    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed>;

    /// Whether the result is there.
    fn is_complete(&self) -> bool;

    /// The result, once it is complete. After this, whatever comes for this exchange is malformed.
    fn take_result(&mut self) -> Vec<Vec<f32>>;

    /// The ranks that this peer waits for, if it has handed in its own numbers.
    fn waits_for(&self) -> Vec<usize>;

    /// What an exchange costs.
    fn cost(&self, question: &CostQuestion<'_>) -> Cost;
}
