//! What goes out over links, and how long that keeps them busy: from having something to write until it is written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::LinkId;

/// What a link has let out, and how long it was busy with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outflow {
    /// Bytes of frames, with their heads.
    pub n_bytes: u64,
    /// How long there was something to let out.
    pub busy: Duration,
}

/// The same, counted by the link's task and read by anybody.
#[derive(Debug, Default)]
pub(crate) struct OutflowCount {
    n_bytes: AtomicU64,
    busy_nanos: AtomicU64,
}

impl OutflowCount {
    pub(crate) fn add(&self, outflow: Outflow) {
        self.n_bytes.fetch_add(outflow.n_bytes, Ordering::Relaxed);
        self.busy_nanos.fetch_add(outflow.busy.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Outflow {
        let busy = Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed));
        Outflow { n_bytes: self.n_bytes.load(Ordering::Relaxed), busy }
    }
}

/// Measures how long one link is busy.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    runs_since: Option<Instant>,
}

impl Stopwatch {
    /// There is something to write, if there was nothing before.
    pub(crate) fn start(&mut self) {
        self.runs_since.get_or_insert_with(Instant::now);
    }

    /// How long it has run since it was started or asked last; it runs on.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = Instant::now();
        self.runs_since.replace(now).map_or(Duration::ZERO, |since| now - since)
    }

    /// The same, but it stops.
    pub(crate) fn stop(&mut self) -> Duration {
        self.runs_since.take().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Remembers what links had let out when it was asked last.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    seen: BTreeMap<LinkId, Outflow>,
}

impl Meter {
    /// What these links have let out since then, one by one. What a link that has ended let out at last is not told.
    pub(crate) fn since_last(&mut self, links: impl Iterator<Item = (LinkId, Outflow)>) -> Vec<Outflow> {
        let before = std::mem::replace(&mut self.seen, links.collect());
        let news = |(link, now): (&LinkId, &Outflow)| {
            let then = before.get(link).copied().unwrap_or_default();
            Outflow { n_bytes: now.n_bytes - then.n_bytes, busy: now.busy.saturating_sub(then.busy) }
        };
        self.seen.iter().map(news).collect()
    }
}

/// What a link was busy with for less than this says more about the machine's other business than about the link.
const LEAST_BUSY: Duration = Duration::from_millis(5);
/// So does less than this, which may have waited longer for a thread than for the link; unless the link is so slow that it
/// was busy with it for half of the time.
const LEAST_BYTES: u64 = 64 << 10;

/// How many bytes a second links carry together, if this is what they let out in so much time; nothing, if none of them had
/// enough to do to tell.
pub(crate) fn bytes_per_s(outflows: &[Outflow], elapsed: Duration) -> Option<f64> {
    let is_telling = |outflow: &&Outflow| {
        outflow.busy >= LEAST_BUSY && (outflow.n_bytes >= LEAST_BYTES || outflow.busy >= elapsed / 2)
    };
    let rates = outflows.iter().filter(is_telling).map(|outflow| outflow.n_bytes as f64 / outflow.busy.as_secs_f64());
    Some(rates.sum()).filter(|&sum| sum > 0.0)
}

#[cfg(test)]
mod tests {
    use super::{Meter, Outflow, bytes_per_s};
    use crate::inbox::LinkId;
    use std::time::Duration;

    fn outflow(n_bytes: u64, millis: u64) -> Outflow {
        Outflow { n_bytes, busy: Duration::from_millis(millis) }
    }

    #[test]
    fn a_meter_tells_what_is_new_of_each_link() {
        let mut meter = Meter::default();
        let mut ask = |links: &[(u64, Outflow)]| meter.since_last(links.iter().map(|&(id, out)| (LinkId(id), out)));
        assert_eq!(ask(&[(1, outflow(10, 1))]), [outflow(10, 1)]);
        assert_eq!(ask(&[(1, outflow(10, 1)), (2, outflow(5, 2))]), [outflow(0, 0), outflow(5, 2)]);
        // The first link has ended.
        assert_eq!(ask(&[(2, outflow(50, 3))]), [outflow(45, 1)]);
    }

    #[test]
    fn links_that_were_busy_tell_what_they_carry_together() {
        let rate = |outflows: &[Outflow]| bytes_per_s(outflows, Duration::from_millis(500));
        assert_eq!(rate(&[outflow(1_000_000, 100), outflow(500_000, 250)]), Some(12e6));
        // Not busy for long, or with next to nothing.
        assert_eq!(rate(&[outflow(1_000_000, 100), outflow(500_000, 4), outflow(2000, 20)]), Some(10e6));
        assert_eq!(rate(&[outflow(500_000, 4), outflow(2000, 20)]), None);
        // A slow link is busy all the time with little.
        assert_eq!(rate(&[outflow(2000, 400)]), Some(5000.0));
        // Nothing gets through: that is no rate.
        assert_eq!(rate(&[outflow(0, 500)]), None);
        assert_eq!(rate(&[]), None);
    }
}
