//! What checkpoints are written on.

use std::pin::Pin;
use std::sync::Arc;
use std::{fmt, io};

/// What checkpoints are written on.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// This machine's, by a thread of its own: the network must not wait for a disk.
    #[default]
    Here,
    /// One whose time is the runtime's, which may be simulated: what it lets through is written in place.
    Simulated(Arc<dyn SimulatedDisk>),
}

/// A disk that takes its time, or fails.
pub trait SimulatedDisk: fmt::Debug + Send + Sync {
    /// Waits for as long as it takes to write something; an error if it cannot be written.
    fn write(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;
}

impl Disk {
    /// Waits until it takes what is to be written.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        match self {
            Self::Here => Ok(()),
            Self::Simulated(disk) => disk.write().await,
        }
    }
}
