//! The commands, one a file.

pub(crate) mod bench;
pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod model;
pub(crate) mod predict;
pub(crate) mod train;
