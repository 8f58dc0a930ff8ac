//! What a strategy is: the rule by which peers exchange what they learnt.
//!
//! A strategy is handed what its peer computed and what others sent, and answers through a context ([`RoundCtx`] or [`AsyncCtx`]). It never sees a socket, a
//! clock or a tensor, so the same code runs over the network and in the simulator.

mod aggregation;
mod any;
mod async_ctx;
mod averager;
mod averaging;
mod bounds;
mod clipping;
mod cost;
mod ctx;
mod description;
mod final_sync;
mod interface;
mod local_steps;
mod one_peer;
mod optimizer_state;
mod options;
mod outcome;
mod packing;
mod robust;
mod round_ctx;
mod round_plan;
mod spec;
mod streamer;

pub use aggregation::Rule;
pub(crate) use aggregation::{AGGREGATION, Aggregation, BAD_PEERS, CLIPPING, Contribution, OUTVOTING, TRIM};
pub use any::AnyStrategy;
pub use async_ctx::AsyncCtx;
pub(crate) use averager::Averager;
pub use averaging::Averaging;
pub(crate) use averaging::{CODEC, PAYLOAD};
pub(crate) use clipping::{clip_factor, median_norm, squared_distance};
pub use cost::{Cost, CostQuestion};
pub use ctx::Ctx;
pub use description::{DescribedCost, DescribedOption, Description};
pub(crate) use final_sync::{FinalSync, within};
pub use interface::{AsyncStrategy, RoundStrategy, Strategy};
pub use local_steps::LOCAL_STEPS;
pub(crate) use local_steps::LocalSteps;
pub(crate) use one_peer::OnePeer;
pub(crate) use optimizer_state::OPTIMIZER_STATE;
pub use optimizer_state::OptimizerState;
pub(crate) use optimizer_state::held_at;
pub use options::{OptionDoc, OptionError};
pub(crate) use options::{default_options, read_options};
pub use outcome::{Counted, Past};
pub use round_ctx::RoundCtx;
pub use round_plan::{Message, Mixing, Payload, RoundPlan, Scale, Trained};
pub use spec::Spec;
pub use streamer::Step;
pub(crate) use streamer::{MOST_STALENESS, STALENESS, Stream, Streamer};
pub(crate) use streamer::{add, add_times, trained_places};

pub use crate::malformed::Malformed;
