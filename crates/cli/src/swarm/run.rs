//! A run of several processes on this machine: from its beginning, or from a checkpoint.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::job::Job;
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_swarm::link_spec::LinkSpec;

use super::banner::announce;
use super::local::{self, LocalSettings};
use super::progress_view::ProgressView;
use crate::measuring::MeasuringArguments;
use crate::notice::Notice;
use nettorrent_session::checkpoint_writer::save_values;
use nettorrent_session::event_log::EventLog;
use nettorrent_session::live_log::{LiveLog, Topology};
use nettorrent_session::needs::check_own;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::{StartPoint, StartState, Training};

/// What the processes speak over.
#[derive(Args)]
#[command(next_help_heading = "Swarm")]
pub(crate) struct LinkArguments {
    /// Make the network between the processes as slow as this, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<LinkSpec>,
    /// Make the processes compute as slowly as a machine that trains so many samples a second, for experiments: `500`, or `500,50@30s`
    /// for one that turns slow after 30 seconds. May be given several times, for the processes in turn.
    #[arg(long, value_name = "SAMPLES/S")]
    speed: Vec<EmulatedSpeed>,
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
        let given = [
            ("--link", self.link.is_some()),
            ("--speed", !self.speed.is_empty()),
            ("--plain", self.plain),
            ("--shared-dir", self.shared_dir.is_some()),
        ];
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
    /// Whether another program reads standard output.
    pub json: bool,
}

/// Begins a run and trains it.
pub(crate) fn train(job: Job, fresh: &Fresh<'_>, links: &LinkArguments) -> anyhow::Result<ExitCode> {
    links.check()?;
    let n_peers = job.swarm.peers;
    let training = Training::from_job(job, n_peers)?;
    training.check(n_peers)?;
    check_own(&training, training.setup.n_replicas(n_peers))?;
    let values = fresh.weights.map(|path| load_weights(path, training.task.layout())).transpose()?;
    let run = training.create_run(fresh.run)?;
    let events = fresh.measuring.open_events(&run)?;
    fresh.measuring.watch(&run)?;
    let checkpoint = match values {
        // The seed alone would not bring these back.
        Some(values) => Some(save_values(&run, &training, &values)?.path),
        None => None,
    };
    let settings = links.settings(&training.job, checkpoint, StartPoint::default());
    let settings = LocalSettings { measures: fresh.measuring.is_on(), ..settings };
    go(&run, events, &training, &settings, fresh.json)
}

/// Goes on with a run.
pub(crate) fn resume(job: Job, stopped: Stopped, links: &LinkArguments) -> anyhow::Result<ExitCode> {
    links.check()?;
    let Stopped { run, events, checkpoint, is_changed, measures, json } = stopped;
    let n_peers = job.swarm.peers;
    let training = Training::with_model(job, run.described_model()?, n_peers)?;
    let start = match &checkpoint {
        Some(checkpoint) => StartState::from_checkpoint(&run, checkpoint, &training)?.point(),
        None => StartPoint::default(),
    };
    let place = &start.place;
    let notice = Notice { json };
    if place.ledger.epoch >= training.job.epochs {
        notice.tell(&run.is_done_text(place.ledger.epoch));
        return Ok(ExitCode::SUCCESS);
    }
    if is_changed {
        run.write_job(&training.job)?;
    }
    if let Some(checkpoint) = &checkpoint {
        for path in run.set_aside_after(checkpoint, place.step)? {
            notice.say(&format!("A later checkpoint was set aside: {}", path.display()));
        }
    }
    let settings = links.settings(&training.job, checkpoint, start);
    go(&run, events, &training, &LocalSettings { measures, ..settings }, json)
}

fn go(
    run: &RunFolder,
    mut events: EventLog,
    training: &Training,
    settings: &LocalSettings,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let topology = Topology::Local(settings.n_peers);
    let view = Rc::new(RefCell::new(ProgressView::new(&training.into(), topology, json)));
    announce(training, run.path(), &settings.start, &view.borrow());
    let shown = view.clone();
    events.follow(move |line, fate| shown.borrow_mut().show(line, fate));
    let link = settings.link.map(|link| link.to_string());
    let log = LiveLog::start(events, training, run.path(), topology, &settings.start, link);
    local::train(run, settings, log, &view)
}

impl LinkArguments {
    /// Says at once if the directory is not there; the processes open it for themselves.
    fn check(&self) -> anyhow::Result<()> {
        self.shared_dir.as_deref().map(SharedFolder::open).transpose()?;
        Ok(())
    }

    fn settings(&self, job: &Job, checkpoint: Option<PathBuf>, start: StartPoint) -> LocalSettings {
        LocalSettings {
            n_peers: job.swarm.peers,
            checkpoint,
            start,
            encryption: !self.plain,
            link: self.link,
            speeds: self.speed.clone(),
            shared_dir: self.shared_dir.clone(),
            measures: true,
            deadline: job.swarm.deadline(),
        }
    }
}
