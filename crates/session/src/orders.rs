//! What the processes of a swarm on one machine are told: lines of JSON on their standard input.

use std::path::PathBuf;

use nettorrent_net::address::Address;
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::ticket::Secret;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use serde::{Deserialize, Serialize};

/// What a peer is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The run's folder, with the job and the model.
    pub run: PathBuf,
    /// The secret of which all of the swarm's keys come. It comes this way because others can see a process's arguments.
    pub secret: Secret,
    /// The index by which it joins.
    pub index: u32,
    /// How many peers there are at the beginning.
    pub n_peers: usize,
    /// What to go on from: a checkpoint of the run.
    pub checkpoint: Option<PathBuf>,
    pub encryption: bool,
    /// How slow the network is to be.
    pub link: Option<LinkSpec>,
    /// How fast this machine is to seem, if it is to be slower than it is.
    pub speed: Option<EmulatedSpeed>,
    /// Where large payloads go.
    pub shared_dir: Option<PathBuf>,
    /// Whether to measure what it takes of the machine and for whom it waits.
    pub measures: bool,
}

/// What a peer is told after that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Who is there; go.
    Begin { members: Vec<(PeerId, Address)> },
    /// Leave the others and end.
    Leave,
}
