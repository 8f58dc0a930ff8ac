//! How much longer a study will take.

use std::time::Duration;

use crate::folder::Finished;
use crate::plan::RunSpec;

/// How long runs took so far.
pub(crate) struct Usual<'a> {
    done: &'a [Finished],
    mean_s: f64,
}

/// What is still to be done of a run.
pub(crate) struct Ahead {
    pub seconds: f64,
    /// What part of the machine it needs for that.
    pub part: f64,
}

impl<'a> Usual<'a> {
    /// Nothing is known before something is done.
    pub(crate) fn of(done: &'a [Finished]) -> Option<Self> {
        Some(Self { done, mean_s: mean(done.iter())? })
    }

    /// As long as runs of the same setting took, or else as all did in the mean.
    pub(crate) fn seconds(&self, run: &RunSpec) -> f64 {
        mean(self.done.iter().filter(|finished| finished.result.setting == run.setting)).unwrap_or(self.mean_s)
    }
}

fn mean<'a>(of: impl Iterator<Item = &'a Finished>) -> Option<f64> {
    let (n, sum) = of.fold((0, 0.0), |(n, sum), finished| (n + 1, sum + finished.took_s));
    (n > 0).then(|| sum / f64::from(n))
}

/// As if all of the machine were used all the time, but never less than the longest run takes.
pub(crate) fn time_left(runs: impl Iterator<Item = Ahead>) -> Duration {
    let (work, longest) =
        runs.fold((0.0, 0.0_f64), |(work, longest), run| (work + run.seconds * run.part, longest.max(run.seconds)));
    Duration::from_secs_f64(work.max(longest))
}

#[cfg(test)]
mod tests {
    use super::{Ahead, time_left};

    #[test]
    fn runs_that_share_the_machine_take_as_long_as_their_work_or_the_longest_of_them() {
        let left =
            |runs: &[(f64, f64)]| time_left(runs.iter().map(|&(seconds, part)| Ahead { seconds, part })).as_secs_f64();
        assert_eq!(left(&[(10.0, 1.0), (5.0, 1.0)]), 15.0);
        assert_eq!(left(&[(10.0, 0.5), (5.0, 0.5), (5.0, 1.0)]), 12.5);
        assert_eq!(left(&[(10.0, 0.25), (4.0, 0.5)]), 10.0);
        assert_eq!(left(&[]), 0.0);
    }
}
