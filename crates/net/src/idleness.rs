//! Whether a peer has had nothing to do for long but to wait for others.

use std::time::Duration;

use nettorrent_swarm::{PeerId, Phase, Status};

/// The most that are named.
const MOST_AWAITED: usize = 32;

/// Watches how long a peer waits.
#[derive(Default)]
pub(crate) struct Idleness {
    /// What it did when it was last looked at, and for whom it waited.
    at: Option<(Phase, u64, u32)>,
    awaited: Vec<PeerId>,
    looked: Duration,
    /// How long it has been idle. What passes between two looks counts up to a limit, so that sleep is none.
    idle: Duration,
}

impl Idleness {
    /// Something came from a peer that has to do with training.
    pub(crate) fn hear(&mut self, peer: PeerId) {
        if self.awaited.contains(&peer) {
            self.idle = Duration::ZERO;
        }
    }

    /// For whom the peer has waited for the deadline, with nothing to do; `is_busy` says whether it computes, sends or receives.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        deadline: Duration,
        status: Status,
        is_busy: bool,
    ) -> Option<Vec<PeerId>> {
        let passed = now.saturating_sub(self.looked).min(deadline / 5);
        let Status { phase, epoch, round, mut waits_for, .. } = status;
        waits_for.truncate(MOST_AWAITED);
        let is_the_same = self.at == Some((phase, epoch, round)) && self.awaited == waits_for;
        self.idle =
            if is_busy || !is_the_same || phase == Phase::Finished { Duration::ZERO } else { self.idle + passed };
        (self.at, self.awaited, self.looked) = (Some((phase, epoch, round)), waits_for, now);
        (self.idle >= deadline).then(|| self.awaited.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_swarm::{PeerId, Phase, Status};

    use super::Idleness;

    const DEADLINE: Duration = Duration::from_secs(5);

    fn status(round: u32) -> Status {
        let (phase, waits_for) = (Phase::Exchanging, vec![PeerId(7)]);
        Status { phase, epoch: 0, round, waits_for, began: Duration::ZERO }
    }

    /// How many seconds it takes to be idle if each second this is done, which may keep it from it.
    fn idle_after(mut disturb: impl FnMut(&mut Idleness, u64) -> (u32, bool)) -> Option<u64> {
        let mut idleness = Idleness::default();
        (0..20).find(|&second| {
            let (round, is_busy) = disturb(&mut idleness, second);
            idleness.look(Duration::from_secs(second), DEADLINE, status(round), is_busy) == Some(vec![PeerId(7)])
        })
    }

    #[test]
    fn who_waits_for_the_deadline_is_idle_unless_something_goes_on() {
        assert_eq!(idle_after(|_, _| (0, false)), Some(5));
        assert_eq!(idle_after(|_, second| (0, second == 3)), Some(8), "it computed");
        assert_eq!(idle_after(|_, second| ((second / 3) as u32, false)), None, "rounds go on");
        let hears = |peer| {
            move |idleness: &mut Idleness, second: u64| {
                if second.is_multiple_of(3) {
                    idleness.hear(PeerId(peer));
                }
                (0, false)
            }
        };
        assert_eq!(idle_after(hears(7)), None, "it receives what it waits for");
        assert_eq!(idle_after(hears(8)), Some(5), "another speaks");
    }

    #[test]
    fn sleep_is_no_idleness() {
        let mut idleness = Idleness::default();
        assert_eq!(idleness.look(Duration::ZERO, DEADLINE, status(0), false), None);
        assert_eq!(idleness.look(DEADLINE * 100, DEADLINE, status(0), false), None);
    }
}
