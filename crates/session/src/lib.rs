//! The runtime as a library: take part in a swarm from any Rust program.

pub mod checkpoint_writer;
pub mod date;
pub mod error;
pub mod event_log;
mod invited;
pub mod live_log;
pub mod local_peer;
pub mod local_swarm;
pub mod memory;
pub mod monitor;
pub mod open;
mod options;
mod orders;
mod peer_epochs;
pub mod peer_event;
pub mod peer_process;
pub mod reporter;
pub mod resources;
pub mod run_folder;
pub mod run_log;
pub mod session;
pub mod simulated_run;
mod start_point;
pub mod start_state;
mod telemetry;
pub mod trained_model;
pub mod training;

pub use error::SessionError;
pub use invited::Invited;
pub use options::Options;
pub use run_folder::RunFolder;
pub use session::{Leave, Outcome, Session};
pub use start_point::StartPoint;
pub use start_state::StartState;
pub use training::Training;
