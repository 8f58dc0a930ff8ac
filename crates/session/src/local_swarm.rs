//! A swarm of processes on this machine: started, watched and stopped by one that does not train.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nettorrent_history::{Event, PeerAddress};
use nettorrent_net::address::Address;
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::ticket::Secret;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use serde::Serialize;

use crate::conclusion::{Conclusion, Outcome};
use crate::error::SessionError;
use crate::live_log::{LiveLog, Topology};
use crate::orders::{Order, Orders};
use crate::peer_event::PeerEvent;
use crate::run_folder::RunFolder;
use crate::start_point::StartPoint;

/// How a swarm on this machine is set up.
pub struct LocalSettings {
    /// How many processes train.
    pub n_peers: usize,
    /// What to go on from.
    pub checkpoint: Option<PathBuf>,
    /// How far that is.
    pub start: StartPoint,
    /// Whether they encrypt what they say to each other.
    pub encryption: bool,
    /// How slow the network between them is to be.
    pub link: Option<LinkSpec>,
    /// How fast they are to seem, if they are to be slower than they are; fewer than processes are taken in turn.
    pub speeds: Vec<EmulatedSpeed>,
    /// Where large payloads go.
    pub shared_dir: Option<PathBuf>,
    /// Whether to measure what each takes of the machine and for whom it waits.
    pub measures: bool,
    /// After how much silence they give each other up.
    pub deadline: Duration,
}

/// Processes of this machine that train together.
pub struct LocalSwarm {
    processes: Vec<Process>,
    heard: Receiver<(usize, Heard)>,
    conclusion: Conclusion,
    has_begun: bool,
    is_stopping: bool,
    /// How long a process may say nothing when the others have ended.
    patience: Duration,
}

/// What comes from a process.
enum Heard {
    Event(PeerEvent),
    /// A line that is no event: something went wrong in it.
    Complaint(String),
    /// It has closed a stream.
    Silent,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    peer: Option<(PeerId, Address)>,
    has_told_end: bool,
    /// When it said something last.
    heard_at: Instant,
    complaints: Vec<String>,
    /// How many of its two streams it has not closed.
    n_open: u8,
    status: Option<ExitStatus>,
}

/// How often it is looked whether somebody wants to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many deadlines a process may say nothing before it is ended at the end of a run. A running one tells of itself every second.
const PATIENCE: u32 = 6;

impl LocalSwarm {
    /// Starts the processes: each is this program with the argument `peer`, and has to call
    /// [`run_local_peer`](crate::local_peer::run_local_peer).
    pub fn start(program: &Path, run: &RunFolder, settings: &LocalSettings) -> Result<Self, SessionError> {
        let secret = Secret::random();
        let (sender, heard) = channel();
        let mut swarm = Self {
            processes: Vec::new(),
            heard,
            conclusion: Conclusion::new(run.clone(), Topology::Local(settings.n_peers), &settings.start.place),
            has_begun: false,
            is_stopping: false,
            patience: settings.deadline.saturating_mul(PATIENCE),
        };
        for index in 0..settings.n_peers {
            let orders = Orders {
                run: run.path().to_owned(),
                secret: secret.clone(),
                index: index as u32,
                n_peers: settings.n_peers,
                checkpoint: settings.checkpoint.clone(),
                encryption: settings.encryption,
                link: settings.link,
                speed: settings.speeds.get(index % settings.speeds.len().max(1)).cloned(),
                shared_dir: settings.shared_dir.clone(),
                measures: settings.measures,
            };
            // Those that are started already end when this is dropped.
            let process = Process::start(program, index, &orders, &sender)
                .map_err(|source| SessionError::PeerStart { index, problem: source.to_string() })?;
            swarm.processes.push(process);
        }
        Ok(swarm)
    }

    /// Trains until all is done, or until `is_stopped`; `tell` is told what people have to know, the log everything.
    pub fn train(
        mut self,
        mut log: LiveLog,
        is_stopped: &dyn Fn() -> bool,
        tell: &dyn Fn(&str),
    ) -> Result<Outcome, SessionError> {
        if let Err(error) = self.watch(&mut log, is_stopped, tell) {
            self.kill();
            self.conclusion.stop_by(error);
        }
        self.conclusion.conclude(&mut log)
    }

    /// Takes in what is told until all processes have ended.
    fn watch(
        &mut self,
        log: &mut LiveLog,
        is_stopped: &dyn Fn() -> bool,
        tell: &dyn Fn(&str),
    ) -> Result<(), SessionError> {
        while self.processes.iter().any(|process| process.status.is_none()) {
            if is_stopped() && !self.is_stopping {
                self.is_stopping = true;
                self.processes.iter_mut().for_each(|process| process.order(&Order::Leave));
            }
            match self.heard.recv_timeout(LOOK_EVERY) {
                Ok((index, heard)) => self.on_heard(index, heard, log, tell)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.end_who_stands_still(tell);
        }
        Ok(())
    }

    /// Ends those of whom nothing is heard when all is to end: one that is suspended would never. As long as others train, it is for them
    /// to give it up, and it may come back.
    fn end_who_stands_still(&mut self, tell: &dyn Fn(&str)) {
        let patience = self.patience;
        let is_over = self.is_stopping || self.processes.iter().any(|process| process.has_told_end);
        let is_still = |process: &Process| process.status.is_none() && process.heard_at.elapsed() > patience;
        for (index, process) in
            self.processes.iter_mut().enumerate().filter(|(_, process)| is_over && is_still(process))
        {
            tell(&format!("peer {index} has said nothing for {} s and is ended", patience.as_secs()));
            process.heard_at = Instant::now();
            // Its streams close with it, and then it counts as gone.
            let _ = process.child.kill();
        }
    }

    fn on_heard(
        &mut self,
        index: usize,
        heard: Heard,
        log: &mut LiveLog,
        tell: &dyn Fn(&str),
    ) -> Result<(), SessionError> {
        let process = &mut self.processes[index];
        process.heard_at = Instant::now();
        match heard {
            Heard::Event(event) => {
                self.conclusion.on_event(&event);
                match &event {
                    PeerEvent::Listening { peer, address } => {
                        process.peer = Some((*peer, address.clone()));
                        let pid = process.child.id();
                        if let Some(address) = address.tcp() {
                            log.write(Event::Peer(PeerAddress { peer: *peer, address, pid }));
                        }
                        self.begin_if_all_listen();
                    }
                    PeerEvent::Ended { .. } => process.has_told_end = true,
                    _ => {}
                }
                log.on_event(&event);
                Ok(())
            }
            Heard::Complaint(line) => {
                tell(&format!("peer {index}: {line}"));
                process.complaints.push(line);
                Ok(())
            }
            Heard::Silent => {
                process.n_open -= 1;
                // Its last complaint may be read after its last event.
                if process.n_open == 0 { self.on_end(index, tell) } else { Ok(()) }
            }
        }
    }

    fn begin_if_all_listen(&mut self) {
        let members: Option<Vec<_>> = self.processes.iter().map(|process| process.peer.clone()).collect();
        if let Some(members) = members {
            self.has_begun = true;
            self.processes.iter_mut().for_each(|process| process.order(&Order::Begin { members: members.clone() }));
        }
    }

    fn on_end(&mut self, index: usize, tell: &dyn Fn(&str)) -> Result<(), SessionError> {
        let process = &mut self.processes[index];
        let status = process.child.wait()?;
        process.status = Some(status);
        if !process.has_told_end {
            let complaint = process.complaint();
            if !self.has_begun {
                let problem = complaint.map_or_else(|| status.to_string(), str::to_owned);
                return Err(SessionError::PeerStart { index, problem });
            }
            complaint
                .into_iter()
                .for_each(|problem| self.conclusion.on_problem(SessionError::Peers(problem.to_owned())));
            let are_left = self.processes.iter().any(|process| process.status.is_none());
            let others = if are_left { "; the others go on without it" } else { "" };
            tell(&format!("peer {index} is gone ({status}){others}"));
        }
        Ok(())
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
    fn start(program: &Path, index: usize, orders: &Orders, heard: &Sender<(usize, Heard)>) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C goes to all processes of a terminal; these are to hear of it from us, in order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("it has no pipes"));
        };
        listen(index, stderr, heard.clone(), Heard::Complaint)?;
        let event = |line: String| match serde_json::from_str(&line) {
            Ok(event) => Heard::Event(event),
            Err(_) => Heard::Complaint(line),
        };
        listen(index, stdout, heard.clone(), event)?;
        let (complaints, n_open) = (Vec::new(), 2);
        let mut process = Self {
            child,
            orders: stdin,
            peer: None,
            has_told_end: false,
            heard_at: Instant::now(),
            complaints,
            n_open,
            status: None,
        };
        process.order(orders);
        Ok(process)
    }

    /// What it said last of what went wrong.
    fn complaint(&self) -> Option<&str> {
        self.complaints.last().map(|line| line.trim_start_matches("error: "))
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
    index: usize,
    source: impl Read + Send + 'static,
    heard: Sender<(usize, Heard)>,
    understand: impl Fn(String) -> Heard + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(format!("peer {index}")).spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if heard.send((index, understand(line))).is_err() {
                return;
            }
        }
        let _ = heard.send((index, Heard::Silent));
    })?;
    Ok(())
}
