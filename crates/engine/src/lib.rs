//! What ONE peer computes: data sets, models, optimizers and checkpoints, without sockets, clocks or globals.

pub mod backend;
pub mod backends;
pub mod bad_samples;
pub mod checkpoint;
pub mod collapse;
pub mod cpu_worker;
pub mod data;
pub mod evaluation;
pub mod fn_task;
pub mod guard;
pub mod guessing;
pub mod job;
pub mod learning;
pub mod local_phase;
pub mod measure;
pub mod model;
pub mod nearest;
pub mod optimizer;
pub mod partition;
pub mod resident;
pub mod rng;
pub mod scale;
pub mod schedule;
pub mod stateless;
pub mod task;
pub mod team;
pub mod train_error;

/// The inner loops.
pub use nettorrent_kernel as kernel;
