//! Which peer owns which samples: a pure function of a rule, a seed, the labels and the number of peers.
//!
//! So no list has to travel: every peer that knows the four can work out its own samples, and everyone else's.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::names;
use crate::partition::{block, even};
use crate::rng::Rng;

/// How samples are shared out. Written as `class`, `equal`, `equal-spread`, `groups:NETWORKS:SETS`, `random` or `range`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SplitRule {
    /// Whole classes, dealt to the peers in turn. Needs at least as many classes as peers.
    Class,
    /// Of each class, every peer gets the same number; what cannot be shared so is dropped, and reported.
    Equal,
    /// Like `Equal`, and then what is left is dealt to the peers in turn, so that nothing is dropped.
    EqualSpread,
    /// Peers in `networks` groups, each holding all data in `sets` sets. Within a network nobody shares a sample; every
    /// sample is held once in each network.
    Groups {
        /// How many groups of peers there are.
        networks: usize,
        /// Into how many sets the data is cut.
        sets: usize,
    },
    /// A random part each, sizes differing by at most one.
    #[default]
    Random,
    /// Consecutive blocks in the order of the data: peer `i` of `N` gets `⌊i·n/N⌋` to `⌊(i+1)·n/N⌋`.
    Range,
}

/// The names a rule may have, sorted.
const RULES: [&str; 6] = ["class", "equal", "equal-spread", "groups", "random", "range"];

impl FromStr for SplitRule {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let mut words = text.split(':');
        let rule = match words.next().unwrap_or_default() {
            "class" => Self::Class,
            "equal" => Self::Equal,
            "equal-spread" => Self::EqualSpread,
            "groups" => {
                let mut number = || words.next().and_then(|word| word.parse().ok()).filter(|&n| n > 0);
                let (Some(networks), Some(sets)) = (number(), number()) else {
                    return Err(SplitError::Rule(format!(
                        "`{text}` lacks its numbers: write `groups:NETWORKS:SETS`, for example `groups:10:10`"
                    )));
                };
                Self::Groups { networks, sets }
            }
            "random" => Self::Random,
            "range" => Self::Range,
            other => return Err(SplitError::Rule(names::unknown("split", other, &RULES))),
        };
        match words.next() {
            Some(word) => Err(SplitError::Rule(format!("`{word}` in `{text}` is one word too many"))),
            None => Ok(rule),
        }
    }
}

impl fmt::Display for SplitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class => f.write_str("class"),
            Self::Equal => f.write_str("equal"),
            Self::EqualSpread => f.write_str("equal-spread"),
            Self::Groups { networks, sets } => write!(f, "groups:{networks}:{sets}"),
            Self::Random => f.write_str("random"),
            Self::Range => f.write_str("range"),
        }
    }
}

impl TryFrom<String> for SplitRule {
    type Error = SplitError;

    fn try_from(text: String) -> Result<Self, SplitError> {
        text.parse()
    }
}

impl From<SplitRule> for String {
    fn from(rule: SplitRule) -> Self {
        rule.to_string()
    }
}

/// Why samples cannot be shared out as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// There is nobody to give samples to.
    #[error("there is no peer to give samples to")]
    NoPeers,
    /// Some peers would have nothing to train on.
    #[error("{n_samples} samples cannot be split `{rule}` among {n_peers} peers: someone would get none")]
    TooFewSamples {
        /// How many samples there are.
        n_samples: usize,
        /// How many peers there are.
        n_peers: usize,
        /// The rule that was asked for.
        rule: SplitRule,
    },
    /// The rule `class` gives whole classes, and there are too few.
    #[error(
        "{n_peers} peers cannot each get a class of their own: there are only {n_classes}; use `equal` or `random`"
    )]
    TooFewClasses {
        /// How many classes have samples.
        n_classes: usize,
        /// How many peers there are.
        n_peers: usize,
    },
    /// The rule `groups` needs the same number of peers in each block of each network.
    #[error("{n_peers} peers do not fill {networks} networks of {sets} sets: their number must be a multiple of {}", networks.saturating_mul(*sets))]
    UnevenGroups {
        /// How many peers there are.
        n_peers: usize,
        /// How many networks were asked for.
        networks: usize,
        /// How many sets were asked for.
        sets: usize,
    },
    /// The text names no rule.
    #[error("{0}")]
    Rule(String),
}

/// Who owns what. All lists are in ascending order: the order of training is the business of [`super::batches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerShares {
    /// The samples of each peer.
    pub peers: Vec<Vec<usize>>,
    /// The samples that nobody got.
    pub dropped: Vec<usize>,
}

impl SplitRule {
    /// Shares out as many samples as there are labels. Every peer gets at least one, or it is an error.
    ///
    /// ```
    /// use nettorrent_engine::data::split::SplitRule;
    /// let split = SplitRule::Equal.split(7, &[0, 0, 0, 1, 1], 2)?;
    /// assert!(split.peers.iter().all(|samples| samples.len() == 2));
    /// assert_eq!(split.dropped.len(), 1);
    /// # Ok::<(), nettorrent_engine::data::split::SplitError>(())
    /// ```
    pub fn split(&self, seed: u64, labels: &[u32], n_peers: usize) -> Result<PeerShares, SplitError> {
        let n_samples = labels.len();
        self.check_peers(n_samples, n_peers)?;
        let everyone = 0..n_peers;
        let nothing_dropped = |peers| PeerShares { peers, dropped: Vec::new() };
        let mut split = match *self {
            Self::Class => by_class(labels, n_peers)?,
            Self::Equal => equal(seed, labels, n_peers),
            Self::EqualSpread => spread(equal(seed, labels, n_peers)),
            Self::Groups { networks, sets } => {
                let groups = Groups::new(seed, n_samples, n_peers, networks, sets)?;
                nothing_dropped(everyone.map(|peer| groups.share(peer)).collect())
            }
            Self::Random => {
                let order = shuffled(seed, n_samples);
                nothing_dropped(everyone.map(|peer| order[block(peer, n_peers, n_samples)].to_vec()).collect())
            }
            Self::Range => nothing_dropped(everyone.map(|peer| even(peer, n_peers, n_samples).collect()).collect()),
        };
        if split.peers.iter().any(Vec::is_empty) {
            return Err(SplitError::TooFewSamples { n_samples, n_peers, rule: *self });
        }
        split.peers.iter_mut().for_each(|samples| samples.sort_unstable());
        split.dropped.sort_unstable();
        Ok(split)
    }

    /// Refuses a number of peers that cannot work before anything is allocated for them: it may come from a stranger.
    fn check_peers(&self, n_samples: usize, n_peers: usize) -> Result<(), SplitError> {
        let n_disjoint = match *self {
            Self::Groups { networks, .. } => n_peers / networks.max(1),
            Self::Class => 1,
            _ => n_peers,
        };
        match n_peers {
            0 => Err(SplitError::NoPeers),
            _ if n_disjoint > n_samples => Err(SplitError::TooFewSamples { n_samples, n_peers, rule: *self }),
            _ => Ok(()),
        }
    }
}

fn shuffled(seed: u64, n_samples: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..n_samples).collect();
    Rng::stream(seed, "split", 0).shuffle(&mut indices);
    indices
}

/// The samples of each class that has any, classes in order.
pub(crate) fn indices_by_class(indices: impl Iterator<Item = usize>, labels: &[u32]) -> BTreeMap<u32, Vec<usize>> {
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for index in indices {
        classes.entry(labels[index]).or_default().push(index);
    }
    classes
}

fn by_class(labels: &[u32], n_peers: usize) -> Result<PeerShares, SplitError> {
    let classes = indices_by_class(0..labels.len(), labels);
    if n_peers > classes.len() {
        return Err(SplitError::TooFewClasses { n_classes: classes.len(), n_peers });
    }
    let mut peers = vec![Vec::new(); n_peers];
    for (turn, samples) in classes.into_values().enumerate() {
        peers[turn % n_peers].extend(samples);
    }
    Ok(PeerShares { peers, dropped: Vec::new() })
}

fn equal(seed: u64, labels: &[u32], n_peers: usize) -> PeerShares {
    let mut peers = vec![Vec::new(); n_peers];
    let mut dropped = Vec::new();
    for (class, mut samples) in indices_by_class(0..labels.len(), labels) {
        Rng::stream(seed, "split", u64::from(class)).shuffle(&mut samples);
        let each = samples.len() / n_peers;
        dropped.extend(samples.split_off(each * n_peers));
        if each > 0 {
            peers.iter_mut().zip(samples.chunks(each)).for_each(|(peer, chunk)| peer.extend(chunk));
        }
    }
    PeerShares { peers, dropped }
}

/// Deals what was dropped to the peers in turn, across classes, so that totals differ by at most one.
fn spread(mut split: PeerShares) -> PeerShares {
    let n_peers = split.peers.len();
    for (turn, index) in split.dropped.drain(..).enumerate() {
        split.peers[turn % n_peers].push(index);
    }
    split
}

/// The place of every peer under the rule `groups`.
struct Groups {
    /// The data is shuffled first, so that a set is a fair sample even of data sorted by class.
    shuffled: Vec<usize>,
    n_sets: usize,
    peers_per_network: usize,
    peers_per_set: usize,
}

impl Groups {
    fn new(seed: u64, n_samples: usize, n_peers: usize, networks: usize, sets: usize) -> Result<Self, SplitError> {
        match networks.checked_mul(sets) {
            Some(n_blocks) if n_blocks > 0 && n_peers.is_multiple_of(n_blocks) => {}
            _ => return Err(SplitError::UnevenGroups { n_peers, networks, sets }),
        }
        let peers_per_network = n_peers / networks;
        let shuffled = shuffled(seed, n_samples);
        Ok(Self { shuffled, n_sets: sets, peers_per_network, peers_per_set: peers_per_network / sets })
    }

    fn share(&self, peer: usize) -> Vec<usize> {
        let place = peer % self.peers_per_network;
        let set = &self.shuffled[block(place / self.peers_per_set, self.n_sets, self.shuffled.len())];
        set[block(place % self.peers_per_set, self.peers_per_set, set.len())].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerShares, RULES, SplitError, SplitRule, indices_by_class};
    use crate::rng::Rng;

    fn labels(rng: &mut Rng, n_samples: usize, n_classes: usize) -> Vec<u32> {
        (0..n_samples).map(|_| rng.below(n_classes) as u32).collect()
    }

    /// Every sample is in exactly one list.
    fn assert_partition(split: &PeerShares, n_samples: usize, hint: &str) {
        let mut all: Vec<usize> = split.peers.iter().flatten().chain(&split.dropped).copied().collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..n_samples), "{hint}");
    }

    #[test]
    fn every_rule_shares_out_every_sample_once() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (n_samples, n_classes, n_peers) = (rng.below(400) + 1, rng.below(12) + 1, rng.below(20) + 1);
            let labels = labels(&mut rng, n_samples, n_classes);
            let classes = indices_by_class(0..n_samples, &labels);
            for rule in
                [SplitRule::Class, SplitRule::Equal, SplitRule::EqualSpread, SplitRule::Random, SplitRule::Range]
            {
                let hint = format!("seed {seed}, {rule}, {n_samples} samples, {n_classes} classes, {n_peers} peers");
                let split = rule.split(seed, &labels, n_peers);
                assert_eq!(split, rule.split(seed, &labels, n_peers), "{hint}: not pure");
                let Ok(split) = split else {
                    let fair = classes.values().any(|samples| samples.len() >= n_peers);
                    let expected = match rule {
                        SplitRule::Class => classes.len() < n_peers,
                        SplitRule::Equal => !fair,
                        _ => n_samples < n_peers,
                    };
                    assert!(expected, "{hint}: refused");
                    continue;
                };
                assert_partition(&split, n_samples, &hint);
                assert_eq!(split.peers.len(), n_peers);
                let sizes = split.peers.iter().map(Vec::len);
                let spread = sizes.clone().max().unwrap() - sizes.min().unwrap();
                match rule {
                    SplitRule::Equal => {
                        let counts = |samples: &[usize]| {
                            let mut counts = vec![0; n_classes];
                            samples.iter().for_each(|&index| counts[labels[index] as usize] += 1);
                            counts
                        };
                        let first = counts(&split.peers[0]);
                        assert!(split.peers.iter().all(|samples| counts(samples) == first), "{hint}");
                        assert!(counts(&split.dropped).iter().all(|&n| n < n_peers), "{hint}");
                    }
                    SplitRule::Class => {
                        let owner = |index: usize| split.peers.iter().position(|samples| samples.contains(&index));
                        assert!(classes.values().all(|samples| owner(samples[0]) == owner(*samples.last().unwrap())));
                    }
                    _ => assert!(spread <= 1 && split.dropped.is_empty(), "{hint}"),
                }
            }
        }
    }

    #[test]
    fn a_thousand_users_in_ten_networks_get_a_hundred_samples_each() {
        let split = SplitRule::Groups { networks: 10, sets: 10 }.split(1, &[0; 10_000], 1000).unwrap();
        assert!(split.peers.iter().all(|samples| samples.len() == 100));
        for network in split.peers.chunks(100) {
            assert_partition(&PeerShares { peers: network.to_vec(), dropped: Vec::new() }, 10_000, "network");
        }
        assert_eq!(split.peers[0], split.peers[100], "the same set lies in the same place of each network");
    }

    #[test]
    fn groups_hold_with_remainders() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let (networks, sets, per_set) = (rng.below(4) + 1, rng.below(4) + 1, rng.below(4) + 1);
            let n_peers = networks * sets * per_set;
            let n_samples = sets * per_set + rng.below(100);
            let rule = SplitRule::Groups { networks, sets };
            let split = rule.split(seed, &vec![0; n_samples], n_peers).unwrap();
            for network in split.peers.chunks(sets * per_set) {
                assert_partition(
                    &PeerShares { peers: network.to_vec(), dropped: Vec::new() },
                    n_samples,
                    &rule.to_string(),
                );
            }
            if networks * sets > 1 {
                let error = rule.split(seed, &vec![0; n_samples], n_peers + 1).unwrap_err();
                assert_eq!(error, SplitError::UnevenGroups { n_peers: n_peers + 1, networks, sets });
            }
        }
    }

    #[test]
    fn range_and_class_follow_their_formulas() {
        let split = SplitRule::Range.split(0, &[0; 10], 3).unwrap();
        assert_eq!(split.peers, [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8, 9]]);
        let split = SplitRule::Class.split(0, &[0, 1, 2, 0, 1, 2], 2).unwrap();
        assert_eq!(split.peers, [vec![0, 2, 3, 5], vec![1, 4]]);
        let error = SplitRule::Class.split(0, &[0, 1, 2], 4).unwrap_err();
        assert_eq!(error, SplitError::TooFewClasses { n_classes: 3, n_peers: 4 });
        assert_eq!(SplitRule::Random.split(0, &[0], 0), Err(SplitError::NoPeers));
        assert_ne!(SplitRule::Random.split(0, &[0; 50], 2), SplitRule::Random.split(1, &[0; 50], 2));
    }

    #[test]
    fn splits_are_frozen() {
        // Peers of different releases must agree on who owns what: a change here parts them.
        let labels = [0, 0, 0, 1, 1, 1, 1];
        let peers = |rule: SplitRule| rule.split(42, &labels, 2).unwrap().peers;
        let rules = [SplitRule::Random, SplitRule::Equal, SplitRule::Groups { networks: 1, sets: 2 }];
        assert_eq!(
            rules.map(peers),
            [
                vec![vec![1, 2, 3, 4], vec![0, 5, 6]],
                vec![vec![0, 5, 6], vec![1, 3, 4]],
                vec![vec![1, 2, 3, 4], vec![0, 5, 6]]
            ]
        );
    }

    #[test]
    fn rules_are_written_as_words() {
        for text in ["class", "equal", "equal-spread", "groups:3:5", "random", "range"] {
            let rule: SplitRule = text.parse().unwrap();
            let json = serde_json::to_string(&rule).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<SplitRule>(&json).unwrap(), rule);
            assert!(RULES.contains(&text.split(':').next().unwrap()));
        }
        for (text, answer) in [
            ("randm", "Did you mean `random`?"),
            ("groups", "groups:NETWORKS:SETS"),
            ("groups:0:1", "groups:NETWORKS:SETS"),
            ("groups:2:2:2", "one word too many"),
            ("range:1", "one word too many"),
        ] {
            let error = text.parse::<SplitRule>().unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
    }
}
