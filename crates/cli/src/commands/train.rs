//! `train` and `resume`: a model learns, visibly, and nothing is lost when it is stopped.

mod arguments;
mod testing;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use nettorrent_engine::checkpoint::{Progress, load_weights};
use nettorrent_engine::cpu_worker::CpuWorker;
use nettorrent_engine::data::Part;
use nettorrent_engine::guessing::Guessing;
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::Score;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_engine::train_error::TrainError;
use nettorrent_engine::trainer::{StepReport, Trainer};
use nettorrent_history::{self as history, Checkpoint, Epoch, Event, PeerEpoch, Reason, Start, Stop, Times};
use nettorrent_swarm::PeerId;

use crate::explain;
use crate::incidents::{forget_what_is_set_anew, tell};
use crate::interrupt::{self, Interrupt};
use crate::job_arguments::definite;
use crate::measuring::write_samples;
use crate::pace::Pace;
use crate::progress::{Display, GUESSING, epoch_text, finished_text};
use crate::swarm;
use crate::swarm::run::{Fresh, Stopped};
use nettorrent_session::event_log::EventLog;
use nettorrent_session::memory::peak_rss_bytes;
use nettorrent_session::monitor::Monitor;
use nettorrent_session::open::open_data;
use nettorrent_session::run_folder::RunFolder;

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
    if arguments.job.settings().iter().any(|setting| setting.starts_with("layers")) {
        bail!("--set layers is for several peers, and this job has one: say how many with --peers N");
    }
    let train_set = open_data(&job, Part::Train)?;
    let test_set = open_data(&job, Part::Test)?;
    let spec = job.model_spec(train_set.shape(), train_set.classes().len())?;
    let network = build_network(&job.model, &spec)?;
    let learning = Arc::new(Learning::new(&job, network, train_set, test_set)?);
    let mut trainer = Trainer::new(&job, &learning)?;
    if let Some(path) = &arguments.weights {
        trainer.set_values(load_weights(path, learning.layout())?);
    }
    let run = RunFolder::create(arguments.run.as_deref(), &job, Some(&spec))?;
    if arguments.weights.is_some() {
        // The seed alone would not bring these back, should the run be ended before its first checkpoint.
        save(&run, &learning, &trainer, job.checkpoint.keep)?;
    }
    let events = arguments.measuring.open_events(&run)?;
    arguments.measuring.watch(&run)?;
    let monitor = arguments.measuring.start_alone()?;
    Session { monitor, ..Session::new(&job, &learning, run, events, arguments.json)? }.train(trainer)
}

/// Runs `resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> anyhow::Result<ExitCode> {
    let run = RunFolder::open(&arguments.run)?;
    let events = arguments.measuring.open_events(&run)?;
    arguments.measuring.watch(&run)?;
    let mut settings = arguments.settings.clone();
    settings.extend(arguments.epochs.map(|epochs| format!("epochs={epochs}")));
    settings.extend(arguments.peers.map(|peers| format!("swarm.peers={peers}")));
    let job = definite(run.job(&settings)?)?;
    if job.swarm.peers > 0 {
        let checkpoint = run.choose(arguments.checkpoint.as_deref())?;
        let (is_changed, measures) = (!settings.is_empty(), arguments.measuring.is_on());
        let stopped = Stopped { run, events, checkpoint, is_changed, measures, json: arguments.json };
        return swarm::run::resume(job, stopped, &arguments.links);
    }
    let network = run.network()?;
    let train_set = open_data(&job, Part::Train)?;
    let test_set = open_data(&job, Part::Test)?;
    let learning = Arc::new(Learning::new(&job, network, train_set, test_set)?);
    let checkpoint = run.choose(arguments.checkpoint.as_deref())?;
    let trainer = match &checkpoint {
        Some(checkpoint) => {
            let mut optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
            let (values, mut progress) = run.load(checkpoint, learning.layout(), &mut optimizer)?;
            forget_what_is_set_anew(&mut progress, &settings);
            Trainer::resume(&job, &learning, values, optimizer, progress)?
        }
        // It was ended before its first checkpoint, so nothing is lost if it begins again.
        None => Trainer::new(&job, &learning)?,
    };
    if trainer.is_finished() {
        Display::new(arguments.json).tell(&run.is_done_text(trainer.progress().epoch));
        return Ok(ExitCode::SUCCESS);
    }
    if !settings.is_empty() {
        run.write_job(&job)?;
    }
    let aside = match &checkpoint {
        Some(checkpoint) => run.set_aside_after(checkpoint, trainer.progress().step)?,
        None => Vec::new(),
    };
    let monitor = arguments.measuring.start_alone()?;
    let session = Session { monitor, ..Session::new(&job, &learning, run, events, arguments.json)? };
    for path in aside {
        session.display.say(&format!("A later checkpoint was set aside: {}", path.display()));
    }
    session.train(trainer)
}

/// Prints events for another program, as long as it reads them. When it has seen enough, the run goes on, and its folder holds them all.
fn print_lines(events: &mut EventLog) {
    let mut is_read = true;
    events.follow(move |line, _| is_read = is_read && io::stdout().write_all(line.to_json().as_bytes()).is_ok());
}

/// How often the display and the events are brought up to date.
const REFRESH: Duration = Duration::from_millis(200);
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// A run from its start, or from where it was taken up, to its end.
struct Session<'a> {
    job: &'a Job,
    learning: &'a Arc<Learning>,
    run: RunFolder,
    worker: CpuWorker,
    display: Display,
    events: EventLog,
    /// Looks at what this process takes of the machine, unless nobody wants to know.
    monitor: Option<Monitor>,
    interrupt: Interrupt,
    started: Instant,
    pace: Pace,
    /// When the last test was over, or training began.
    tested: Instant,
    /// Whether Ctrl-C came during a test, which then has no result.
    test_is_cut: bool,
    /// Whether the last test came to no more than guessing.
    is_guessing: bool,
}

impl<'a> Session<'a> {
    fn new(
        job: &'a Job,
        learning: &'a Arc<Learning>,
        run: RunFolder,
        mut events: EventLog,
        json: bool,
    ) -> anyhow::Result<Self> {
        if json {
            print_lines(&mut events);
        }
        let worker = CpuWorker::new(learning.clone(), job.threads)?;
        let (display, interrupt) = (Display::new(json), Interrupt::listen()?);
        let (started, pace) = (Instant::now(), Pace::new());
        let (monitor, tested) = (None, started);
        let (test_is_cut, is_guessing) = (false, false);
        Ok(Self {
            job,
            learning,
            run,
            worker,
            display,
            events,
            monitor,
            interrupt,
            started,
            pace,
            tested,
            test_is_cut,
            is_guessing,
        })
    }

    fn train(mut self, mut trainer: Trainer<'_>) -> anyhow::Result<ExitCode> {
        self.announce(&trainer)?;
        let result = self.epochs(&mut trainer);
        self.display.finish();
        if let Some(TrainError::Diverged { .. }) = result.as_ref().err().and_then(|error| error.downcast_ref()) {
            // What was saved since then may be broken, and must not be what is resumed. If it cannot be moved, the error to
            // tell is still the one that came first.
            self.set_aside_after(trainer.good_step()).ok();
        }
        let Progress { epoch, step, .. } = *trainer.progress();
        let failure = result.as_ref().err().map(explain);
        let reason = match (&failure, trainer.is_finished()) {
            (Some(failure), _) => Reason::Failed(failure.clone()),
            (None, true) if !self.test_is_cut => Reason::Finished,
            (None, _) => Reason::Interrupted,
        };
        let seconds = self.started.elapsed().as_secs_f64();
        // If this line cannot be written, the error to tell is the one that came first.
        let is_interrupted = reason == Reason::Interrupted;
        let is_guessing = reason == Reason::Finished && self.is_guessing;
        let stop = Stop { reason, epoch, step, seconds, peak_rss_bytes: peak_rss_bytes(), is_guessing };
        let rest = self.monitor.take().map(Monitor::finish).unwrap_or_default();
        let told = write_samples(&mut self.events, rest).and_then(|()| self.events.write(Event::Stop(stop)));
        result?;
        told?;
        let path = self.run.path().display();
        if is_interrupted {
            self.display.tell(&if trainer.is_finished() {
                format!("Training is done, its last test is not. Test it with: nettorrent eval {path}")
            } else {
                format!("Stopped at step {step}; nothing is lost. Go on with: nettorrent resume {path}")
            });
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        self.display.say(&finished_text(self.started.elapsed(), self.run.path()));
        if is_guessing {
            self.display.tell(GUESSING);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn announce(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        let (n_params, threads) = (self.learning.n_params(), self.worker.n_threads());
        self.display.say(&format!(
            "{} with {} parameters on {} samples, {} thread{}; the run is in {}",
            self.job.model,
            indicatif::HumanCount(n_params as u64),
            indicatif::HumanCount(trainer.n_samples() as u64),
            threads,
            if threads == 1 { "" } else { "s" },
            self.run.path().display()
        ));
        if step > 0 {
            self.display.say(&format!("Going on after step {step}."));
        }
        self.events.write(Event::Start(Start {
            run: self.run.path().to_owned(),
            model: self.job.model.clone(),
            n_params,
            n_train: trainer.n_samples(),
            n_test: self.learning.n_test(),
            threads,
            seed: self.job.seed,
            strategy: None,
            n_peers: None,
            link: None,
            epochs: self.job.epochs,
            epoch,
            step,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }))?;
        Ok(())
    }

    fn epochs(&mut self, trainer: &mut Trainer<'_>) -> anyhow::Result<()> {
        while !trainer.is_finished() {
            let Progress { epoch, epoch_n, .. } = *trainer.progress();
            self.display.begin(epoch + 1, self.job.epochs, trainer.n_samples(), epoch_n);
            self.pace = Pace::new();
            loop {
                if self.interrupt.is_set() {
                    return self.save(trainer);
                }
                let began = Instant::now();
                let report = trainer.step(&mut self.worker);
                // Before an error ends the run: it came after them.
                self.tell_incidents(trainer)?;
                let report = report?;
                self.pace.training += began.elapsed();
                self.pace.n_samples += report.score.n;
                if let Some(score) = report.epoch_score {
                    self.finish_epoch(trainer, score, report.lr)?;
                    break;
                }
                self.show(trainer, &report)?;
                self.evaluate_if_due(trainer)?;
            }
        }
        Ok(())
    }

    /// Tells what the trainer had to do besides training. If it went back, later checkpoints are of a course that is void.
    fn tell_incidents(&mut self, trainer: &mut Trainer<'_>) -> anyhow::Result<()> {
        for incident in trainer.take_incidents() {
            let (text, event) = tell(incident, self.learning);
            self.display.tell(&text);
            let place =
                if let Event::Rollback(rollback) = &event { Some((rollback.epoch, rollback.step)) } else { None };
            self.events.write(event)?;
            if let Some((epoch, step)) = place {
                self.set_aside_after(step)?;
                let n_done = trainer.progress().epoch_n;
                self.display.begin(epoch + 1, self.job.epochs, trainer.n_samples(), n_done);
                self.pace = Pace::new();
            }
        }
        Ok(())
    }

    fn set_aside_after(&self, step: u64) -> anyhow::Result<()> {
        for path in self.run.set_aside_after(&self.run.checkpoint_path(step), step)? {
            self.display.say(&format!("A later checkpoint was set aside: {}", path.display()));
        }
        Ok(())
    }

    fn show(&mut self, trainer: &Trainer<'_>, report: &StepReport) -> anyhow::Result<()> {
        write_samples(&mut self.events, self.monitor.iter().flat_map(Monitor::news))?;
        let score = trainer.progress().epoch_score();
        let samples_per_s = self.pace.samples_per_s();
        if self.pace.shown.elapsed() > REFRESH {
            self.pace.shown = Instant::now();
            let epochs_left = self.job.epochs - trainer.progress().epoch;
            let samples_left = (epochs_left as usize * trainer.n_samples()).saturating_sub(score.n);
            let left = Duration::from_secs_f64(samples_left as f64 / samples_per_s);
            self.display.advance(score.n, score.loss(), score.accuracy(), samples_per_s, left);
        }
        if self.pace.told.elapsed() > EVENT_INTERVAL {
            self.pace.told = Instant::now();
            self.events.write(Event::Progress(history::Progress {
                epoch: trainer.progress().epoch + 1,
                step: trainer.progress().step,
                n_samples: score.n as u64,
                loss: score.loss(),
                accuracy: score.accuracy(),
                lr: report.lr,
                samples_per_s,
                seconds: self.started.elapsed().as_secs_f64(),
            }))?;
        }
        Ok(())
    }

    fn finish_epoch(&mut self, trainer: &mut Trainer<'_>, train: Score, lr: f32) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        // Saved first: the test may be interrupted, the epoch's work is kept. Where the run seems to diverge, nothing is saved:
        // it would take the place of a good checkpoint.
        let every = self.job.checkpoint.every;
        if trainer.is_finished() || every > 0 && epoch.is_multiple_of(every) && trainer.is_healthy() {
            self.save(trainer)?;
        }
        let began = Instant::now();
        let Some(test) = self.test(trainer)? else {
            self.test_is_cut = true;
            return Ok(());
        };
        let went_back = trainer.judge_test(test.loss(), &mut self.worker);
        self.tell_incidents(trainer)?;
        if went_back? {
            return Ok(());
        }
        self.is_guessing = Guessing::new(self.learning.labels()).explains(&test);
        let (samples_per_s, seconds) = (self.pace.samples_per_s(), self.pace.training.as_secs_f64());
        let epoch = Epoch {
            epoch,
            step,
            train_loss: train.loss(),
            train_accuracy: train.accuracy(),
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            lr,
            samples_per_s,
            seconds,
            test_seconds: began.elapsed().as_secs_f64(),
            sent_bytes: 0,
            peers: vec![PeerEpoch {
                n_samples: train.n as u64,
                loss: train.loss(),
                times: Times { elapsed_s: seconds, compute_s: seconds, ..Times::of(PeerId(0)) },
            }],
        };
        self.display.say(&epoch_text(&epoch, self.job.epochs));
        Ok(self.events.write(Event::Epoch(epoch))?)
    }

    fn save(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        trainer.check_finite()?;
        let path = save(&self.run, self.learning, trainer, self.job.checkpoint.keep)?;
        self.events.write(Event::Checkpoint(Checkpoint { path, epoch, step }))?;
        Ok(())
    }
}

fn save(run: &RunFolder, learning: &Learning, trainer: &Trainer<'_>, keep: usize) -> anyhow::Result<PathBuf> {
    Ok(run.save(learning.layout(), trainer.values(), trainer.optimizer(), trainer.progress(), keep)?)
}
