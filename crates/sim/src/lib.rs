//! The simulated host: a thousand peers in one process, deterministic.
//!
//! A [`Simulation`] runs [`Peer`](nettorrent_swarm::Peer)s over simulated links, with time that is counted and not read. The
//! peers, their strategies and the bytes they send are the real ones; only the network, the clock and the speed of computing
//! are made up, as a [`Scenario`] says. The same setup, scenario and seeds give the same bytes.
//!
//! ```
//! use std::sync::Arc;
//! use nettorrent_engine::job::Job;
//! use nettorrent_sim::{Scenario, Simulation, Toy};
//! use nettorrent_swarm::Setup;
//!
//! let job = Job { epochs: 2, ..Job::default() };
//! let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(1)))?);
//! let outcome = Simulation::new(setup, 3, Scenario::lan())?.run()?;
//! assert!(outcome.peers.iter().all(|peer| peer.is_finished));
//! assert_eq!(outcome.peers[0].values, outcome.peers[2].values);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attack;
mod busy;
mod churn;
mod compute;
mod corrupted;
mod handling;
mod made_up;
mod membership;
mod network;
mod observer;
mod outcome;
mod queue;
mod rehearsal;
mod scenario;
mod simulation;
mod toy;

pub use attack::{Attack, AttackError};
pub use corrupted::{HandedIn, corrupted};
pub use handling::Handling;
pub use made_up::made_up;
pub use observer::Observer;
pub use outcome::{Failure, Fate, Outcome, PeerOutcome, Refusal, SimulationError, Stuck, Traffic};
pub use rehearsal::Rehearsal;
pub use scenario::{
    Churn, Fault, Join, Partition, PeerLinks, Scenario, ScenarioError, Site, Slow, SlowUplinks, Stragglers, What, When,
};
pub use simulation::Simulation;
pub use toy::{Toy, ToySize};
