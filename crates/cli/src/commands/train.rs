//! `train` and `resume`: a model learns, visibly, and nothing is lost when it is stopped.

mod arguments;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_net::{Load, block_on};
use nettorrent_session::checkpoint_writer::save_values;
use nettorrent_session::needs::check_own;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::{Options, Session, StartState, Training};

use crate::job_arguments::definite;
use crate::measuring::MeasuringArguments;
use crate::notice::Notice;
use crate::resume_point::resume_point;
use crate::swarm;
use crate::swarm::network::train as drive;
use crate::swarm::run::{Fresh, Stopped};

pub(crate) use arguments::{ResumeArguments, TrainArguments};

/// Runs `train`.
pub(crate) fn train(arguments: &TrainArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Vec::new();
    settings.extend(arguments.peers.map(|peers| format!("swarm.peers={peers}")));
    let job = arguments.job.open(&settings)?;
    if job.swarm.peers > 0 {
        let TrainArguments { run, weights, json, links, measuring, .. } = arguments;
        let fresh = Fresh { run: run.as_deref(), weights: weights.as_deref(), json: *json, measuring };
        return swarm::run::train(job, &fresh, links);
    }
    if let Some(name) = arguments.job.names_strategy().then_some("--strategy").or(arguments.links.any()) {
        bail!("{name} is for several peers, and this job has one: say how many with --peers N");
    }
    // A job that has them for others can be trained by one process too, which then holds all layers.
    if arguments.job.settings().iter().any(|setting| setting.starts_with("pipeline")) {
        bail!("--set pipeline is for several peers, and this job has one: say how many with --peers N");
    }
    let training = Training::alone(job, None)?;
    training.check(1)?;
    check_own(&training, 1)?;
    let values = arguments.weights.as_deref().map(|path| load_weights(path, training.task.layout())).transpose()?;
    let run = training.create_run(arguments.run.as_deref())?;
    let start = match values {
        Some(values) => {
            // The seed alone would not bring these back, should the run be ended before its first checkpoint.
            save_values(&run, &training, &values)?;
            StartState::from_values(&training, values)
        }
        None => StartState::fresh(&training),
    };
    block_on(ONE_PROCESS, async {
        let options = options(&arguments.measuring);
        let session = Session::local(Arc::new(training), start, run, options, 1).await?;
        arguments.measuring.watch(session.run_folder())?;
        drive(session, arguments.json).await
    })?
}

/// Runs `resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> anyhow::Result<ExitCode> {
    let run = RunFolder::open(&arguments.run)?;
    let mut settings = arguments.settings.clone();
    settings.extend(arguments.epochs.map(|epochs| format!("epochs={epochs}")));
    settings.extend(arguments.peers.map(|peers| format!("swarm.peers={peers}")));
    let job = definite(run.job(&settings)?)?;
    if job.swarm.peers > 0 {
        let events = arguments.measuring.open_events(&run)?;
        arguments.measuring.watch(&run)?;
        let checkpoint = resume_point(&run, arguments.checkpoint.as_deref(), &Notice { json: arguments.json })?;
        let (is_changed, measures) = (!settings.is_empty(), arguments.measuring.is_on());
        let stopped = Stopped { run, events, checkpoint, is_changed, measures, json: arguments.json };
        return swarm::run::resume(job, stopped, &arguments.links);
    }
    let training = Training::alone(job, run.described_model()?)?;
    let checkpoint = resume_point(&run, arguments.checkpoint.as_deref(), &Notice { json: arguments.json })?;
    let start = match &checkpoint {
        Some(checkpoint) => {
            let mut start = StartState::from_checkpoint(&run, checkpoint, &training)?;
            start.forget_what_is_set_anew(&settings);
            start
        }
        // It was ended before its first checkpoint, so nothing is lost if it begins again.
        None => StartState::fresh(&training),
    };
    block_on(ONE_PROCESS, resume_alone(arguments, training, start, run, checkpoint, !settings.is_empty()))?
}

async fn resume_alone(
    arguments: &ResumeArguments,
    training: Training,
    start: StartState,
    run: RunFolder,
    checkpoint: Option<PathBuf>,
    is_changed: bool,
) -> anyhow::Result<ExitCode> {
    // From here on no other process trains this run.
    let session = Session::local(Arc::new(training), start, run.clone(), options(&arguments.measuring), 1).await?;
    let (place, job) = (session.start_state().place(), &session.training().job);
    let notice = Notice { json: arguments.json };
    if place.ledger.epoch >= job.epochs {
        notice.tell(&run.is_done_text(place.ledger.epoch));
        return Ok(ExitCode::SUCCESS);
    }
    arguments.measuring.watch(&run)?;
    if is_changed {
        run.write_job(job)?;
    }
    if let Some(checkpoint) = checkpoint {
        for path in run.set_aside_after(&checkpoint, place.step)? {
            notice.say(&format!("A later checkpoint was set aside: {}", path.display()));
        }
    }
    drive(session, arguments.json).await
}

const ONE_PROCESS: Load = Load { n_processes: 1, n_bytes: 0 };

fn options(measuring: &MeasuringArguments) -> Options {
    Options { measures: measuring.is_on(), tensorboard: measuring.wants_tensorboard(), ..Options::default() }
}
