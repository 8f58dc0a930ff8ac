//! Fetches from a server on this machine, well-behaved and otherwise.

mod loopback;
mod resumed;
mod toys;
mod whole;
