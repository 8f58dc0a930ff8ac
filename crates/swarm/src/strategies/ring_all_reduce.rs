//! `ring-all-reduce`: the vector goes round in chunks, so that every peer sends and receives the same, and little.
//!
//! Messages: a segment of a chunk of a bucket; its part says which, and at which step. Body: numbers.
//! As a chunked ring by Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations".
//! With a rule that outvotes a few, nothing is summed on the way: every peer sends its vector to all others.
//! As two passes along a chain it is the form that it is often explained with: M bytes at every step.

use serde::{Deserialize, Serialize};

use crate::collective::{Chain, Extent, Ring, Spread};
use crate::strategy::{
    Aggregation, AnyStrategy, Averager, Averaging, BAD_PEERS, CODEC, LOCAL_STEPS, OPTIMIZER_STATE, OUTVOTING,
    OptionDoc, OptionError, PAYLOAD, Rule, Spec, TRIM, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "ring-all-reduce",
    about: "Peers form a ring and average chunk by chunk; all start the next round with the mean. The best choice on fast, \
            even links.",
    cost: "each peer sends 2M(N-1)/N in 2(N-1) steps; naive: up to 2M in 2(N-1) steps",
    paper: "Patarasuk and Yuan 2009",
    options: &[
        OUTVOTING,
        BAD_PEERS,
        CODEC,
        OptionDoc { name: "form", about: "`chunked`, or `naive`: the whole vector goes round twice" },
        LOCAL_STEPS,
        OPTIMIZER_STATE,
        PAYLOAD,
        TRIM,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { averaging, form, rule } = read_options(SPEC.name, table)?;
        let (round_plan, codec) = averaging.check(SPEC.name)?;
        Ok(AnyStrategy::round(match (rule.outvoting(SPEC.name, round_plan.optimizer_state)?, form) {
            (None, Form::Chunked) => Averager::new(round_plan, Ring::new(codec, Extent::AllReduce)),
            (None, Form::Naive) => Averager::new(round_plan, Chain::new(codec, Spread::Forward)),
            (Some(rule), Form::Chunked) => Averager::outvoting(round_plan, codec, rule),
            (Some(_), Form::Naive) => {
                let problem =
                    "form = \"naive\" says how a sum goes round, and rules that outvote do not sum".to_owned();
                return Err(OptionError::Option { strategy: SPEC.name, problem });
            }
        }))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    averaging: Averaging,
    form: Form,
    #[serde(flatten)]
    rule: Rule,
}

impl Default for Options {
    fn default() -> Self {
        let rule = Rule { aggregation: Aggregation::Samples, ..Rule::default() };
        Self { averaging: Averaging::default(), form: Form::default(), rule }
    }
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    #[default]
    Chunked,
    Naive,
}
