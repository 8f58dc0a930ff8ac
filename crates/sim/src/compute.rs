//! What peers compute: it takes simulated time, and is really computed by all cores when the first result is needed.
//!
//! Work holds all that it needs from the moment it is handed over, so it does not matter when it is computed. Whatever has
//! been begun by then is computed together, each work by one thread with a room of its own: the number of threads changes
//! nothing but how long one has to wait.
//!
//! Local phases are gone through batch by batch, with the gradient from a worker and the step taken here when it is due: workers are few,
//! and what happens to a peer between two batches may change its rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nettorrent_engine::task::{Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_swarm::{Done, PhaseWork, What, Work};
use rayon::ThreadPool;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use slab::Slab;

use crate::outcome::SimulationError;
use crate::queue::{Event, Nanos, Queue, short};

/// All work that has been begun.
pub(crate) struct Compute {
    task: Arc<dyn Task>,
    // None for one thread: then the caller computes.
    pool: Option<ThreadPool>,
    workers: Mutex<Vec<Box<dyn Worker>>>,
    works: Slab<Running>,
    /// What has not been computed yet.
    todo: Vec<(u32, Work)>,
}

/// A work that has been begun.
struct Running {
    peer: usize,
    began: Nanos,
    lasts: Nanos,
    /// How many pieces come before the last one.
    n_buckets: u64,
    n_given: u64,
    /// What comes of it, once it is computed.
    pieces: Option<Pieces>,
}

/// What came of a work.
enum Pieces {
    /// What is handed over, piece by piece.
    Done(std::vec::IntoIter<Done>),
    /// The gradient of a batch of a local phase.
    Batch(u64, Box<PhaseWork>),
}

/// What a peer is due.
pub(crate) enum Piece {
    Done(Done),
    /// A batch of a local phase, whose step is to be taken.
    Batch(u64, Box<PhaseWork>),
}

impl Running {
    /// When the next piece is there. Parts of a gradient come in the second half of the time, while the rest is computed.
    fn next_at(&self) -> Nanos {
        let n_later = self.n_buckets.saturating_sub(self.n_given + 1);
        self.began + self.lasts - self.lasts / 2 / self.n_buckets.max(1) * n_later
    }
}

impl Compute {
    /// Computes with this many threads.
    pub(crate) fn new(task: Arc<dyn Task>, n_threads: usize) -> Result<Self, SimulationError> {
        let pool = match n_threads {
            1 => None,
            n => Some(rayon::ThreadPoolBuilder::new().num_threads(n).build()?),
        };
        // A worker for each, so that what cannot be had is known now.
        let n_workers = pool.as_ref().map_or(1, ThreadPool::current_num_threads);
        let workers: Result<Vec<_>, _> = (0..n_workers).map(|_| task.clone().worker(1)).collect();
        Ok(Self { task, pool, workers: Mutex::new(workers?), works: Slab::new(), todo: Vec::new() })
    }

    /// Begins a work of a peer.
    pub(crate) fn begin(&mut self, peer: usize, began: Nanos, lasts: Nanos, work: Work, queue: &mut Queue) {
        let n_buckets = if work.is_training() { self.task.buckets().len() as u64 } else { 0 };
        let running = Running { peer, began, lasts, n_buckets, n_given: 0, pieces: None };
        let at = running.next_at();
        let number = short(self.works.insert(running));
        self.todo.push((number, work));
        queue.push(at, Event::Done(number));
    }

    /// A peer does something else for so long: what it has begun to compute, and what it is to compute after that, is done later.
    pub(crate) fn hold_up(&mut self, peer: usize, now: Nanos, by: Nanos) {
        for work in self
            .works
            .iter_mut()
            .map(|(_, work)| work)
            .filter(|work| work.peer == peer && work.began.saturating_add(work.lasts) > now)
        {
            *(if work.began > now { &mut work.began } else { &mut work.lasts }) += by;
        }
    }

    /// Whose work it is.
    pub(crate) fn peer(&self, number: u32) -> Option<usize> {
        self.works.get(number as usize).map(|work| work.peer)
    }

    /// Nobody wants a work any more.
    pub(crate) fn forget(&mut self, number: u32) {
        self.works.try_remove(number as usize);
        self.todo.retain(|(todo, _)| *todo != number);
    }

    /// The next piece of a work, and how long the work has taken so far.
    pub(crate) fn next_piece(&mut self, now: Nanos, number: u32, queue: &mut Queue) -> Option<(Piece, Duration)> {
        if self.works.get(number as usize)?.pieces.is_none() {
            self.compute_all();
        }
        let work = self.works.get_mut(number as usize)?;
        if work.next_at() > now {
            // It was held up.
            queue.push(work.next_at(), Event::Done(number));
            return None;
        }
        let due = work.next_at();
        let (piece, is_last) = match work.pieces.take()? {
            // Nobody hears of the parts of this gradient, but a batch takes its turns as any other does: what happens at the same time
            // happens in the same order.
            pieces @ Pieces::Batch(..) if work.n_given < work.n_buckets => {
                work.pieces = Some(pieces);
                (None, false)
            }
            Pieces::Batch(id, phase) => (Some(Piece::Batch(id, phase)), true),
            Pieces::Done(mut pieces) => {
                let (piece, is_last) = (pieces.next().map(Piece::Done), pieces.len() == 0);
                work.pieces = Some(Pieces::Done(pieces));
                (piece, is_last)
            }
        };
        // It may have been done before its peer had time to take it.
        let took = Duration::from_nanos(now.min(due).saturating_sub(work.began));
        work.n_given += 1;
        match is_last {
            true => drop(self.works.remove(number as usize)),
            false => queue.push(work.next_at().max(now), Event::Done(number)),
        }
        piece.map(|piece| (piece, took))
    }

    fn compute_all(&mut self) {
        let todo = std::mem::take(&mut self.todo);
        let done: Vec<(u32, Pieces)> = match &self.pool {
            None => todo.into_iter().map(|(number, work)| (number, self.run(work))).collect(),
            Some(pool) => {
                pool.install(|| todo.into_par_iter().map(|(number, work)| (number, self.run(work))).collect())
            }
        };
        for (number, pieces) in done {
            if let Some(work) = self.works.get_mut(number as usize) {
                work.pieces = Some(pieces);
            }
        }
    }

    /// Computes one work. Whoever computes may be given another work to do while it waits within this one, so workers are
    /// fetched and put back, and belong to no thread.
    fn run(&self, work: Work) -> Pieces {
        let workers = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = workers().pop();
        let mut worker = match idle.map_or_else(|| self.task.clone().worker(1), Ok) {
            Ok(worker) => worker,
            Err(error) => return failed(&error),
        };
        let pieces = match work {
            Work { id, what: What::Local(mut phase) } => match phase.compute(worker.as_mut()) {
                Ok(()) => Pieces::Batch(id, phase),
                Err(error) => failed(&error),
            },
            work => {
                let mut pieces = Vec::new();
                work.run(worker.as_mut(), &mut |piece| pieces.push(piece));
                Pieces::Done(pieces.into_iter())
            }
        };
        workers().push(worker);
        pieces
    }
}

fn failed(error: &TrainError) -> Pieces {
    Pieces::Done(vec![Done::Failed { problem: error.to_string() }].into_iter())
}

#[cfg(test)]
mod tests {
    use super::Running;

    #[test]
    fn parts_come_in_the_second_half_and_the_end_at_the_end() {
        let mut work = Running { peer: 0, began: 1000, lasts: 200, n_buckets: 4, n_given: 0, pieces: None };
        let mut at = || {
            work.n_given += 1;
            Running { n_given: work.n_given - 1, pieces: None, ..work }.next_at()
        };
        assert_eq!([at(), at(), at(), at(), at()], [1125, 1150, 1175, 1200, 1200]);
    }
}
