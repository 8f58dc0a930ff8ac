//! A page that follows a run while it goes, and a run's numbers for Prometheus.
//!
//! Whoever trains writes down what happens; the [`Server`] reads that, again and again, and shows it. It takes no part in
//! the training, which goes on without it. It is reached from this machine only, unless told otherwise, and then only with
//! a token.

mod access;
mod board;
mod connection_limit;
mod page;
mod pictures;
mod prometheus;
mod server;
mod totals;
mod watch;

pub use server::{DashboardError, Server, Settings, Shows};
