//! Memberships over a simulated network: whatever happens to links and peers, all who live end with the same view.

// Everything here is a test or serves one, and clippy recognises only the former.
#![allow(clippy::unwrap_used)]

mod coming_and_going;
mod hostile;
mod links;
mod losses;
mod network;
mod quorum;
mod returns;
mod round_trips;
mod traffic;
mod whatever_happens;
