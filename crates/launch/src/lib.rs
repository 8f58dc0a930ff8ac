//! Starts the peers of a swarm on machines that ssh reaches, follows them, and collects what they learnt.
//!
//! The first machine starts the swarm and the others join it. What is secret, the ticket, goes through standard input, and a peer leaves
//! its swarm cleanly when that ends: with the connection, or when whoever launched it is gone. What the first machine tells becomes the
//! events of a run's folder here, so a page shows the run as if it were here; at the end the checkpoints come after it.

mod collect;
mod error;
mod hosts;
mod launch;
mod package;
mod program;
mod script;
mod shell;

pub use error::LaunchError;
pub use hosts::{Host, read_hosts};
pub use launch::{Launch, News, Outcome};
pub use package::Package;
pub use program::ProgramSource;
pub use shell::Shell;
