//! The list of strategies, and the rule of each by itself: a few numbers at a few peers, and what they are after an exchange.

#![expect(clippy::unwrap_used, reason = "what helpers of tests unwrap is the test's own")]

mod averages;
mod best_peer;
mod list;
mod pairs;
mod step_wise;
mod table;
