//! The program at a host: found there, or copied.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::Hasher;
use std::path::PathBuf;

use shell_words::quote;

use crate::error::LaunchError;
use crate::hosts::Host;
use crate::shell::Shell;

/// Where hosts get the program from.
#[derive(Clone, Debug)]
pub struct ProgramSource {
    /// The program here.
    own: PathBuf,
    version: String,
    /// A name for this very build.
    build: String,
    /// Whether it is used even where another of the same version is.
    copies_always: bool,
}

impl ProgramSource {
    /// From the program that runs.
    pub fn of_this_process(version: &str, copies_always: bool) -> Result<Self, LaunchError> {
        let own = std::env::current_exe().map_err(LaunchError::file("find", "the running program"))?;
        let bytes = std::fs::read(&own).map_err(LaunchError::file("read", &own))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let build = format!("{version}-{:016x}", hasher.finish());
        Ok(Self { own, version: version.to_owned(), build, copies_always })
    }

    /// Where a host keeps a copy, as a word of a script.
    fn copy_word(&self) -> String {
        format!("\"$HOME\"/.cache/nettorrent/{}/nettorrent", self.build)
    }

    /// What would be done to find the program, for people.
    pub(crate) fn describe(&self, host: &Host) -> String {
        match &host.program {
            Some(program) => format!("use {program}"),
            None if self.copies_always => format!("copy {} there, unless this build is there", self.own.display()),
            None => format!("use nettorrent {} if it is there, else copy {}", self.version, self.own.display()),
        }
    }

    /// The word by which the program is run in scripts if nobody looks.
    pub(crate) fn guess(&self, host: &Host) -> String {
        let found = if self.copies_always { self.copy_word() } else { "nettorrent".to_owned() };
        host.program.as_deref().map_or(found, |program| quote(program).into_owned())
    }

    /// Finds the program at a host, or brings it there; the word by which scripts run it.
    pub(crate) fn find(&self, shell: &Shell, host: &Host) -> Result<String, LaunchError> {
        let candidates = match (&host.program, self.copies_always) {
            (Some(program), _) => vec![quote(program).into_owned()],
            (None, true) => vec![self.copy_word()],
            (None, false) => vec!["nettorrent".to_owned(), self.copy_word()],
        };
        let looks: String = candidates
            .iter()
            .map(|word| format!("printf '\\n'; {word} --version 2>/dev/null </dev/null || printf none\n"))
            .collect();
        let answer = shell.run(&host.name, &format!("uname -sm\n{looks}"), &mut std::io::empty())?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
        let system = lines.next().unwrap_or_default().to_owned();
        let wanted = format!("nettorrent {}", self.version);
        let there: Vec<&str> = lines.collect();
        if let Some(at) = there.iter().position(|version| *version == wanted) {
            return Ok(candidates[at].clone());
        }
        if let Some(program) = &host.program {
            let found = there.first().filter(|version| **version != "none");
            let found = found.map_or("it cannot be run".to_owned(), |version| format!("it is {version}"));
            return Err(LaunchError::host(&host.name, format!("{program} should be {wanted}, and {found}")));
        }
        if system != own_system() {
            let problem = format!(
                "there is no {wanted}, and this program runs on {}, not on {system}: install it there, and name it in the hosts' file \
                 with program=PATH if it is not on the path",
                own_system()
            );
            return Err(LaunchError::host(&host.name, problem));
        }
        self.copy(shell, host)?;
        Ok(self.copy_word())
    }

    fn copy(&self, shell: &Shell, host: &Host) -> Result<(), LaunchError> {
        let mut file = File::open(&self.own).map_err(LaunchError::file("read", &self.own))?;
        let target = self.copy_word();
        // Peers of one machine may all bring it at once: each under a name of its own, and the last one stays.
        let script = format!(
            "set -eu\ntarget={target}\nmkdir -p \"$(dirname \"$target\")\"\ncat > \"$target.$$\"\nchmod 755 \"$target.$$\"\nmv -f \"$target.$$\" \
             \"$target\"\n\"$target\" --version >/dev/null"
        );
        shell.run(&host.name, &script, &mut file).map(drop)
    }
}

/// This machine's system, as `uname -sm` says it.
fn own_system() -> String {
    let name = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        other => other,
    };
    let processor = match (name, std::env::consts::ARCH) {
        ("Darwin", "aarch64") => "arm64",
        (_, other) => other,
    };
    format!("{name} {processor}")
}
