//! `train` and `resume`: a model learns, visibly, and nothing is lost when it is stopped.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use nettorrent_engine::checkpoint::{Progress, load_weights};
use nettorrent_engine::data::Part;
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::{Score, Workspace};
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_engine::trainer::{StepReport, Trainer};
use nettorrent_swarm::shape::Shape;
use nettorrent_swarm::{Place, State};

use crate::events::{Event, EventLog, Reason};
use crate::explain;
use crate::interrupt::{self, Interrupt};
use crate::job_arguments::{JobArguments, definite};
use crate::memory::peak_rss_bytes;
use crate::open::open_data;
use crate::progress::{Display, EpochLine, clock};
use crate::run_folder::RunFolder;
use crate::swarm::board::Board;
use crate::swarm::keeper;
use crate::swarm::local::{self, LocalSettings};
use crate::swarm::material::Material;

/// Arguments of `train`.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    job: JobArguments,
    /// The folder for this run [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Start from these weights (safetensors) instead of random ones.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Print events as lines of JSON instead of a progress bar.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    swarm: SwarmArguments,
}

/// How many train together, and how.
#[derive(Args, Default)]
#[command(next_help_heading = "Swarm")]
pub(crate) struct SwarmArguments {
    /// Train with this many processes on this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    peers: Option<u64>,
    /// Make the network between the processes as slow as this, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<Shape>,
    /// Do not encrypt what the processes say to each other.
    #[arg(long)]
    plain: bool,
}

/// Arguments of `resume`.
#[derive(Args)]
pub(crate) struct ResumeArguments {
    /// The run's folder.
    run: PathBuf,
    /// Train to this many epochs instead of the job's.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// Change a field of the job from here on, for example `--set optimizer.lr=0.001`; may be given several times.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    settings: Vec<String>,
    /// The checkpoint to go on from: its folder, or its name in the run [default: the newest].
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Go on with this many processes on this machine instead of as many as there were.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    peers: Option<u64>,
    /// Make the network between the processes as slow as this, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    link: Option<Shape>,
    /// Do not encrypt what the processes say to each other.
    #[arg(long)]
    plain: bool,
    /// Print events as lines of JSON instead of a progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `train`.
pub(crate) fn train(arguments: &TrainArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Vec::new();
    settings.extend(arguments.swarm.peers.map(|peers| format!("swarm.peers={peers}")));
    let job = arguments.job.open(&settings)?;
    if job.swarm.peers > 0 {
        return train_swarm(arguments, job);
    }
    let train_set = open_data(&job, Part::Train)?;
    let test_set = open_data(&job, Part::Test)?;
    let spec = job.model_spec(train_set.shape(), train_set.classes().len())?;
    let network = build_network(&job.model, &spec)?;
    let learning = Learning::new(&job, network, train_set, test_set)?;
    let mut trainer = Trainer::new(&job, &learning)?;
    if let Some(path) = &arguments.weights {
        trainer.set_values(load_weights(path, learning.network())?);
    }
    let run = RunFolder::create(arguments.run.as_deref(), &job, &spec)?;
    if arguments.weights.is_some() {
        // The seed alone would not bring these back, should the run be ended before its first checkpoint.
        save(&run, &learning, &trainer, job.checkpoint.keep)?;
    }
    let events = EventLog::append(&run.events(), arguments.json)?;
    Session::new(&job, &learning, run, events)?.train(trainer)
}

/// Runs `resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> anyhow::Result<ExitCode> {
    let run = RunFolder::open(&arguments.run)?;
    let events = EventLog::append(&run.events(), arguments.json)?;
    let mut settings = arguments.settings.clone();
    settings.extend(arguments.epochs.map(|epochs| format!("epochs={epochs}")));
    settings.extend(arguments.peers.map(|peers| format!("swarm.peers={peers}")));
    let job = definite(run.job(&settings)?)?;
    if job.swarm.peers > 0 {
        return resume_swarm(arguments, &run, events, job, !settings.is_empty());
    }
    let network = run.network()?;
    let train_set = open_data(&job, Part::Train)?;
    let test_set = open_data(&job, Part::Test)?;
    let learning = Learning::new(&job, network, train_set, test_set)?;
    let checkpoint = run.choose(arguments.checkpoint.as_deref())?;
    let trainer = match &checkpoint {
        Some(checkpoint) => {
            let mut optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
            let (values, progress) = run.load(checkpoint, learning.network(), &mut optimizer)?;
            Trainer::resume(&job, &learning, values, optimizer, progress)?
        }
        // It was ended before its first checkpoint, so nothing is lost if it begins again.
        None => Trainer::new(&job, &learning)?,
    };
    if trainer.is_finished() {
        let (epoch, path) = (trainer.progress().epoch, run.path().display());
        Display::new(arguments.json).tell(&format!(
            "The run has done its {epoch} epochs; train it further with `nettorrent resume {path} --epochs N`."
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if !settings.is_empty() {
        run.write_job(&job)?;
    }
    let aside = match &checkpoint {
        Some(checkpoint) => run.set_aside_after(checkpoint, trainer.progress().step)?,
        None => Vec::new(),
    };
    let session = Session::new(&job, &learning, run, events)?;
    for path in aside {
        session.display.say(&format!("A later checkpoint was set aside: {}", path.display()));
    }
    session.train(trainer)
}

/// Trains with several processes on this machine.
fn train_swarm(arguments: &TrainArguments, job: Job) -> anyhow::Result<ExitCode> {
    let material = Material::open(job, None)?;
    let Material { job, spec, learning, setup, .. } = &material;
    setup.curriculum.check(job.swarm.peers)?;
    let values = arguments.weights.as_ref().map(|path| load_weights(path, learning.network())).transpose()?;
    let run = RunFolder::create(arguments.run.as_deref(), job, spec)?;
    let events = EventLog::append(&run.events(), arguments.json)?;
    let checkpoint = match values {
        // The seed alone would not bring these back.
        Some(values) => Some(keeper::save(&run, &material, &State::from_values(setup, values))?.path),
        None => None,
    };
    let SwarmArguments { link, plain, .. } = &arguments.swarm;
    let settings = LocalSettings {
        n_peers: job.swarm.peers,
        checkpoint,
        encryption: !plain,
        link: link.map(|link| link.to_string()),
    };
    run_swarm(&run, events, &material, &settings, 0)
}

/// Goes on with a run of several processes on this machine.
fn resume_swarm(
    arguments: &ResumeArguments,
    run: &RunFolder,
    events: EventLog,
    job: Job,
    is_changed: bool,
) -> anyhow::Result<ExitCode> {
    let material = Material::open(job, Some(run.model_spec()?))?;
    let checkpoint = run.choose(arguments.checkpoint.as_deref())?;
    let place = match &checkpoint {
        Some(checkpoint) => keeper::load(run, checkpoint, &material)?.place,
        None => Place::default(),
    };
    if place.ledger.epoch >= material.job.epochs {
        let (epoch, path) = (place.ledger.epoch, run.path().display());
        Display::new(arguments.json).tell(&format!(
            "The run has done its {epoch} epochs; train it further with `nettorrent resume {path} --epochs N`."
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if is_changed {
        run.write_job(&material.job)?;
    }
    if let Some(checkpoint) = &checkpoint {
        for path in run.set_aside_after(checkpoint, place.step)? {
            Display::new(arguments.json).say(&format!("A later checkpoint was set aside: {}", path.display()));
        }
    }
    let n_peers = material.job.swarm.peers;
    let settings = LocalSettings {
        n_peers,
        checkpoint,
        encryption: !arguments.plain,
        link: arguments.link.map(|link| link.to_string()),
    };
    run_swarm(run, events, &material, &settings, place.step)
}

fn run_swarm(
    run: &RunFolder,
    events: EventLog,
    material: &Material,
    settings: &LocalSettings,
    step: u64,
) -> anyhow::Result<ExitCode> {
    let Material { job, learning, .. } = material;
    let (n_params, n_train, n_test) = (learning.n_params(), learning.labels().len(), learning.n_test());
    let mut board = Board::new(events, job.epochs, n_train).hiding_routine();
    board.say(&format!(
        "{} with {} parameters on {} samples, {} peers by {}, {} thread{} each; the run is in {}",
        job.model,
        indicatif::HumanCount(n_params as u64),
        indicatif::HumanCount(n_train as u64),
        settings.n_peers,
        job.swarm.strategy,
        job.threads,
        if job.threads == 1 { "" } else { "s" },
        run.path().display()
    ));
    if step > 0 {
        board.say(&format!("Going on after step {step}."));
    }
    board.write(&Event::Start {
        run: run.path(),
        model: &job.model,
        n_params,
        n_train,
        n_test,
        threads: job.threads,
        seed: job.seed,
        epoch: 0,
        step,
        version: env!("CARGO_PKG_VERSION"),
    })?;
    local::train(run, settings, board)
}

/// How often the display and the events are brought up to date.
const REFRESH: Duration = Duration::from_millis(200);
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// A run from its start, or from where it was taken up, to its end.
struct Session<'a> {
    job: &'a Job,
    learning: &'a Learning,
    run: RunFolder,
    room: Workspace,
    display: Display,
    events: EventLog,
    interrupt: Interrupt,
    started: Instant,
    pace: Pace,
    /// Whether Ctrl-C came during a test, which then has no result.
    test_is_cut: bool,
}

/// How fast training goes.
struct Pace {
    /// Time spent training in the present epoch, and samples trained since the epoch (or the session) began.
    training: Duration,
    n_samples: usize,
    shown: Instant,
    told: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { training: Duration::ZERO, n_samples: 0, shown: Instant::now(), told: Instant::now() }
    }

    fn samples_per_s(&self) -> f64 {
        self.n_samples as f64 / self.training.as_secs_f64().max(1e-9)
    }
}

impl<'a> Session<'a> {
    fn new(job: &'a Job, learning: &'a Learning, run: RunFolder, events: EventLog) -> anyhow::Result<Self> {
        let room = Workspace::new(job.threads)?;
        let (display, interrupt) = (Display::new(events.is_printed()), Interrupt::listen()?);
        let (started, pace, test_is_cut) = (Instant::now(), Pace::new(), false);
        Ok(Self { job, learning, run, room, display, events, interrupt, started, pace, test_is_cut })
    }

    fn train(mut self, mut trainer: Trainer<'_>) -> anyhow::Result<ExitCode> {
        self.announce(&trainer)?;
        let result = self.epochs(&mut trainer);
        self.display.finish();
        let Progress { epoch, step, .. } = *trainer.progress();
        let failure = result.as_ref().err().map(explain);
        let reason = match (&failure, trainer.is_finished()) {
            (Some(failure), _) => Reason::Failed(failure),
            (None, true) if !self.test_is_cut => Reason::Finished,
            (None, _) => Reason::Interrupted,
        };
        let seconds = self.started.elapsed().as_secs_f64();
        // If this line cannot be written, the error to tell is the one that came first.
        let told = self.events.write(&Event::Stop { reason, epoch, step, seconds, peak_rss_bytes: peak_rss_bytes() });
        result?;
        told?;
        let path = self.run.path().display();
        if reason == Reason::Interrupted {
            self.display.tell(&if trainer.is_finished() {
                format!("Training is done, its last test is not. Test it with: nettorrent eval {path}")
            } else {
                format!("Stopped at step {step}; nothing is lost. Go on with: nettorrent resume {path}")
            });
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        self.display.say(&format!("Finished in {}. The run is in {path}", clock(self.started.elapsed())));
        self.display.say(&format!("Test it again with: nettorrent eval {path}"));
        Ok(ExitCode::SUCCESS)
    }

    fn announce(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        let (n_params, threads) = (self.learning.n_params(), self.room.n_threads());
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
        self.events.write(&Event::Start {
            run: self.run.path(),
            model: &self.job.model,
            n_params,
            n_train: trainer.n_samples(),
            n_test: self.learning.n_test(),
            threads,
            seed: self.job.seed,
            epoch,
            step,
            version: env!("CARGO_PKG_VERSION"),
        })
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
                let report = trainer.step(&mut self.room)?;
                self.pace.training += began.elapsed();
                self.pace.n_samples += report.score.n;
                if let Some(score) = report.epoch_score {
                    self.finish_epoch(trainer, score, report.lr)?;
                    break;
                }
                self.show(trainer, &report)?;
            }
        }
        Ok(())
    }

    fn show(&mut self, trainer: &Trainer<'_>, report: &StepReport) -> anyhow::Result<()> {
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
            self.events.write(&Event::Progress {
                epoch: trainer.progress().epoch + 1,
                step: trainer.progress().step,
                loss: score.loss(),
                accuracy: score.accuracy(),
                lr: report.lr,
                samples_per_s,
                seconds: self.started.elapsed().as_secs_f64(),
            })?;
        }
        Ok(())
    }

    fn finish_epoch(&mut self, trainer: &Trainer<'_>, train: Score, lr: f32) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        // Saved first: the test may be interrupted, the epoch's work is kept.
        let every = self.job.checkpoint.every;
        if trainer.is_finished() || every > 0 && epoch.is_multiple_of(every) {
            self.save(trainer)?;
        }
        self.display.testing();
        let began = Instant::now();
        let interrupt = self.interrupt.clone();
        let test = self
            .learning
            .test_while(trainer.values(), 0..self.learning.n_test(), &mut self.room, || !interrupt.is_set())?;
        if test.n < self.learning.n_test() {
            // Cut short by Ctrl-C: what a part of the test set says is no result.
            self.test_is_cut = true;
            return Ok(());
        }
        let (samples_per_s, seconds) = (self.pace.samples_per_s(), self.pace.training.as_secs_f64());
        self.display.epoch(&EpochLine {
            epoch,
            epochs: self.job.epochs,
            train_loss: train.loss(),
            train_accuracy: train.accuracy(),
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            samples_per_s,
            seconds,
        });
        self.events.write(&Event::Epoch {
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
        })
    }

    fn save(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<()> {
        let Progress { epoch, step, .. } = *trainer.progress();
        trainer.check_finite()?;
        let path = save(&self.run, self.learning, trainer, self.job.checkpoint.keep)?;
        self.events.write(&Event::Checkpoint { path: &path, epoch, step })
    }
}

fn save(run: &RunFolder, learning: &Learning, trainer: &Trainer<'_>, keep: usize) -> anyhow::Result<PathBuf> {
    run.save(learning.network(), trainer.values(), trainer.optimizer(), trainer.progress(), keep)
}
