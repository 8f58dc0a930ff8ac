//! Starts the peers of a swarm on several machines, follows them, and collects what they learnt.
//!
//! The first peer starts the swarm and the others join it; what differs is how they are reached and how the ticket, which is secret, comes
//! to them. By ssh it goes through standard input, and a peer leaves its swarm cleanly when that ends: with the connection, or when whoever
//! launched it is gone. The nodes of a [`Ray`] cluster are reached alike, by actors. Under a [`Scheduler`] (Slurm, or `mpirun`) all peers share a folder that only their user can look into, and find the
//! ticket there. What the first peer tells becomes the events of a run's folder here, so a page shows the run as if it were here; at the end
//! the newest checkpoint comes after it. In [`Kubernetes`] each peer makes the ticket from a secret that all are given, and nobody follows.

mod collect;
mod error;
mod event_tail;
mod hosts;
mod kubernetes;
mod launch;
mod mpi;
mod news;
mod package;
mod program;
mod ray;
mod scheduler;
mod script;
mod shared_folder;
mod shared_launch;
mod shell;
mod slurm;
mod slurm_allocation;
mod transcript;
mod yaml;

pub use error::LaunchError;
pub use hosts::{Host, read_hosts};
pub use kubernetes::Kubernetes;
pub use launch::{Launch, Manner};
pub use mpi::Mpi;
pub use news::{News, Outcome};
pub use package::Package;
pub use program::ProgramSource;
pub use ray::{Ray, RayPlaces};
pub use scheduler::{Scheduler, State};
pub use shared_folder::{PeerSettings, SharedFolder};
pub use shared_launch::SharedLaunch;
pub use shell::Shell;
pub use slurm::{Slurm, SlurmOptions};
pub use slurm_allocation::SlurmAllocation;
pub use transcript::Transcript;
