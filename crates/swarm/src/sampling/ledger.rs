//! What has been trained in an epoch by whom, through all changes of members, in as few words as say it.

use serde::{Deserialize, Serialize};

use crate::shared::Shared;

/// The state of an epoch. It travels between peers: whoever holds the same ledger (and the same job) knows the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Epochs finished.
    pub epoch: u64,
    /// How many batches of the epoch's common order were trained before these segments.
    #[serde(default)]
    pub start: u32,
    /// The present epoch's segments; the last is the present one.
    pub segments: Vec<Segment>,
}

/// A time in which the same members shared the remaining samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Who took part; a member's rank is its place here.
    pub members: Shared<u64>,
    /// By rank, how fast each member is compared to the others; empty if nobody knows, or if shares are equal.
    #[serde(default)]
    pub speeds: Shared<u16>,
    /// After how many rounds the segment ends; 0 when nothing is left.
    #[serde(default)]
    pub rounds: u32,
    /// Rounds that each member has trained, by rank. They count only if their work went into the parameters.
    pub done: Shared<u32>,
}

/// What a ledger leaves of its epoch.
#[derive(Clone, Copy)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// All of the common order from this batch on, and nothing before it.
    From(u32),
    /// Something else.
    Some,
}

/// How much a ledger may say. See [`super::sampler::Sampler::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many epochs the run has.
    pub n_epochs: u64,
    /// How many segments an epoch may have.
    pub n_segments: usize,
    /// How many members a segment may have.
    pub n_members: usize,
    /// How many rounds a member may have done, and how many batches an epoch may have.
    pub n_rounds: u32,
}

/// Why a ledger is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It is about a time after the run.
    #[error("the ledger is about epoch {epoch} of a run of {n_epochs}")]
    Epoch {
        /// Epochs finished.
        epoch: u64,
        /// How many there are.
        n_epochs: u64,
    },
    /// It begins where no epoch goes.
    #[error("the ledger begins after batch {start} of an epoch; there are not more than {most}")]
    Start {
        /// After which.
        start: u32,
        /// How many there can be.
        most: u32,
    },
    /// It has no segment, or far too many.
    #[error("the ledger has {n_segments} segments; must be between 1 and {most}")]
    Segments {
        /// How many it has.
        n_segments: usize,
        /// How many it may have.
        most: usize,
    },
    /// A segment has no members, or far too many.
    #[error("segment {segment} of the ledger has {n_members} members; must be between 1 and {most}")]
    Members {
        /// Which segment.
        segment: usize,
        /// How many it has.
        n_members: usize,
        /// How many it may have.
        most: usize,
    },
    /// A segment does not say for each member what it has done.
    #[error("segment {segment} of the ledger has {n_members} members and says of {n_done} what they have done")]
    Uneven {
        /// Which segment.
        segment: usize,
        /// How many members.
        n_members: usize,
        /// How many numbers.
        n_done: usize,
    },
    /// A segment does not say of each member how fast it is.
    #[error("segment {segment} of the ledger has {n_members} members and says of {n_speeds} how fast they are")]
    Speeds {
        /// Which segment.
        segment: usize,
        /// How many members.
        n_members: usize,
        /// How many numbers.
        n_speeds: usize,
    },
    /// A member has two ranks.
    #[error("segment {segment} of the ledger lists member {member} twice")]
    Twice {
        /// Which segment.
        segment: usize,
        /// Who.
        member: u64,
    },
    /// A member has done more than there is to do.
    #[error("segment {segment} of the ledger has a member that has done {done} rounds; there are not more than {most}")]
    Done {
        /// Which segment.
        segment: usize,
        /// How many it has done.
        done: u32,
        /// How many there can be.
        most: u32,
    },
}

impl Segment {
    /// A segment in which nothing has been trained yet, and which ends when nothing is left.
    pub fn new(members: Vec<u64>) -> Self {
        Self { done: vec![0; members.len()].into(), members: members.into(), speeds: Shared::default(), rounds: 0 }
    }

    fn is_untouched(&self) -> bool {
        self.done.iter().all(|&done| done == 0)
    }
}

impl Ledger {
    /// The start of a run with these members.
    pub fn new(members: Vec<u64>) -> Self {
        Self::of_segment(0, Segment::new(members))
    }

    /// The beginning of an epoch.
    pub fn of_segment(epoch: u64, segment: Segment) -> Self {
        Self { epoch, start: 0, segments: vec![segment] }
    }

    /// The same with numbers for the names of members, which mean nothing to those who go on from it another day.
    #[must_use]
    pub fn without_names(mut self) -> Self {
        self.segments.iter_mut().for_each(|segment| segment.members = (0..segment.members.len() as u64).collect());
        self
    }

    /// In which epoch training goes on, by what this one leaves.
    pub(super) fn epoch_with(&self, left: Left) -> u64 {
        self.epoch.saturating_add(matches!(left, Left::Nothing).into())
    }

    /// The same with one more segment, in the epoch in which training goes on. Segments of which nothing is left are forgotten, and so is
    /// a last one in which nothing was trained.
    pub(super) fn followed_by(&self, segment: Segment, left: Left) -> Self {
        match left {
            Left::Nothing => Self::of_segment(self.epoch_with(left), segment),
            Left::From(start) => Self { epoch: self.epoch, start, segments: vec![segment] },
            Left::Some => {
                let n_kept = self.segments.len() - usize::from(self.segments.last().is_some_and(Segment::is_untouched));
                let segments = self.segments[..n_kept].iter().cloned().chain([segment]).collect();
                Self { segments, ..*self }
            }
        }
    }

    /// Refuses what no honest peer would say, before anything is computed from it.
    pub fn check(&self, limits: &Limits) -> Result<(), LedgerError> {
        if self.epoch > limits.n_epochs {
            return Err(LedgerError::Epoch { epoch: self.epoch, n_epochs: limits.n_epochs });
        }
        if self.start > limits.n_rounds {
            return Err(LedgerError::Start { start: self.start, most: limits.n_rounds });
        }
        let n_segments = self.segments.len();
        if !(1..=limits.n_segments).contains(&n_segments) {
            return Err(LedgerError::Segments { n_segments, most: limits.n_segments });
        }
        self.segments.iter().enumerate().try_for_each(|(i, segment)| segment.check(i, limits))
    }
}

impl Segment {
    fn check(&self, segment: usize, limits: &Limits) -> Result<(), LedgerError> {
        let (n_members, n_done) = (self.members.len(), self.done.len());
        if !(1..=limits.n_members).contains(&n_members) {
            return Err(LedgerError::Members { segment, n_members, most: limits.n_members });
        }
        if ![0, n_members].contains(&self.speeds.len()) {
            return Err(LedgerError::Speeds { segment, n_members, n_speeds: self.speeds.len() });
        }
        if n_done != n_members {
            return Err(LedgerError::Uneven { segment, n_members, n_done });
        }
        let mut sorted = self.members.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LedgerError::Twice { segment, member: pair[0] });
        }
        match self.done.iter().find(|&&done| done > limits.n_rounds) {
            Some(&done) => Err(LedgerError::Done { segment, done, most: limits.n_rounds }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, LedgerError, Limits, Segment};

    const LIMITS: Limits = Limits { n_epochs: 3, n_segments: 4, n_members: 5, n_rounds: 6 };

    fn ledger(epoch: u64, segments: &[(&[u64], &[u32])]) -> Ledger {
        let segment = |(members, done): &(&[u64], &[u32])| Segment {
            done: done.to_vec().into(),
            ..Segment::new(members.to_vec())
        };
        Ledger { epoch, start: 0, segments: segments.iter().map(segment).collect() }
    }

    #[test]
    fn ledgers_travel() {
        let sent = ledger(2, &[(&[7, 1 << 60], &[3, 0]), (&[7], &[0])]);
        let json = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), sent);
        assert_eq!(sent.check(&LIMITS), Ok(()));
        assert!(serde_json::from_str::<Ledger>(&json.replace("epoch", "epochs")).is_err());
    }

    #[test]
    fn what_no_honest_peer_would_say_is_refused() {
        let one: (&[u64], &[u32]) = (&[1], &[6]);
        assert_eq!(ledger(3, &[one; 4]).check(&LIMITS), Ok(()), "as much as is allowed");
        for (wrong, error) in [
            (ledger(4, &[one]), LedgerError::Epoch { epoch: 4, n_epochs: 3 }),
            (ledger(u64::MAX, &[one]), LedgerError::Epoch { epoch: u64::MAX, n_epochs: 3 }),
            (ledger(0, &[]), LedgerError::Segments { n_segments: 0, most: 4 }),
            (ledger(0, &[one; 5]), LedgerError::Segments { n_segments: 5, most: 4 }),
            (ledger(0, &[one, (&[], &[])]), LedgerError::Members { segment: 1, n_members: 0, most: 5 }),
            (Ledger::new((0..3_000_000).collect()), LedgerError::Members { segment: 0, n_members: 3_000_000, most: 5 }),
            (ledger(0, &[(&[1, 2], &[0])]), LedgerError::Uneven { segment: 0, n_members: 2, n_done: 1 }),
            (ledger(0, &[(&[1], &[0, 0])]), LedgerError::Uneven { segment: 0, n_members: 1, n_done: 2 }),
            (ledger(0, &[(&[4, 9, 4], &[0, 0, 0])]), LedgerError::Twice { segment: 0, member: 4 }),
            (ledger(0, &[one, (&[1, 2], &[0, 7])]), LedgerError::Done { segment: 1, done: 7, most: 6 }),
            (ledger(0, &[(&[1], &[u32::MAX])]), LedgerError::Done { segment: 0, done: u32::MAX, most: 6 }),
        ] {
            assert_eq!(wrong.check(&LIMITS), Err(error));
        }
        let far = Ledger { start: 7, ..ledger(0, &[one]) };
        assert_eq!(far.check(&LIMITS), Err(LedgerError::Start { start: 7, most: 6 }));
        let segment = Segment { speeds: vec![1, 2].into(), ..Segment::new(vec![7]) };
        let uneven = Ledger::of_segment(0, segment).check(&LIMITS);
        assert_eq!(uneven, Err(LedgerError::Speeds { segment: 0, n_members: 1, n_speeds: 2 }));
    }
}
