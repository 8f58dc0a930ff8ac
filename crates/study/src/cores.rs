//! Which processors a run may use, so that runs that are made at the same time do not disturb each other.

use std::collections::BTreeSet;
use std::io;

/// Processors that nobody uses yet.
#[derive(Clone, Debug)]
pub struct Cores {
    free: BTreeSet<usize>,
    n_all: usize,
    is_divided: bool,
}

/// Those of one run.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    cores: BTreeSet<usize>,
    /// What part of all it is.
    pub part: f64,
    is_divided: bool,
}

impl Cores {
    /// Each run may use the whole machine, so there is one at a time.
    pub fn undivided() -> Self {
        Self { free: BTreeSet::from([0]), n_all: 1, is_divided: false }
    }

    /// Each run has one for each of its threads, out of those that this process may use.
    pub fn divided() -> io::Result<Self> {
        let free = affinity::get()?;
        Ok(Self { n_all: free.len(), free, is_divided: true })
    }

    /// As if there were this many; nobody is confined to them.
    #[cfg(all(test, unix))]
    pub(crate) fn imagined(n: usize) -> Self {
        Self { free: (0..n).collect(), n_all: n, is_divided: false }
    }

    /// Enough for this many threads, or all if there are not as many; none while others use too many. No threads are as many as
    /// there are processors.
    pub(crate) fn take(&mut self, n_threads: usize) -> Option<Share> {
        let n = self.n_for(n_threads);
        let after_last = self.free.iter().nth(n).copied();
        if self.free.len() < n {
            return None;
        }
        let rest = after_last.map(|core| self.free.split_off(&core)).unwrap_or_default();
        let cores = std::mem::replace(&mut self.free, rest);
        Some(Share { part: self.part(n_threads), cores, is_divided: self.is_divided })
    }

    /// What part of all would be taken.
    pub(crate) fn part(&self, n_threads: usize) -> f64 {
        self.n_for(n_threads) as f64 / self.n_all as f64
    }

    fn n_for(&self, n_threads: usize) -> usize {
        if n_threads == 0 { self.n_all } else { n_threads.min(self.n_all) }
    }

    pub(crate) fn give_back(&mut self, share: Share) {
        self.free.extend(share.cores);
    }
}

impl Share {
    /// From now on this thread, and all processes that it starts, run on these alone.
    pub(crate) fn confine_this_thread(&self) -> io::Result<()> {
        if self.is_divided { affinity::set(&self.cores) } else { Ok(()) }
    }
}

#[cfg(target_os = "linux")]
mod affinity {
    use std::collections::BTreeSet;
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn get() -> io::Result<BTreeSet<usize>> {
        let set = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
    }

    pub(super) fn set(cores: &BTreeSet<usize>) -> io::Result<()> {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        Ok(sched_setaffinity(None, &set)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod affinity {
    use std::collections::BTreeSet;
    use std::io;

    pub(super) fn get() -> io::Result<BTreeSet<usize>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "CPU affinity is supported on Linux only"))
    }

    pub(super) fn set(_: &BTreeSet<usize>) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Cores;

    #[test]
    fn each_run_has_its_own_until_it_gives_them_back() {
        let mut cores = Cores { free: BTreeSet::from([0, 1, 4, 5]), n_all: 4, is_divided: true };
        let (one, two) = (cores.take(1).unwrap(), cores.take(2).unwrap());
        assert_eq!((&one.cores, &two.cores), (&BTreeSet::from([0]), &BTreeSet::from([1, 4])));
        assert_eq!((one.part, two.part), (0.25, 0.5));
        assert!(cores.take(2).is_none() && cores.take(0).is_none());
        cores.give_back(one);
        assert_eq!(cores.take(2).unwrap().cores, BTreeSet::from([0, 5]));
    }

    #[test]
    fn who_wants_more_than_there_are_gets_all_and_nobody_else_any() {
        let mut cores = Cores { free: BTreeSet::from([2, 3]), n_all: 2, is_divided: true };
        for n_threads in [0, 2, 9] {
            let all = cores.take(n_threads).unwrap();
            assert_eq!((all.part, cores.take(1).is_none()), (1.0, true));
            cores.give_back(all);
        }
        let mut cores = Cores::undivided();
        assert!(cores.take(3).is_some() && cores.take(1).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_runs_where_the_thread_that_started_it_may() {
        let mut cores = Cores::divided().unwrap();
        let share = cores.take(1).unwrap();
        let allowed = std::thread::spawn(move || {
            share.confine_this_thread().unwrap();
            let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
            (share.cores, String::from_utf8(status.stdout).unwrap())
        });
        let (own, status) = allowed.join().unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(line.trim(), own.first().unwrap().to_string());
    }
}
