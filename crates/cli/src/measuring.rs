//! What of a run is measured besides its learning, and where that is written.

use clap::Args;

use crate::watching::WatchingArguments;
use nettorrent_session::event_log::EventLog;
use nettorrent_session::run_folder::RunFolder;

/// What to measure and write.
#[derive(Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct MeasuringArguments {
    /// Also write what happens for TensorBoard, into the folder `tensorboard` of the run.
    #[arg(long)]
    tensorboard: bool,
    /// Disable resource and wait-time monitoring, to see what it costs.
    #[arg(long)]
    no_measuring: bool,
    #[command(flatten)]
    watching: WatchingArguments,
}

impl MeasuringArguments {
    /// Whether to measure at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.no_measuring
    }

    /// Whether to write files for TensorBoard.
    pub(crate) fn wants_tensorboard(&self) -> bool {
        self.tensorboard
    }

    /// Where a run's events go.
    pub(crate) fn open_events(&self, run: &RunFolder) -> anyhow::Result<EventLog> {
        Ok(run.open_events(self.tensorboard)?)
    }

    /// Lets those watch who are to.
    pub(crate) fn watch(&self, run: &RunFolder) -> anyhow::Result<()> {
        Ok(self.watching.start(run)?)
    }
}
