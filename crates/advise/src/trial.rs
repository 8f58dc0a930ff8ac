//! A trial: pilots of one strategy with several seeds, within the time that it is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_swarm::strategy::Cost;
use serde::Serialize;

use crate::pilot::{Pilot, PilotError, PilotSetup, run_pilot};

/// What pilots with several seeds have found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Trial {
    /// One for each seed that came to its end.
    pub pilots: Vec<Pilot>,
    /// Of each other seed, why it did not: its peers could not go on.
    pub problems: Vec<String>,
}

/// Time that is shared fairly: what one trial leaves of its part, those after it get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    until: Instant,
    n_left: u32,
}

impl Budget {
    /// So much time from now on, for so many trials.
    pub(crate) fn new(total: Duration, n_trials: usize) -> Self {
        // What is longer than a year is as good as a year, and can be added to the present.
        let total = total.min(Duration::from_secs(365 * 24 * 3600));
        Self { until: Instant::now() + total, n_left: u32::try_from(n_trials).unwrap_or(u32::MAX) }
    }

    /// When the next trial has to be over.
    pub(crate) fn next_end(&mut self) -> Instant {
        let now = Instant::now();
        let share = self.until.saturating_duration_since(now) / self.n_left.max(1);
        self.n_left = self.n_left.saturating_sub(1);
        now + share
    }
}

/// Runs pilots with the job's seed and those that follow it. One seed that is seen to its end tells more than several that are cut
/// short, so another one is begun only if there is time for one that takes as long as those before.
pub(crate) fn try_out(job: &Job, task: &Arc<dyn Task>, setup: &PilotSetup, n_seeds: u32) -> Result<Trial, PilotError> {
    let began = Instant::now();
    let mut trial = Trial::default();
    for k in 0..n_seeds.max(1) {
        let usual = began.elapsed() / k.max(1);
        if k > 0 && Instant::now() + usual > setup.until {
            break;
        }
        let job = Job { seed: job.seed.wrapping_add(u64::from(k)), ..job.clone() };
        match run_pilot(&job, task.clone(), setup.clone()) {
            Ok(pilot) => trial.pilots.push(pilot),
            Err(PilotError::Failed { problem, .. }) => trial.problems.push(problem),
            Err(error) => return Err(error),
        }
    }
    Ok(trial)
}

impl Trial {
    /// How many seeds were tried.
    pub(crate) fn n_seeds(&self) -> usize {
        self.pilots.len() + self.problems.len()
    }

    /// With how many of them this quality was reached.
    pub(crate) fn n_reached(&self, quality: f64) -> usize {
        self.pilots.iter().filter(|pilot| pilot.epochs_to(quality).is_some()).count()
    }

    /// After how many epochs it was, in the median over all seeds; none unless it was with more than half of them.
    pub(crate) fn epochs_to(&self, quality: f64) -> Option<f64> {
        let mut epochs: Vec<f64> = self.pilots.iter().filter_map(|pilot| pilot.epochs_to(quality)).collect();
        epochs.sort_unstable_by(f64::total_cmp);
        // Seeds that did not get there count as the slowest.
        epochs.get(self.n_seeds() / 2).copied()
    }

    /// How many epochs all seeds have done that have done any.
    pub(crate) fn n_epochs(&self) -> u64 {
        self.lengths().min().unwrap_or(0)
    }

    /// How many epochs the seed has done that has done most.
    pub(crate) fn most_epochs(&self) -> u64 {
        self.lengths().max().unwrap_or(0)
    }

    fn lengths(&self) -> impl Iterator<Item = u64> {
        self.pilots.iter().map(|pilot| pilot.epochs.len() as u64).filter(|&n_epochs| n_epochs > 0)
    }

    /// The quality after so many epochs, in the mean; of seeds that have done fewer, after their last.
    pub(crate) fn quality_after(&self, n_epochs: u64) -> Option<f64> {
        let after = |pilot: &Pilot| {
            let last = pilot.epochs.len().min(usize::try_from(n_epochs).unwrap_or(usize::MAX));
            pilot.epochs[..last].last().map(|epoch| epoch.quality)
        };
        let qualities: Vec<f64> = self.pilots.iter().filter_map(after).collect();
        (!qualities.is_empty()).then(|| qualities.iter().sum::<f64>() / qualities.len() as f64)
    }

    /// The quality after the last epochs, in the median over the seeds that came to their end; of an even number, the lower
    /// one, so that more than half of them have it.
    pub(crate) fn median_quality(&self) -> Option<f64> {
        let last = |pilot: &Pilot| pilot.epochs.last().map(|epoch| epoch.quality);
        let mut qualities: Vec<f64> = self.pilots.iter().filter_map(last).collect();
        qualities.sort_by(f64::total_cmp);
        qualities.get(qualities.len().saturating_sub(1) / 2).copied()
    }

    /// With how many seeds time was over before the goal was reached or the job's epochs were done.
    pub(crate) fn n_cut_short(&self) -> usize {
        self.pilots.iter().filter(|pilot| pilot.is_out_of_time).count()
    }

    /// How long an epoch takes in simulated time, in the mean; none if none was done.
    pub(crate) fn epoch_s(&self) -> Option<f64> {
        let epochs: Vec<f64> = self.pilots.iter().flat_map(|pilot| &pilot.epochs).map(|epoch| epoch.seconds).collect();
        (!epochs.is_empty()).then(|| epochs.iter().sum::<f64>() / epochs.len() as f64)
    }

    /// What a round cost with the first seed.
    pub(crate) fn cost(&self) -> Option<Cost> {
        self.pilots.first().and_then(|pilot| pilot.cost)
    }

    /// How long a sample took with the first seed, all peers together.
    pub(crate) fn sample_s(&self) -> Option<f64> {
        self.pilots.first().and_then(|pilot| pilot.sample_s)
    }

    /// How long a round took with the first seed.
    pub(crate) fn round_s(&self) -> Option<f64> {
        self.pilots.first().and_then(|pilot| pilot.round_s)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use nettorrent_engine::job::Job;
    use nettorrent_engine::task::Task;
    use nettorrent_sim::{Scenario, Toy};

    use super::{Budget, Trial, try_out};
    use crate::pilot::{Goal, Pilot, PilotEpoch, PilotSetup};

    fn course(qualities: &[f64]) -> Pilot {
        let epoch = |&quality: &f64| PilotEpoch { quality, seconds: 2.0, n_rounds: 4 };
        Pilot { epochs: qualities.iter().map(epoch).collect(), ..Pilot::default() }
    }

    #[test]
    fn more_than_half_of_the_seeds_have_to_get_there() {
        let mut trial =
            Trial { pilots: vec![course(&[0.5, 0.9]), course(&[0.9]), course(&[0.4, 0.5])], problems: vec![] };
        assert_eq!((trial.n_reached(0.9), trial.epochs_to(0.9)), (2, Some(2.0)));
        assert_eq!((trial.n_epochs(), trial.most_epochs(), trial.epoch_s()), (1, 2, Some(2.0)));
        assert!(trial.quality_after(2).is_some_and(|mean| (mean - 2.3 / 3.0).abs() < 1e-9), "{trial:?}");
        assert!(trial.quality_after(1).is_some_and(|mean| (mean - 1.8 / 3.0).abs() < 1e-9), "{trial:?}");
        assert_eq!((trial.median_quality(), Trial::default().median_quality()), (Some(0.9), None));
        trial.problems.push("it diverged".to_owned());
        assert_eq!((trial.n_seeds(), trial.n_reached(0.9), trial.epochs_to(0.9)), (4, 2, None));
        assert_eq!(Trial::default().quality_after(3), None);
    }

    #[test]
    fn seeds_are_as_many_as_there_is_time_for() {
        let job = Job { epochs: 3, batch: 4, threads: 1, ..Job::default() };
        let task: Arc<dyn Task> = Arc::new(Toy::new(1));
        let trial = |seconds| {
            let until = Instant::now() + Duration::from_secs(seconds);
            let setup = PilotSetup { n_peers: 2, scenario: Scenario::lan(), thinks: false, goal: Goal::Epochs, until };
            try_out(&job, &task, &setup, 3).unwrap()
        };
        let found = trial(3600);
        assert!(found.n_seeds() == 3 && found.n_cut_short() == 0 && found.n_epochs() == 3, "{found:?}");
        assert_ne!(found.pilots[0].epochs, found.pilots[1].epochs, "each has a seed of its own");
        let found = trial(0);
        assert!(found.n_seeds() == 1 && found.n_cut_short() == 1 && found.n_epochs() == 0, "{found:?}");
    }

    #[test]
    fn what_one_leaves_others_get() {
        let mut budget = Budget::new(Duration::from_secs(1000), 4);
        let left = |end: Instant| end.saturating_duration_since(Instant::now()).as_secs_f64();
        let shares: Vec<f64> = (0..5).map(|_| left(budget.next_end())).collect();
        // Nothing was used, so each next one gets an equal part of the whole.
        for (share, expected) in shares.iter().zip([250.0, 333.0, 500.0, 1000.0, 1000.0]) {
            assert!((share - expected).abs() < 5.0, "{shares:?}");
        }
        assert!(left(Budget::new(Duration::MAX, 1).next_end()) > 1e6);
    }
}
