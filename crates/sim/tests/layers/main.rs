//! Layer networks in the simulator: against one machine that holds the whole network, and through what may happen to peers.

#![expect(clippy::unwrap_used, reason = "what helpers of tests unwrap is the test's own")]

mod equality;
mod hostile;
mod learning;
mod losses;
mod pipeline;
