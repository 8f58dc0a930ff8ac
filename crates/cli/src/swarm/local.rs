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
use crate::progress::{GUESSING, finished_text, stopped_text};

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
    let Outcome { ending, step, is_guessing, is_kept, took, .. } = result?;
    if let Ending::Failed(problem) = ending {
        anyhow::bail!("{problem}");
    }
    let view = view.borrow();
    if ending == Ending::Left {
        view.tell(&stopped_text(step, is_kept, run.path()));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    view.say(&finished_text(took, Some(run.path())));
    if is_guessing {
        view.tell(GUESSING);
    }
    Ok(ExitCode::SUCCESS)
}
