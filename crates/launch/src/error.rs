//! What can go wrong.

use std::io;
use std::path::PathBuf;

use nettorrent_session::SessionError;

/// Why peers cannot be launched, or what they learnt cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A file here cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of the hosts' file makes no sense.
    #[error("{}, line {line}: {problem}", path.display())]
    Hosts {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// There are no hosts.
    #[error("{} names no hosts; write one a line, as ssh takes them", path.display())]
    NoHosts {
        /// The file.
        path: PathBuf,
    },
    /// The command that reaches hosts cannot be run.
    #[error("cannot run `{command}`: {source}; install an ssh client, or name another with --ssh-command")]
    Command {
        /// The command.
        command: String,
        /// What the system says.
        source: io::Error,
    },
    /// A host could not do what it was to do.
    #[error("{host}: {problem}")]
    Host {
        /// Which.
        host: String,
        /// What it says.
        problem: String,
    },
    /// A file that is to travel is too long for a command line.
    #[error("{} is too long to send along ({n_bytes} bytes; at most {most}); put it on every host, and name it there", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How long it is.
        n_bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// Slurm's commands are not here.
    #[error("cannot run `{program}`: {source}; say --slurm where Slurm's commands are, on a login node for example")]
    NoSlurm {
        /// Which.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// This process is in no allocation of Slurm's.
    #[error("this is no allocation of Slurm's; ask for one, for example with `salloc --nodes=4`, and run this in it")]
    NoAllocation,
    /// An option for the batch script that is none.
    #[error("`{}` is no option of sbatch: give one with its value on one line, such as --sbatch-option=--account=lab", option.escape_debug())]
    SlurmOption {
        /// What was given.
        option: String,
    },
    /// The command that starts ranks cannot be run.
    #[error("cannot run `{command}`: {problem}; install Open MPI or MPICH, or name its command with --mpi-command")]
    MpiCommand {
        /// The command.
        command: String,
        /// What is wrong.
        problem: String,
    },
    /// There is no Python that could ask Ray.
    #[error("cannot run `{command}`: {source}; name a Python that has Ray with NETTORRENT_PYTHON")]
    NoPython {
        /// Which.
        command: String,
        /// What the system says.
        source: io::Error,
    },
    /// Kubernetes' command is not here.
    #[error("cannot run `kubectl`: {source}; install it, or apply what --dry-run prints where it is")]
    NoKubectl {
        /// What the system says.
        source: io::Error,
    },
    /// A file's name is none that Kubernetes takes.
    #[error(
        "`{name}` cannot be the name of a file in a ConfigMap: use letters, digits, dots, dashes and underscores only"
    )]
    FileName {
        /// The name.
        name: String,
    },
    /// Of the session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl LaunchError {
    /// For a file here.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }

    /// What a host says.
    pub(crate) fn host(host: &str, problem: impl Into<String>) -> Self {
        Self::Host { host: host.to_owned(), problem: problem.into() }
    }
}
