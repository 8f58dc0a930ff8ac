//! How often the model is tested besides at each epoch's end: the `[evaluate]` section of a job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often the model is tested within epochs. Training goes on as if there were no such test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateSpec {
    /// After every so many batches, counted from the run's beginning and as one machine counts them; where rounds of a swarm are
    /// longer, at the end of the next round. 0 for never. Default: 0.
    pub every_batches: u64,
    /// After so many seconds of training without a test, at the end of the next round or batch. 0 for never. Default: 0.
    pub every_seconds: f64,
}

/// Where tests go by time, the clock is looked at after so many batches.
const STRETCH: usize = 16;
/// The longest time between two tests, some 30 years.
const MOST_SECONDS: f64 = 1e9;

/// A setting that makes no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum EvaluateError {
    /// No time.
    #[error("evaluate.every_seconds = {0}: must be a number of seconds from 0 to 1e9")]
    Seconds(f64),
    /// Twice the same question.
    #[error("evaluate.every_batches and evaluate.every_seconds are both set: choose one of them")]
    Both,
}

impl EvaluateSpec {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), EvaluateError> {
        let seconds = self.every_seconds;
        if !(0.0..=MOST_SECONDS).contains(&seconds) {
            return Err(EvaluateError::Seconds(seconds));
        }
        if seconds > 0.0 && self.every_batches > 0 {
            return Err(EvaluateError::Both);
        }
        Ok(())
    }

    /// The last batch after which to test among those after `before` and up to `now`, if it goes by batches.
    pub fn last_due(&self, before: u64, now: u64) -> Option<u64> {
        let last = now.checked_div(self.every_batches)? * self.every_batches;
        (last > before).then_some(last)
    }

    /// How many batches at most may be trained at a stretch, after so many, before it is time to look whether to test.
    pub fn n_until_next(&self, done: u64) -> usize {
        if self.every_seconds > 0.0 {
            return STRETCH;
        }
        done.checked_rem(self.every_batches).map_or(usize::MAX, |past| (self.every_batches - past) as usize)
    }

    /// After how much time to test, if it goes by time.
    pub fn interval(&self) -> Option<Duration> {
        (self.every_seconds > 0.0).then(|| Duration::from_secs_f64(self.every_seconds.min(MOST_SECONDS)))
    }

    /// Whether there are tests within epochs at all.
    pub fn is_on(&self) -> bool {
        self.every_batches > 0 || self.every_seconds > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::{EvaluateError, EvaluateSpec};
    use crate::job::Job;

    fn parse(settings: &[&str]) -> Result<Job, String> {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("job.toml", "", &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_section_is_read_and_wrong_values_are_answered() {
        assert_eq!(parse(&[]).unwrap().evaluate, EvaluateSpec::default());
        let job = parse(&["evaluate.every_batches=50"]).unwrap();
        assert_eq!((job.evaluate.every_batches, job.evaluate.is_on()), (50, true));
        assert_eq!(parse(&["evaluate.every_seconds=2"]).unwrap().evaluate.interval().unwrap().as_secs(), 2);
        for (settings, answer) in [
            (&["evaluate.every_seconds=-1.0"][..], "evaluate.every_seconds = -1: must be a number of seconds"),
            (&["evaluate.every_seconds=nan"], "evaluate.every_seconds"),
            (&["evaluate.every_batch=5"], "Did you mean `every_batches`?"),
            (&["evaluate.every_batches=5", "evaluate.every_seconds=1.0"], &EvaluateError::Both.to_string()),
        ] {
            let message = parse(settings).unwrap_err();
            assert!(message.contains(answer), "{message}");
        }
    }

    #[test]
    fn batches_are_counted_from_the_beginning() {
        let due =
            |every_batches, before, now| EvaluateSpec { every_batches, ..Default::default() }.last_due(before, now);
        assert_eq!((due(10, 9, 10), due(10, 10, 11), due(10, 10, 19)), (Some(10), None, None));
        assert_eq!((due(10, 7, 33), due(1, 4, 5), due(0, 0, 100)), (Some(30), Some(5), None));
        let left = |every_batches, done| EvaluateSpec { every_batches, ..Default::default() }.n_until_next(done);
        assert_eq!((left(10, 0), left(10, 7), left(10, 10), left(0, 7)), (10, 3, 10, usize::MAX));
    }
}
