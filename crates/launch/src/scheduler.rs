//! What starts the peers that share a folder: a batch system, or `mpirun`.

use crate::error::LaunchError;
use crate::shared_folder::SharedFolder;

/// What starts a peer for each number from 0 on.
pub trait Scheduler {
    /// The files that it needs in the folder: names and contents.
    fn files(&self, folder: &SharedFolder) -> Result<Vec<(String, String)>, LaunchError>;

    /// The command that starts the peers, as one would type it.
    fn command(&self, folder: &SharedFolder) -> Vec<String>;

    /// Starts them; what people know it by.
    fn start(&mut self, folder: &SharedFolder) -> Result<String, LaunchError>;

    /// How it goes. It is asked about a second after it answered last.
    fn state(&mut self) -> Result<State, LaunchError>;

    /// Has all peers leave, each with a checkpoint of what it has.
    fn leave(&mut self, folder: &SharedFolder) -> Result<(), LaunchError>;
}

/// How it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way, in these words.
    Active(String),
    /// It is over, in these words.
    Over(String),
}
