//! What PEERS say to each other: strategies, views, frames and records, without sockets, clocks or threads.
//!
//! A [`Peer`] is handed what happens ([`Input`]) and hands back what it wants done ([`Outbox`]). Hosts do it: `net` over
//! sockets, `sim` in a simulation. A new strategy is one file under `strategies/` and one line in `strategies.rs`.

mod alike;
mod batch_place;
mod block;
pub mod codec;
pub mod collective;
mod division;
mod effects;
pub mod fingerprint;
mod held;
pub mod link_spec;
mod local_state;
mod malformed;
mod outliers;
mod peer;
mod phase_work;
mod place;
pub mod printable;
mod recent;
pub mod record;
mod replica;
mod replica_setup;
pub mod sampling;
mod setup;
pub mod shared;
mod site;
pub mod sketch;
mod spanning_tree;
pub mod sparse;
mod step_work;
pub mod strategies;
pub mod strategy;
mod train_plan;
pub mod view;
mod waiting;
pub mod wire;
mod work;

pub use batch_place::BatchPlace;
pub use block::{BlockView, SavedBlock};
pub use effects::{Input, Outbox, Phase, Status, TimerToken};
pub use held::{HeldFrames, HeldRoom};
pub use malformed::Malformed;
pub use peer::Peer;
pub use phase_work::{PhaseWork, Stepped};
pub use place::{Place, State, StateVersion};
pub use replica::Replica;
pub use replica_setup::ReplicaSetup;
pub use setup::{Partition, Setup};
pub use site::{check_site_name, site_number};
pub use step_work::{StepTaken, StepWork};
pub use train_plan::TrainPlan;
pub use view::{PeerId, View};
pub use waiting::Waiting;
pub use work::{Done, OtherWork, What, Work};
