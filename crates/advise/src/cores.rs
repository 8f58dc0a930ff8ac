//! What a peer has of its machine's cores.

use std::num::NonZero;
use std::thread::available_parallelism;

/// What a peer has of its machine's cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cores {
    /// Whether messages are handled by cores that also compute.
    pub(crate) are_shared: bool,
    /// How many times as long everything takes because there are fewer cores than threads.
    pub(crate) slowdown: f64,
}

impl Cores {
    /// With so many peers on a machine like this one, each with so many threads.
    pub(crate) fn here(n_peers_here: usize, n_threads: usize) -> Self {
        Self::among(available_parallelism().map_or(1, NonZero::get), n_peers_here, n_threads)
    }

    fn among(n_cores: usize, n_peers_here: usize, n_threads: usize) -> Self {
        let wanted = n_peers_here * n_threads.max(1);
        Self { are_shared: wanted >= n_cores, slowdown: (wanted as f64 / n_cores.max(1) as f64).max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::Cores;

    #[test]
    fn peers_of_one_machine_share_its_cores() {
        let cores = |n_cores, n_here, n_threads| {
            let Cores { are_shared, slowdown } = Cores::among(n_cores, n_here, n_threads);
            (are_shared, slowdown)
        };
        assert_eq!([cores(8, 1, 1), cores(8, 1, 8), cores(1, 1, 1)], [(false, 1.0), (true, 1.0), (true, 1.0)]);
        assert_eq!([cores(8, 4, 1), cores(2, 4, 1), cores(4, 2, 4)], [(false, 1.0), (true, 2.0), (true, 2.0)]);
    }
}
