//! Sessions as a program sees them that embeds them.

mod endings;
mod local;
mod packages;
mod two_peers;
