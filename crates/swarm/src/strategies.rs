//! THE LIST of strategies, sorted by name. A new one is a file in `strategies/` and a line in each of the two lists here.

mod best_peer;
mod diloco;
mod downpour;
mod gossip;
mod local_sgd;
mod manager_worker;
mod parameter_server;
mod partial_gradient;
mod ring_all_reduce;
mod ring_reduce;
mod step_wise;
mod threshold;

use crate::strategy::Spec;

/// All strategies.
pub static STRATEGIES: &[Spec] = &[
    best_peer::SPEC,
    diloco::SPEC,
    downpour::SPEC,
    gossip::SPEC,
    local_sgd::SPEC,
    manager_worker::SPEC,
    parameter_server::SPEC,
    partial_gradient::SPEC,
    ring_all_reduce::SPEC,
    ring_reduce::SPEC,
    step_wise::SPEC,
    threshold::SPEC,
];
