//! A disk that takes its time, stalls, is full, or fails.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use nettorrent_session::SimulatedDisk;
use tokio::sync::watch;
use tokio::time::sleep;

/// How long something takes to be written.
const WRITE: Duration = Duration::from_millis(20);

/// What is the matter with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Nothing.
    #[default]
    Sound,
    /// It does not come to an end with anything.
    Stalled,
    /// There is no room left on it.
    Full,
    /// It refuses to write.
    Failing,
}

/// A process's disk. What it lets through is written into a real folder.
#[derive(Debug, Default)]
pub struct Disk {
    health: watch::Sender<Health>,
}

impl Disk {
    /// From now on.
    pub fn set(&self, health: Health) {
        self.health.send_replace(health);
    }
}

impl SimulatedDisk for Disk {
    fn write(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async move {
            sleep(WRITE).await;
            let mut health = self.health.subscribe();
            // Who is written to is this disk, so the sender lives.
            let health = health.wait_for(|health| *health != Health::Stalled).await.map(|health| *health);
            match health.unwrap_or_default() {
                Health::Sound | Health::Stalled => Ok(()),
                Health::Full => Err(io::ErrorKind::StorageFull.into()),
                Health::Failing => Err(io::Error::other("input/output error")),
            }
        })
    }
}
