//! What of a run is measured besides its learning, and where that is written.

use clap::Args;
use nettorrent_history::{Event, HistoryError, Resources};
use nettorrent_net::resources::{Monitor, Sample};
use nettorrent_swarm::PeerId;

use crate::events::EventLog;
use crate::run_folder::RunFolder;
use crate::watching::WatchingArguments;

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

    /// Where a run's events go, and who watches them from now on; `to_stdout` also prints them.
    pub(crate) fn open_events(&self, run: &RunFolder, to_stdout: bool) -> anyhow::Result<EventLog> {
        let folder = self.tensorboard.then(|| run.path().join("tensorboard"));
        let events = EventLog::append(&run.events(), to_stdout, folder)?;
        self.watching.start(run)?;
        Ok(events)
    }

    /// What looks at this process, if it is to train alone.
    pub(crate) fn start_alone(&self) -> std::io::Result<Option<Monitor>> {
        self.is_on().then(|| Monitor::start(None)).transpose()
    }
}

/// What a peer's process took, as it is told.
pub(crate) fn resources(peer: PeerId, sample: &Sample) -> Resources {
    let Sample { rss_bytes, disk_read_bytes, disk_written_bytes, sockets, .. } = *sample;
    Resources {
        peer,
        elapsed_s: sample.elapsed.as_secs_f64(),
        cpu_percent: sample.cpu_percent(),
        rss_bytes,
        net_received_bytes: sockets.received,
        net_sent_bytes: sockets.sent,
        payload_received_bytes: sockets.payload_received,
        payload_sent_bytes: sockets.payload_sent,
        disk_read_bytes,
        disk_written_bytes,
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
