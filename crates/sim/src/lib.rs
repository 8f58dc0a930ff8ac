//! The simulated host: a thousand peers in one process, deterministic.
