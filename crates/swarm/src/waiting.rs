//! For whom a peer waits in a round, and how long: what hosts, real or simulated, make of its status.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effects::{Phase, Status};
use crate::view::PeerId;

/// Adds up for whom a peer waits, from what it says about itself after each input.
///
/// At each input the host lets time [`pass`](Self::pass), [`take`](Self::take)s what belongs to the rounds that have ended
/// with it, and [goes on](Self::go_on) with what the peer says now.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Whose messages are to come next.
    awaited: Vec<PeerId>,
    since: Duration,
    sums: BTreeMap<PeerId, Duration>,
}

impl Waiting {
    /// It is now so late: those who were awaited until now share that time.
    pub fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.since, now));
        let each = passed / u32::try_from(self.awaited.len()).unwrap_or(u32::MAX).max(1);
        for &peer in &self.awaited {
            *self.sums.entry(peer).or_default() += each;
        }
    }

    /// The peer waits as it says from now on. Only what is waited for between one round's local phase and the next, or an epoch's end, is told;
    /// when a new view is agreed on, what was waited for before is over.
    pub fn go_on(&mut self, status: Status) {
        self.awaited.clear();
        match status.phase {
            Phase::Exchanging | Phase::Syncing => self.awaited = status.waits_for,
            Phase::Training => {}
            Phase::Agreeing | Phase::Testing | Phase::Finished => self.sums.clear(),
        }
    }

    /// For whom the peer waited in the round, or at the end of the epoch, that has just come, in which it waited for so long.
    pub fn take(&mut self, waited: Duration) -> Vec<(PeerId, Duration)> {
        let sums = std::mem::take(&mut self.sums);
        let sum: Duration = sums.values().sum();
        // A peer that trains asynchronously also waits at the end of a segment within an epoch, which is nobody's time.
        let share = if sum > waited { waited.as_secs_f64() / sum.as_secs_f64() } else { 1.0 };
        sums.into_iter().map(|(peer, time)| (peer, time.mul_f64(share))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Waiting;
    use crate::effects::{Phase, Status};
    use crate::view::PeerId;
    use std::time::Duration;

    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);

    fn status(phase: Phase, waits_for: &[PeerId]) -> Status {
        Status { phase, epoch: 0, round: 0, waits_for: waits_for.to_vec(), began: Duration::ZERO }
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn time_goes_to_those_who_were_awaited_in_it() {
        let mut waiting = Waiting::default();
        let steps = [
            (10, Phase::Training, &[][..]),
            (100, Phase::Exchanging, &[A, B]),
            (140, Phase::Exchanging, &[B]),
            (150, Phase::Training, &[]),
        ];
        for (millis, phase, waits_for) in steps {
            waiting.pass(at(millis));
            waiting.go_on(status(phase, waits_for));
        }
        assert_eq!(waiting.take(at(50)), [(A, at(20)), (B, at(30))]);
        waiting.pass(at(300));
        assert_eq!(waiting.take(at(0)), [], "nobody was waited for while this peer trained");
    }

    #[test]
    fn nobody_is_waited_for_longer_than_the_peer_waited() {
        let mut waiting = Waiting::default();
        waiting.go_on(status(Phase::Exchanging, &[A, B]));
        waiting.pass(at(40));
        assert_eq!(waiting.take(at(10)), [(A, at(5)), (B, at(5))]);
        // What was waited for in a round that came to nothing is no other's.
        waiting.pass(at(80));
        waiting.go_on(status(Phase::Agreeing, &[A]));
        waiting.pass(at(90));
        waiting.go_on(status(Phase::Training, &[]));
        assert_eq!(waiting.take(at(10)), []);
    }
}
