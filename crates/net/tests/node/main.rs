//! A node with its peer and its thread that computes, alone and with others.

#![expect(clippy::unwrap_used, reason = "what helpers of tests unwrap is the test's own")]

mod cuts;
mod keys;
mod mute;
mod reach;
mod swarm;
mod toy;

mod hostile;

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::hello::Purpose;
use nettorrent_net::machine::Machine;
use nettorrent_net::membership::Config;
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::report::Ending;
use nettorrent_net::service::JobPackage;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::{Setup, State};

/// A task that panics when it is to compute a gradient.
struct Panicking(Layout);

impl Task for Panicking {
    fn layout(&self) -> &Layout {
        &self.0
    }

    fn init(&self, _: u64) -> Vec<f32> {
        vec![0.0]
    }

    fn labels(&self) -> &[u32] {
        &[0; 64]
    }

    fn n_test(&self) -> usize {
        0
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Panicking {
    fn gradient(&self, _: &[f32], _: &[usize], _: u64, _: &mut GradientSink<'_>) -> Result<Score, TrainError> {
        panic!("no gradient of this")
    }

    fn score(&self, _: &[f32], _: &[usize]) -> Result<Score, TrainError> {
        Ok(Score::default())
    }

    fn test(&self, _: &[f32], _: Range<usize>) -> Result<Score, TrainError> {
        Ok(Score::default())
    }
}

fn setup() -> Arc<Setup> {
    let task = Panicking(Layout::of_tensors([("weight", [1].as_slice())]));
    Arc::new(Setup::new(&Job::default(), Arc::new(task)).unwrap())
}

/// What a node needs that waits for so many peers.
fn node_settings(endpoint: &Endpoint, wait_for: usize) -> NodeSettings {
    NodeSettings {
        package: JobPackage { job: String::new(), model: String::new(), data: [[0; 32]; 2] },
        membership: Config { wait_for, deadline: Duration::from_secs(1), ..Config::default() },
        address: endpoint.local_address().clone(),
        threads: 1,
        machine: Machine::Here,
        host: String::new(),
        measures_waits: false,
    }
}

#[test]
fn a_panic_of_the_compute_thread_ends_the_node_with_an_error() {
    let identity = Founder::new(TicketLimits::default()).member(0).unwrap();
    let id = identity.peer;
    let run = async {
        let purpose = Purpose::Peer { generation: 0, job: [0; 32] };
        let settings = Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Settings::new(identity, purpose) };
        let (endpoint, arrivals) = Endpoint::bind(settings).await.unwrap();
        let (setup, settings) = (setup(), node_settings(&endpoint, 1));
        let peer = setup.peer(id, State::fresh(setup.training()));
        let mut node = Node::new((endpoint, arrivals), setup, peer, settings).unwrap();
        let (_commands, orders) = tokio::sync::mpsc::channel(1);
        node.run(Vec::new(), orders, tokio::sync::mpsc::unbounded_channel().1, &mut |_, _| {}).await
    };
    let ending = block_on(Load { n_processes: 1, n_bytes: 4 }, run).unwrap();
    assert!(matches!(&ending, Ending::Failed(problem) if problem.contains("no gradient of this")), "{ending:?}");
}
