//! `parameter-server`: every peer sends its vector to those who keep it, and gets the mean back.
//!
//! The vector is cut into shards; shard k is kept by peer k, which trains like all others: no machine is only a server.
//! Contributions are added in the order of ranks, so the sum does not depend on who was first; or a rule is applied to each
//! number by itself that outvotes a few broken peers.
//!
//! Messages: a segment of a shard of a bucket, pushed to its owner or sent back. Body: numbers.
//! Li et al. (2014), "Scaling distributed machine learning with the parameter server".

use serde::{Deserialize, Serialize};

use crate::collective::Shards;
use crate::strategy::{
    Aggregation, AnyStrategy, Averager, Averaging, CODEC, LOCAL_STEPS, OPTIMIZER_STATE, OptionDoc, OptionError,
    PAYLOAD, RoundPlan, Rule, Scale, Spec, TRIM, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "parameter-server",
    about: "Peers send their vectors to the owners of its shards and get the mean back. The classic to compare with; with \
            one shard, one peer's link carries everything.",
    cost: "each peer sends M and receives M; a owner of one of k shards 2(N-1)M/k besides; 2 steps",
    paper: "Li et al. 2014",
    options: &[
        OptionDoc {
            name: "aggregation",
            about: "how vectors become one: `samples`, a mean by how many were trained; `average`, all alike; or so that a \
                    few broken or hostile peers are outvoted: `median` and `trimmed-mean` of each number",
        },
        CODEC,
        LOCAL_STEPS,
        OPTIMIZER_STATE,
        PAYLOAD,
        OptionDoc { name: "shards", about: "how many peers keep a part of the vector; `0`: all of them" },
        TRIM,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { aggregation, averaging, shards, trim } = read_options(SPEC.name, table)?;
        let (round_plan, codec) = averaging.check(SPEC.name)?;
        let refuse = |problem: &str| Err(OptionError::Option { strategy: SPEC.name, problem: problem.to_owned() });
        let Ok(shards) = usize::try_from(shards) else { return refuse("shards: must be from 0 up") };
        let exchange = Shards::new(codec, shards);
        match aggregation {
            // Peers scale by their share of the samples, so a plain sum is the mean.
            Aggregation::Samples => Ok(AnyStrategy::round(Averager::new(round_plan, exchange))),
            Aggregation::Average | Aggregation::Median | Aggregation::TrimmedMean => {
                let rule = Rule { aggregation, trim, ..Rule::default() }.check(SPEC.name)?;
                let round_plan = RoundPlan { scale: Scale::Plain, ..round_plan };
                Ok(AnyStrategy::round(Averager::new(round_plan, exchange.with_rule(rule)).counting_alike()))
            }
            Aggregation::ClippedMean | Aggregation::Krum => refuse(
                "aggregation = \"clipped-mean\" and \"krum\" compare whole vectors, and owners see parts of them, one after \
                 the other: use `median` or `trimmed-mean`",
            ),
            Aggregation::Weighted | Aggregation::WeightedMinmax => {
                refuse("aggregation by losses: owners are not told any; use `samples` or `average`")
            }
        }
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    aggregation: Aggregation,
    #[serde(flatten)]
    averaging: Averaging,
    shards: i64,
    trim: f64,
}

impl Default for Options {
    fn default() -> Self {
        let Rule { trim, .. } = Rule::default();
        Self { aggregation: Aggregation::Samples, averaging: Averaging::default(), shards: 1, trim }
    }
}

#[cfg(test)]
mod tests {
    use super::SPEC;

    #[test]
    fn rules_that_keepers_cannot_apply_are_refused_with_a_reason() {
        for (rule, reason) in [("krum", "whole vectors"), ("weighted", "losses"), ("weighted-minmax", "losses")] {
            let table = toml::Table::from_iter([("aggregation".to_owned(), rule.into())]);
            let error = (SPEC.build)(&table).err().expect("it is refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!((SPEC.build)(&toml::toml! { aggregation = "trimmed-mean" trim = 0.5 }).is_err());
    }
}
