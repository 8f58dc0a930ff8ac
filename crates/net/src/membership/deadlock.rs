//! Members that wait for each other for ever though all of them answer: one of them is refused for a while, and the others go on.
//!
//! A member that computes, sends or receives is waited for. Where all wait, somebody has not sent what another needs: for a defect, or
//! on purpose. Reports cannot tell who. If somebody is idle and waits for nobody, it is that one; else the one for whom most wait; of
//! several, the one that was in most deadlocks before: innocents change, who causes them does not. It may come back,
//! each time later than the last, up to a bound. Who has then taken part for long without one is as good as new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nettorrent_engine::rng::mix;
use nettorrent_swarm::view::PeerId;

use super::work_state::WorkState;

/// How many deadlines a member waits before it says that this is a deadlock.
const PATIENCE: u32 = 2;
/// How many deadlines it waits for those who say that they are busy.
const PATIENCE_WITH_BUSY: u32 = 60;
/// For how many deadlines somebody is refused the first time; twice as many each time after. Longer than those wait who are too few without
/// it for a quorum, or it would be back before they have gone on.
const REFUSED: u32 = 8;
const MOST_DOUBLINGS: u32 = 3;
/// For how many deadlines somebody has to take part until its deadlocks are forgotten: as long as it can be refused.
const FORGOTTEN: u32 = REFUSED << MOST_DOUBLINGS;

/// What a peer does about members that wait for ever.
#[derive(Default)]
pub(super) struct Deadlocks {
    /// Since when this peer has waited, and in which view.
    waiting: Option<(Duration, u32)>,
    /// Until when others are refused.
    refused: BTreeMap<PeerId, Duration>,
    /// The deadlocks in which others were.
    seen: BTreeMap<PeerId, Seen>,
}

/// The deadlocks in which a member was.
struct Seen {
    number: u32,
    /// Since when it has taken part without another one.
    good_since: Duration,
}

impl Deadlocks {
    /// This peer's work gets on like this.
    pub(super) fn look(&mut self, now: Duration, work: &WorkState, view: u32) {
        let is_waiting = !work.awaited().is_empty();
        let before = self.waiting.filter(|(_, held)| *held == view);
        self.waiting = is_waiting.then(|| before.unwrap_or((now, view)));
    }

    /// This peer slept for so long.
    pub(super) fn forgive(&mut self, slept: Duration) {
        self.waiting = self.waiting.map(|(since, view)| (since + slept, view));
        self.seen.values_mut().for_each(|seen| seen.good_since += slept);
    }

    /// Whom to refuse from now on, if all wait for each other; `works` says how the work of each member of the view gets on, this one
    /// among them.
    pub(super) fn resolve(
        &mut self,
        now: Duration,
        deadline: Duration,
        me: PeerId,
        works: &BTreeMap<PeerId, &WorkState>,
    ) -> Option<(PeerId, Duration)> {
        self.forget(now, deadline, works);
        let (since, view) = self.waiting?;
        let waited = now.saturating_sub(since);
        if waited < deadline * PATIENCE {
            return None;
        }
        let mut reached = reached(me, works);
        // This one knows of itself that it owes nothing; the others judge it.
        reached.remove(&me);
        let is_idle = |peer: &PeerId| matches!(works.get(peer), Some(WorkState::Waiting(_)));
        let (idle, busy): (Vec<PeerId>, Vec<PeerId>) = reached.into_iter().partition(is_idle);
        let suspects = match busy.is_empty() {
            true => idle,
            false if waited >= deadline * PATIENCE_WITH_BUSY => busy,
            false => return None,
        };
        for peer in &suspects {
            let number = self.n_seen(*peer) + 1;
            self.seen.insert(*peer, Seen { number, good_since: now });
        }
        let n_waiting = |peer: &PeerId| works.values().filter(|work| work.awaited().contains(peer)).count();
        let waits_for_nobody = |peer: &PeerId| works.get(peer).is_some_and(|work| work.awaited().is_empty());
        let chance = |peer: &PeerId| mix(peer.0 ^ u64::from(view));
        let rank = |peer: &PeerId| (waits_for_nobody(peer), n_waiting(peer), self.n_seen(*peer), chance(peer));
        let culprit = suspects.into_iter().max_by_key(rank)?;
        self.waiting = Some((now, view));
        let n_before = self.n_seen(culprit) - 1;
        let lasts = deadline * REFUSED * (1 << n_before.min(MOST_DOUBLINGS));
        self.refused.insert(culprit, now + lasts);
        Some((culprit, lasts))
    }

    /// Forgets those who are gone, and refuses those no longer whose time is over.
    pub(super) fn tidy(&mut self, now: Duration, lives: impl Fn(PeerId) -> bool) {
        self.refused.retain(|peer, until| *until > now && lives(*peer));
        self.seen.retain(|peer, _| lives(*peer));
    }

    /// Forgets the deadlocks of those who have been in a view with this peer for long without one.
    fn forget(&mut self, now: Duration, deadline: Duration, works: &BTreeMap<PeerId, &WorkState>) {
        let away = self.seen.iter_mut().filter(|(peer, _)| !works.contains_key(peer));
        away.for_each(|(_, seen)| seen.good_since = now);
        self.seen.retain(|_, seen| now.saturating_sub(seen.good_since) < deadline * FORGOTTEN);
    }

    /// In how many deadlocks a member was.
    fn n_seen(&self, peer: PeerId) -> u32 {
        self.seen.get(&peer).map_or(0, |seen| seen.number)
    }

    /// Who is refused, in order.
    pub(super) fn refused(&self) -> impl Iterator<Item = PeerId> {
        self.refused.keys().copied()
    }
}

/// All for whom a member waits, for whom these wait, and so on.
fn reached(from: PeerId, works: &BTreeMap<PeerId, &WorkState>) -> BTreeSet<PeerId> {
    let mut reached = BTreeSet::new();
    let mut to_look_at = vec![from];
    while let Some(peer) = to_look_at.pop() {
        let awaited = works.get(&peer).map_or(&[][..], |work| work.awaited());
        to_look_at.extend(awaited.iter().copied().filter(|peer| works.contains_key(peer) && reached.insert(*peer)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use nettorrent_swarm::view::PeerId;

    use super::{Deadlocks, WorkState};

    const DEADLINE: Duration = Duration::from_secs(5);

    /// By rank, whom each waits for; `None` if it is busy.
    type Waits<'a> = &'a [Option<&'a [u64]>];

    fn resolve(deadlocks: &mut Deadlocks, waits: Waits<'_>, me: u64, after: u32, view: u32) -> Option<u64> {
        let state = |waits: &Option<&[u64]>| match waits {
            Some(awaited) => WorkState::Waiting(awaited.iter().copied().map(PeerId).collect()),
            None => WorkState::Busy,
        };
        let states: Vec<WorkState> = waits.iter().map(state).collect();
        let works: BTreeMap<_, _> = states.iter().enumerate().map(|(at, work)| (PeerId(at as u64), work)).collect();
        deadlocks.waiting = None;
        deadlocks.look(Duration::ZERO, &states[me as usize], view);
        let found = deadlocks.resolve(DEADLINE * after, DEADLINE, PeerId(me), &works);
        found.map(|(peer, _)| peer.0)
    }

    fn refused(waits: Waits<'_>, me: u64, after: u32) -> Option<u64> {
        resolve(&mut Deadlocks::default(), waits, me, after, 7)
    }

    #[test]
    fn who_is_busy_is_waited_for_and_so_is_whoever_waits_for_it() {
        let pipeline: Waits<'_> = &[Some(&[1]), Some(&[2]), None, Some(&[1])];
        for me in [0, 1, 3] {
            assert_eq!(refused(pipeline, me, 59), None);
            assert_eq!(refused(pipeline, me, 60), Some(2), "but not for ever");
        }
    }

    #[test]
    fn who_is_idle_and_waits_for_nobody_is_refused() {
        let silent: Waits<'_> = &[Some(&[2]), Some(&[0]), Some(&[]), Some(&[0])];
        for me in [0, 1, 3] {
            assert_eq!(refused(silent, me, 1), None);
            assert_eq!(refused(silent, me, 2), Some(2));
        }
    }

    #[test]
    fn of_those_who_wait_for_each_other_the_one_is_refused_for_whom_most_wait() {
        let first_is_silent: Waits<'_> = &[Some(&[3]), Some(&[0]), Some(&[0]), Some(&[0])];
        for me in [1, 2, 3] {
            assert_eq!(refused(first_is_silent, me, 2), Some(0));
        }
        assert_eq!(refused(first_is_silent, 0, 2), Some(3), "nobody refuses itself");
    }

    #[test]
    fn of_a_ring_who_was_in_most_deadlocks_is_refused_in_the_end_and_longer_each_time() {
        let mut deadlocks = Deadlocks::default();
        // Peer 2 is in all of them, the others in half of them.
        let rings: [Waits<'_>; 2] =
            [&[Some(&[2]), None, Some(&[3]), Some(&[0])], &[Some(&[1]), Some(&[2]), Some(&[0]), None]];
        for view in 0..2 {
            resolve(&mut deadlocks, rings[view as usize % 2], 0, 2, view);
        }
        assert_eq!(deadlocks.refused[&PeerId(2)], DEADLINE * (2 + 16));
        for view in 2..12 {
            assert_eq!(resolve(&mut deadlocks, rings[view as usize % 2], 0, 2, view), Some(2));
        }
        assert_eq!(deadlocks.refused[&PeerId(2)], DEADLINE * (2 + 64), "but not for ever");
        deadlocks.tidy(DEADLINE * 1000, |_| true);
        assert_eq!(deadlocks.refused().count(), 0, "it may come back");
    }

    #[test]
    fn who_has_taken_part_for_long_is_refused_no_longer_than_the_first_time() {
        let busy = WorkState::Busy;
        let all: BTreeMap<_, _> = (0..3).map(|at| (PeerId(at), &busy)).collect();
        let alone = BTreeMap::from([(PeerId(0), &busy)]);
        // Who was away meanwhile has not taken part.
        for (together, expected) in [(&all, 8), (&alone, 16)] {
            let mut deadlocks = Deadlocks::default();
            let silent: Waits<'_> = &[Some(&[2]), Some(&[0]), Some(&[])];
            assert_eq!(resolve(&mut deadlocks, silent, 0, 2, 7), Some(2));
            for deadlines in 3..70 {
                deadlocks.waiting = None;
                assert_eq!(deadlocks.resolve(DEADLINE * deadlines, DEADLINE, PeerId(0), together), None);
            }
            deadlocks.waiting = Some((DEADLINE * 70, 8));
            let waiting = WorkState::Waiting(vec![PeerId(2)]);
            let silent = WorkState::Waiting(Vec::new());
            let works = BTreeMap::from([(PeerId(0), &waiting), (PeerId(2), &silent)]);
            let refused = deadlocks.resolve(DEADLINE * 72, DEADLINE, PeerId(0), &works);
            assert_eq!(refused, Some((PeerId(2), DEADLINE * expected)));
        }
        // Nor have those whom nobody has looked at: this peer slept.
        let mut deadlocks = Deadlocks::default();
        let silent: Waits<'_> = &[Some(&[2]), Some(&[0]), Some(&[])];
        assert_eq!(resolve(&mut deadlocks, silent, 0, 2, 7), Some(2));
        deadlocks.forgive(DEADLINE * 70);
        deadlocks.waiting = None;
        assert_eq!(deadlocks.resolve(DEADLINE * 72, DEADLINE, PeerId(0), &all), None);
        assert_eq!(deadlocks.n_seen(PeerId(2)), 1);
    }
}
