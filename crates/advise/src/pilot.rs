//! A pilot: a job is simulated to find out what cannot be predicted, how fast a strategy learns and how much it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::Job;
use nettorrent_engine::measure::Measure;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Observer, Scenario, Simulation, SimulationError};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategy::Cost;
use nettorrent_swarm::strategy::OptionError;
use nettorrent_swarm::{PeerId, Setup};
use serde::Serialize;

/// What a pilot is to find out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// After how many epochs this quality is reached.
    Quality(f64),
    /// How good the model is after each of the job's epochs.
    Epochs,
    /// What is said in so many rounds.
    Rounds(u32),
}

/// What a pilot has found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Pilot {
    /// The epochs that were simulated, one after the other.
    pub epochs: Vec<PilotEpoch>,
    /// The tests within them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evaluations: Vec<PilotTest>,
    /// Whether the goal was reached.
    pub is_reached: bool,
    /// Whether it was given up because it took too long.
    pub is_out_of_time: bool,
    /// What a round cost in the mean; none if none was done.
    #[serde(skip)]
    pub cost: Option<Cost>,
    /// How long the slowest peer's rounds took in the mean, in simulated time; none if there were fewer than two.
    #[serde(skip)]
    pub round_s: Option<f64>,
    /// How long a sample took in the mean, all peers together; none if there were but the first rounds, which are shorter than others.
    #[serde(skip)]
    pub sample_s: Option<f64>,
}

/// An epoch of a pilot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PilotEpoch {
    /// How good the model is on the test samples after it.
    pub quality: f64,
    /// How long its training took, in simulated time and without the test.
    pub seconds: f64,
    /// How many rounds it had.
    pub n_rounds: u64,
}

/// A test within an epoch of a pilot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PilotTest {
    /// How many epochs were done.
    pub epoch: f64,
    /// How good the model is on the test samples.
    pub quality: f64,
}

impl Pilot {
    /// After how many epochs a test first showed this quality, if one did.
    pub(crate) fn epochs_to(&self, quality: f64) -> Option<f64> {
        let whole = self.epochs.iter().position(|epoch| epoch.quality >= quality).map(|before| before as f64 + 1.0);
        let within = self.evaluations.iter().find(|test| test.quality >= quality).map(|test| test.epoch);
        whole.into_iter().chain(within).reduce(f64::min)
    }
}

/// Why there is no pilot.
#[derive(Debug, thiserror::Error)]
pub enum PilotError {
    /// The job cannot be done by a swarm.
    #[error(transparent)]
    Setup(#[from] OptionError),
    /// It cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A peer could not go on.
    #[error("{peer} failed: {problem}")]
    Failed {
        /// Who.
        peer: PeerId,
        /// Why.
        problem: String,
    },
}

/// How a pilot is made.
#[derive(Clone, Debug)]
pub(crate) struct PilotSetup {
    /// How many peers.
    pub n_peers: usize,
    /// Their links, and how fast they compute.
    pub scenario: Scenario,
    /// Whether peers take as long to think as they really do on this machine.
    pub thinks: bool,
    /// What is to be found out.
    pub goal: Goal,
    /// When it is given up.
    pub until: Instant,
}

/// Simulates a job until its goal is reached, its epochs are done, or it is too late.
pub(crate) fn run_pilot(job: &Job, task: Arc<dyn Task>, setup: PilotSetup) -> Result<Pilot, PilotError> {
    let PilotSetup { n_peers, scenario, thinks, goal, until } = setup;
    let measure = task.measure();
    let setup = Arc::new(Setup::new(job, task)?);
    let (said, spent, begun) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut watch = Watch { goal, measure, until, n_peers, thinks, pilot: Pilot::default(), said, spent, begun };
    let outcome = Simulation::new(setup, n_peers, scenario)?.with_threads(job.threads).run_with(&mut watch)?;
    if let Some(failure) = outcome.failures.first() {
        return Err(PilotError::Failed { peer: failure.peer, problem: failure.problem.clone() });
    }
    Ok(Pilot { cost: watch.cost(), round_s: watch.round_s(), sample_s: watch.sample_s(), ..watch.pilot })
}

/// Until speeds are known, rounds are shorter than later; after so many they are.
const FIRST_ROUNDS: u32 = 8;

/// How long this thread has been on a processor: other threads' turns do not count.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// How long this process has been running, where nobody tells how long a thread has.
#[cfg(not(unix))]
fn processor_time() -> Duration {
    static BEGAN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

/// Sees whether the goal is reached.
struct Watch {
    goal: Goal,
    measure: Measure,
    until: Instant,
    n_peers: usize,
    thinks: bool,
    pilot: Pilot,
    said: BTreeMap<PeerId, Said>,
    /// By epoch, counted from 1, and peer. Some peers are in the next epoch while others still test.
    spent: BTreeMap<(u64, PeerId), Spent>,
    /// When each peer began with the epoch that it is in.
    begun: BTreeMap<PeerId, f64>,
}

/// How long a peer has trained in an epoch.
#[derive(Clone, Copy, Default)]
struct Spent {
    n_rounds: u64,
    seconds: f64,
}

/// What a peer has said and heard.
#[derive(Clone, Copy, Default)]
struct Said {
    /// When its first and its last round ended.
    first_s: f64,
    last_s: f64,
    rounds: u32,
    /// When the first rounds were over, and how many samples all had trained by then and by the end of the last one.
    settled_s: f64,
    settled_samples: u64,
    last_samples: u64,
    sent: u64,
    received: u64,
}

impl Watch {
    fn cost(&self) -> Option<Cost> {
        let per_round =
            |of: fn(&Said) -> u64| self.said.values().map(move |said| of(said) / u64::from(said.rounds.max(1)));
        Some(Cost {
            total: per_round(|said| said.sent).sum(),
            most_sent: per_round(|said| said.sent).max()?,
            most_received: per_round(|said| said.received).max()?,
            n_steps: 1,
        })
    }

    /// From whole epochs if there are any, for these count what is waited for at their ends and no tests.
    fn round_s(&self) -> Option<f64> {
        let n_rounds: u64 = self.pilot.epochs.iter().map(|epoch| epoch.n_rounds).sum();
        if n_rounds > 0 {
            return Some(self.pilot.epochs.iter().map(|epoch| epoch.seconds).sum::<f64>() / n_rounds as f64);
        }
        let several = self.said.values().filter(|said| said.rounds > 1);
        several.map(|said| (said.last_s - said.first_s) / f64::from(said.rounds - 1)).reduce(f64::max)
    }

    fn sample_s(&self) -> Option<f64> {
        let settled =
            self.said.values().filter(|said| said.last_samples > said.settled_samples && said.settled_s > 0.0);
        let times =
            settled.map(|said| (said.last_s - said.settled_s) / (said.last_samples - said.settled_samples) as f64);
        times.reduce(f64::max)
    }

    fn count(&mut self, epoch: u64, peer: PeerId, n_rounds: u64, seconds: f64) {
        let spent = self.spent.entry((epoch, peer)).or_default();
        spent.n_rounds += n_rounds;
        spent.seconds += seconds;
    }

    /// An epoch is tested, so all peers have trained all of it: the slowest counts.
    fn close(&mut self, epoch: u64, quality: f64) {
        let later = self.spent.split_off(&(epoch + 1, PeerId(0)));
        let spent = std::mem::replace(&mut self.spent, later);
        let seconds = spent.values().map(|spent| spent.seconds).fold(0.0, f64::max);
        let n_rounds = spent.values().map(|spent| spent.n_rounds).max().unwrap_or(0);
        self.pilot.epochs.push(PilotEpoch { quality, seconds, n_rounds });
        if let Goal::Quality(wanted) = self.goal {
            // Epochs are simulated to their ends, or nobody would know how long they take.
            self.pilot.is_reached = self.pilot.epochs_to(wanted).is_some();
        }
    }
}

impl Observer for Watch {
    fn record(&mut self, record: Record) {
        match record.event {
            Event::View { .. } => drop(self.begun.insert(record.peer, record.at_s)),
            Event::Round { epoch, n_samples_all, sent_bytes, received_bytes, .. } => {
                self.count(epoch + 1, record.peer, 1, 0.0);
                let said = self.said.entry(record.peer).or_default();
                if said.rounds == 0 {
                    said.first_s = record.at_s;
                }
                said.last_s = record.at_s;
                said.rounds += 1;
                said.last_samples = n_samples_all;
                if said.rounds == FIRST_ROUNDS {
                    (said.settled_s, said.settled_samples) = (record.at_s, n_samples_all);
                }
                said.sent += sent_bytes;
                said.received += received_bytes;
                if let Goal::Rounds(wanted) = self.goal {
                    let is_done = |said: &Said| said.rounds >= wanted;
                    self.pilot.is_reached = self.said.len() == self.n_peers && self.said.values().all(is_done);
                }
            }
            Event::Synced { epoch, .. } => {
                let begun = self.begun.insert(record.peer, record.at_s).unwrap_or(0.0);
                self.count(epoch, record.peer, 0, record.at_s - begun);
            }
            Event::Epoch { epoch, test_loss, test_accuracy, test_s, .. } => {
                // The next epoch began when the peer's own part of the test was over.
                self.begun.entry(record.peer).and_modify(|begun| *begun += test_s);
                // Each peer tells of it, and the first one is enough.
                if epoch > self.pilot.epochs.len() as u64 {
                    self.close(epoch, self.measure.quality(test_loss, test_accuracy));
                }
            }
            Event::Evaluation { epoch, test_loss, test_accuracy, test_s, .. } => {
                // An epoch's time is that of its training.
                self.begun.entry(record.peer).and_modify(|begun| *begun += test_s);
                if self.pilot.evaluations.last().is_none_or(|last| last.epoch < epoch) {
                    let quality = self.measure.quality(test_loss, test_accuracy);
                    self.pilot.evaluations.push(PilotTest { epoch, quality });
                }
            }
            _ => {}
        }
    }

    fn clock(&mut self) -> Option<Duration> {
        self.thinks.then(processor_time)
    }

    fn wants_more(&mut self) -> bool {
        self.pilot.is_out_of_time = !self.pilot.is_reached && Instant::now() >= self.until;
        !self.pilot.is_reached && !self.pilot.is_out_of_time
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use nettorrent_engine::job::Job;
    use nettorrent_sim::{Scenario, Toy};

    use super::{Goal, Pilot, PilotSetup, run_pilot};

    fn pilot(n_peers: usize, goal: Goal, seconds: u64) -> Pilot {
        let job = Job { epochs: 20, batch: 4, threads: 1, ..Job::default() };
        pilot_of(&job, n_peers, goal, seconds)
    }

    fn pilot_of(job: &Job, n_peers: usize, goal: Goal, seconds: u64) -> Pilot {
        let until = Instant::now() + Duration::from_secs(seconds);
        let setup = PilotSetup { n_peers, scenario: Scenario::lan(), thinks: false, goal, until };
        run_pilot(job, Arc::new(Toy::new(1)), setup).unwrap()
    }

    #[test]
    fn tests_within_epochs_tell_sooner_when_the_goal_was_reached() {
        let found = pilot(2, Goal::Quality(0.5), 3600);
        let mut job = Job { epochs: 20, batch: 4, threads: 1, ..Job::default() };
        job.evaluate.every_batches = 2;
        let finer = pilot_of(&job, 2, Goal::Quality(0.5), 3600);
        let learned =
            |pilot: &Pilot| pilot.epochs.iter().map(|epoch| (epoch.quality, epoch.n_rounds)).collect::<Vec<_>>();
        assert_eq!(learned(&finer), learned(&found), "they change nothing");
        let (rough, fine) = (found.epochs_to(0.5).unwrap(), finer.epochs_to(0.5).unwrap());
        assert!(fine < rough && fine > rough - 1.0, "{rough}, {fine}");
    }

    #[test]
    fn a_pilot_ends_with_its_goal_with_its_epochs_or_with_its_time() {
        let found = pilot(3, Goal::Quality(0.5), 3600);
        assert!(found.is_reached && !found.is_out_of_time && (1..20).contains(&found.epochs.len()), "{found:?}");
        assert_eq!(found.epochs_to(0.5), Some(found.epochs.len() as f64));
        for goal in [Goal::Quality(1.1), Goal::Epochs] {
            let found = pilot(3, goal, 3600);
            assert!(!found.is_reached && !found.is_out_of_time && found.epochs.len() == 20, "{found:?}");
            assert_eq!(found.epochs_to(1.1), None);
            let found = pilot(3, goal, 0);
            assert!(!found.is_reached && found.is_out_of_time && found.epochs.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_pilot_counts_what_is_said() {
        let found = pilot(3, Goal::Rounds(5), 3600);
        let cost = found.cost.unwrap();
        assert!(found.is_reached && found.epochs.len() <= 1, "{found:?}");
        // Three peers send two thirds of the vector twice.
        assert_eq!(cost.total, 2 * 2 * 4 * 44);
        // Nobody trains a sample faster than in a millisecond, and the network is much faster than that.
        assert!(found.round_s.is_some_and(|seconds| (0.001..0.02).contains(&seconds)), "{found:?}");
        assert!(cost.most_sent >= cost.total / 3 && cost.most_received >= cost.total / 3, "{cost:?}");
    }

    #[test]
    fn an_epoch_takes_its_training_and_no_test() {
        let alone = pilot(1, Goal::Epochs, 3600);
        for epoch in &alone.epochs {
            // 120 samples of a millisecond each.
            assert!((epoch.seconds - 0.12).abs() < 1e-6 && epoch.n_rounds == 30, "{epoch:?}");
        }
        assert!(alone.sample_s.is_some_and(|seconds| seconds > 0.001), "tests are between rounds: {alone:?}");
        let short = pilot(1, Goal::Rounds(20), 3600);
        assert!(short.sample_s.is_some_and(|seconds| (seconds - 0.001).abs() < 1e-9), "{short:?}");
        assert_eq!(pilot(1, Goal::Rounds(8), 3600).sample_s, None, "the first rounds do not count");
        let together = pilot(3, Goal::Epochs, 3600);
        assert!(together.epochs.iter().all(|epoch| epoch.seconds > 0.04), "{together:?}");
    }
}
