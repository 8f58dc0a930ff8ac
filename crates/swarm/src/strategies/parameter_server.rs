//! `parameter-server`: every peer sends its vector to those who keep it, and gets the mean back.
//!
//! The vector is cut into shards; shard k is kept by peer k, which trains like all others: no machine is only a server.
//! Contributions are added in the order of ranks, so the sum does not depend on who was first.
//!
//! Messages: a segment of a shard of a bucket, pushed to its keeper or sent back. Body: numbers.
//! Li et al. (2014), "Scaling distributed machine learning with the parameter server".

use serde::{Deserialize, Serialize};

use crate::collective::Shards;
use crate::strategy::{
    Averager, Averaging, CODEC, LOCAL_STEPS, OptionDoc, OptionError, PAYLOAD, Spec, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "parameter-server",
    about: "Peers send their vectors to the keepers of its shards and get the mean back. The classic to compare with; with \
            one shard, one peer's link carries everything.",
    cost: "each peer sends M and receives M; a keeper of one of k shards 2(N-1)M/k besides; 2 steps",
    paper: "Li et al. 2014",
    options: &[
        CODEC,
        LOCAL_STEPS,
        PAYLOAD,
        OptionDoc { name: "shards", about: "how many peers keep a part of the vector; `0`: all of them" },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { averaging, shards } = read_options(SPEC.name, table)?;
        let (turn, codec) = averaging.check(SPEC.name)?;
        let shards = usize::try_from(shards)
            .map_err(|_| OptionError::Option { strategy: SPEC.name, problem: "shards: must be from 0 up".into() })?;
        Ok(Box::new(Averager::new(turn, Shards::new(codec, shards))))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    averaging: Averaging,
    shards: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { averaging: Averaging::default(), shards: 1 }
    }
}
