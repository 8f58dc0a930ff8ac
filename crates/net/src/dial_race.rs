//! Two peers that dial each other at the same time: which of the two connections comes about.
//!
//! A connection needs both sides' consent, so it is enough that the peer with the lower name consents to one at a time; the
//! other one takes what it gets. And whoever has got a connection since it began to make another refuses the other. So no
//! frame is ever sent on a connection that is given up. Packets that overtake each other can still leave both; then each
//! side speaks over the first that it has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nettorrent_swarm::view::PeerId;

use crate::refusal::Refusal;

/// All handshakes of a process, as far as they have found out with whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialRaces {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    // Counts what happens, so that earlier and later can be told without a clock.
    moment: u64,
    meetings: BTreeMap<PeerId, Meeting>,
}

#[derive(Debug, Default)]
struct Meeting {
    // The handshake that we have consented to and the other side not yet.
    pending: Option<u64>,
    // When the last one was completed.
    completed: Option<u64>,
}

/// One handshake.
#[derive(Debug)]
pub(crate) struct Attempt {
    table: Arc<Mutex<Table>>,
    began: u64,
    // With whom, once we have consented.
    consented: Option<PeerId>,
}

impl DialRaces {
    /// A handshake begins; with whom is not known yet.
    pub(crate) fn begin(&self) -> Attempt {
        let began = lock(&self.table).tick();
        Attempt { table: self.table.clone(), began, consented: None }
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

impl Attempt {
    /// Consents to a connection, unless there is another one that excludes it.
    pub(crate) fn consent(&mut self, own: PeerId, other: PeerId) -> Result<(), Refusal> {
        let mut table = lock(&self.table);
        let meeting = table.meetings.entry(other).or_default();
        let completed_meanwhile = meeting.completed.is_some_and(|completed| completed > self.began);
        let decided_otherwise = own < other && meeting.pending.is_some();
        if completed_meanwhile || decided_otherwise {
            return Err(Refusal::Crossed);
        }
        meeting.pending = Some(self.began);
        self.consented = Some(other);
        Ok(())
    }

    /// The other side has consented too.
    pub(crate) fn complete(self) {
        if let Some(other) = self.consented {
            let mut table = lock(&self.table);
            let now = table.tick();
            table.meetings.entry(other).or_default().completed = Some(now);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(other) = self.consented else { return };
        let mut table = lock(&self.table);
        if let Some(meeting) = table.meetings.get_mut(&other) {
            meeting.pending = meeting.pending.filter(|pending| *pending != self.began);
            if meeting.pending.is_none() && meeting.completed.is_none() {
                table.meetings.remove(&other);
            }
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::DialRaces;
    use crate::refusal::Refusal;
    use nettorrent_swarm::view::PeerId;

    const LOW: PeerId = PeerId(1);
    const HIGH: PeerId = PeerId(2);

    #[test]
    fn the_lower_name_consents_to_one_at_a_time_and_the_higher_to_both() {
        let (low, high) = (DialRaces::default(), DialRaces::default());
        let (mut low_dials, mut low_is_dialled) = (low.begin(), low.begin());
        assert_eq!(low_dials.consent(LOW, HIGH), Ok(()));
        assert_eq!(low_is_dialled.consent(LOW, HIGH), Err(Refusal::Crossed));
        let (mut high_dials, mut high_is_dialled) = (high.begin(), high.begin());
        assert_eq!(high_dials.consent(HIGH, LOW), Ok(()));
        assert_eq!(high_is_dialled.consent(HIGH, LOW), Ok(()));
        // Others are not concerned.
        assert_eq!(low.begin().consent(LOW, PeerId(3)), Ok(()));
    }

    #[test]
    fn a_failed_handshake_makes_way() {
        let low = DialRaces::default();
        let mut first = low.begin();
        first.consent(LOW, HIGH).unwrap();
        drop(first);
        assert_eq!(low.begin().consent(LOW, HIGH), Ok(()));
        assert!(low.table.lock().unwrap().meetings.is_empty());
    }

    #[test]
    fn what_began_before_a_completion_is_refused_and_what_begins_later_is_not() {
        for (own, other) in [(LOW, HIGH), (HIGH, LOW)] {
            let dial_races = DialRaces::default();
            let (mut first, mut second) = (dial_races.begin(), dial_races.begin());
            first.consent(own, other).unwrap();
            first.complete();
            assert_eq!(second.consent(own, other), Err(Refusal::Crossed));
            // Who has lost its link dials again.
            assert_eq!(dial_races.begin().consent(own, other), Ok(()));
        }
    }
}
