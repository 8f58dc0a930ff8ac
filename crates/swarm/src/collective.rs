//! Exchanges that strategies are made of: sums that go round a ring, along a chain, up a tree, or to those who keep a shard; or all to all.
//!
//! Vectors come in buckets, and what travels is cut into segments, so that receiving, adding and sending overlap. Sums are
//! taken in an order that does not depend on when messages arrive, so all peers end with the same bits, in every run.

pub(crate) mod bucket;
mod chain;
mod change;
mod exchange;
mod gather;
mod interface;
pub(crate) mod own_copy;
pub(crate) mod owner;
mod ring;
pub(crate) mod segments;
mod shards;
mod total;
mod tree;

pub(crate) use chain::Chain;
pub use chain::Spread;
pub(crate) use exchange::Exchange;
pub(crate) use gather::Gather;
pub use interface::Collective;
pub use ring::{Extent, Ring};
pub use segments::SEGMENT_LEN;
pub(crate) use shards::Shards;
pub use total::Total;
