//! A peer's share of an evaluation: which test samples it scores, and the score as it travels.

use std::ops::Range;

use bytes::Bytes;
use nettorrent_engine::model::{MOST_METRICS, Score};
use nettorrent_engine::task::Task;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::malformed::Malformed;
use crate::wire::{decoded, encoded};

/// A score as it travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PartialScore {
    loss_sum: f64,
    n_correct: u64,
    n: u64,
    /// See [`encoded_with_metrics`].
    #[serde(skip)]
    metrics: [f64; MOST_METRICS],
}

/// A message about a part of an evaluation.
pub(super) trait AboutTest: Serialize + DeserializeOwned {
    /// How the test samples were classified.
    fn test(&mut self) -> &mut PartialScore;
}

/// A message with the metrics of its test behind it: as many numbers as the task has metrics, so none where it has none.
pub(super) fn encoded_with_metrics<M: AboutTest + Copy>(message: &M, task: &dyn Task) -> Bytes {
    let (plain, test) = (encoded(message), *{ *message }.test());
    match n_metrics(task) {
        0 => plain,
        n => plain.iter().copied().chain(test.metrics[..n].iter().flat_map(|sum| sum.to_le_bytes())).collect(),
    }
}

/// What [`encoded_with_metrics`] wrote.
pub(super) fn decoded_with_metrics<M: AboutTest>(body: &[u8], task: &dyn Task) -> Result<M, Malformed> {
    let n_bytes = n_metrics(task) * size_of::<f64>();
    let missing = || Malformed::new("its message has no metrics");
    let (plain, metrics) = body.split_at_checked(body.len().wrapping_sub(n_bytes)).ok_or_else(missing)?;
    let mut message: M = decoded(plain)?;
    let sums = metrics.as_chunks().0.iter().copied().map(f64::from_le_bytes);
    message.test().metrics.iter_mut().zip(sums).for_each(|(sum, told)| *sum = told);
    Ok(message)
}

fn n_metrics(task: &dyn Task) -> usize {
    task.metrics().len().min(MOST_METRICS)
}

impl PartialScore {
    /// Whether so many samples can give it.
    pub(super) fn is_possible(&self, most: usize) -> bool {
        self.n <= most as u64 && self.n_correct <= self.n
    }
}

/// A member's share of so many samples, in proportion to its speed.
pub(super) fn test_share(n_samples: usize, rank: usize, n_peers: usize, speeds: &[u16]) -> Range<usize> {
    let speed = |rank: usize| speeds.get(rank).map_or(1, |&speed| usize::from(speed));
    let until = |rank: usize| (0..rank).map(speed).sum::<usize>();
    let all = until(n_peers).max(1);
    until(rank) * n_samples / all..until(rank + 1) * n_samples / all
}

impl From<Score> for PartialScore {
    fn from(score: Score) -> Self {
        let Score { loss_sum, n_correct, n, metrics } = score;
        Self { loss_sum, n_correct: n_correct as u64, n: n as u64, metrics }
    }
}

impl From<PartialScore> for Score {
    fn from(score: PartialScore) -> Self {
        let PartialScore { loss_sum, n_correct, n, metrics } = score;
        Self { loss_sum, n_correct: n_correct as usize, n: n as usize, metrics }
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::fn_task::FnTask;
    use nettorrent_engine::model::{Layout, Score};
    use nettorrent_engine::task::Task;

    use super::{AboutTest, PartialScore, decoded_with_metrics, encoded_with_metrics};
    use crate::wire::encoded;

    impl AboutTest for PartialScore {
        fn test(&mut self) -> &mut PartialScore {
            self
        }
    }

    fn task<const N: usize>(names: [&str; N]) -> impl Task {
        let layout = Layout::of_tensors([("w", [1].as_slice())]);
        FnTask::new(layout, vec![0], 1, |_, _, _| Score::default()).with_metrics(names)
    }

    #[test]
    fn as_many_metrics_travel_as_the_task_has() {
        let score = Score { loss_sum: 1.5, n_correct: 3, n: 4, metrics: [0.5, -2.0, 0.0, 0.0] };
        let message = PartialScore::from(score);
        let plain = encoded_with_metrics(&message, &task([]));
        assert_eq!(plain, encoded(&message), "a task without any adds no byte");
        let with_two = encoded_with_metrics(&message, &task(["a", "b"]));
        assert_eq!(with_two.len(), plain.len() + 16);
        let read: PartialScore = decoded_with_metrics(&with_two, &task(["a", "b"])).unwrap();
        assert_eq!(Score::from(read), score);
        for n in 0..with_two.len() {
            assert!(
                decoded_with_metrics::<PartialScore>(&with_two[..n], &task(["a", "b"])).is_err(),
                "{n} bytes of it"
            );
        }
    }
}
