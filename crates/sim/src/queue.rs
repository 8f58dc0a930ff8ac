//! The event queue: what happens next, in the order of time, and of two things at the same time what was decided first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Simulated time: nanoseconds since the beginning. A number of 64 bits is compared and added several times faster than a
/// [`Duration`], and lasts for 584 years.
pub(crate) type Nanos = u64;

/// A duration as a number, the longest one if it is longer than that.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// The number of a thing that lies in a slab, as events name it.
pub(crate) fn short(number: usize) -> u32 {
    u32::try_from(number).expect("fewer things are under way than 32 bits can count")
}

/// Something that will happen. The numbers name things that lie elsewhere: what is in a queue of many thousands should be
/// small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The first bit of a frame comes to the receiver's downlink.
    Arrive(u32),
    /// A frame is completely there.
    Deliver(u32),
    /// The next piece of a work is done.
    Done(u32),
    /// A peer's timer runs out.
    Timer(u32),
    /// A peer hears of a view.
    View(u32),
    /// A peer has been silent for the deadline.
    Lost(u32),
    /// A peer's host has written a block.
    Written(u32),
    /// A peer knows what its uplink carries.
    Uplink(u32),
    /// A peer that was busy has time for what has come meanwhile.
    Ready(u32),
    /// A peer that hung goes on.
    Wake(u32),
    /// A fault of the scenario.
    Fault(u32),
    /// A joiner of the scenario.
    Join(u32),
    /// A peer has stayed for as long as it wanted to.
    Depart(u32),
    /// A view has lasted for as long as it has to.
    News,
    /// The network falls apart, the peers notice, it heals.
    Cut(u32),
    /// See `Cut`.
    Split(u32),
    /// See `Cut`.
    Heal(u32),
}

impl Event {
    /// Whether a run that is done has to wait for it: what the peers began, but no timers, which nobody may need any more,
    /// and nothing that the scenario has in store for later; except the end of a partition, after which both sides agree.
    fn is_activity(self) -> bool {
        match self {
            Self::Arrive(_) | Self::Deliver(_) | Self::Done(_) | Self::View(_) | Self::Written(_) => true,
            Self::Lost(_) | Self::Wake(_) | Self::Heal(_) | Self::Ready(_) | Self::News => true,
            Self::Timer(_) | Self::Uplink(_) | Self::Fault(_) | Self::Join(_) | Self::Depart(_) => false,
            Self::Cut(_) | Self::Split(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Nanos,
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives out its greatest entry first.
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What will happen.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    n_pushed: u64,
    n_activities: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        self.n_activities += usize::from(event.is_activity());
        self.heap.push(Entry { at, sequence: self.n_pushed, event });
        self.n_pushed += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Event)> {
        let Entry { at, event, .. } = self.heap.pop()?;
        self.n_activities -= usize::from(event.is_activity());
        Some((at, event))
    }

    /// Whether nothing is under way that peers began.
    pub(crate) fn is_quiet(&self) -> bool {
        self.n_activities == 0
    }

    /// How many events there were so far.
    pub(crate) fn n_pushed(&self) -> u64 {
        self.n_pushed
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Queue};

    #[test]
    fn events_come_in_the_order_of_time_and_of_equal_times_as_pushed() {
        let mut queue = Queue::default();
        for (at, event) in [(5, Event::Done(1)), (3, Event::Timer(2)), (5, Event::Done(0)), (3, Event::Timer(1))] {
            queue.push(at, event);
        }
        assert!(!queue.is_quiet());
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(3, Event::Timer(2)), (3, Event::Timer(1)), (5, Event::Done(1)), (5, Event::Done(0))]);
        assert!(queue.is_quiet());
    }
}
