//! Layer networks in the simulator: against one machine that holds the whole network, and through what may happen to peers.

mod equality;
mod hostile;
mod learning;
mod losses;
mod pipeline;
