//! A process that trains: it can be killed, suspended, told to leave, and started when others train already.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_net::address::Address;
use nettorrent_net::ask::ask_any;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::machine::Machine;
use nettorrent_net::membership::{Config, Member};
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::report::{Command, Ending, Report};
use nettorrent_net::service::{Answer, JobPackage, Question};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{BlockView, Place, Setup, State};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

use crate::machine::Worker;
use crate::network::{Host, Network};

/// What all processes have in common.
#[derive(Clone)]
pub struct Common {
    /// What they train.
    pub setup: Arc<Setup>,
    /// How they reach each other.
    pub network: Network,
    /// When a silent peer is given up.
    pub deadline: Duration,
    /// How long a sample takes.
    pub sample_s: f64,
    /// When all began.
    pub began: Instant,
}

/// How a process comes to its swarm.
#[derive(Clone)]
pub enum Beginning {
    /// With so many others, numbered from 0 on, who all wait for each other.
    Together(u64),
    /// Later, by asking at these addresses.
    Join(Vec<Address>),
}

/// How far a process has come, as it told.
#[derive(Debug, Default)]
pub struct Told {
    /// How it ended; none if it did not.
    pub ending: Option<Ending>,
    /// Why it did not get into the swarm.
    pub not_admitted: Option<String>,
    /// Where training was when it last told anything.
    pub place: Option<Place>,
    /// What it had learnt; nothing if it held blocks.
    pub values: Arc<Vec<f32>>,
    /// The blocks that it held.
    pub blocks: Vec<BlockView>,
    /// The number of its last view.
    pub view: u32,
    /// Whether it ever agreed with others on whose state goes on.
    pub has_met_others: bool,
    /// How it joined, and how it lost others and went on.
    pub churn: Vec<Event>,
    /// What happened to it and when, for people.
    pub log: Vec<String>,
}

impl Told {
    /// Whether it ended without any part of the model.
    pub fn holds_nothing(&self) -> bool {
        self.values.is_empty() && self.blocks.is_empty()
    }
}

/// What came of a process.
pub struct Fate {
    /// Its number.
    pub host: Host,
    /// Whether it was killed.
    pub is_dead: bool,
    /// Whether it never came to an end.
    pub hangs: bool,
    /// What it told.
    pub told: Told,
}

/// A process that was started.
pub struct Process {
    /// Its number.
    pub host: Host,
    told: Rc<RefCell<Told>>,
    machine: Arc<Worker>,
    network: Network,
    is_suspended: watch::Sender<bool>,
    commands: mpsc::Sender<Command>,
    task: AbortHandle,
    is_dead: bool,
}

impl Process {
    /// Starts one.
    pub fn start(host: Host, common: Common, beginning: Beginning, tasks: &LocalSet) -> Self {
        let machine = Arc::new(Worker::new(common.sample_s));
        let told = Rc::new(RefCell::new(Told::default()));
        let (commands, orders) = mpsc::channel(16);
        let (is_suspended, gate) = watch::channel(false);
        let network = common.network.clone();
        let life = live(host, common, beginning, (machine.clone(), commands.clone(), orders), told.clone());
        let task = tasks.spawn_local(suspendable(life, gate)).abort_handle();
        Self { host, told, machine, network, is_suspended, commands, task, is_dead: false }
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        self.network.kill(self.host);
        self.task.abort();
        self.is_dead = true;
    }

    /// Asks it to leave the others.
    pub fn leave(&self) {
        // If it does not listen any more, it has ended.
        let _ = self.commands.try_send(Command::Leave);
    }

    /// It stands still, or goes on; its sockets do too.
    pub fn suspend(&self, is_suspended: bool) {
        self.network.suspend(self.host, is_suspended);
        self.machine.set_stuck(is_suspended);
        self.is_suspended.send_replace(is_suspended);
    }

    /// Only what computes stands still, or goes on.
    pub fn stick(&self, is_stuck: bool) {
        self.machine.set_stuck(is_stuck);
    }

    /// What has come of it so far.
    pub fn fate(&self) -> Fate {
        Fate { host: self.host, is_dead: self.is_dead, hangs: !self.has_ended(), told: self.told.take() }
    }

    /// Whether it has come to an end, whatever end.
    pub fn has_ended(&self) -> bool {
        self.is_dead || self.task.is_finished()
    }
}

/// Since when a process has been where it is.
struct Stalled {
    at: (u64, u32),
    since: Instant,
    is_told: bool,
}

/// Who has been at the same place for this long stands still.
const LONG: Duration = Duration::from_secs(10);

impl Stalled {
    /// Whether it has just been where it is for long.
    fn is_news(&mut self, at: (u64, u32)) -> bool {
        if self.at != at {
            *self = Self { at, since: Instant::now(), is_told: false };
        }
        self.since.elapsed() >= LONG && !std::mem::replace(&mut self.is_told, true)
    }
}

async fn suspendable(life: impl Future<Output = ()>, mut gate: watch::Receiver<bool>) {
    let mut life = pin!(life);
    loop {
        // If nobody can suspend it any more, nobody does.
        let _ = gate.wait_for(|is_suspended| !is_suspended).await;
        tokio::select! {
            biased;
            Ok(()) = gate.changed() => {}
            () = &mut life => return,
        }
    }
}

async fn live(
    host: Host,
    common: Common,
    beginning: Beginning,
    means: (Arc<Worker>, mpsc::Sender<Command>, mpsc::Receiver<Command>),
    told: Rc<RefCell<Told>>,
) {
    if let Err(problem) = train(host, common, beginning, means, &told).await {
        told.borrow_mut().not_admitted = Some(problem);
    }
}

async fn train(
    host: Host,
    common: Common,
    beginning: Beginning,
    (machine, commands, orders): (Arc<Worker>, mpsc::Sender<Command>, mpsc::Receiver<Command>),
    told: &RefCell<Told>,
) -> Result<(), String> {
    let Common { setup, network, deadline, began, .. } = common;
    let transport = network.of(host);
    let (founder, number) = (Founder::within_process(), host as u32);
    let (identity, members, wait_for) = match beginning {
        Beginning::Together(n) => {
            let others = (0..n).filter(|&other| other != host);
            let member = |host: Host| founder.member(host as u32).map_err(|error| error.to_string());
            let others = others.map(|other| Ok((member(other)?.peer, Address::InProcess(other))));
            (member(host)?, others.collect::<Result<Vec<_>, String>>()?, n as usize)
        }
        Beginning::Join(addresses) => {
            let visitor = founder.visitor(number).map_err(|error| error.to_string())?;
            let purpose = Purpose::Joiner { job: None };
            let terms = Terms { encryption: Encryption::Off, ..Terms::new(visitor.clone(), purpose) };
            match ask_any(&*transport, &terms, &addresses, &Question::Join).await {
                Ok((Answer::Join(invitation), _)) => {
                    let identity = visitor.admitted(&invitation.admission).map_err(|error| error.to_string())?;
                    (identity, invitation.members, 1)
                }
                Ok(_) => return Err("another answer".into()),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    let id = identity.peer;
    let purpose = Purpose::Peer { generation: 0, job: [0; 32] };
    let listen = Address::InProcess(host);
    let settings =
        Settings { transport, listen: listen.clone(), encryption: Encryption::Off, ..Settings::new(identity, purpose) };
    let bound = Endpoint::bind(settings).await.map_err(|error| error.to_string())?;
    let settings = NodeSettings {
        package: JobPackage { job: String::new(), model: String::new(), data: [[0; 32]; 2] },
        membership: Config { deadline, wait_for, ..Config::default() },
        address: listen,
        threads: 1,
        machine: Machine::Simulated(machine),
        host: format!("host {host}"),
        measures_waits: false,
    };
    let peer = setup.peer(id, State::fresh(setup.training()));
    let mut node = Node::new(bound, setup, peer, settings).map_err(|error| error.to_string())?;
    let introducers = members.into_iter().map(|(id, address)| Member { id, generation: 0, address }).collect();
    let mut stalled = Stalled { at: (0, 0), since: began, is_told: false };
    let ending = node
        .run(introducers, orders, mpsc::unbounded_channel().1, |report, peer| {
            let place = peer.place();
            told.borrow_mut().place = Some(place.clone());
            let text = match report {
                Report::Record { record: Record { event: Event::View { members, .. }, .. }, .. } => {
                    told.borrow_mut().has_met_others |= members.len() > 1;
                    return;
                }
                Report::Record {
                    record: Record { event: event @ (Event::Joined { .. } | Event::Lost { .. }), .. },
                    ..
                } => {
                    told.borrow_mut().churn.push(event.clone());
                    format!("{event:?}")
                }
                Report::Note(note) => format!("{note:?}"),
                Report::Refused(problem) => problem,
                Report::Ending => "the end".to_owned(),
                Report::Tick if stalled.is_news((place.ledger.epoch, place.version.round)) => {
                    format!("stands still: {:?}", peer.status())
                }
                // The disk is as fast as can be.
                Report::Saved(_) => {
                    let _ = commands.try_send(Command::BlockWritten);
                    return;
                }
                _ => return,
            };
            let (at, epoch, round) = (began.elapsed().as_secs_f64(), place.ledger.epoch, place.version.round);
            told.borrow_mut().log.push(format!("{at:8.3} s, epoch {epoch}, round {round}: {text}"));
        })
        .await;
    let mut told = told.borrow_mut();
    told.place = Some(node.peer().place().clone());
    (told.values, told.blocks) = (node.peer().values(), node.peer().blocks());
    told.view = node.peer().view().number;
    told.log.push(format!("{:8.3} s: {ending:?}", began.elapsed().as_secs_f64()));
    told.ending = Some(ending);
    Ok(())
}
