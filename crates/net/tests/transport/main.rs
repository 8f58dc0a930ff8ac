//! One suite that all transports pass: in memory, over TCP, with and without TLS, shaped and not.

// Everything here is a test or serves one, and clippy recognises only the former.
#![allow(clippy::unwrap_used)]

mod asking;
mod counting;
mod cut_off;
mod frames;
mod hostile;
mod limits;
mod pace;
mod pairs;
mod refusals;
mod shared_folder;
