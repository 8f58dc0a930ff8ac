//! A process that trains: it can be killed, suspended, told to leave, and started when others train already, or again.

use std::cell::RefCell;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_net::address::Address;
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::machine::Machine;
use nettorrent_session::peer_event::{Ending, PeerEvent};
use nettorrent_session::{self as session, Invited, Options, RunFolder, Session, Training};
use nettorrent_swarm::record::{Event, Record};
use tokio::sync::watch;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

use crate::disk::{Disk, Health};
use crate::machine::Worker;
use crate::network::{Host, Network};

/// What all processes have in common.
#[derive(Clone)]
pub struct Common {
    /// What they train.
    pub training: Arc<Training>,
    /// How they reach each other.
    pub network: Network,
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
    /// How its training ended; none if it did not.
    pub ending: Option<Ending>,
    /// How the process ended that trained: what its exit code and last line come from.
    pub exit: Option<Result<Ending, String>>,
    /// Why it did not get into the swarm.
    pub not_admitted: Option<String>,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Whether the last checkpoint was its own to write.
    pub is_writer: bool,
    /// The number of its last view.
    pub view: u32,
    /// Whether it ever agreed with others on whose state goes on.
    pub has_met_others: bool,
    /// Epochs that it told of as concluded, though nobody had tested them.
    pub untested: Vec<u64>,
    /// How it joined, and how it lost others and went on.
    pub churn: Vec<Event>,
    /// What happened to it and when, for people.
    pub log: Vec<String>,
}

/// What came of a process.
pub struct Fate {
    /// Its number.
    pub host: Host,
    /// Whether it was killed.
    pub is_dead: bool,
    /// Whether it never came to an end.
    pub hangs: bool,
    /// Its run's folder.
    pub folder: PathBuf,
    /// What it told.
    pub told: Told,
}

/// A process that was started.
pub struct Process {
    /// Its number.
    pub host: Host,
    folder: PathBuf,
    told: Rc<RefCell<Told>>,
    machine: Arc<Worker>,
    disk: Arc<Disk>,
    network: Network,
    is_suspended: watch::Sender<bool>,
    is_leaving: watch::Sender<bool>,
    task: AbortHandle,
    is_dead: bool,
}

impl Process {
    /// Starts one, with this folder for its run.
    pub fn start(host: Host, folder: PathBuf, common: Common, beginning: Beginning, tasks: &LocalSet) -> Self {
        let (machine, disk) = (Arc::new(Worker::new(common.sample_s)), Arc::new(Disk::default()));
        let told = Rc::new(RefCell::new(Told::default()));
        let (is_leaving, leave) = watch::channel(false);
        let (is_suspended, gate) = watch::channel(false);
        let network = common.network.clone();
        let options = Options {
            transport: network.of(host),
            listen: Address::InProcess(host),
            encryption: Encryption::Off,
            machine: Machine::Simulated(machine.clone()),
            disk: session::Disk::Simulated(disk.clone()),
            measures: false,
            ..Options::default()
        };
        let life = live((host, folder.clone()), common, beginning, options, leave, told.clone());
        let task = tasks.spawn_local(suspendable(life, gate)).abort_handle();
        Self { host, folder, told, machine, disk, network, is_suspended, is_leaving, task, is_dead: false }
    }

    /// Ends it without a word, if it has not ended by itself.
    pub fn kill(&mut self) {
        self.network.kill(self.host);
        self.is_dead |= !self.task.is_finished();
        self.task.abort();
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Asks it to leave the others.
    pub fn leave(&self) {
        self.is_leaving.send_replace(true);
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

    /// It answers and trains, and sends nothing of that, or does so again.
    pub fn mute(&self, is_mute: bool) {
        self.machine.set_mute(is_mute);
    }

    /// Its disk is like this from now on.
    pub fn set_disk(&self, health: Health) {
        self.disk.set(health);
    }

    /// What has come of it so far.
    pub fn fate(&self) -> Fate {
        let (host, folder, is_dead, told) = (self.host, self.folder.clone(), self.is_dead, self.told.take());
        Fate { host, is_dead, hangs: !self.has_ended(), folder, told }
    }

    /// Where its run is.
    pub fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// Whether it has come to an end, whatever end.
    pub fn has_ended(&self) -> bool {
        self.is_dead || self.task.is_finished()
    }
}

/// Since when a process has been where it is.
struct Stalled {
    at: (u64, u64),
    since: Instant,
    is_told: bool,
}

/// Who has been at the same place for this long stands still.
const LONG: Duration = Duration::from_secs(10);

impl Stalled {
    fn new(since: Instant) -> Self {
        Self { at: (0, 0), since, is_told: false }
    }

    /// Whether it has just been where it is for long.
    fn is_news(&mut self, at: (u64, u64)) -> bool {
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

/// What stands for the name of a run's folder, which is another every time.
const FOLDER: &str = "its folder";

async fn live(
    (host, folder): (Host, PathBuf),
    common: Common,
    beginning: Beginning,
    options: Options,
    mut leave: watch::Receiver<bool>,
    told: Rc<RefCell<Told>>,
) {
    let Common { training, began, .. } = common;
    let session = async {
        let invited = invite(host, beginning, &training, &options).await?;
        let run = if folder.exists() { RunFolder::open(&folder) } else { training.create_run(Some(&folder)) };
        let run = run.map_err(|error| error.to_string())?;
        Session::join(invited, training, run, options).await.map_err(|error| error.to_string())
    };
    let session = match session.await {
        Ok(session) => session,
        Err(problem) => {
            told.borrow_mut().not_admitted = Some(problem);
            return;
        }
    };
    let stop = session.leave();
    let folder = folder.display().to_string();
    let mut observer = Observer { told: told.clone(), folder: folder.clone(), began, stalled: Stalled::new(began) };
    let mut run = pin!(session.run_observed(move |event| observer.on_event(event)));
    let outcome = tokio::select! {
        biased;
        // What it returns is not kept: as long as it is there, nobody could say it again.
        true = async { leave.wait_for(|is_leaving| *is_leaving).await.is_ok() } => {
            stop.leave();
            run.await
        }
        outcome = &mut run => outcome,
    };
    let exit = outcome.map(|outcome| outcome.ending).map_err(|error| error.to_string().replace(&folder, FOLDER));
    let mut told = told.borrow_mut();
    told.log.push(format!("{:8.3} s: {exit:?}", began.elapsed().as_secs_f64()));
    told.exit = Some(exit);
}

/// Gets a process into its swarm.
async fn invite(host: Host, beginning: Beginning, training: &Training, options: &Options) -> Result<Invited, String> {
    let founder = Founder::within_process();
    let member = |host: Host| founder.member(host as u32).map_err(|error| error.to_string());
    match beginning {
        Beginning::Together(n) => {
            let others = (0..n).filter(|&other| other != host);
            let others = others.map(|other| Ok((member(other)?.peer, Address::InProcess(other))));
            let others = others.collect::<Result<Vec<_>, String>>()?;
            Ok(Invited::founding(member(host)?, others, training.package.clone()))
        }
        Beginning::Join(addresses) => {
            let visitor = founder.visitor(host as u32).map_err(|error| error.to_string())?;
            let invited = Invited::visit(visitor, &addresses, options).await;
            invited.map_err(|error| error.to_string())
        }
    }
}

/// Notes down what a process tells.
struct Observer {
    told: Rc<RefCell<Told>>,
    /// Where its run is.
    folder: String,
    began: Instant,
    stalled: Stalled,
}

impl Observer {
    fn on_event(&mut self, event: &PeerEvent) {
        let mut told = self.told.borrow_mut();
        let text = match event {
            PeerEvent::Record(Record { event: Event::View { view, members, .. }, .. }) => {
                told.view = *view;
                told.has_met_others |= members.len() > 1;
                return;
            }
            PeerEvent::Record(Record { event: event @ (Event::Joined { .. } | Event::Lost { .. }), .. }) => {
                told.churn.push(event.clone());
                format!("{event:?}")
            }
            PeerEvent::Record(Record { event: Event::Epoch { epoch, n_test: 0, .. }, .. }) => {
                told.untested.push(*epoch);
                format!("tells of epoch {epoch}, which nobody has tested")
            }
            PeerEvent::Progress(progress) => {
                (told.epoch, told.step) = (progress.epoch, progress.step);
                if !self.stalled.is_news((progress.epoch, progress.step)) {
                    return;
                }
                format!("stands still: {:?}, waits for {:?}", progress.phase, progress.waits_for)
            }
            PeerEvent::Ended { ending, epoch, step, is_writer, .. } => {
                (told.epoch, told.step, told.is_writer) = (*epoch, *step, *is_writer);
                told.ending = Some(ending.clone());
                format!("{ending:?}")
            }
            PeerEvent::Note { text, .. } => text.clone(),
            PeerEvent::Checkpoint { step, .. } => format!("checkpoint of step {step}"),
            PeerEvent::CheckpointFailed { step, problem, .. } => format!("no checkpoint of step {step}: {problem}"),
            PeerEvent::Record(_) | PeerEvent::Listening { .. } | PeerEvent::Resources(_) | PeerEvent::Heard(_) => {
                return;
            }
        };
        let (at, epoch, step) = (self.began.elapsed().as_secs_f64(), told.epoch, told.step);
        let text = text.replace(&self.folder, FOLDER);
        told.log.push(format!("{at:8.3} s, epoch {epoch}, step {step}: {text}"));
    }
}
