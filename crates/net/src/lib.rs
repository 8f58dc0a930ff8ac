//! The real host: peers over TCP and TLS, membership, snapshots, local experiments.
