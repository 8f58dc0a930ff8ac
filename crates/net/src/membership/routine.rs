//! When a membership does what by itself.

use std::time::Duration;

use super::config::Timing;

/// When to do what next.
#[derive(Default)]
pub(super) struct Routine {
    pub propose: Option<Duration>,
    pub resend: Option<Duration>,
    /// When everybody is told how we are.
    pub report: Option<Duration>,
    /// When to look after members that are missed, and after graves.
    pub tidy: Option<Duration>,
    pub seek: Option<Duration>,
    pub warn: Option<Duration>,
    pub n_searches: usize,
    pub is_out_of_numbers: bool,
}

impl Routine {
    pub(super) fn begin(&mut self, now: Duration, timing: &Timing) {
        self.report = Some(now + timing.report);
        self.tidy = Some(now + timing.tidy);
        self.seek = Some(now + timing.seek);
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        [self.propose, self.resend, self.report, self.tidy, self.seek, self.warn].into_iter().flatten().min()
    }

    /// There are suspects to be warned.
    pub(super) fn warn_at(&mut self, at: Duration) {
        self.warn.get_or_insert(at);
    }

    /// There is something new to report.
    pub(super) fn report_at(&mut self, at: Duration) {
        self.report = Some(self.report.map_or(at, |planned| planned.min(at)));
    }
}
