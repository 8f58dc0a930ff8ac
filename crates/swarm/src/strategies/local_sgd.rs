//! `local-sgd`: each peer takes many steps by itself, then all go on with the mean of their weights.
//!
//! What travels is how far each has come since the last exchange, so that it can be rounded to few bits.
//!
//! Messages and bytes: those of `diloco`, of which this is the form whose outer step is the mean itself.
//! Stich (2019), "Local SGD converges fast and communicates little".

use super::diloco::{BITS, Local, Outer};
use crate::strategy::{BAD_PEERS, LOCAL_STEPS, OPTIMIZER_STATE, OUTVOTING, Spec, TRIM, default_options, read_options};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "local-sgd",
    about: "Each peer takes many steps by itself, then all go on with the mean of their weights. Little traffic; replicas \
            drift apart in between.",
    cost: "each peer sends 2M(N-1)/N in 2(N-1) steps per exchange; with b bits 2M(N-1)/N * b/32 in 2 steps",
    paper: "Stich 2019",
    options: &[OUTVOTING, BAD_PEERS, BITS, LOCAL_STEPS, OPTIMIZER_STATE, TRIM],
    defaults: default_options::<Local>,
    build: |table| read_options::<Local>(SPEC.name, table)?.build(SPEC.name, Outer { lr: 1.0, momentum: 0.0 }),
};
