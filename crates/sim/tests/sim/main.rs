//! The simulator, and in it every strategy and every plan of layers.

#![expect(clippy::unwrap_used, reason = "what helpers of tests unwrap is the test's own")]

mod conformance;
mod host;
mod layers;
