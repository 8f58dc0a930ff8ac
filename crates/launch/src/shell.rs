//! The command that reaches hosts: ssh, or another that takes a host and a command line.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

use crate::error::LaunchError;

/// The command that reaches hosts.
#[derive(Clone, Debug)]
pub struct Shell(Vec<String>);

impl Default for Shell {
    /// ssh that asks nobody anything: there would be as many questions as hosts.
    fn default() -> Self {
        Self(
            ["ssh", "-T", "-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=15"]
                .map(String::from)
                .to_vec(),
        )
    }
}

impl Shell {
    /// Another command, with its arguments, as one would type it. It is called with a host and a command line.
    pub fn new(command: &str) -> Result<Self, String> {
        let words = shell_words::split(command).map_err(|error| error.to_string())?;
        if words.is_empty() { Err("it names no command".to_owned()) } else { Ok(Self(words)) }
    }

    /// One whose words are known.
    pub(crate) fn of_words(words: Vec<String>) -> Self {
        Self(words)
    }

    /// The words that have a host run a script, as one would type them.
    pub(crate) fn words(&self, host: &str, script: &str) -> Vec<String> {
        // Whatever shell a user has there, this is one of POSIX.
        let line = format!("exec sh -c {}", shell_words::quote(script));
        self.0.iter().cloned().chain([host.to_owned(), line]).collect()
    }

    /// Has a host run a script, and goes on meanwhile.
    pub(crate) fn start(&self, host: &str, script: &str) -> Result<Child, LaunchError> {
        let words = self.words(host, script);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C is for us: the peers are then told to leave, which takes a connection.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(|source| LaunchError::Command { command: self.0.join(" "), source })
    }

    /// Has a host run a script with this input, to its end; what it answers.
    pub fn run(&self, host: &str, script: &str, input: &mut (dyn Read + Send)) -> Result<Vec<u8>, LaunchError> {
        let mut answer = Vec::new();
        self.read(host, script, input, &mut |output| output.read_to_end(&mut answer).map(drop))?;
        Ok(answer)
    }

    /// The same for answers of any length: `read` takes them as they come.
    pub(crate) fn read(
        &self,
        host: &str,
        script: &str,
        input: &mut (dyn Read + Send),
        read: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), LaunchError> {
        let mut child = self.start(host, script)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut said = String::new();
        let taken = std::thread::scope(|threads| {
            // Who does not read to the end says why.
            threads.spawn(move || stdin.map(|mut stdin| io::copy(input, &mut stdin)));
            threads.spawn(|| stderr.map(|mut stderr| stderr.read_to_string(&mut said)));
            stdout.map_or(Ok(()), |mut stdout| read(&mut stdout))
        });
        let status = child.wait().map_err(|source| LaunchError::Command { command: self.0.join(" "), source })?;
        if !status.success() {
            let said = said.trim();
            let problem = if said.is_empty() { format!("failed with {status}") } else { said.to_owned() };
            return Err(LaunchError::host(host, problem));
        }
        taken.map_err(|error| LaunchError::host(host, format!("what it sent could not be kept: {error}")))
    }
}
