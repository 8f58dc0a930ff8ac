//! Why a session cannot begin or go on.

use std::path::PathBuf;

use nettorrent_engine::backend::BackendError;
use nettorrent_engine::checkpoint::CheckpointError;
use nettorrent_engine::data::DataError;
use nettorrent_engine::job::{JobError, ReadError};
use nettorrent_engine::train_error::TrainError;
use nettorrent_fetch::CacheError;
use nettorrent_files::WriteError;
use nettorrent_history::HistoryError;
use nettorrent_net::ask::AskError;
use nettorrent_net::discovery::DiscoveryError;
use nettorrent_net::endpoint::BindError;
use nettorrent_net::identity::IdentityError;
use nettorrent_net::shared_folder::OpenError;
use nettorrent_net::ticket::TicketError;
use nettorrent_net::trust_store::NotAdmitted;
use nettorrent_pipeline::PipelineError;
use nettorrent_pipeline::plan::PlanError;
use nettorrent_swarm::sampling::sampler::SamplerError;
use nettorrent_swarm::strategy::OptionError;

/// Why a session cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The job, or the model that it names.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The text of a job or a model.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The data cannot be opened.
    #[error("cannot open the data: {0}")]
    Data(#[from] DataError),
    /// There is no such data set here.
    #[error("{0}")]
    NoData(String),
    /// The swarm's model is not on this machine.
    #[error("{0}")]
    NoModel(String),
    /// The folder of data sets that were fetched.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// There is no such backend, or it cannot compute what the job trains.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The data do not fit the model, or there are no threads.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The strategy or its options.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Pipelines cannot do the job.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The samples cannot be shared out among so many peers.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// Layers cannot be shared out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What the swarm sends is not what an honest peer sends.
    #[error("the swarm's {0} has control characters in it, as no honest peer sends them: do not join this swarm")]
    Hostile(&'static str),
    /// The swarm's job needs more than this machine may give.
    #[error("{0}")]
    TooMuch(String),
    /// What this peer's site is to be called is no name.
    #[error("the site cannot be called so: {0}")]
    Site(&'static str),
    /// The swarm trains something else than this program.
    #[error("{0}")]
    OtherTask(String),
    /// A checkpoint cannot be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Another file of a run cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A checkpoint cannot be read, and which others there are.
    #[error("{hint}: {source}")]
    Unreadable {
        /// What to do.
        hint: String,
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// A checkpoint does not say how far the swarm was.
    #[error("the checkpoint does not say how far the swarm was: {0}")]
    Place(#[from] serde_json::Error),
    /// A folder is no run, or holds one already.
    #[error("{0}")]
    Run(String),
    /// A file or folder of a run.
    #[error("{doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Events cannot be written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Keys cannot be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no address to listen at.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Nobody of the swarm can be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The ticket does not let one in.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// The peer that was asked speaks another protocol.
    #[error("the peer that was asked did not understand; is it of another version?")]
    OtherVersion,
    /// The local network cannot be searched.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The shared directory.
    #[error(transparent)]
    SharedFolder(#[from] OpenError),
    /// A thread cannot be started, or the process cannot be measured.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// What a process of a swarm on one machine was told first.
    #[error("cannot understand the orders: {0}")]
    Orders(#[source] serde_json::Error),
    /// The ticket.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// A process of a swarm on one machine.
    #[error("peer {index} could not start: {problem}")]
    PeerStart {
        /// Which.
        index: usize,
        /// Why not.
        problem: String,
    },
    /// No process of a swarm on one machine could go on.
    #[error("{0}")]
    Peers(String),
    /// What was learnt is not on the disk.
    #[error("{reached}, but that state is not on the disk: {why}; {newest}")]
    NotKept {
        /// How far training was.
        reached: String,
        /// Why not.
        why: String,
        /// What is on the disk.
        newest: String,
    },
    /// Peers say that all is done, and it is not.
    #[error("the peers have ended after epoch {epoch} of {last_epoch}; {newest}")]
    Unfinished {
        /// Epochs done.
        epoch: u64,
        /// The run's last epoch.
        last_epoch: u64,
        /// What is on the disk.
        newest: String,
    },
    /// A thread has panicked.
    #[error("the thread that writes checkpoints has failed")]
    CheckpointThread,
}

impl SessionError {
    /// For `map_err`: what was being done, to which path.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}
