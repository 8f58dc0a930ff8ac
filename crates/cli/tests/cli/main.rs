//! The program as its users run it: real processes, in folders of their own, cut off from the network.

mod advise;
mod bad_input;
mod checkpoints;
mod data;
mod documents;
mod evaluate;
#[cfg(target_os = "linux")]
mod full_output;
mod guard;
mod jobs;
#[cfg(unix)]
mod joining;
#[cfg(unix)]
mod launch;
mod layers;
mod measuring;
#[cfg(unix)]
mod members;
#[cfg(unix)]
mod namespaces;
#[cfg(feature = "completions")]
mod packaging;
mod pipes;
mod plan;
mod predict;
mod program;
mod resume;
#[cfg(all(unix, feature = "routers"))]
mod routers;
mod samples;
#[cfg(unix)]
mod study;
#[cfg(unix)]
mod swarm;
#[cfg(unix)]
mod tickets;
mod train;
