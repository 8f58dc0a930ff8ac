//! What can be set, and the periods that follow from the one deadline.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::PeriodicParams;
use nettorrent_engine::job::Quorum;

use super::message::MAX_PACKET_LEN;

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A peer that answers nothing is given up by all others within this. Pauses of a third of it are forgiven. It should
    /// be at least 25 times what a question and its answer take between any two peers, and is taken as at least 100 ms.
    pub deadline: Duration,
    /// The first view waits until this many members are there, the peer itself among them.
    pub wait_for: usize,
    /// Who trains on when members cannot be reached.
    pub quorum: Quorum,
}

impl Default for Config {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), wait_for: 1, quorum: Quorum::default() }
    }
}

/// The periods that follow from the deadline.
///
/// From the moment when a peer falls silent, giving it up takes: until somebody happens to ask it, `n` periods of `probe`;
/// until the question has failed, one more; until its time to object is over, `suspicion` and `grace`; until the last
/// member has heard of it, a few times `gossip`. The first is a matter of chance: all others ask one random member in each
/// period, so nobody asks for `n` periods with a probability below `exp(-n)`. With the fractions below the sum stays within
/// the deadline up to `n = 11`.
///
/// A pause is forgiven if it is shorter than `probe + suspicion`, which is 0.44 of the deadline.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// What they follow from.
    pub(super) deadline: Duration,
    /// How often a peer asks another whether it lives.
    pub(super) probe: Duration,
    /// How long a suspect may object.
    pub(super) suspicion: Duration,
    /// How often news is passed on while there is some.
    pub(super) gossip: Duration,
    /// How long a decision waits, so that packets which lie unread are read before.
    pub(super) grace: Duration,
    /// How long a proposal waits for more to change.
    pub(super) calm: Duration,
    /// How long the others wait for who is to propose, each for the one before it.
    pub(super) turn: Duration,
    /// How often an unanswered proposal is repeated.
    pub(super) resend: Duration,
    /// How often a member tells all others how it is and whom it hears.
    pub(super) report: Duration,
    /// How long it waits with news of that, so that several make one report.
    pub(super) react: Duration,
    /// How often those who are missed are spoken to, and the dead forgotten.
    pub(super) tidy: Duration,
    /// How long those wait who are too few to train on.
    pub(super) patience: Duration,
    /// How often lost members are tried again.
    pub(super) seek: Duration,
    /// How long the dead are remembered.
    pub(super) forget: Duration,
}

impl Timing {
    /// The shortest deadline.
    const SHORTEST: Duration = Duration::from_millis(100);

    pub(super) fn new(deadline: Duration) -> Self {
        let deadline = deadline.max(Self::SHORTEST);
        let calm = (deadline / 20).clamp(Duration::from_millis(20), Duration::from_millis(250));
        Self {
            deadline,
            probe: deadline / 25,
            suspicion: deadline * 2 / 5,
            gossip: deadline / 50,
            grace: deadline / 50,
            calm,
            turn: deadline * 3,
            resend: deadline / 10,
            report: deadline / 5,
            react: calm / 5,
            tidy: deadline,
            patience: deadline * 4,
            seek: deadline * 2,
            forget: deadline * 20,
        }
    }

    /// What foca is told.
    pub(super) fn detector(&self) -> foca::Config {
        const ONE: NonZeroUsize = NonZeroUsize::MIN;
        const THREE: NonZeroUsize = ONE.saturating_add(2);
        foca::Config {
            probe_period: self.probe,
            probe_rtt: self.probe / 2,
            num_indirect_probes: THREE,
            // Enough for thousands of members: each one that hears news passes it on this often.
            max_transmissions: NonZeroU8::MIN.saturating_add(9),
            suspect_to_down_after: self.suspicion,
            remove_down_after: Some(self.forget),
            max_packet_size: NonZeroUsize::MIN.saturating_add(MAX_PACKET_LEN - 2),
            notify_down_members: true,
            // A full list from a random member now and then mends what gossip, which is a matter of chance, has missed.
            periodic_announce: Some(PeriodicParams { frequency: self.deadline * 4, num_members: ONE }),
            // Foca would only do this while somebody else lives; `Membership` does it also when it is alone.
            periodic_announce_to_down_members: None,
            periodic_gossip: Some(PeriodicParams { frequency: self.gossip, num_members: THREE }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Timing;

    #[test]
    fn the_periods_add_up_to_less_than_the_deadline() {
        for millis in [100, 500, 5_000, 300_000] {
            let timing = Timing::new(Duration::from_millis(millis));
            let detection = timing.probe * 12 + timing.suspicion + timing.grace + timing.gossip * 5;
            assert!(detection <= timing.deadline, "{millis} ms");
            assert!(timing.probe + timing.suspicion > timing.deadline / 3 + timing.probe, "{millis} ms");
        }
    }
}
