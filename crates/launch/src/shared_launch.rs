//! All peers of a swarm that share a folder: started by a scheduler, followed in their files.

use std::time::{Duration, Instant};
use std::{fs, thread};

use nettorrent_session::RunFolder;

use crate::collect::copy_newest;
use crate::error::LaunchError;
use crate::event_tail::EventTail;
use crate::news::{News, Outcome};
use crate::scheduler::{Scheduler, State};
use crate::shared_folder::SharedFolder;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often the scheduler is asked: some serve many.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A swarm whose peers share a folder.
pub struct SharedLaunch<'a> {
    /// What they share.
    pub folder: SharedFolder,
    /// What starts them.
    pub scheduler: &'a mut dyn Scheduler,
}

impl SharedLaunch<'_> {
    /// What would be done: the files, and the command; nothing is.
    pub fn dry_run(&self) -> Result<String, LaunchError> {
        let files = self.scheduler.files(&self.folder)?;
        let command = shell_words::join(self.scheduler.command(&self.folder));
        Ok(format!("{}# Then:\n{command}\n", self.folder.describe(&files)))
    }

    /// Starts all peers, tells what happens, and collects what they learnt into a run's folder. Once `is_stopped`, they are told to leave,
    /// each with a checkpoint of what it has.
    pub fn run(
        &mut self,
        run: &RunFolder,
        is_stopped: &dyn Fn() -> bool,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<Outcome, LaunchError> {
        self.folder.write(&self.scheduler.files(&self.folder)?)?;
        let name = self.scheduler.start(&self.folder)?;
        let mut watch = Watch { folder: &self.folder, attempt: None, source: 0, tail: None, has_ticket: false };
        let (mut asked, mut is_leaving, mut last) = (None::<Instant>, false, None);
        let why = loop {
            watch.catch_up(&mut tell);
            if is_stopped() && !is_leaving {
                is_leaving = true;
                // It may have ended just now; if not, whoever wants an end can say so once more.
                if let Err(error) = self.scheduler.leave(&self.folder) {
                    tell(News::Said { host: &name, text: &error.to_string() });
                }
            }
            if asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                let state = self.scheduler.state()?;
                asked = Some(Instant::now());
                if let State::Over(why) = state {
                    break why;
                }
                if let State::Active(text) = &state
                    && last.as_ref() != Some(&state)
                {
                    tell(News::Said { host: &name, text });
                    last = Some(state);
                }
            }
            thread::sleep(LOOK_EVERY);
        };
        watch.catch_up(&mut tell);
        self.conclude(&name, &why, run)
    }

    fn conclude(&self, name: &str, why: &str, run: &RunFolder) -> Result<Outcome, LaunchError> {
        let mut outcome = Outcome::default();
        let Some(newest) = self.folder.newest_attempt() else {
            outcome.failed.push((name.to_owned(), why.to_owned()));
            return Ok(outcome);
        };
        for k in 0..self.folder.n_peers {
            let said = || self.folder.last_said(newest, k).unwrap_or_else(|| why.to_owned());
            match self.folder.status(newest, k) {
                Some(0) => outcome.finished.push(peer_name(k)),
                Some(_) => outcome.failed.push((peer_name(k), said())),
                None => outcome.failed.push((peer_name(k), format!("it did not end by itself; {name}: {why}"))),
            }
        }
        // An attempt that was ended early may have learnt nothing yet.
        for attempt in (0..=newest).rev() {
            for k in self.folder.by_progress(attempt) {
                if copy_newest(&self.folder.peer(attempt, k), run)? {
                    outcome.collected = Some(peer_name(k));
                    return Ok(outcome);
                }
            }
        }
        Ok(outcome)
    }
}

fn peer_name(k: usize) -> String {
    format!("peer {k}")
}

/// What is read of the peers' files while they run.
struct Watch<'a> {
    folder: &'a SharedFolder,
    attempt: Option<usize>,
    /// Whose events are those of the run: the first who lives hears the others.
    source: usize,
    tail: Option<EventTail>,
    has_ticket: bool,
}

impl Watch<'_> {
    /// Tells what is new.
    fn catch_up(&mut self, tell: &mut impl FnMut(News<'_>)) {
        self.pass_on(tell);
        let newest = self.folder.newest_attempt();
        if newest != self.attempt {
            (self.attempt, self.has_ticket) = (newest, false);
            self.listen_to(0);
            self.pass_on(tell);
        }
        let Some(attempt) = self.attempt else { return };
        if !self.has_ticket
            && let Ok(ticket) = fs::read_to_string(self.folder.peer(attempt, 0).join("ticket"))
        {
            self.has_ticket = true;
            tell(News::Ticket(ticket.trim()));
        }
        if self.folder.status(attempt, self.source).is_some_and(|status| status != 0) {
            let lives = |k: &usize| self.folder.status(attempt, *k).is_none();
            if let Some(k) = (0..self.folder.n_peers).find(lives) {
                self.listen_to(k);
                // What happened until now, the one before has told.
                self.tail.iter_mut().for_each(|tail| drop(tail.new_lines()));
            }
        }
    }

    fn listen_to(&mut self, k: usize) {
        self.source = k;
        self.tail = self.attempt.map(|attempt| EventTail::new(self.folder.peer(attempt, k).join("events.jsonl")));
    }

    fn pass_on(&mut self, tell: &mut impl FnMut(News<'_>)) {
        for line in self.tail.iter_mut().flat_map(EventTail::new_lines) {
            tell(News::Event(&line));
        }
    }
}
