//! `ring-reduce`: a sum grows from peer to peer; the last one divides and sends the mean to all.
//!
//! Messages: a segment of a bucket, as a sum on its way to the last peer or as the mean on its way back. Body: numbers.
//! With a rule that outvotes a few, nothing is summed on the way: every peer sends its vector to all others.
//! The root's link carries N−1 times the vector: a baseline to compare `ring-all-reduce` with.

use serde::{Deserialize, Serialize};

use crate::collective::{Chain, Spread};
use crate::strategy::{
    Aggregation, AnyStrategy, Averager, Averaging, BAD_PEERS, CODEC, LOCAL_STEPS, OPTIMIZER_STATE, OUTVOTING, PAYLOAD,
    Rule, Spec, TRIM, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "ring-reduce",
    about: "The sum goes from peer to peer along a chain; the last peer sends the mean to all. Simple, and hard on the last \
            peer's link.",
    cost: "each peer sends M, the last (N-1)M, in N steps",
    paper: "a classic; see Chan, Heimlich, Purkayastha and van de Geijn 2007",
    options: &[OUTVOTING, BAD_PEERS, CODEC, LOCAL_STEPS, OPTIMIZER_STATE, PAYLOAD, TRIM],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { averaging, rule } = read_options(SPEC.name, table)?;
        let (round_plan, codec) = averaging.check(SPEC.name)?;
        Ok(AnyStrategy::round(match rule.outvoting(SPEC.name, round_plan.optimizer_state)? {
            None => Averager::new(round_plan, Chain::new(codec, Spread::FanOut)),
            Some(rule) => Averager::outvoting(round_plan, codec, rule),
        }))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    averaging: Averaging,
    #[serde(flatten)]
    rule: Rule,
}

impl Default for Options {
    fn default() -> Self {
        let rule = Rule { aggregation: Aggregation::Samples, ..Rule::default() };
        Self { averaging: Averaging::default(), rule }
    }
}
