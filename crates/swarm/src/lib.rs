//! What PEERS say to each other: strategies, views, frames and records, without sockets, clocks or threads.
//!
//! A [`Peer`] is handed what happens ([`Input`]) and hands back what it wants done ([`Outbox`]). Hosts do it: `net` over
//! sockets, `sim` in a simulation. A new strategy is one file under `strategies/` and one line in `strategies.rs`.

pub mod codec;
pub mod collective;
mod held;
pub mod layers;
mod peer;
mod place;
pub mod record;
mod replica;
mod setup;
pub mod shape;
pub mod sketch;
pub mod sparse;
pub mod strategies;
pub mod strategy;
pub mod view;
mod waiting;
pub mod wire;
mod work;

pub use layers::{BlockView, LayerNetwork, Origin, SavedBlock};
pub use peer::{Input, Outbox, Peer, Phase, Status, TimerToken};
pub use place::{Place, State};
pub use setup::{Setup, SetupError};
pub use view::{PeerId, View};
pub use waiting::Waiting;
pub use work::{Done, Work, Workbench};
