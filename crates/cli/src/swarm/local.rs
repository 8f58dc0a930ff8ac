//! A swarm of processes on this machine, shown while it trains.

use std::cell::RefCell;
use std::process::ExitCode;

use anyhow::Context;
use nettorrent_session::Outcome;
use nettorrent_session::live_log::LiveLog;
use nettorrent_session::local_swarm::LocalSwarm;
use nettorrent_session::peer_event::Ending;
use nettorrent_session::run_folder::RunFolder;

use super::progress_view::ProgressView;
use crate::interrupt::{self, Interrupt};
use crate::progress::{GUESSING, finished_text};

pub(crate) use nettorrent_session::local_swarm::LocalSettings;

/// Trains with processes on this machine until all is done, or until Ctrl-C.
pub(crate) fn train(
    run: &RunFolder,
    settings: &LocalSettings,
    log: LiveLog,
    view: &RefCell<ProgressView>,
) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let swarm = LocalSwarm::start(&program, run, settings)?;
    let result = swarm.train(log, &|| interrupt.is_set(), &|line| view.borrow().tell(line));
    view.borrow_mut().finish();
    let Outcome { ending, step, is_guessing, took, .. } = result?;
    if let Ending::Failed(problem) = ending {
        anyhow::bail!("{problem}");
    }
    let (view, path) = (view.borrow(), run.path().display());
    if ending == Ending::Left {
        // Where layers are shared out, nobody has the whole to keep: what is kept is gathered at the end of epochs.
        let is_kept = run.job(&[])?.pipeline.is_none();
        let lost = if is_kept { "nothing is lost" } else { "what was learnt since the last checkpoint is lost" };
        view.tell(&format!("Stopped at step {step}; {lost}. Go on with: nettorrent resume {path}"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    view.say(&finished_text(took, run.path()));
    if is_guessing {
        view.tell(GUESSING);
    }
    Ok(ExitCode::SUCCESS)
}
