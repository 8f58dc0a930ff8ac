//! A pilot: a job is simulated to find out what cannot be foretold, how fast a strategy learns and how much it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Observer, Scenario, Simulation, SimulationError};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategy::Cost;
use nettorrent_swarm::{PeerId, Setup, SetupError};
use serde::Serialize;

/// What a pilot is to find out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// After how many epochs this accuracy is reached.
    Accuracy(f64),
    /// What is said in so many rounds.
    Rounds(u32),
}

/// What a pilot has found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pilot {
    /// Epochs that were simulated.
    pub epochs: u64,
    /// The best accuracy on the test samples after any of them.
    pub best_accuracy: Option<f64>,
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
}

/// Why there is no pilot.
#[derive(Debug, thiserror::Error)]
pub enum PilotError {
    /// The job cannot be done by a swarm.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// It cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A peer could not go on.
    #[error("{peer} could not go on: {problem}")]
    Failed {
        /// Who.
        peer: PeerId,
        /// Why.
        problem: String,
    },
}

/// How a pilot is made.
#[derive(Clone, Debug)]
pub struct Flight {
    /// How many peers.
    pub n_peers: usize,
    /// Their links, and how fast they compute.
    pub scenario: Scenario,
    /// What is to be found out.
    pub goal: Goal,
    /// When it is given up.
    pub until: Instant,
}

/// Simulates a job until its goal is reached, its epochs are done, or it is too late.
pub fn fly(job: &Job, task: Arc<dyn Task>, flight: Flight) -> Result<Pilot, PilotError> {
    let Flight { n_peers, scenario, goal, until } = flight;
    let setup = Arc::new(Setup::new(job, task)?);
    let mut watch = Watch { goal, until, n_peers, pilot: Pilot::default(), said: BTreeMap::new() };
    let outcome = Simulation::new(setup, n_peers, scenario)?.with_threads(job.threads).run_with(&mut watch)?;
    if let Some(failure) = outcome.failures.first() {
        return Err(PilotError::Failed { peer: failure.peer, problem: failure.problem.clone() });
    }
    Ok(Pilot { cost: watch.cost(), round_s: watch.round_s(), ..watch.pilot })
}

/// Sees whether the goal is reached.
struct Watch {
    goal: Goal,
    until: Instant,
    n_peers: usize,
    pilot: Pilot,
    said: BTreeMap<PeerId, Said>,
}

/// What a peer has said and heard.
#[derive(Clone, Copy, Default)]
struct Said {
    /// When its first and its last round ended.
    first_s: f64,
    last_s: f64,
    rounds: u32,
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
}

impl Watch {
    fn round_s(&self) -> Option<f64> {
        let several = self.said.values().filter(|said| said.rounds > 1);
        several.map(|said| (said.last_s - said.first_s) / f64::from(said.rounds - 1)).reduce(f64::max)
    }
}

impl Observer for Watch {
    fn record(&mut self, record: Record) {
        match record.event {
            Event::Round { sent_bytes, received_bytes, .. } => {
                let said = self.said.entry(record.peer).or_default();
                if said.rounds == 0 {
                    said.first_s = record.at_s;
                }
                said.last_s = record.at_s;
                said.rounds += 1;
                said.sent += sent_bytes;
                said.received += received_bytes;
                if let Goal::Rounds(wanted) = self.goal {
                    let is_done = |said: &Said| said.rounds >= wanted;
                    self.pilot.is_reached = self.said.len() == self.n_peers && self.said.values().all(is_done);
                }
            }
            Event::Epoch { epoch, test_accuracy, .. } if epoch > self.pilot.epochs => {
                self.pilot.epochs = epoch;
                let best = self.pilot.best_accuracy.map_or(test_accuracy, |best| best.max(test_accuracy));
                self.pilot.best_accuracy = Some(best);
                if let Goal::Accuracy(wanted) = self.goal {
                    self.pilot.is_reached = best >= wanted;
                }
            }
            _ => {}
        }
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

    use super::{Flight, Goal, Pilot, fly};

    fn pilot(goal: Goal, seconds: u64) -> Pilot {
        let job = Job { epochs: 20, batch: 4, threads: 1, ..Job::default() };
        let until = Instant::now() + Duration::from_secs(seconds);
        let flight = Flight { n_peers: 3, scenario: Scenario::lan(), goal, until };
        fly(&job, Arc::new(Toy::new(1)), flight).unwrap()
    }

    #[test]
    fn a_pilot_ends_with_its_goal_with_its_epochs_or_with_its_time() {
        let found = pilot(Goal::Accuracy(0.5), 3600);
        assert!(found.is_reached && !found.is_out_of_time && (1..20).contains(&found.epochs), "{found:?}");
        let found = pilot(Goal::Accuracy(1.1), 3600);
        assert!(!found.is_reached && !found.is_out_of_time && found.epochs == 20, "{found:?}");
        let found = pilot(Goal::Accuracy(1.1), 0);
        assert!(!found.is_reached && found.is_out_of_time && found.epochs == 0, "{found:?}");
    }

    #[test]
    fn a_pilot_counts_what_is_said() {
        let found = pilot(Goal::Rounds(5), 3600);
        let cost = found.cost.unwrap();
        assert!(found.is_reached && found.epochs <= 1, "{found:?}");
        // Three peers send two thirds of the vector twice.
        assert_eq!(cost.total, 2 * 2 * 4 * 44);
        // A batch of 4 takes 4 ms, and nothing is faster.
        assert!(found.round_s.is_some_and(|seconds| seconds > 0.004 && seconds < 0.02), "{found:?}");
        assert!(cost.most_sent >= cost.total / 3 && cost.most_received >= cost.total / 3, "{cost:?}");
    }
}
