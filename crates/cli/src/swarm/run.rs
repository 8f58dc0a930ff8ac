//! A run of several processes on this machine: from its beginning, or from a checkpoint.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::job::Job;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_swarm::Place;
use nettorrent_swarm::link_spec::LinkSpec;

use super::banner::{Banner, announce};
use super::checkpoint_writer;
use super::local::{self, LocalSettings};
use super::prepared_job::PreparedJob;
use super::progress_view::{ProgressView, Topology};
use super::start_state::Start;
use crate::events::EventLog;
use crate::measuring::MeasuringArguments;
use crate::progress::Display;
use crate::run_folder::RunFolder;

/// What the processes speak over.
#[derive(Args)]
#[command(next_help_heading = "Swarm")]
pub(crate) struct LinkArguments {
    /// Make the network between the processes as slow as this, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<LinkSpec>,
    /// Do not encrypt what the processes say to each other.
    #[arg(long)]
    plain: bool,
    /// A directory for large payloads, so that only their names travel.
    #[arg(long, value_name = "PATH")]
    shared_dir: Option<PathBuf>,
}

impl LinkArguments {
    /// One of them that was given.
    pub(crate) fn any(&self) -> Option<&'static str> {
        let given =
            [("--link", self.link.is_some()), ("--plain", self.plain), ("--shared-dir", self.shared_dir.is_some())];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// A run that is to begin.
pub(crate) struct Fresh<'a> {
    /// Its folder, if it is not to be named by model and time.
    pub run: Option<&'a Path>,
    /// What to start from instead of random weights.
    pub weights: Option<&'a Path>,
    /// Whether another program reads standard output.
    pub json: bool,
    pub measuring: &'a MeasuringArguments,
}

/// A run that is to go on.
pub(crate) struct Stopped {
    pub run: RunFolder,
    pub events: EventLog,
    /// What to go on from; without one, from the beginning.
    pub checkpoint: Option<PathBuf>,
    /// Whether the job is another one than that in the folder.
    pub is_changed: bool,
    /// Whether to measure what peers take and for whom they wait.
    pub measures: bool,
}

/// Begins a run and trains it.
pub(crate) fn train(job: Job, fresh: &Fresh<'_>, links: &LinkArguments) -> anyhow::Result<ExitCode> {
    links.check()?;
    let n_peers = job.swarm.peers;
    let prepared = PreparedJob::open(job, None, n_peers)?;
    let PreparedJob { job, spec, learning, .. } = &prepared;
    prepared.check(job.swarm.peers)?;
    let values = fresh.weights.map(|path| load_weights(path, learning.layout())).transpose()?;
    let run = RunFolder::create(fresh.run, job, spec)?;
    let events = fresh.measuring.open_events(&run, fresh.json)?;
    let checkpoint = match values {
        // The seed alone would not bring these back.
        Some(values) => Some(checkpoint_writer::save_values(&run, &prepared, &values)?.path),
        None => None,
    };
    let settings = links.settings(job, checkpoint, Place::default());
    go(&run, events, &prepared, &LocalSettings { measures: fresh.measuring.is_on(), ..settings })
}

/// Goes on with a run.
pub(crate) fn resume(job: Job, stopped: Stopped, links: &LinkArguments) -> anyhow::Result<ExitCode> {
    links.check()?;
    let Stopped { run, events, checkpoint, is_changed, measures } = stopped;
    let n_peers = job.swarm.peers;
    let prepared = PreparedJob::open(job, Some(run.model_spec()?), n_peers)?;
    let place = match &checkpoint {
        Some(checkpoint) => Start::from_checkpoint(&run, checkpoint, &prepared)?.place().clone(),
        None => Place::default(),
    };
    let display = Display::new(events.is_printed());
    if place.ledger.epoch >= prepared.job.epochs {
        display.tell(&run.is_done_text(place.ledger.epoch));
        return Ok(ExitCode::SUCCESS);
    }
    if is_changed {
        run.write_job(&prepared.job)?;
    }
    if let Some(checkpoint) = &checkpoint {
        for path in run.set_aside_after(checkpoint, place.step)? {
            display.say(&format!("A later checkpoint was set aside: {}", path.display()));
        }
    }
    let settings = links.settings(&prepared.job, checkpoint, place);
    go(&run, events, &prepared, &LocalSettings { measures, ..settings })
}

fn go(run: &RunFolder, events: EventLog, prepared: &PreparedJob, settings: &LocalSettings) -> anyhow::Result<ExitCode> {
    let mut progress_view = ProgressView::new(events, prepared, Topology::Processes(settings.n_peers), &settings.place);
    let link = settings.link.as_deref();
    announce(&Banner { prepared, run, place: &settings.place, link }, &mut progress_view)?;
    local::train(run, settings, progress_view)
}

impl LinkArguments {
    /// Says at once if the directory is not there; the processes open it for themselves.
    fn check(&self) -> anyhow::Result<()> {
        self.shared_dir.as_deref().map(SharedFolder::open).transpose()?;
        Ok(())
    }

    fn settings(&self, job: &Job, checkpoint: Option<PathBuf>, place: Place) -> LocalSettings {
        LocalSettings {
            n_peers: job.swarm.peers,
            checkpoint,
            place,
            encryption: !self.plain,
            link: self.link.map(|link| link.to_string()),
            shared_dir: self.shared_dir.clone(),
            measures: true,
        }
    }
}
