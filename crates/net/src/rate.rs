//! How often something may be done: some times at once, and then once an interval.

use std::time::Duration;

/// What may be done how often.
#[derive(Clone, Copy)]
pub(crate) struct Allowance {
    /// So often at once.
    pub(crate) at_once: u32,
    /// And once more for each of these that has passed since.
    pub(crate) interval: Duration,
}

/// How often somebody has done it of late.
#[derive(Default)]
pub(crate) struct Rate {
    /// When all of it is paid off, at one an interval.
    paid_off: Duration,
}

impl Rate {
    /// Whether it may be done once more now; if so, it counts as done.
    pub(crate) fn admits(&mut self, now: Duration, Allowance { at_once, interval }: Allowance) -> bool {
        let then = self.paid_off.max(now) + interval;
        let is_admitted = then <= now + at_once * interval;
        if is_admitted {
            self.paid_off = then;
        }
        is_admitted
    }
}
