//! Judging a pipeline: samples go up in batches, and nothing comes down.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::model::Score;
use nettorrent_swarm::Done;

use crate::message::Purpose;
use crate::position::Key;
use crate::work::Samples;

/// A test or a judgement that is going on.
pub(crate) struct Evaluation {
    pub purpose: Purpose,
    id: u64,
    /// The block's numbers that are judged.
    pub values: Arc<Vec<f32>>,
    batches: Vec<Samples>,
    /// The serial number of its first pass.
    first: u32,
    n_begun: u32,
    n_done: u32,
    score: Score,
    pub compute: Duration,
}

impl Evaluation {
    pub(crate) fn new(purpose: Purpose, id: u64, values: Arc<Vec<f32>>, batches: Vec<Samples>, first: u32) -> Self {
        let (score, compute) = (Score::default(), Duration::ZERO);
        Self { purpose, id, values, batches, first, n_begun: 0, n_done: 0, score, compute }
    }

    /// The serial numbers of its passes.
    pub(crate) fn serials(&self) -> Range<u32> {
        self.first..self.first + self.batches.len() as u32
    }

    /// The next pass to begin, if not more than `most` are under way.
    pub(crate) fn begin_next(&mut self, most: u32) -> Option<(Key, Samples)> {
        if self.n_begun - self.n_done >= most {
            return None;
        }
        let samples = self.batches.get(self.n_begun as usize)?.clone();
        let key = Key { purpose: self.purpose, serial: self.first + self.n_begun };
        self.n_begun += 1;
        Some((key, samples))
    }

    /// A pass is over.
    pub(crate) fn count(&mut self, score: Score, compute: Duration) {
        self.n_done += 1;
        self.score += score;
        self.compute += compute;
    }

    /// What came of it, when all passes are over.
    pub(crate) fn result(&self) -> Option<Done> {
        let (id, score) = (self.id, self.score);
        let is_over = self.n_done as usize == self.batches.len();
        is_over.then_some(match self.purpose {
            Purpose::Judge => Done::Scored { id, score },
            Purpose::Train | Purpose::Test => Done::Tested { id, score, hash: None },
        })
    }
}

/// Cuts samples into batches.
pub(crate) fn batches(n: usize, batch: usize, samples: impl Fn(Range<usize>) -> Samples) -> Vec<Samples> {
    let batch = batch.max(1);
    (0..n).step_by(batch).map(|start| samples(start..n.min(start + batch))).collect()
}
