//! A peer that trains with others: started here, or joined to a swarm that is there.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nettorrent_history::{Line, Reason};
use nettorrent_net::address::Address;
use nettorrent_net::ask::{ask_any, find_addresses};
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::report::Command;
use nettorrent_net::service::{Answer, Invitation, JobPackage, Question};
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::{Secret, Ticket};
use nettorrent_net::{discovery, fingerprint};
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::{PeerId, Place};
use tokio::sync::mpsc;

use crate::checkpoint_writer::CheckpointWriter;
use crate::error::SessionError;
use crate::event_log::{EventLog, Fate};
use crate::live_log::{End, LiveLog, Topology};
use crate::peer_event::{Ending, PeerEvent};
use crate::peer_process::PeerProcess;
use crate::reporter::Keep;
use crate::run_folder::RunFolder;
use crate::start_state::StartState;
use crate::training::Training;

/// How a peer takes part.
#[derive(Clone)]
pub struct Options {
    /// Training begins when so many peers are there, this one counted.
    pub wait_for: usize,
    /// Where to listen; by default at all addresses, at any free port.
    pub listen: Address,
    /// The address at which others reach this machine, if it is not one of its own.
    pub address: Option<Address>,
    /// Whether peers of the same local network find this one, and it them, by mDNS.
    pub discover: bool,
    /// Whether links are encrypted; all peers of a swarm have to say the same.
    pub encryption: Encryption,
    /// How slow the link is to be, for experiments.
    pub link: Option<LinkSpec>,
    /// How slow the machine is to be, for experiments.
    pub speed: Option<EmulatedSpeed>,
    /// A directory for large payloads to peers that have the same one.
    pub shared_dir: Option<PathBuf>,
    /// Whether to measure what this process takes of its machine and for whom it waits.
    pub measures: bool,
    /// Whether to write files for TensorBoard.
    pub tensorboard: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wait_for: 1,
            listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
            address: None,
            discover: false,
            encryption: Encryption::On,
            link: None,
            speed: None,
            shared_dir: None,
            measures: true,
            tensorboard: false,
        }
    }
}

impl Options {
    /// Opens the directory for large payloads, if there is to be one.
    pub fn open_folder(&self) -> Result<Option<Arc<SharedFolder>>, SessionError> {
        Ok(self.shared_dir.as_deref().map(SharedFolder::open).transpose()?)
    }

    /// Listens for peers of a training.
    async fn bind(
        &self,
        identity: Identity,
        training: &Training,
    ) -> Result<(Endpoint, mpsc::Receiver<Arrival>), SessionError> {
        let job = fingerprint::of_job(&training.package);
        let settings = Settings {
            listen: self.listen.clone(),
            encryption: self.encryption,
            shape: self.link,
            limits: training.limits(),
            folder: self.open_folder()?,
            ..Settings::new(identity, Purpose::Peer { generation: 0, job })
        };
        Ok(Endpoint::bind(settings).await?)
    }

    /// Where others reach a peer, best first.
    fn addresses(&self, endpoint: &Endpoint) -> Vec<Address> {
        self.address.clone().map_or_else(|| endpoint.addresses().to_vec(), |address| vec![address])
    }
}

/// Who is there, as one of them tells who wants to join.
pub struct Invited {
    invitation: Invitation,
    identity: Identity,
    /// Where the one who was asked sees this machine.
    seen: Address,
}

impl Invited {
    /// Asks the swarm of a ticket for what it trains.
    pub async fn ask(ticket: &Ticket, options: &Options) -> Result<Self, SessionError> {
        let identity = Identity::newcomer(&ticket.secret)?;
        let addresses = find_addresses(ticket, options.discover).await?;
        let terms =
            Terms { encryption: options.encryption, ..Terms::new(identity.clone(), Purpose::Newcomer { job: None }) };
        match ask_any(&Tcp, &terms, &addresses, &Question::Join).await? {
            (Answer::Join(invitation), seen) => Ok(Self { invitation, identity, seen }),
            _ => Err(SessionError::OtherVersion),
        }
    }

    /// What the swarm trains.
    pub fn package(&self) -> &JobPackage {
        &self.invitation.package
    }

    /// Number of peers that are there.
    pub fn n_members(&self) -> usize {
        self.invitation.members.len()
    }
}

/// A peer that is ready to train.
pub struct Session {
    training: Arc<Training>,
    start: StartState,
    run: RunFolder,
    events: EventLog,
    options: Options,
    endpoint: Endpoint,
    arrivals: mpsc::Receiver<Arrival>,
    address: Address,
    members: Vec<(PeerId, Address)>,
    leave: mpsc::Sender<Command>,
    commands: mpsc::Receiver<Command>,
}

/// Ends a session from anywhere: another task, a signal handler.
#[derive(Clone)]
pub struct Leave(mpsc::Sender<Command>);

impl Leave {
    /// Has the peer leave the others cleanly and end, with a checkpoint of what it has.
    pub fn leave(&self) {
        // If it does not listen any more, it is ending anyway.
        let _ = self.0.try_send(Command::Leave);
    }
}

/// What came of a session.
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Whether nobody else was there at the end.
    pub was_alone: bool,
    /// Whether a model that guesses would have done as well in the last test.
    pub is_guessing: bool,
    /// The newest checkpoint, if one was written.
    pub checkpoint: Option<PathBuf>,
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
        let secret = Secret::random();
        let bound = options.bind(Identity::new(&secret, 0)?, &training).await?;
        let ticket = Ticket { secret, addresses: options.addresses(&bound.0) };
        let address = ticket.addresses.first().unwrap_or(bound.0.local_address()).clone();
        Ok((Self::new(training, start, run, options, bound, address, Vec::new())?, ticket))
    }

    /// Takes part in a swarm to which this peer was invited.
    pub async fn join(
        invited: Invited,
        training: Arc<Training>,
        run: RunFolder,
        options: Options,
    ) -> Result<Self, SessionError> {
        let Invited { invitation: Invitation { seat, members, .. }, identity, seen } = invited;
        let bound = options.bind(identity.with_seat(seat), &training).await?;
        let endpoint = &bound.0;
        let job = fingerprint::of_job(&training.package);
        endpoint.introduce_as(seat, Purpose::Peer { generation: 0, job });
        let address = options.address.clone().unwrap_or_else(|| seen.at_port_of(endpoint.local_address()));
        let (start, options) = (StartState::fresh(&training), Options { wait_for: 1, ..options });
        Self::new(training, start, run, options, bound, address, members)
    }

    fn new(
        training: Arc<Training>,
        start: StartState,
        run: RunFolder,
        options: Options,
        (endpoint, arrivals): (Endpoint, mpsc::Receiver<Arrival>),
        address: Address,
        members: Vec<(PeerId, Address)>,
    ) -> Result<Self, SessionError> {
        let tensorboard = options.tensorboard.then(|| run.path().join("tensorboard"));
        let events = EventLog::append(&run.events(), tensorboard)?;
        let (leave, commands) = mpsc::channel(1);
        Ok(Self { training, start, run, events, options, endpoint, arrivals, address, members, leave, commands })
    }

    /// What it trains.
    pub fn training(&self) -> &Training {
        &self.training
    }

    /// Where its checkpoints and events are.
    pub fn run_folder(&self) -> &Path {
        self.run.path()
    }

    /// Where it begins.
    pub fn place(&self) -> &Place {
        self.start.place()
    }

    /// Where others reach it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What ends it early.
    pub fn leave(&self) -> Leave {
        Leave(self.leave.clone())
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

    /// Trains with the others until all epochs are done, or somebody says [`leave`](Leave::leave).
    pub async fn run(self) -> Result<Outcome, SessionError> {
        let Self { training, start, run, events, options, endpoint, arrivals, address, members, commands, .. } = self;
        let announced = endpoint.local_address().tcp().filter(|_| options.discover);
        let _announcement =
            announced.map(|address| discovery::announce(endpoint.identity().swarm(), address.port())).transpose()?;
        let place = start.place();
        let mut reached = (place.ledger.epoch, place.step);
        let log = LiveLog::start(events, &training, run.path(), Topology::OneOfMany, place, None)?;
        let log = RefCell::new(log);
        let process = PeerProcess {
            training: &training,
            start,
            checkpoint_writer: CheckpointWriter::start(run, &training)?,
            keep: Keep::Always,
            wait_for: options.wait_for,
            address,
            introducers: members,
            measures: options.measures,
            speed: options.speed,
        };
        let (mut peak_rss_bytes, mut checkpoint) = (None, None);
        let result = process
            .run((endpoint, arrivals), commands, &mut |event| {
                match &event {
                    PeerEvent::Ended { epoch, step, peak_rss_bytes: peak, .. } => {
                        (reached, peak_rss_bytes) = ((*epoch, *step), *peak);
                    }
                    PeerEvent::Checkpoint { path, .. } => checkpoint = Some(path.clone()),
                    _ => {}
                }
                Ok(log.borrow_mut().on_event(&event)?)
            })
            .await;
        let mut log = log.into_inner();
        let reason = match &result {
            Ok(Ending::Finished) => Reason::Finished,
            Ok(Ending::Left) => Reason::Interrupted,
            Ok(Ending::Failed(problem)) => Reason::Failed(problem.clone()),
            Err(error) => Reason::Failed(error.to_string()),
        };
        let (epoch, step) = reached;
        let told = log.stop(End { reason, epoch, step, peak_rss_bytes });
        // If the end cannot be written either, the error to tell is the one that came first.
        let ending = result?;
        told?;
        let is_guessing = ending == Ending::Finished && log.is_guessing();
        Ok(Outcome { ending, epoch, step, was_alone: log.is_alone(), is_guessing, checkpoint })
    }
}
