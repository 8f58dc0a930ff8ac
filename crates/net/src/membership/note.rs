//! What happened among the members, for people.

use std::fmt;
use std::time::Duration;

use nettorrent_swarm::view::PeerId;

use super::member::Member;

/// Something that people may want to know. Nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Somebody new is there.
    Joined {
        /// Who.
        member: Member,
        /// How many more the first view waits for, as far as this peer knows.
        n_missing: usize,
    },
    /// Somebody did not answer and has some time left to do so.
    Suspected(PeerId),
    /// Somebody is given up.
    Lost {
        /// Who.
        peer: PeerId,
        /// Why.
        why: Why,
    },
    /// The computation of somebody, or of this very peer, stands still.
    Stuck(PeerId),
    /// Somebody answers and does not send what others wait for: they go on without it for this long.
    Withholds {
        /// Who.
        peer: PeerId,
        /// For how long.
        lasts: Duration,
    },
    /// Somebody lives and takes no part, because it and a member cannot reach each other.
    LeftOut {
        /// Who.
        member: Member,
        /// Whom it cannot reach, or who cannot reach it.
        other: Member,
    },
    /// Too few of the last members can be reached, so this peer waits for the others.
    TooFew {
        /// How many can be reached, this peer among them.
        n_here: usize,
        /// Of how many that are not known to be gone.
        n_members: usize,
        /// After how long it goes on without them.
        patience: Duration,
    },
    /// Somebody who was given up is there again.
    Returned(Member),
    /// Somebody said goodbye.
    Left(PeerId),
    /// The others had given up this very peer; it goes on in a new generation.
    Renewed {
        /// The new generation.
        generation: u32,
    },
    /// There are no higher numbers for views, or for this peer's returns, so the members can change no more. A million views or a
    /// hostile member did that; the swarm must be started anew, and the host ends.
    OutOfNumbers,
}

/// Why somebody is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It answered nobody for too long.
    Silent,
    /// Its link broke, and nobody listens at its address any more.
    Ended,
    /// It said what no honest member says.
    CutOff,
    /// Somebody else says so.
    Told {
        /// Who says it.
        by: PeerId,
    },
    /// Others say that it lives, but it does not answer the proposer, and so it cannot take part.
    NoAnswer,
    /// It said goodbye.
    Left,
    /// The swarm's owner has removed it.
    Removed,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { member, n_missing: 0 } => write!(f, "{member} joined"),
            Self::Joined { member, n_missing } => write!(f, "{member} joined; waiting for {n_missing} more"),
            Self::Suspected(peer) => write!(f, "{peer} does not answer"),
            Self::Lost { peer, why } => write!(f, "{peer} is lost: {why}"),
            Self::Stuck(peer) => write!(
                f,
                "{peer} answers, but its computation stands still: the others go on without it until it moves; \
                 check its disk and memory"
            ),
            Self::Withholds { peer, lasts } => write!(
                f,
                "{peer} answers, but does not send what others wait for: they go on without it for {} seconds",
                lasts.as_secs_f64().round()
            ),
            Self::LeftOut { member, other } => write!(
                f,
                "{member} takes no part until it and {other} can reach each other: \
                 check both addresses, and firewalls between them"
            ),
            Self::TooFew { n_here, n_members, patience } => write!(
                f,
                "only {n_here} of the last {n_members} members can be reached: this peer waits for the others, \
                 and goes on without them after {} seconds",
                patience.as_secs_f64().round()
            ),
            Self::Returned(member) => write!(f, "{member} is back"),
            Self::Left(peer) => write!(f, "{peer} left"),
            Self::Renewed { generation } => {
                write!(f, "the others had given us up; we are back, in generation {generation}")
            }
            Self::OutOfNumbers => f.write_str(
                "the members cannot change any more, as their numbers have run out: start the swarm anew, with \
                 `nettorrent start --resume RUN`",
            ),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("it was silent for too long"),
            Self::Ended => f.write_str("its link broke and it refuses a new one"),
            Self::CutOff => f.write_str("it was cut off for what it sent"),
            Self::Told { by } => write!(f, "{by} says so"),
            Self::NoAnswer => f.write_str("it lives but cannot be reached from here"),
            Self::Left => f.write_str("it left"),
            Self::Removed => f.write_str("the swarm's owner has removed it for good"),
        }
    }
}
