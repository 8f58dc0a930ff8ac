//! `ring-reduce`: a sum grows from peer to peer; the last one divides and sends the mean to all.
//!
//! Messages: a segment of a bucket, as a sum on its way to the last peer or as the mean on its way back. Body: numbers.
//! The root's link carries N−1 times the vector: a baseline to compare `ring-all-reduce` with.

use crate::collective::{Chain, Spread};
use crate::strategy::{
    AnyStrategy, Averager, Averaging, CODEC, LOCAL_STEPS, OPTIMIZER_STATE, PAYLOAD, Spec, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "ring-reduce",
    about: "The sum goes from peer to peer along a chain; the last peer sends the mean to all. Simple, and hard on the last \
            peer's link.",
    cost: "each peer sends M, the last (N-1)M, in N steps",
    paper: "a classic; see Chan, Heimlich, Purkayastha and van de Geijn 2007",
    options: &[CODEC, LOCAL_STEPS, OPTIMIZER_STATE, PAYLOAD],
    defaults: default_options::<Averaging>,
    build: |table| {
        let (turn, codec) = read_options::<Averaging>(SPEC.name, table)?.check(SPEC.name)?;
        Ok(AnyStrategy::round(Averager::new(turn, Chain::new(codec, Spread::FanOut))))
    },
};
