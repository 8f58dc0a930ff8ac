//! Who trains which sample: a [`sampler`] makes a [`plan`] for peers that come and go, from a [`ledger`] of what was trained. All of this
//! deals in indices and never touches a sample.

mod deal;
pub mod ledger;
pub mod plan;
pub mod rounds;
mod rules;
pub mod sampler;
mod shares;
