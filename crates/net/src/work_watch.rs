//! Whether the thread that computes gets on: what it is at may take some times as long as what it did before.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many times as long as usual something may take.
const TIMES_USUAL: f64 = 10.0;
/// How many times the least patience the very first piece is given: nobody knows how long it should take.
const TIMES_AT_FIRST: u32 = 20;
/// What remains of the slowest that was seen, with each sign of life since. A machine that was slow once is not for ever.
const REMEMBERED: f64 = 0.99;

/// Watches a thread that computes, from another one.
#[derive(Default)]
pub(crate) struct WorkWatch {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What the thread is at: how much that is worth, and when it last gave a sign of life.
    at: Option<(f64, Instant)>,
    /// The most seconds that there were between two signs of life, for each sample that the work was worth.
    slowest: Option<f64>,
    /// When it was last asked whether the thread is stuck, and with what patience.
    asked: Option<(Instant, Duration)>,
}

impl Seen {
    /// Whether nobody has asked for so long that the whole process must have been suspended. How long something then took says nothing.
    fn was_asleep(&self, now: Instant) -> bool {
        self.asked.is_some_and(|(asked, least)| now.saturating_duration_since(asked) > least)
    }
}

impl WorkWatch {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread begins something that is worth so many samples; what is worth none, such as a step of the optimizer, says nothing about
    /// the others.
    pub(crate) fn begin(&self, now: Instant, worth: f64) {
        let worth = if worth > 0.0 { worth.max(1.0) } else { 0.0 };
        self.lock().at = Some((worth, now));
    }

    /// It has found something.
    pub(crate) fn go_on(&self, now: Instant) {
        let mut seen = self.lock();
        let Some((worth, last)) = &mut seen.at else { return };
        let rate = now.saturating_duration_since(*last).as_secs_f64() / *worth;
        *last = now;
        if rate.is_finite() && !seen.was_asleep(now) {
            seen.slowest = Some(seen.slowest.map_or(rate, |slowest| rate.max(slowest * REMEMBERED)));
        }
    }

    /// It has nothing more to do of that.
    pub(crate) fn end(&self, now: Instant) {
        self.go_on(now);
        self.lock().at = None;
    }

    /// Whether the thread is at something.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().at.is_some()
    }

    /// Whether it has given no sign of life for far longer than usual, and for longer than the least patience.
    pub(crate) fn is_stuck(&self, now: Instant, least: Duration) -> bool {
        let mut seen = self.lock();
        let was_asleep = seen.was_asleep(now);
        seen.asked = Some((now, least));
        let Some((worth, last)) = &mut seen.at else { return false };
        if was_asleep {
            *last = now;
        }
        let (worth, last) = (*worth, *last);
        let silent = now.saturating_duration_since(last);
        match seen.slowest {
            Some(rate) => silent > least && silent.as_secs_f64() > TIMES_USUAL * rate * worth,
            None => silent > least.saturating_mul(TIMES_AT_FIRST),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::WorkWatch;

    const LEAST: Duration = Duration::from_secs(10);

    /// A watch that has seen pieces of this worth, each of which took so long, and when the last was over.
    fn after(n_pieces: u32, worth: f64, each: Duration) -> (WorkWatch, Instant) {
        let (watch, began) = (WorkWatch::default(), Instant::now());
        for piece in 0..n_pieces {
            watch.begin(began + each * piece, worth);
            watch.end(began + each * (piece + 1));
        }
        (watch, began + each * n_pieces)
    }

    #[test]
    fn a_piece_may_take_ten_times_as_long_as_usual_and_always_the_least() {
        let (watch, now) = after(5, 32.0, Duration::from_secs(3));
        watch.begin(now, 32.0);
        assert!(!watch.is_stuck(now + Duration::from_secs(29), LEAST));
        assert!(watch.is_stuck(now + Duration::from_secs(31), LEAST));
        let (watch, now) = after(5, 32.0, Duration::from_millis(1));
        watch.begin(now, 32.0);
        assert!(!watch.is_stuck(now + LEAST, LEAST) && watch.is_stuck(now + LEAST * 2, LEAST));
    }

    #[test]
    fn a_long_evaluation_is_measured_by_its_samples() {
        let (watch, now) = after(5, 32.0, Duration::from_secs(1));
        watch.begin(now, 3200.0);
        assert!(!watch.is_stuck(now + Duration::from_secs(999), LEAST));
        assert!(watch.is_stuck(now + Duration::from_secs(1001), LEAST));
    }

    #[test]
    fn the_first_piece_has_long_and_who_has_nothing_to_do_is_never_stuck() {
        let (watch, now) = after(0, 1.0, LEAST);
        watch.begin(now, 1.0);
        assert!(!watch.is_stuck(now + LEAST * 20, LEAST) && watch.is_stuck(now + LEAST * 21, LEAST));
        watch.end(now + LEAST);
        assert!(!watch.is_stuck(now + LEAST * 1000, LEAST));
    }

    #[test]
    fn each_finding_is_a_sign_of_life() {
        let (watch, now) = after(5, 32.0, Duration::from_millis(1));
        watch.begin(now, 32.0);
        for second in 1..100 {
            let now = now + Duration::from_secs(second);
            assert!(!watch.is_stuck(now, LEAST));
            watch.go_on(now);
        }
    }

    #[test]
    fn who_was_suspended_in_the_middle_of_a_piece_is_watched_as_before() {
        let (watch, now) = after(5, 32.0, Duration::from_secs(1));
        watch.begin(now, 32.0);
        assert!(!watch.is_stuck(now, LEAST));
        let woken = now + LEAST * 1000;
        // Whichever thread comes first.
        assert!(!watch.is_stuck(woken, LEAST));
        watch.end(woken);
        watch.begin(woken, 32.0);
        let asleep_again = woken + LEAST * 1000;
        watch.end(asleep_again);
        watch.begin(asleep_again, 32.0);
        assert!(!watch.is_stuck(asleep_again, LEAST));
        assert!(!watch.is_stuck(asleep_again + Duration::from_secs(9), LEAST));
        assert!(watch.is_stuck(asleep_again + Duration::from_secs(11), LEAST));
    }

    #[test]
    fn one_slow_piece_is_forgotten() {
        let (watch, began) = (WorkWatch::default(), Instant::now());
        watch.begin(began, 1.0);
        watch.end(began + LEAST * 10);
        for _ in 0..1000 {
            watch.begin(began, 1.0);
            watch.end(began);
        }
        watch.begin(began, 1.0);
        assert!(watch.is_stuck(began + LEAST * 2, LEAST));
    }
}
