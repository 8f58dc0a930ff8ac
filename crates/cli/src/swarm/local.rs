//! A swarm of processes on this machine: started, watched and stopped by one that does not train.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use nettorrent_history::{Event, PeerAddress, Reason};
use nettorrent_net::address::Address;
use nettorrent_net::ticket::{Secret, Ticket};
use nettorrent_swarm::PeerId;
use serde::Serialize;

use super::orders::{Order, Orders};
use super::progress_view::ProgressView;
use crate::interrupt::{self, Interrupt};
use crate::progress::{GUESSING, finished_text};
use nettorrent_session::StartPoint;
use nettorrent_session::live_log::{End, LiveLog};
use nettorrent_session::peer_event::{Ending, PeerEvent};
use nettorrent_session::run_folder::RunFolder;

/// How a swarm on this machine is set up.
pub(crate) struct LocalSettings {
    pub n_peers: usize,
    /// What to go on from.
    pub checkpoint: Option<PathBuf>,
    /// Where that is.
    pub start: StartPoint,
    pub encryption: bool,
    pub link: Option<String>,
    pub shared_dir: Option<PathBuf>,
    pub measures: bool,
}

/// What comes from a process.
enum Heard {
    Event(PeerEvent),
    /// A line that is no event: something went wrong in it.
    Complaint(String),
    /// It has closed its output.
    Silent,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    peer: Option<(PeerId, Address)>,
    ending: Option<Ending>,
    complaints: Vec<String>,
    status: Option<ExitStatus>,
}

/// How often it is looked whether somebody wants to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Trains with processes on this machine until all is done, or until Ctrl-C.
pub(crate) fn train(
    run: &RunFolder,
    settings: &LocalSettings,
    mut log: LiveLog,
    view: &RefCell<ProgressView>,
) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let mut swarm = LocalSwarm::start(run, settings)?;
    let result = swarm.watch(&mut log, view, &interrupt);
    view.borrow_mut().finish();
    if result.is_err() {
        swarm.kill();
    }
    let ending = result.and_then(|()| swarm.ending()).and_then(|ending| swarm.check_kept(ending, run));
    let (epoch, step) = swarm.place;
    let failure = ending.as_ref().err().map(crate::explain);
    let reason = match (&failure, &ending) {
        (Some(failure), _) => Reason::Failed(failure.clone()),
        (None, Ok(Ending::Finished)) => Reason::Finished,
        (None, _) => Reason::Interrupted,
    };
    let is_interrupted = reason == Reason::Interrupted;
    let is_guessing = reason == Reason::Finished && log.is_guessing();
    let told = log.stop(End { reason, epoch, step, peak_rss_bytes: swarm.peak_rss_bytes });
    ending?;
    told?;
    let view = view.borrow();
    let path = run.path().display();
    if is_interrupted {
        // Where layers are shared out, nobody has the whole to keep: what is kept is gathered at the end of epochs.
        let is_kept = run.job(&[])?.layers.is_none();
        let lost = if is_kept { "nothing is lost" } else { "what was learnt since the last checkpoint is lost" };
        view.tell(&format!("Stopped at step {step}; {lost}. Go on with: nettorrent resume {path}"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    view.say(&finished_text(log.elapsed(), run.path()));
    if is_guessing {
        view.tell(GUESSING);
    }
    Ok(ExitCode::SUCCESS)
}

struct LocalSwarm {
    processes: Vec<Process>,
    heard: Receiver<(usize, Heard)>,
    /// Epoch and step of the most advanced that ended; before that, of the beginning.
    place: (u64, u64),
    peak_rss_bytes: Option<u64>,
    has_begun: bool,
    is_stopping: bool,
}

impl LocalSwarm {
    fn start(run: &RunFolder, settings: &LocalSettings) -> anyhow::Result<Self> {
        let ticket = Ticket { secret: Secret::random(), addresses: Vec::new() }.to_string();
        let (sender, heard) = channel();
        let mut swarm = Self {
            processes: Vec::new(),
            heard,
            place: (settings.start.place.ledger.epoch, settings.start.place.step),
            peak_rss_bytes: None,
            has_begun: false,
            is_stopping: false,
        };
        for seat in 0..settings.n_peers {
            let orders = Orders {
                run: run.path().to_owned(),
                ticket: ticket.clone(),
                seat: seat as u32,
                n_peers: settings.n_peers,
                checkpoint: settings.checkpoint.clone(),
                encryption: settings.encryption,
                link: settings.link.clone(),
                shared_dir: settings.shared_dir.clone(),
                measures: settings.measures,
            };
            match Process::start(seat, &orders, &sender) {
                Ok(process) => swarm.processes.push(process),
                Err(error) => {
                    swarm.kill();
                    return Err(error.context(format!("cannot start peer {seat}")));
                }
            }
        }
        Ok(swarm)
    }

    /// Takes in what is told until all processes have ended.
    fn watch(&mut self, log: &mut LiveLog, view: &RefCell<ProgressView>, interrupt: &Interrupt) -> anyhow::Result<()> {
        while self.processes.iter().any(|process| process.status.is_none()) {
            if interrupt.is_set() && !self.is_stopping {
                self.is_stopping = true;
                self.processes.iter_mut().for_each(|process| process.order(&Order::Leave));
            }
            match self.heard.recv_timeout(LOOK_EVERY) {
                Ok((k, heard)) => self.on_heard(k, heard, log, view)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    fn on_heard(
        &mut self,
        k: usize,
        heard: Heard,
        log: &mut LiveLog,
        view: &RefCell<ProgressView>,
    ) -> anyhow::Result<()> {
        match heard {
            Heard::Event(event) => {
                match &event {
                    PeerEvent::Listening { peer, address } => {
                        self.processes[k].peer = Some((*peer, address.clone()));
                        let pid = self.processes[k].child.id();
                        if let Some(address) = address.tcp() {
                            log.write(Event::Peer(PeerAddress { peer: *peer, address, pid }))?;
                        }
                        self.begin_if_all_listen();
                    }
                    PeerEvent::Ended { ending, epoch, step, peak_rss_bytes, .. } => {
                        self.processes[k].ending = Some(ending.clone());
                        self.place = self.place.max((*epoch, *step));
                        self.peak_rss_bytes = self.peak_rss_bytes.max(*peak_rss_bytes);
                    }
                    _ => {}
                }
                Ok(log.on_event(&event)?)
            }
            Heard::Complaint(line) => {
                view.borrow().tell(&format!("peer {k}: {line}"));
                self.processes[k].complaints.push(line);
                Ok(())
            }
            Heard::Silent => self.on_end(k, view),
        }
    }

    fn begin_if_all_listen(&mut self) {
        let members: Option<Vec<_>> = self.processes.iter().map(|process| process.peer.clone()).collect();
        if let Some(members) = members {
            self.has_begun = true;
            self.processes.iter_mut().for_each(|process| process.order(&Order::Begin { members: members.clone() }));
        }
    }

    fn on_end(&mut self, k: usize, view: &RefCell<ProgressView>) -> anyhow::Result<()> {
        let process = &mut self.processes[k];
        let status = process.child.wait().context("cannot learn how a peer ended")?;
        process.status = Some(status);
        if process.ending.is_none() {
            let what = process.complaints.last().cloned().unwrap_or_else(|| status.to_string());
            if !self.has_begun {
                bail!("peer {k} could not start: {}", what.trim_start_matches("error: "));
            }
            view.borrow().tell(&format!("peer {k} is gone ({status}); the others go on without it"));
        }
        Ok(())
    }

    /// How the whole ended: as the best of its peers did.
    fn ending(&self) -> anyhow::Result<Ending> {
        let mut endings = self.processes.iter().filter_map(|process| process.ending.as_ref());
        if endings.clone().any(|ending| *ending == Ending::Finished) {
            return Ok(Ending::Finished);
        }
        if self.is_stopping && endings.clone().any(|ending| *ending == Ending::Left) {
            return Ok(Ending::Left);
        }
        let failure = endings.find_map(|ending| match ending {
            Ending::Failed(problem) => Some(problem.clone()),
            Ending::Finished | Ending::Left => None,
        });
        let complaint = self.processes.iter().find_map(|process| process.complaints.last());
        let failure = failure.or(complaint.map(|line| line.trim_start_matches("error: ").to_owned()));
        bail!("{}", failure.unwrap_or_else(|| "all peers are gone".into()))
    }

    /// A run is finished when what it has learnt is on the disk.
    fn check_kept(&self, ending: Ending, run: &RunFolder) -> anyhow::Result<Ending> {
        if ending != Ending::Finished || run.checkpoint_path(self.place.1).exists() {
            return Ok(ending);
        }
        let complaint = self.processes.iter().find_map(|process| process.complaints.last());
        let why = complaint.map_or("whoever was to write it is gone", |line| line.trim_start_matches("error: "));
        bail!("all epochs are trained, but the last checkpoint was not written: {why}")
    }

    /// Ends all processes at once.
    fn kill(&mut self) {
        for process in &mut self.processes {
            // It may have ended by itself.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Drop for LocalSwarm {
    fn drop(&mut self) {
        if self.processes.iter().any(|process| process.status.is_none()) {
            self.kill();
        }
    }
}

impl Process {
    fn start(seat: usize, orders: &Orders, heard: &Sender<(usize, Heard)>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C goes to all processes of a terminal; these are to hear of it from us, in order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else { bail!("it has no pipes") };
        listen(seat, stderr, heard.clone(), Heard::Complaint, None)?;
        let event = |line: String| match serde_json::from_str(&line) {
            Ok(event) => Heard::Event(event),
            Err(_) => Heard::Complaint(line),
        };
        listen(seat, stdout, heard.clone(), event, Some(Heard::Silent))?;
        let mut process = Self { child, orders: stdin, peer: None, ending: None, complaints: Vec::new(), status: None };
        process.order(orders);
        Ok(process)
    }

    /// Tells the process something. One that is gone hears nothing, which is noticed elsewhere.
    fn order(&mut self, order: &impl Serialize) {
        let mut line = serde_json::to_string(order).expect("orders are plain data");
        line.push('\n');
        let _ = self.orders.write_all(line.as_bytes());
    }
}

/// Hands on what a process says, line by line, on a thread of its own.
fn listen(
    seat: usize,
    source: impl Read + Send + 'static,
    heard: Sender<(usize, Heard)>,
    understand: impl Fn(String) -> Heard + Send + 'static,
    at_the_end: Option<Heard>,
) -> std::io::Result<()> {
    thread::Builder::new().name(format!("peer {seat}")).spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if heard.send((seat, understand(line))).is_err() {
                return;
            }
        }
        if let Some(end) = at_the_end {
            let _ = heard.send((seat, end));
        }
    })?;
    Ok(())
}
