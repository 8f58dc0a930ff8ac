//! A team of threads that work on one batch together, each on its own share, and agree on sums in a fixed order.

use std::ops::Range;
use std::sync::{Barrier, Mutex};

use rayon::ThreadPool;

use crate::partition::even;

/// A number of threads that all run the same work. The result depends on how many they are, never on who is first.
pub(crate) struct Team {
    // None for a team of one: then the caller does the work itself.
    pool: Option<ThreadPool>,
    barrier: Barrier,
    parts: Vec<Mutex<Vec<f64>>>,
}

/// Why a team could not be formed.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {n_threads} threads: {source}")]
pub struct TeamError {
    n_threads: usize,
    source: rayon::ThreadPoolBuildError,
}

/// One thread's place in its team.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    team: &'a Team,
    /// Which of the threads this is.
    pub rank: usize,
}

impl Team {
    /// A team of this many threads, at least one.
    pub(crate) fn new(n_threads: usize) -> Result<Self, TeamError> {
        let n_threads = n_threads.max(1);
        let pool = match n_threads {
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(n_threads)
                    .thread_name(|rank| format!("team-{rank}"))
                    .build()
                    .map_err(|source| TeamError { n_threads, source })?,
            ),
        };
        let parts = (0..n_threads).map(|_| Mutex::default()).collect();
        Ok(Self { pool, barrier: Barrier::new(n_threads), parts })
    }

    /// How many threads there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Runs `work` once on every thread and waits for all.
    pub(crate) fn run(&self, work: impl Fn(Member<'_>) + Sync) {
        match &self.pool {
            None => work(Member { team: self, rank: 0 }),
            Some(pool) => {
                pool.broadcast(|thread| work(Member { team: self, rank: thread.index() }));
            }
        }
    }

    /// Runs `work` where parallel iterators use this team's threads.
    pub(crate) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }
}

impl Member<'_> {
    /// This thread's share of `n` things: neighbouring ones, as many as any other's or one more or fewer.
    pub fn share(&self, n: usize) -> Range<usize> {
        even(self.rank, self.team.len(), n)
    }

    /// Replaces `numbers` by the sum of all threads' numbers, added in the order of their ranks. All must call it.
    pub fn sum(&self, numbers: &mut [f64]) {
        if self.team.len() == 1 {
            return;
        }
        let part = |rank: usize| self.team.parts[rank].lock().expect("no thread of a team panics while it holds this");
        part(self.rank).clear();
        part(self.rank).extend_from_slice(numbers);
        self.team.barrier.wait();
        numbers.fill(0.0);
        for rank in 0..self.team.len() {
            for (sum, number) in numbers.iter_mut().zip(part(rank).iter()) {
                *sum += number;
            }
        }
        self.team.barrier.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Team;
    use std::sync::Mutex;

    #[test]
    fn everybody_gets_the_same_sum() {
        let team = Team::new(3).unwrap();
        let results = Mutex::new(Vec::new());
        team.run(|member| {
            let mut numbers = [member.rank as f64, 1.0];
            member.sum(&mut numbers);
            member.sum(&mut numbers);
            results.lock().unwrap().push(numbers);
        });
        assert_eq!(results.into_inner().unwrap(), [[9.0, 9.0]; 3]);
    }

    #[test]
    fn shares_cover_everything_once() {
        let team = Team::new(4).unwrap();
        let shares = Mutex::new(vec![0; 10]);
        team.run(|member| shares.lock().unwrap()[member.share(10)].iter_mut().for_each(|n| *n += 1));
        assert_eq!(shares.into_inner().unwrap(), vec![1; 10]);
    }
}
