//! Peers of this process that train: one that started a swarm or joined one, or all of a swarm.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use nettorrent_history::Line;
use nettorrent_net::address::Address;
use nettorrent_net::discovery;
use nettorrent_net::endpoint::{Arrival, Endpoint};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::in_process::InProcess;
use nettorrent_net::report::Command;
use nettorrent_net::ticket::Ticket;
use nettorrent_swarm::PeerId;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};

use crate::conclusion::{Conclusion, Outcome};
use crate::error::SessionError;
use crate::event_log::{EventLog, Fate};
use crate::invited::Invited;
use crate::live_log::{LiveLog, Topology};
use crate::options::Options;
use crate::peer_event::PeerEvent;
use crate::peer_process::PeerProcess;
use crate::reporter::Keep;
use crate::run_folder::RunFolder;
use crate::start_state::StartState;
use crate::training::Training;

/// Peers that are ready to train.
pub struct Session {
    training: Arc<Training>,
    start: StartState,
    run: RunFolder,
    events: EventLog,
    options: Options,
    topology: Topology,
    peers: Vec<BoundPeer>,
    /// Members elsewhere.
    members: Vec<(PeerId, Address)>,
}

/// A peer's place on the network.
struct BoundPeer {
    endpoint: Endpoint,
    arrivals: mpsc::Receiver<Arrival>,
    /// Where others reach it.
    address: Address,
    leave: mpsc::Sender<Command>,
    commands: mpsc::Receiver<Command>,
}

impl BoundPeer {
    fn new((endpoint, arrivals): (Endpoint, mpsc::Receiver<Arrival>), address: Address) -> Self {
        let (leave, commands) = mpsc::channel(1);
        Self { endpoint, arrivals, address, leave, commands }
    }
}

/// A session that runs.
pub type Run = Pin<Box<dyn Future<Output = Result<Outcome, SessionError>>>>;

/// Ends a session from anywhere: another task, a signal handler.
#[derive(Clone)]
pub struct Leave(Arc<[mpsc::Sender<Command>]>);

impl Leave {
    /// Has the peers leave the others cleanly and end, with a checkpoint of what they have.
    pub fn leave(&self) {
        // Who does not listen any more is ending anyway.
        self.0.iter().for_each(|peer| _ = peer.try_send(Command::Leave));
    }
}

impl Session {
    /// Starts a swarm, which others join with the ticket.
    pub async fn start(
        training: Arc<Training>,
        start: StartState,
        run: RunFolder,
        options: Options,
    ) -> Result<(Self, Ticket), SessionError> {
        training.check(options.wait_for)?;
        // First of all: from here on this run is ours.
        let events = run.open_events(options.tensorboard)?;
        let founder = match &options.secret {
            Some(secret) => Founder::from_secret_with(secret, options.ticket),
            None => Founder::new(options.ticket),
        };
        let bound = options.bind(founder.member(0)?, &training).await?;
        let ticket = founder.ticket(options.addresses(&bound.0));
        run.write_owner_key(founder.owner())?;
        run.write_ticket(&ticket)?;
        let address = ticket.addresses.first().unwrap_or(bound.0.local_address()).clone();
        let peers = vec![BoundPeer::new(bound, address)];
        Ok((Self::new(training, start, (run, events), options, Topology::OneOfMany, peers), ticket))
    }

    /// Takes part in a swarm to which this peer was invited.
    pub async fn join(
        invited: Invited,
        training: Arc<Training>,
        run: RunFolder,
        options: Options,
    ) -> Result<Self, SessionError> {
        let events = run.open_events(options.tensorboard)?;
        let Invited { identity, members, wait_for, seen, .. } = invited;
        let bound = options.bind(identity, &training).await?;
        let endpoint = &bound.0;
        let local = endpoint.local_address();
        let seen = seen.map_or_else(|| local.clone(), |seen| seen.at_port_of(local));
        let address = options.address.as_ref().map_or(seen, |address| local.known_as(address));
        let there = std::iter::once(&address).chain(members.iter().map(|(_, address)| address));
        if let Some(ticket) = endpoint.identity().ticket(there.cloned().collect()) {
            run.write_ticket(&ticket)?;
        }
        let (start, options) = (StartState::fresh(&training), Options { wait_for, ..options });
        let peers = vec![BoundPeer::new(bound, address)];
        Ok(Self { members, ..Self::new(training, start, (run, events), options, Topology::OneOfMany, peers) })
    }

    /// Trains with so many peers in this process. They reach each other through memory, and nobody else reaches them.
    pub async fn local(
        training: Arc<Training>,
        start: StartState,
        run: RunFolder,
        options: Options,
        n_peers: usize,
    ) -> Result<Self, SessionError> {
        training.check(n_peers)?;
        let (transport, listen) = (Arc::new(InProcess::default()), Address::InProcess(0));
        let encryption = Encryption::Off;
        let options = Options { wait_for: n_peers, transport, listen, encryption, discover: false, ..options };
        let mut peers = Vec::new();
        for index in 0..n_peers {
            let mut identity = Founder::within_process().member(index as u32)?;
            if n_peers == 1 {
                // Nobody is there who would know it by its key.
                identity.peer = PeerId(0);
            }
            let bound = options.bind(identity, &training).await?;
            let address = bound.0.local_address().clone();
            peers.push(BoundPeer::new(bound, address));
        }
        let topology = if training.is_alone() { Topology::Alone } else { Topology::Local(n_peers) };
        let events = run.open_events(options.tensorboard)?;
        Ok(Self::new(training, start, (run, events), options, topology, peers))
    }

    fn new(
        training: Arc<Training>,
        start: StartState,
        (run, events): (RunFolder, EventLog),
        options: Options,
        topology: Topology,
        peers: Vec<BoundPeer>,
    ) -> Self {
        Self { training, start, run, events, options, topology, peers, members: Vec::new() }
    }

    /// What it trains.
    pub fn training(&self) -> &Arc<Training> {
        &self.training
    }

    /// Where its checkpoints and events are.
    pub fn run_folder(&self) -> &RunFolder {
        &self.run
    }

    /// What it begins with.
    pub fn start_state(&self) -> &StartState {
        &self.start
    }

    /// Where others reach its first peer.
    pub fn address(&self) -> &Address {
        &self.peers[0].address
    }

    /// Who trains.
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// What ends it early.
    pub fn leave(&self) -> Leave {
        Leave(self.peers.iter().map(|peer| peer.leave.clone()).collect())
    }

    /// Has every event shown to somebody as it happens. One can follow: the last who asked.
    pub fn follow(&mut self, follower: impl FnMut(&Line, Fate) + 'static) {
        self.events.follow(follower);
    }

    /// The events as they happen, for those who rather wait for them than be called.
    pub fn events(&mut self) -> mpsc::UnboundedReceiver<Line> {
        let (sender, events) = mpsc::unbounded_channel();
        // Who has seen enough may go; the run's folder has all of them.
        self.follow(move |line, _| drop(sender.send(line.clone())));
        events
    }

    /// Trains until all epochs are done, or somebody says [`leave`](Leave::leave).
    pub fn run(self) -> Run {
        self.run_observed(|_| {})
    }

    /// The same, for who wants to hear what the peers tell before it becomes the run's events.
    pub fn run_observed(self, observe: impl FnMut(&PeerEvent) + 'static) -> Run {
        // In a box, it is compiled here, once, and not again wherever somebody waits for it.
        Box::pin(self.train(Box::new(observe)))
    }

    async fn train(self, observe: Box<dyn FnMut(&PeerEvent)>) -> Result<Outcome, SessionError> {
        let Self { training, start, run, events, options, topology, peers, members } = self;
        let endpoint = &peers[0].endpoint;
        let announced = endpoint.local_address().tcp().filter(|_| options.discover);
        let _announcement =
            announced.map(|address| discovery::announce(endpoint.identity().swarm(), address.port())).transpose()?;
        let link = options.link.map(|link| link.to_string()).filter(|_| topology != Topology::OneOfMany);
        let log = LiveLog::start(events, &training, run.path(), topology, &start.point(), link);
        let conclusion = Conclusion::new(run.clone(), topology, start.place());
        let log = Rc::new(RefCell::new(Log { log, conclusion, observe }));
        let here: Vec<_> = peers.iter().map(|peer| (peer.endpoint.identity().peer, peer.address.clone())).collect();
        let keep = if topology == Topology::OneOfMany { Keep::Always } else { Keep::IfFirst };
        let start = if keep == Keep::IfFirst { start.with_saved(&run, &training) } else { start };
        let (tasks, mut processes) = (LocalSet::new(), JoinSet::new());
        for (k, BoundPeer { endpoint, arrivals, address, commands, leave: _ }) in peers.into_iter().enumerate() {
            let me = here[k].0;
            let introducers = here.iter().filter(|(peer, _)| *peer != me).chain(&members).cloned().collect();
            let process = PeerProcess {
                training: training.clone(),
                start: start.clone(),
                run: run.clone(),
                keep,
                wait_for: options.wait_for,
                address,
                site: options.site.clone(),
                introducers,
                // What the process takes is told once.
                measures: options.measures && k == 0,
                machine: options.machine.clone(),
                disk: options.disk.clone(),
            };
            let log = log.clone();
            let peer = async move {
                process.run((endpoint, arrivals), commands, &mut |event| log.borrow_mut().on_event(&event)).await
            };
            processes.spawn_local_on(peer, &tasks);
        }
        drop(start);
        let ended = tasks.run_until(processes.join_all()).await;
        let Log { log, conclusion, .. } = &mut *log.borrow_mut();
        ended.into_iter().filter_map(Result::err).for_each(|problem| conclusion.on_problem(problem));
        conclusion.conclude(log)
    }
}

/// What the peers tell, and what that comes to.
struct Log {
    log: LiveLog,
    conclusion: Conclusion,
    observe: Box<dyn FnMut(&PeerEvent)>,
}

impl Log {
    fn on_event(&mut self, event: &PeerEvent) {
        (self.observe)(event);
        self.conclusion.on_event(event);
        self.log.on_event(event);
    }
}
