//! How long steps take.

use std::time::{Duration, Instant};

/// Steps before a measurement, so that memory is there and caches are warm.
const WARM_UP: usize = 3;

/// Takes steps for so long, at least one, after a few that do not count; how many, and how many seconds they took.
pub(crate) fn timed<E>(duration: Duration, mut step: impl FnMut() -> Result<(), E>) -> Result<(u64, f64), E> {
    for _ in 0..WARM_UP {
        step()?;
    }
    let (started, mut n_steps) = (Instant::now(), 0);
    while n_steps == 0 || started.elapsed() < duration {
        step()?;
        n_steps += 1;
    }
    Ok((n_steps, started.elapsed().as_secs_f64()))
}
