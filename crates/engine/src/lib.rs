//! What ONE peer computes: data sets, models, optimizers and checkpoints, without sockets, clocks or globals.

pub mod data;
pub mod kernel;
pub mod model;
pub mod nearest;
pub mod rng;
pub mod team;
