//! The runtime that everything of a node runs on.

use std::future::Future;
use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::Builder;

/// Threads that read, write and encrypt, besides the one that thinks.
const N_HELPERS: usize = 2;

/// Runs a future to its end on this thread. Where the machine has cores to spare for each of the `n_processes` that share it,
/// links are served by other threads, which large vectors gain from; where it has not, one thread does all, for handing
/// things from thread to thread would only cost.
pub fn block_on<F: Future>(n_processes: usize, future: F) -> std::io::Result<F::Output> {
    let n_cores = available_parallelism().map_or(1, NonZero::get);
    let has_spare_cores = n_cores >= 2 * n_processes && n_cores >= 4;
    let mut builder = if has_spare_cores { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    Ok(builder.worker_threads(N_HELPERS).enable_all().build()?.block_on(future))
}
