//! Ray: a place on each node of a cluster, reserved while peers train, and a shell there.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::error::LaunchError;
use crate::hosts::Host;
use crate::launch::Launch;
use crate::shell::Shell;

/// What a Python with Ray runs.
const CLUSTER: &str = include_str!("ray.py");
/// Names another Python than `python3`.
const PYTHON: &str = "NETTORRENT_PYTHON";
/// How often it is looked whether somebody wants an end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is asked of a Ray cluster.
#[derive(Clone, Debug)]
pub struct Ray {
    /// Where it is, as `ray.init` takes it.
    pub address: String,
    /// How many peers, one a node as long as there are enough; as many as there are nodes if none are given.
    pub n_peers: Option<usize>,
    /// The processors of each; as many as the smallest node has if none are given.
    pub n_cpus: Option<usize>,
    /// The GPUs of each.
    pub n_gpus: usize,
    /// By what name the reservation is known, which no other has.
    pub group: String,
}

/// Places that are reserved on nodes, until this is dropped.
pub struct RayPlaces {
    /// They, as hosts.
    pub hosts: Vec<Host>,
    /// What reaches them.
    pub shell: Shell,
    _keeper: Keeper,
}

/// The process that keeps them. It ends with its input, or with us.
struct Keeper {
    child: Child,
    is_ready: bool,
}

/// What it tells.
#[derive(Deserialize)]
struct Told {
    places: Vec<String>,
    cpus: usize,
}

impl Ray {
    /// Reserves the places; none if somebody wants an end before they are there.
    pub fn reserve(&self, is_stopped: &dyn Fn() -> bool) -> Result<Option<RayPlaces>, LaunchError> {
        let words = self.keeping(CLUSTER);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let failed = |source| LaunchError::NoPython { command: words[0].clone(), source };
        let mut keeper = Keeper { child: command.spawn().map_err(failed)?, is_ready: false };
        let (sender, told) = channel();
        let (output, complaints) = (keeper.child.stdout.take(), keeper.child.stderr.take());
        let complaining = thread::spawn(move || last_line(complaints));
        thread::spawn(move || {
            let line = output.and_then(|output| BufReader::new(output).lines().map_while(Result::ok).next());
            // Who wants an end does not wait for it.
            let _ = sender.send(line);
        });
        let line = loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if is_stopped() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let Some(Told { places, cpus }) = line.and_then(|line| serde_json::from_str(&line).ok()) else {
            let said = complaining.join().ok().flatten().unwrap_or_else(|| "it ended without a word".to_owned());
            return Err(LaunchError::host("Ray", said.trim_start_matches("error: ")));
        };
        keeper.is_ready = true;
        let host = |name| Host { name, threads: Some(cpus), ..Host::default() };
        let hosts = places.into_iter().map(host).collect();
        Ok(Some(RayPlaces { hosts, shell: self.shell(CLUSTER), _keeper: keeper }))
    }

    /// What would be done, as one would type it, with `ray.py` for the text of the program in Python.
    pub fn dry_run(&self, launch: impl FnOnce(Vec<Host>, Shell) -> Launch) -> String {
        let shown = self.n_peers.unwrap_or(2);
        let text = match self.n_peers {
            Some(n) => format!("# Reserves places for {n} peers, one a node as long as there are enough nodes:\n"),
            None => "# Reserves a place on each node; here as if there were two:\n".to_owned(),
        };
        let place = |k| Host { name: format!("peer-{k}@NODE"), threads: self.n_cpus, ..Host::default() };
        let launch = launch((0..shown).map(place).collect(), self.shell("ray.py"));
        text + &format!("{}\n\n{}", shell_words::join(self.keeping("ray.py")), launch.dry_run())
    }

    fn keeping(&self, program: &str) -> Vec<String> {
        let numbers = [self.n_peers.unwrap_or(0), self.n_cpus.unwrap_or(0), self.n_gpus];
        self.python(program, "hold").into_iter().chain(numbers.map(|number| number.to_string())).collect()
    }

    fn shell(&self, program: &str) -> Shell {
        Shell::of_words(self.python(program, "run"))
    }

    fn python(&self, program: &str, what: &str) -> Vec<String> {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
        vec![python, "-c".to_owned(), program.to_owned(), what.to_owned(), self.group.clone(), self.address.clone()]
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !self.is_ready {
            // It does not listen yet. What it has asked for, Ray takes back when it is gone.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The last that was said.
fn last_line(source: Option<impl std::io::Read>) -> Option<String> {
    let lines = source.into_iter().flat_map(|source| BufReader::new(source).lines().map_while(Result::ok));
    lines.filter(|line| !line.trim().is_empty()).last()
}
