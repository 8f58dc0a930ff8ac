//! What the failure detector wants to be reminded of, put off where the peer itself may have slept.

use std::collections::BTreeMap;
use std::time::Duration;

use foca::Timer;
use nettorrent_swarm::view::PeerId;

use super::member::Member;

/// Reminders in the order of their times.
#[derive(Default)]
pub(super) struct Reminders {
    by_time: BTreeMap<(Duration, u64), Reminder>,
    /// When to forget the dead. Each has one entry, or somebody who reports ever new deaths of one peer could fill the
    /// memory.
    graves: BTreeMap<PeerId, (Duration, Member)>,
    n_set: u64,
}

struct Reminder {
    timer: Timer<Member>,
    was_put_off: bool,
}

impl Reminders {
    /// Sets a reminder.
    pub(super) fn set(&mut self, at: Duration, timer: Timer<Member>) {
        match timer {
            Timer::RemoveDown(member) => {
                self.graves.insert(member.id, (at, member));
            }
            timer => self.insert(at, Reminder { timer, was_put_off: false }),
        }
    }

    /// When the next is due. Graves have no hurry and are not counted.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.by_time.keys().next().map(|(at, _)| *at)
    }

    /// The next reminder that is due.
    ///
    /// One that comes late by more than `grace` shows that this peer slept; then packets may lie unread that would change
    /// what the reminder leads to. So it is put off by `grace`, once, and the packets come first. The last word about a
    /// suspect is always put off, because nothing takes it back.
    pub(super) fn pop(&mut self, now: Duration, grace: Duration) -> Option<Timer<Member>> {
        loop {
            let entry = self.by_time.first_entry()?;
            let (at, _) = *entry.key();
            if at > now {
                return None;
            }
            let Reminder { timer, was_put_off } = entry.remove();
            let is_last_word = matches!(timer, Timer::ChangeSuspectToDown { .. });
            if was_put_off || !is_last_word && now - at <= grace {
                return Some(timer);
            }
            self.insert(now + grace, Reminder { timer, was_put_off: true });
        }
    }

    /// The dead who have been remembered long enough.
    pub(super) fn pop_graves(&mut self, now: Duration) -> Vec<Member> {
        let mut old = Vec::new();
        self.graves.retain(|_, (at, member)| {
            let stays = *at > now;
            if !stays {
                old.push(member.clone());
            }
            stays
        });
        old
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_time.len() + self.graves.len()
    }

    fn insert(&mut self, at: Duration, reminder: Reminder) {
        self.n_set += 1;
        self.by_time.insert((at, self.n_set), reminder);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foca::Timer;
    use nettorrent_swarm::view::PeerId;

    use super::{Member, Reminders};

    const GRACE: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn member(generation: u32) -> Member {
        Member { id: PeerId::new(1, 1), generation, address: "10.0.0.1:1".parse().unwrap() }
    }

    #[test]
    fn late_reminders_are_put_off_once_and_stay_in_order() {
        let mut reminders = Reminders::default();
        reminders.set(at(1), Timer::ProbeRandomMember(1));
        reminders.set(at(2), Timer::PeriodicGossip(1));
        assert_eq!(reminders.pop(at(50), GRACE), None);
        assert_eq!(reminders.next_at(), Some(at(60)));
        assert_eq!(reminders.pop(at(100), GRACE), Some(Timer::ProbeRandomMember(1)));
        assert_eq!(reminders.pop(at(100), GRACE), Some(Timer::PeriodicGossip(1)));
        assert_eq!(reminders.pop(at(100), GRACE), None);
    }

    #[test]
    fn punctual_reminders_come_at_once_but_the_last_word_does_not() {
        let mut reminders = Reminders::default();
        let last_word = Timer::ChangeSuspectToDown { member_id: member(0), incarnation: 0, token: 1 };
        reminders.set(at(1), Timer::ProbeRandomMember(1));
        reminders.set(at(1), last_word.clone());
        assert_eq!(reminders.pop(at(1), GRACE), Some(Timer::ProbeRandomMember(1)));
        assert_eq!(reminders.pop(at(1), GRACE), None);
        assert_eq!(reminders.pop(at(11), GRACE), Some(last_word));
    }

    #[test]
    fn a_peer_has_one_grave() {
        let mut reminders = Reminders::default();
        for generation in 0..100 {
            reminders.set(at(u64::from(generation)), Timer::RemoveDown(member(generation)));
        }
        assert_eq!(reminders.len(), 1);
        assert!(reminders.pop_graves(at(98)).is_empty());
        assert_eq!(reminders.pop_graves(at(99)), [member(99)]);
        assert_eq!(reminders.len(), 0);
    }
}
