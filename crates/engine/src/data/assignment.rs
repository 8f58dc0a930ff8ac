//! What one peer is to train on, small enough to send: indices travel, not data.

use serde::{Deserialize, Serialize};

use super::split::{SplitError, SplitRule};

/// The samples of one peer, in the shortest words that say them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Assignment {
    /// These samples, each once.
    List {
        /// Their indices.
        indices: Vec<usize>,
    },
    /// The samples from `start` up to but without `end`.
    Range {
        /// The first.
        start: usize,
        /// One after the last.
        end: usize,
    },
    /// The share of one peer under a rule.
    Rule {
        /// The rule.
        rule: SplitRule,
        /// The seed of the split.
        seed: u64,
        /// Whose share.
        peer: usize,
        /// Among how many peers.
        n_peers: usize,
    },
}

/// Why an assignment does not fit the data it is for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// A sample is meant that the set does not have.
    #[error("the assignment goes up to sample {index}, but the set has {n_samples}: is it the same set?")]
    NoSuchSample {
        /// The largest index.
        index: usize,
        /// How many samples there are.
        n_samples: usize,
    },
    /// A sample would be trained on twice.
    #[error("the assignment lists sample {index} twice")]
    Twice {
        /// The sample.
        index: usize,
    },
    /// The range ends before it starts.
    #[error("the assignment {start}..{end} ends before it starts")]
    Backwards {
        /// The first.
        start: usize,
        /// One after the last.
        end: usize,
    },
    /// A share is meant that nobody has.
    #[error("the assignment is for peer {peer}, but there are {n_peers}")]
    NoSuchPeer {
        /// Whose share.
        peer: usize,
        /// Among how many.
        n_peers: usize,
    },
    /// The rule does not fit the data.
    #[error(transparent)]
    Split(#[from] SplitError),
}

impl Assignment {
    /// The indices that are meant, once they are known to exist.
    ///
    /// ```
    /// use nettorrent_engine::data::assignment::Assignment;
    /// assert_eq!(Assignment::Range { start: 1, end: 3 }.resolve(&[0; 5]).unwrap(), [1, 2]);
    /// ```
    pub fn resolve(&self, labels: &[u32]) -> Result<Vec<usize>, AssignmentError> {
        match *self {
            Self::List { ref indices } => {
                check_list(indices, labels.len())?;
                Ok(indices.clone())
            }
            Self::Range { start, end } if start > end => Err(AssignmentError::Backwards { start, end }),
            Self::Range { end, .. } if end > labels.len() => {
                Err(AssignmentError::NoSuchSample { index: end - 1, n_samples: labels.len() })
            }
            Self::Range { start, end } => Ok((start..end).collect()),
            Self::Rule { peer, n_peers, .. } if peer >= n_peers => Err(AssignmentError::NoSuchPeer { peer, n_peers }),
            Self::Rule { rule, seed, peer, n_peers } => Ok(rule.share(seed, labels, peer, n_peers)?),
        }
    }
}

fn check_list(indices: &[usize], n_samples: usize) -> Result<(), AssignmentError> {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(AssignmentError::Twice { index: pair[0] });
    }
    match sorted.last() {
        Some(&index) if index >= n_samples => Err(AssignmentError::NoSuchSample { index, n_samples }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::Assignment;
    use crate::data::split::SplitRule;

    #[test]
    fn assignments_travel_and_resolve() {
        let labels = [0, 1, 0, 1, 0];
        let rule = Assignment::Rule { rule: SplitRule::Class, seed: 3, peer: 1, n_peers: 2 };
        for (assignment, expected) in [
            (Assignment::List { indices: vec![4, 0] }, vec![4, 0]),
            (Assignment::Range { start: 1, end: 3 }, vec![1, 2]),
            (rule, vec![1, 3]),
        ] {
            let json = serde_json::to_string(&assignment).unwrap();
            assert_eq!(serde_json::from_str::<Assignment>(&json).unwrap(), assignment);
            assert_eq!(assignment.resolve(&labels).unwrap(), expected);
        }
    }

    #[test]
    fn what_a_stranger_sends_is_checked_before_it_is_believed() {
        let rule = |rule, peer, n_peers| Assignment::Rule { rule, seed: 3, peer, n_peers };
        for wrong in [
            Assignment::List { indices: vec![0, 5] },
            Assignment::List { indices: vec![2, 2] },
            Assignment::Range { start: 3, end: 1 },
            Assignment::Range { start: 0, end: 6 },
            Assignment::Range { start: 0, end: usize::MAX },
            rule(SplitRule::Random, 2, 2),
            rule(SplitRule::Random, 0, 6),
            rule(SplitRule::Class, 0, usize::MAX),
            rule(SplitRule::Random, 0, usize::MAX),
            rule(SplitRule::Groups { networks: usize::MAX, sets: 2 }, 0, usize::MAX),
        ] {
            assert!(wrong.resolve(&[0, 1, 0, 1, 0]).is_err(), "{wrong:?}");
        }
        // A million networks of the whole set each: only the one share is made.
        let all = rule(SplitRule::Groups { networks: 1 << 40, sets: 1 }, 7, 1 << 40);
        assert_eq!(all.resolve(&[0; 5]).unwrap(), [0, 1, 2, 3, 4]);
    }
}
