//! What PEERS say to each other: strategies, views, frames and records, without sockets, clocks or threads.

pub mod view;
pub mod wire;
