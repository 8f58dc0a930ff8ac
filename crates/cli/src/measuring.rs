//! What of a run is measured besides its learning, and where that is written.

use clap::Args;
use nettorrent_history::{Event, HistoryError};
use nettorrent_swarm::PeerId;

use crate::watching::WatchingArguments;
use nettorrent_session::event_log::EventLog;
use nettorrent_session::monitor::{Monitor, Sample};
use nettorrent_session::resources::resources;
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
        let folder = self.tensorboard.then(|| run.path().join("tensorboard"));
        Ok(EventLog::append(&run.events(), folder)?)
    }

    /// Lets those watch who are to.
    pub(crate) fn watch(&self, run: &RunFolder) -> anyhow::Result<()> {
        Ok(self.watching.start(run)?)
    }

    /// What looks at this process, if it is to train alone.
    pub(crate) fn start_alone(&self) -> std::io::Result<Option<Monitor>> {
        self.is_on().then(|| Monitor::start(None)).transpose()
    }
}

/// Writes down what a process took that trains alone, at the times when it was seen.
pub(crate) fn write_samples(
    events: &mut EventLog,
    samples: impl IntoIterator<Item = Sample>,
) -> Result<(), HistoryError> {
    for sample in samples {
        let at = events.elapsed().saturating_sub(sample.at.elapsed());
        events.write_at(at, Event::Resources(resources(PeerId(0), &sample)))?;
    }
    Ok(())
}
