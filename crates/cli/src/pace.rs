//! How fast training goes, and when it was last shown.

use std::time::{Duration, Instant};

/// How fast training goes.
pub(crate) struct Pace {
    /// Time spent training in the present epoch, and samples trained since the epoch (or the session) began.
    pub training: Duration,
    pub n_samples: usize,
    /// When the display was last brought up to date, and when an event was last written.
    pub shown: Instant,
    pub told: Instant,
}

impl Pace {
    /// Nothing trained yet.
    pub(crate) fn new() -> Self {
        Self { training: Duration::ZERO, n_samples: 0, shown: Instant::now(), told: Instant::now() }
    }

    pub(crate) fn samples_per_s(&self) -> f64 {
        self.n_samples as f64 / self.training.as_secs_f64().max(1e-9)
    }
}
