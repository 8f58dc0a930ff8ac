//! Nodes of one process that train together, and what they tell.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::hello::Purpose;
use nettorrent_net::in_process::InProcess;
use nettorrent_net::machine::Machine;
use nettorrent_net::membership::{Config, Member, Note};
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::report::{Command, Report};
use nettorrent_net::service::JobPackage;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::record::Event;
use nettorrent_swarm::{PeerId, Setup, State};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::cuts::{CutNetwork, Cuts};
use crate::mute::{Muted, Voice};
use crate::toy::{Gate, Toy};

/// Longer than anything here takes on a busy machine: if what a test waits for has not come by then, it never will.
const NEVER: Duration = Duration::from_secs(600);

/// What a node has told.
#[derive(Debug)]
pub(crate) enum Told {
    /// A view is agreed on.
    View(Vec<PeerId>),
    /// A round is done.
    Round,
    /// What was trained without a quorum is given up.
    GivenUp,
    /// Something for people.
    Note(Note),
}

/// Nodes that train together.
pub(crate) struct Swarm {
    founder: Founder,
    network: InProcess,
    cuts: Cuts,
    deadline: Duration,
    strategy: &'static str,
    pub(crate) peers: Vec<Member>,
    pub(crate) gates: Vec<Arc<Gate>>,
    pub(crate) voices: Vec<Voice>,
    commands: Vec<mpsc::Sender<Command>>,
    teller: mpsc::UnboundedSender<(usize, Told)>,
    told: mpsc::UnboundedReceiver<(usize, Told)>,
}

impl Swarm {
    /// Runs a test with a swarm that has nobody yet.
    pub(crate) fn run(deadline: Duration, strategy: &'static str, test: impl AsyncFnOnce(Swarm)) {
        let (teller, told) = mpsc::unbounded_channel();
        let swarm = Self {
            founder: Founder::new(TicketLimits::default()),
            network: InProcess::default(),
            cuts: Cuts::default(),
            deadline,
            strategy,
            peers: Vec::new(),
            gates: Vec::new(),
            voices: Vec::new(),
            commands: Vec::new(),
            teller,
            told,
        };
        let tasks = LocalSet::new();
        let run = tasks.run_until(async { tokio::time::timeout(NEVER, test(swarm)).await });
        block_on(Load { n_processes: 1, n_bytes: 4 }, run).unwrap().expect("it comes to an end");
    }

    /// Starts another node; the first view waits for so many.
    pub(crate) async fn start(&mut self, wait_for: usize) {
        let at = self.peers.len();
        let address = Address::InProcess(1 + at as u64);
        let identity = self.founder.member(at as u32).unwrap();
        let me = Member { id: identity.peer, generation: 0, address: address.clone() };
        let transport = CutNetwork { network: self.network.clone(), cuts: self.cuts.clone(), me: address.clone() };
        let purpose = Purpose::Peer { generation: 0, job: [0; 32] };
        let settings =
            Settings { transport: Arc::new(transport), listen: address.clone(), ..Settings::new(identity, purpose) };
        let endpoint = Endpoint::bind(settings).await.unwrap();
        let gate = Arc::new(Gate::default());
        let mut job = Job { epochs: 1_000_000, batch: 32, ..Job::default() };
        job.swarm.strategy = self.strategy.into();
        let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(gate.clone()))).unwrap());
        let voice = Voice::default();
        let peer = Muted::new(setup.peer(me.id, State::fresh(setup.training())), voice.clone());
        let settings = NodeSettings {
            package: JobPackage { job: String::new(), model: String::new(), data: [[0; 32]; 2] },
            membership: Config { wait_for, deadline: self.deadline, ..Config::default() },
            address,
            threads: 1,
            machine: Machine::Here,
            host: String::new(),
            measures_waits: false,
        };
        let mut node = Node::new(endpoint, setup, Box::new(peer), settings).unwrap();
        let (command, commands) = mpsc::channel(1);
        let (teller, introducers) = (self.teller.clone(), self.peers.clone());
        spawn_local(async move {
            let mut report = |report: Report<'_>, _: &dyn nettorrent_swarm::Peer| {
                let told = match report {
                    Report::Record { record, .. } => match &record.event {
                        Event::View { members, .. } => Told::View(members.clone()),
                        Event::Round { .. } => Told::Round,
                        Event::GivenUp { .. } => Told::GivenUp,
                        _ => return,
                    },
                    Report::Note(note) => Told::Note(note.clone()),
                    _ => return,
                };
                let _ = teller.send((at, told));
            };
            node.run(introducers, commands, mpsc::unbounded_channel().1, &mut report).await;
        });
        self.peers.push(me);
        self.gates.push(gate);
        self.voices.push(voice);
        self.commands.push(command);
    }

    /// From now on nothing that these two send each other arrives.
    pub(crate) fn cut(&self, a: usize, b: usize) {
        let [a, b] = [a, b].map(|at| Address::InProcess(1 + at as u64));
        self.cuts.lock().unwrap().extend([(a.clone(), b.clone()), (b, a)]);
    }

    pub(crate) fn mend(&self) {
        self.cuts.lock().unwrap().clear();
    }

    /// Waits until a node tells something; what all tell before is skipped.
    pub(crate) async fn until(&mut self, mut is_it: impl FnMut(usize, &Told) -> bool) {
        while let Some((at, told)) = self.told.recv().await {
            if is_it(at, &told) {
                return;
            }
        }
    }

    /// Waits until one of these nodes has agreed on a view of them all and made some rounds in it.
    pub(crate) async fn until_trained(&mut self, nodes: &[usize]) {
        let members: Vec<PeerId> = nodes.iter().map(|at| self.peers[*at].id).collect();
        let mut n_rounds = None;
        self.until(|at, told| {
            match told {
                Told::View(view) if at == nodes[0] => n_rounds = (*view == members).then_some(0),
                Told::Round if at == nodes[0] => n_rounds = n_rounds.map(|n| n + 1),
                _ => {}
            }
            n_rounds == Some(10)
        })
        .await;
    }
}
