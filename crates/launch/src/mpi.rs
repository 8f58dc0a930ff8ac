//! MPI's `mpirun`: it starts a peer a rank, here or on the machines that it knows; no message of MPI is used.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use crate::error::LaunchError;
use crate::scheduler::{Scheduler, State};
use crate::shared_folder::{PEER_FILE, SharedFolder, last_line};

/// Where what it says goes.
const LOG_FILE: &str = "mpirun.log";

/// A command that starts ranks.
#[derive(Debug)]
pub struct Mpi {
    words: Vec<String>,
    running: Option<(Child, std::path::PathBuf)>,
}

impl Mpi {
    /// By this command, with its arguments, as one would type it. It is called with `-n N` and what a rank is to run.
    pub fn new(command: &str) -> Result<Self, LaunchError> {
        let no_command = |problem| LaunchError::MpiCommand { command: command.to_owned(), problem };
        let words = shell_words::split(command).map_err(|error| no_command(error.to_string()))?;
        if words.is_empty() { Err(no_command("it is empty".to_owned())) } else { Ok(Self { words, running: None }) }
    }
}

impl Scheduler for Mpi {
    fn files(&self, _: &SharedFolder) -> Result<Vec<(String, String)>, LaunchError> {
        Ok(Vec::new())
    }

    fn command(&self, folder: &SharedFolder) -> Vec<String> {
        let script = folder.path.join(PEER_FILE).display().to_string();
        let more = ["-n", &folder.n_peers.to_string(), "sh", &script, "0"].map(String::from);
        self.words.iter().cloned().chain(more).collect()
    }

    fn start(&mut self, folder: &SharedFolder) -> Result<String, LaunchError> {
        let words = self.command(folder);
        let path = folder.path.join(LOG_FILE);
        let log = File::create(&path).map_err(LaunchError::file("write", &path))?;
        let again = log.try_clone().map_err(LaunchError::file("write", &path))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(log).stderr(again);
        // A Ctrl-C is for us: the peers are then told to leave, which mpirun would not give them the time for.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let problem = |source: std::io::Error| LaunchError::MpiCommand {
            command: self.words.join(" "),
            problem: source.to_string(),
        };
        self.running = Some((command.spawn().map_err(problem)?, path));
        Ok(self.words[0].clone())
    }

    fn state(&mut self) -> Result<State, LaunchError> {
        let Some((child, log)) = &mut self.running else { return Ok(State::Over("it was not started".to_owned())) };
        let status = child.try_wait().map_err(LaunchError::file("wait for", &self.words[0]))?;
        Ok(match status {
            None => State::Active("runs".to_owned()),
            Some(status) if status.success() => State::Over("it has ended".to_owned()),
            Some(status) => State::Over(last_line(log).unwrap_or_else(|| status.to_string())),
        })
    }

    fn leave(&mut self, folder: &SharedFolder) -> Result<(), LaunchError> {
        folder.leave()
    }
}
