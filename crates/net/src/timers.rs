//! When a node has to wake by itself: for its peer's timers, and now and then to tell that time has passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How often whoever listens hears of a node when nothing else happens.
const TICK: Duration = Duration::from_millis(500);

/// A peer's timers, each with a name, and the next tick. All times are since the node began.
pub(crate) struct Timers<T> {
    timers: BinaryHeap<Reverse<(Duration, T)>>,
    next_tick: Duration,
}

impl<T: Ord> Timers<T> {
    pub(crate) fn new() -> Self {
        Self { timers: BinaryHeap::new(), next_tick: TICK }
    }

    /// The peer wants to hear of this timer at that time.
    pub(crate) fn set(&mut self, at: Duration, token: T) {
        self.timers.push(Reverse((at, token)));
    }

    /// When the next of all this is due.
    pub(crate) fn wake_at(&self) -> Duration {
        self.timers.peek().map_or(self.next_tick, |Reverse((at, _))| self.next_tick.min(*at))
    }

    /// Whether it is time for a tick; if so, the next one comes later.
    pub(crate) fn take_tick(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next_tick;
        if is_due {
            self.next_tick = now + TICK;
        }
        is_due
    }

    /// The next timer that is due, if there is one.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<T> {
        self.timers.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.timers.pop().map(|Reverse((_, token))| token)
    }
}

#[cfg(test)]
mod tests {
    use super::{TICK, Timers};
    use std::time::Duration;

    #[test]
    fn timers_come_in_their_order_and_ticks_in_between() {
        let mut timers = Timers::new();
        assert_eq!(timers.wake_at(), TICK);
        let millis = Duration::from_millis;
        timers.set(millis(30), 3);
        timers.set(millis(10), 1);
        timers.set(TICK + millis(1), 4);
        assert_eq!((timers.wake_at(), timers.take_due(millis(9))), (millis(10), None));
        assert_eq!([(); 3].map(|()| timers.take_due(millis(40))), [Some(1), Some(3), None]);
        assert!(!timers.take_tick(millis(40)) && timers.take_tick(TICK) && !timers.take_tick(TICK));
        assert_eq!(timers.wake_at(), TICK + millis(1));
    }
}
