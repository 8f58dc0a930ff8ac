//! The runtime that everything of a node runs on.

use std::future::Future;
use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::Builder;

/// Threads that read, write and encrypt, besides the one that thinks.
const N_HELPERS: usize = 2;

/// Vectors from here on are worth helpers: what is shorter is read and written in less time than a thread takes to wake.
const HELPED_BYTES: usize = 128 << 10;

/// What a node's threads depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Processes that share this machine, each with a node.
    pub n_processes: usize,
    /// How much the peers exchange in a round; 0 for those who only ask.
    pub n_bytes: usize,
}

/// Runs a future to its end on this thread. Where the machine has cores to spare for each of the processes that share it, and
/// vectors are long, links are served by other threads; else one thread does all, for handing things from thread to thread
/// would only cost.
pub fn block_on<F: Future>(load: Load, future: F) -> std::io::Result<F::Output> {
    let n_cores = available_parallelism().map_or(1, NonZero::get);
    let mut builder =
        if load.needs_io_threads(n_cores) { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    Ok(builder.worker_threads(N_HELPERS).enable_all().build()?.block_on(future))
}

impl Load {
    fn needs_io_threads(self, n_cores: usize) -> bool {
        let Self { n_processes, n_bytes } = self;
        n_cores >= 2 * n_processes && n_cores >= 4 && n_bytes >= HELPED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::{HELPED_BYTES, Load};

    #[test]
    fn helpers_are_for_long_vectors_on_spare_cores() {
        let load = |n_processes, n_bytes| Load { n_processes, n_bytes };
        assert!(load(3, HELPED_BYTES).needs_io_threads(6));
        assert!(!load(3, HELPED_BYTES - 1).needs_io_threads(6));
        assert!(!load(4, HELPED_BYTES).needs_io_threads(6));
        assert!(!load(1, HELPED_BYTES).needs_io_threads(2));
    }
}
