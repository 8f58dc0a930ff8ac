//! All peers of a swarm, from here.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nettorrent_history::{Event, Line};
use nettorrent_session::RunFolder;
use nettorrent_swarm::PeerId;
use serde_json::Value;

use crate::collect::collect;
use crate::error::LaunchError;
use crate::hosts::Host;
use crate::news::{News, Outcome};
use crate::package::Package;
use crate::program::ProgramSource;
use crate::script;
use crate::shell::Shell;

/// How often it is looked whether somebody wants an end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A swarm that is to be launched: a peer on each host, the first of which starts it.
pub struct Launch {
    /// Where.
    pub hosts: Vec<Host>,
    /// What they train.
    pub package: Package,
    /// What reaches them.
    pub shell: Shell,
    /// Where they get the program from.
    pub program: ProgramSource,
    /// The name of the run, also of its folders at the hosts.
    pub name: String,
    /// What is special about this launch.
    pub manner: Manner,
}

/// What is special about a launch; nothing usually is.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// Whether one process trains by itself, at the first host, as `train` does.
    pub is_alone: bool,
    /// The link that every peer sends as slowly as over, for experiments.
    pub link: Option<String>,
    /// Whether all leave when one fails at any time, and not only before training, when they would wait for it.
    pub needs_all: bool,
    /// Whether the peers' runs are removed from their hosts when what they learnt is here.
    pub removes_runs: bool,
}

/// What comes from a host.
enum Message {
    Out(String),
    Err(String),
    Ended(ExitStatus),
}

/// A host's peer.
struct RunningPeer {
    /// As long as it is open, the peer goes on.
    input: Option<ChildStdin>,
    last_said: String,
    status: Option<ExitStatus>,
    /// Whether it failed, and no other had before it.
    is_first_to_fail: bool,
    /// Which peer it is, once it has told.
    id: Option<PeerId>,
}

impl Launch {
    /// What would be done, as one would type it; nothing is.
    pub fn dry_run(&self) -> String {
        let mut text = String::new();
        for (k, host) in self.hosts.iter().enumerate() {
            let words = self.shell.words(&host.name, &self.script(k, &self.program.guess(host)));
            let role =
                if k == 0 { "starts the swarm" } else { "joins with the ticket, which is the first line of its input" };
            text += &format!("# {}: {role}; the program: {}\n", host.name, self.program.describe(host));
            text += &format!("{}\n\n", shell_words::join(words));
        }
        text + "# At the end the newest checkpoint is fetched from the first host that has finished.\n"
    }

    fn folder(&self, k: usize) -> String {
        script::folder(&self.name, k)
    }

    fn script(&self, k: usize, program: &str) -> String {
        let (folder, host) = (self.folder(k), &self.hosts[k]);
        let peer =
            script::Peer { folder: &folder, program, host, package: &self.package, link: self.manner.link.as_deref() };
        match k {
            0 if self.manner.is_alone => peer.train(),
            0 => peer.start(self.hosts.len()),
            _ => peer.join(),
        }
    }

    /// Launches all peers, tells what happens, and collects what they learnt into a run's folder. Once `is_stopped`, they are told to
    /// leave, each with a checkpoint of what it has.
    pub fn run(
        &self,
        run: &RunFolder,
        is_stopped: &dyn Fn() -> bool,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<Outcome, LaunchError> {
        let programs = self.find_programs(&mut tell)?;
        let (sender, messages) = channel();
        let mut peers: Vec<RunningPeer> = vec![self.start(0, &programs[0], &sender)?];
        let mut swarm = Swarm { launch: self, peers: &mut peers, source: 0, is_training: false, tell: &mut tell };
        if let Some(ticket) = swarm.follow(&messages, is_stopped, true) {
            for (k, program) in programs.iter().enumerate().skip(1) {
                let mut peer = self.start(k, program, &sender)?;
                if let Some(input) = &mut peer.input {
                    // If it is gone, it says so itself.
                    let _ = writeln!(input, "{ticket}").and_then(|()| input.flush());
                }
                swarm.peers.push(peer);
            }
            (swarm.tell)(News::Ticket(&ticket));
            swarm.follow(&messages, is_stopped, false);
        }
        let outcome = self.conclude(&peers, run);
        if self.manner.removes_runs {
            self.remove_runs(peers.len());
        }
        outcome
    }

    /// Where it cannot be done, what is left there does no harm: no other launch has its name.
    fn remove_runs(&self, n_started: usize) {
        let script = script::remove(&self.name);
        for host in &self.hosts[..n_started] {
            let _ = self.shell.run(&host.name, &script, &mut std::io::empty());
        }
    }

    /// Finds the program at all hosts at the same time.
    fn find_programs(&self, tell: &mut impl FnMut(News<'_>)) -> Result<Vec<String>, LaunchError> {
        let found: Vec<_> = thread::scope(|threads| {
            let find = |host| threads.spawn(move || self.program.find(&self.shell, host));
            let looking: Vec<_> = self.hosts.iter().map(find).collect();
            looking.into_iter().map(|thread| thread.join().expect("looking for a program does not panic")).collect()
        });
        let programs = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.hosts.iter().for_each(|host| tell(News::Ready(&host.name)));
        Ok(programs)
    }

    fn start(&self, k: usize, program: &str, sender: &Sender<(usize, Message)>) -> Result<RunningPeer, LaunchError> {
        let mut child = self.shell.start(&self.hosts[k].name, &self.script(k, program))?;
        let input = child.stdin.take();
        let sender = sender.clone();
        thread::spawn(move || pass_on(k, child, &sender));
        Ok(RunningPeer { input, last_said: String::new(), status: None, is_first_to_fail: false, id: None })
    }

    fn conclude(&self, peers: &[RunningPeer], run: &RunFolder) -> Result<Outcome, LaunchError> {
        let mut outcome = Outcome::default();
        for (host, peer) in self.hosts.iter().zip(peers) {
            outcome.peers.extend(peer.id.map(|id| (id, host.name.clone())));
            match peer.status {
                Some(status) if status.success() => outcome.finished.push(host.name.clone()),
                Some(status) if peer.last_said.is_empty() => {
                    outcome.failed.push((host.name.clone(), status.to_string()));
                }
                _ => outcome.failed.push((host.name.clone(), peer.last_said.clone())),
            }
        }
        if let Some(k) = peers.iter().position(|peer| peer.is_first_to_fail) {
            outcome.failed.sort_by_key(|(host, _)| *host != self.hosts[k].name);
        }
        // First those who finished; of a run that was stopped, any checkpoint is better than none.
        let is_finished = |k: &usize| peers[*k].status.is_some_and(|status| status.success());
        let (first, then): (Vec<usize>, Vec<usize>) = (0..peers.len()).partition(is_finished);
        let mut problem = None;
        for k in first.into_iter().chain(then) {
            match collect(&self.shell, &self.hosts[k].name, &self.folder(k), run) {
                Ok(true) => {
                    outcome.collected = Some(self.hosts[k].name.clone());
                    return Ok(outcome);
                }
                Ok(false) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if outcome.finished.is_empty() { Ok(outcome) } else { problem.map_or(Ok(outcome), Err) }
    }
}

/// The peers that were started.
struct Swarm<'a, T> {
    launch: &'a Launch,
    peers: &'a mut Vec<RunningPeer>,
    /// Whose events are those of the run: the first who lives hears the others.
    source: usize,
    /// Whether training has begun.
    is_training: bool,
    tell: &'a mut T,
}

impl<T: FnMut(News<'_>)> Swarm<'_, T> {
    /// Takes in what peers say until all have ended, or until there is a ticket if that is wanted.
    fn follow(
        &mut self,
        messages: &Receiver<(usize, Message)>,
        is_stopped: &dyn Fn() -> bool,
        wants_ticket: bool,
    ) -> Option<String> {
        while self.peers.iter().any(|peer| peer.status.is_none()) {
            let needs_all = self.launch.manner.needs_all || !self.is_training;
            if is_stopped() || needs_all && self.has_failed() {
                self.peers.iter_mut().for_each(|peer| peer.input = None);
            }
            let (k, message) = match messages.recv_timeout(LOOK_EVERY) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            match message {
                Message::Out(text) => {
                    let ticket = self.on_line(k, &text);
                    if wants_ticket && ticket.is_some() {
                        return ticket;
                    }
                }
                Message::Err(text) => {
                    (self.tell)(News::Said { host: &self.launch.hosts[k].name, text: &text });
                    self.peers[k].last_said = text;
                }
                Message::Ended(status) => {
                    self.peers[k].is_first_to_fail = !status.success() && !self.has_failed();
                    self.peers[k].status = Some(status);
                    (self.tell)(News::Ended { host: &self.launch.hosts[k].name, status });
                    if k == self.source && !status.success() {
                        self.source = self.peers.iter().position(|peer| peer.status.is_none()).unwrap_or(k);
                    }
                }
            }
        }
        None
    }

    fn has_failed(&self) -> bool {
        self.peers.iter().any(|peer| peer.status.is_some_and(|status| !status.success()))
    }

    /// A line of a peer's output: an event of the run, or the ticket.
    fn on_line(&mut self, k: usize, text: &str) -> Option<String> {
        if let Ok(line) = serde_json::from_str::<Line>(text) {
            let id = &mut self.peers[k].id;
            *id = id.or_else(|| teller(&line.event));
            self.is_training |= matches!(line.event, Event::View(_));
            if k == self.source {
                (self.tell)(News::Event(&line));
            }
            return None;
        }
        let event: Value = serde_json::from_str(text).ok()?;
        event["ticket"].as_str().map(str::to_owned)
    }
}

/// Who tells an event, where that is said. What a peer tells first is about itself.
fn teller(event: &Event) -> Option<PeerId> {
    match event {
        Event::View(view) => Some(view.peer),
        Event::Times(times) => Some(times.peer),
        Event::Resources(resources) => Some(resources.peer),
        _ => None,
    }
}

/// Passes on what comes from a host, to its end.
fn pass_on(k: usize, mut child: Child, sender: &Sender<(usize, Message)>) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // If nobody listens, nobody wants to know.
    let lines = |source: Option<Box<dyn Read + Send>>, wrap: fn(String) -> Message| {
        for line in source.into_iter().flat_map(|source| BufReader::new(source).lines()).map_while(Result::ok) {
            let _ = sender.send((k, wrap(line)));
        }
    };
    thread::scope(|threads| {
        threads.spawn(|| lines(stderr.map(|stderr| Box::new(stderr) as _), Message::Err));
        lines(stdout.map(|stdout| Box::new(stdout) as _), Message::Out);
    });
    if let Ok(status) = child.wait() {
        let _ = sender.send((k, Message::Ended(status)));
    }
}
