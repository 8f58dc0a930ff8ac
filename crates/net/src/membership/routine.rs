//! When a membership does what by itself.

use std::time::Duration;

use super::config::Timing;

/// When to do what next.
#[derive(Default)]
pub(super) struct Routine {
    pub propose: Option<Duration>,
    pub resend: Option<Duration>,
    pub status: Option<Duration>,
    pub seek: Option<Duration>,
    pub warn: Option<Duration>,
    pub n_searches: usize,
    pub is_out_of_numbers: bool,
}

impl Routine {
    pub(super) fn begin(&mut self, now: Duration, timing: &Timing) {
        self.status = Some(now + timing.status);
        self.seek = Some(now + timing.seek);
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        [self.propose, self.resend, self.status, self.seek, self.warn].into_iter().flatten().min()
    }

    /// There are suspects to be warned.
    pub(super) fn warn_at(&mut self, at: Duration) {
        self.warn.get_or_insert(at);
    }
}
