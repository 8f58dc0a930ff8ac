//! The commands, one a file.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod dashboard;
pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod generate;
pub(crate) mod join;
pub(crate) mod launch;
pub(crate) mod members;
pub(crate) mod model;
#[cfg(feature = "completions")]
pub(crate) mod packaging;
pub(crate) mod peer;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod relay;
pub(crate) mod simulate;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod strategies;
pub(crate) mod study;
pub(crate) mod ticket;
pub(crate) mod train;
