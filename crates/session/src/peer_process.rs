//! One peer of a swarm: it takes part until the end, tells how it goes, and has checkpoints written.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Arrival, Endpoint};
use nettorrent_net::machine::Machine;
use nettorrent_net::membership::{Config, Member};
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::report::{self, Command};
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, site_number};
use tokio::sync::mpsc;

use crate::checkpoint_writer::CheckpointWriter;
use crate::disk::Disk;
use crate::error::SessionError;
use crate::memory::peak_rss_bytes;
use crate::monitor::Monitor;
use crate::peer_event::{Ending, PeerEvent};
use crate::reporter::{Keep, Reporter, keep_state, written_event};
use crate::resources::resources;
use crate::run_folder::RunFolder;
use crate::start_state::StartState;
use crate::training::Training;

/// When a silent peer is given up, where there is none: then nobody needs to wait for anybody at the beginning.
const ALONE: Duration = Duration::from_millis(400);

/// A process that takes part in a swarm.
pub(crate) struct PeerProcess {
    /// What it trains.
    pub training: Arc<Training>,
    /// What it begins with.
    pub start: StartState,
    /// Where its checkpoints go.
    pub run: RunFolder,
    /// Which of them it writes.
    pub keep: Keep,
    /// Training begins when so many peers are there, this one counted.
    pub wait_for: usize,
    /// Where others reach it.
    pub address: Address,
    /// The name of its site, if it has one.
    pub site: Option<String>,
    /// Members that it knows of.
    pub introducers: Vec<(PeerId, Address)>,
    /// Whether to measure what this process takes and for whom it waits.
    pub measures: bool,
    /// What it computes on.
    pub machine: Machine,
    /// What it writes on.
    pub disk: Disk,
}

impl PeerProcess {
    /// Trains with the others until all is done or somebody says `leave`.
    pub(crate) async fn run(
        self,
        (endpoint, arrivals): (Endpoint, mpsc::Receiver<Arrival>),
        mut commands: mpsc::Receiver<Command>,
        tell: &mut dyn FnMut(PeerEvent),
    ) -> Result<Ending, SessionError> {
        let Self { training, start, run, keep, wait_for, address, site, introducers, measures, machine, disk } = self;
        let id = endpoint.identity().peer;
        let place = start.place().clone();
        let training = &*training;
        let mut peer = start.into_peer(id, training);
        if let Some(site) = &site {
            let told = peer.handle(Duration::ZERO, Input::Site(site_number(site)), &mut Outbox::default());
            told.expect("what the host says is not malformed");
        }
        let deadline = if training.is_alone() { ALONE } else { training.job.swarm.deadline() };
        let settings = NodeSettings {
            package: training.package.clone(),
            membership: Config { deadline, wait_for, quorum: training.job.swarm.quorum },
            address,
            threads: training.job.threads,
            machine,
            host: host_name(),
            measures_waits: measures,
        };
        let monitor = measures.then(|| Monitor::start(Some(endpoint.sockets()))).transpose()?;
        let mut node = Node::new((endpoint, arrivals), training.setup.clone(), peer, settings)?;
        let introducers = introducers.into_iter().map(|(id, address)| Member { id, generation: 0, address }).collect();
        let (outlet, messages) = mpsc::unbounded_channel();
        let (orders, node_commands) = mpsc::channel(2);
        let written = orders.clone();
        // If the node is gone, it wants no more blocks.
        let on_block = async move |is_written| _ = written.send(Command::BlockWritten { is_written }).await;
        let checkpoint_writer = CheckpointWriter::start(run, disk, training, on_block)?;
        let passing_on = tokio::spawn(async move {
            while let Some(command) = commands.recv().await {
                let _ = orders.send(command).await;
            }
        });
        let writer = (&checkpoint_writer, keep);
        let mut reporter = Reporter::new(id, training, writer, monitor.as_ref(), outlet, &place);
        let ending = node
            .run(introducers, node_commands, messages, &mut |report, peer| reporter.on_report(&report, peer, tell))
            .await;
        passing_on.abort();
        let peer = node.peer();
        if reporter.writes(peer) {
            keep_last_state(&checkpoint_writer, peer, &ending);
        }
        let (place, is_writer) = (peer.place().clone(), reporter.has_kept(peer));
        // Whoever comes now is not to wait for a peer that waits for its disk.
        drop((reporter, node));
        for written in checkpoint_writer.finish().await? {
            tell(written_event(id, written));
        }
        // What remains is told too, so that all samples add up to the whole.
        for sample in monitor.map(Monitor::finish).unwrap_or_default() {
            tell(PeerEvent::Resources(resources(id, &sample)));
        }
        let (ending, last_epoch) = (Ending::from(ending), place.last_epoch(training.job.epochs));
        let (epoch, step, peak_rss_bytes) = (place.ledger.epoch, place.step, peak_rss_bytes());
        tell(PeerEvent::Ended { peer: id, ending: ending.clone(), epoch, last_epoch, step, is_writer, peak_rss_bytes });
        Ok(ending)
    }
}

/// Has written what a run has come to. If it diverged, that is nothing to go on from, and what was good before remains the last.
fn keep_last_state(checkpoint_writer: &CheckpointWriter, peer: &dyn Peer, ending: &report::Ending) {
    let has_diverged = *ending != report::Ending::Finished && !peer.is_healthy();
    if !has_diverged {
        keep_state(checkpoint_writer, peer);
    } else if let Some(step) = peer.good_step() {
        checkpoint_writer.set_aside_after(step);
    }
}

/// What this machine is called.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).or_else(|| std::env::var("COMPUTERNAME").ok());
    name.map_or_else(|| "a machine".to_owned(), |name| name.trim().to_owned())
}
