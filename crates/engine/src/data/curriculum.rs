//! Which samples are trained by whom, each once per epoch, while members come and go: a pure function of a ledger.
//!
//! At the start of an epoch the samples are shared out by the rule, and each member's share is cut into batches. When the
//! members change, those who are there share what the earlier ones have left, and so on until nothing is.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::batches::{BatchError, BatchRule, Order};
use super::ledger::{Ledger, Limits, Segment};
use super::plan::{Counts, MemberPlan, Plan};
use super::split::{Split, SplitError, SplitRule};
use crate::rng::mix;

/// How many plans are remembered. Peers of one process ask for the same one; while members change, some still ask for the
/// one before.
const N_KNOWN: usize = 4;
/// How many segments of an epoch are believed. Each costs a pass over the samples, so there must be a limit; and a swarm
/// that changes a thousand times within an epoch gets nowhere.
const MOST_SEGMENTS: usize = 1024;

/// How samples are shared out and in which order they are trained. Peers that train together need the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who gets what.
    pub split: SplitRule,
    /// How often that is decided anew.
    pub resplit: Resplit,
    /// How a member's share becomes batches.
    pub batches: BatchRule,
    /// Where all randomness comes from.
    pub seed: u64,
}

/// How often samples are shared out anew while the members stay the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resplit {
    /// For every epoch: a member sees other samples each time.
    Epoch,
    /// Once: as long as nobody comes or goes, a member sees only its own samples.
    #[default]
    Run,
}

/// Why a run cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurriculumError {
    /// The samples cannot be shared out.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A share cannot be cut into batches.
    #[error(transparent)]
    Batches(#[from] BatchError),
    /// A peer would have nothing to do.
    #[error(
        "peer {rank} of {n_peers} would have no batch, because its {n_samples} samples do not fill one of {batch_size}; \
         use smaller batches, last = \"keep\" or fewer peers"
    )]
    NoBatch {
        /// Its place among them, counted from 0.
        rank: usize,
        /// How many they are.
        n_peers: usize,
        /// How many samples it has.
        n_samples: usize,
        /// How many a batch has.
        batch_size: usize,
    },
}

/// What the first epoch of a run looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Samples that the rule gives to nobody.
    pub n_dropped: usize,
    /// Batches of the peer that has the fewest.
    pub fewest_batches: usize,
    /// Batches of the peer that has the most.
    pub most_batches: usize,
}

/// Who trains what, for any ledger. Peers of one process share one.
///
/// ```
/// use nettorrent_engine::data::batches::BatchRule;
/// use nettorrent_engine::data::curriculum::{Curriculum, Resplit, Rules};
/// use nettorrent_engine::data::ledger::Ledger;
/// use nettorrent_engine::data::split::SplitRule;
/// let rules =
///     Rules { split: SplitRule::Random, resplit: Resplit::Run, batches: BatchRule::shuffled(2), seed: 1 };
/// let curriculum = Curriculum::new([0; 20].into(), rules);
/// let mut ledger = Ledger::new(vec![7, 8]); // two peers share 20 samples in batches of 2,
/// assert_eq!(curriculum.plan(&ledger).n_batches(0), 5);
/// ledger.segments[0].done = vec![3, 3]; // train three batches each,
/// let ledger = ledger.next_segment(&curriculum, vec![7, 8, 9, 10]); // and are joined by two others.
/// assert_eq!((ledger.epoch, curriculum.plan(&ledger).n_samples_left()), (0, 8));
/// ```
pub struct Curriculum {
    labels: Arc<[u32]>,
    rules: Rules,
    /// Plans are pure functions of ledgers, so it does not matter who computed one; the latest asked for is last.
    known: Mutex<Vec<Known>>,
}

/// A plan, and what it was computed from: what was done before, but not what has been done of it.
struct Known {
    epoch: u64,
    before: Vec<Segment>,
    n_members: usize,
    plan: Arc<Plan>,
}

impl Known {
    /// Whether this is the plan of a ledger's first `n_segments` segments.
    fn is_for(&self, ledger: &Ledger, n_segments: usize) -> bool {
        self.epoch == ledger.epoch
            && self.before.len() + 1 == n_segments
            && self.n_members == ledger.segments[n_segments - 1].members.len()
            && self.before == ledger.segments[..n_segments - 1]
    }
}

impl Curriculum {
    /// For samples with these labels.
    pub fn new(labels: Arc<[u32]>, rules: Rules) -> Self {
        Self { labels, rules, known: Mutex::default() }
    }

    /// Whether a run can start with this many peers: whether the rules can be applied, and everybody has something to do.
    pub fn check(&self, n_peers: usize) -> Result<Report, CurriculumError> {
        let split = self.rules.split.split(self.split_seed(0), &self.labels, n_peers)?;
        let mut n_batches = Vec::with_capacity(n_peers);
        for (rank, share) in split.peers.iter().enumerate() {
            let batches = self.epoch_batches(&self.rules.batches, share, rank, 0)?;
            if batches.is_empty() {
                let (n_samples, batch_size) = (share.len(), self.rules.batches.batch_size);
                return Err(CurriculumError::NoBatch { rank, n_peers, n_samples, batch_size });
            }
            n_batches.push(batches.len());
        }
        let fewest_batches = n_batches.iter().copied().min().unwrap_or(0);
        let most_batches = n_batches.iter().copied().max().unwrap_or(0);
        Ok(Report { n_dropped: split.dropped.len(), fewest_batches, most_batches })
    }

    /// How much a ledger of a run of so many epochs and at most so many members may say.
    pub fn limits(&self, n_epochs: u64, n_members: usize) -> Limits {
        let (n_samples, batch_size) = (self.labels.len(), self.rules.batches.batch_size.max(1));
        let n_batches = match self.rules.batches.order {
            Order::Balanced | Order::Shuffled => n_samples.div_ceil(batch_size),
            // Scarce classes come again and again, but the commonest only once, with at least one sample in each batch.
            Order::BalancedRepeat => n_samples,
        };
        let n_batches = n_batches.try_into().unwrap_or(u32::MAX);
        Limits { n_epochs, n_segments: MOST_SEGMENTS, n_members, n_batches }
    }

    /// The plan of a ledger's last segment; what has been done of it does not matter. A ledger from outside is to be
    /// [checked](Ledger::check) first.
    ///
    /// Where the rules cannot be applied to what is left, because there are too few samples or too many members, samples are
    /// dealt in turn, and batches that cannot be balanced are shuffled ones.
    pub fn plan(&self, ledger: &Ledger) -> Arc<Plan> {
        // Held while the plan is computed: others who want it wait for it rather than compute it too.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let n_segments = ledger.segments.len();
        let place = |n: usize| known.iter().position(|known| known.is_for(ledger, n)).map(|place| (n, place));
        let plan = match (1..=n_segments).rev().find_map(place) {
            Some((n, place)) if n == n_segments => {
                let found = known.remove(place);
                let plan = found.plan.clone();
                known.push(found);
                return plan;
            }
            Some((n, place)) => self.continued(ledger, n, Some(known[place].plan.clone())),
            None => self.continued(ledger, 0, None),
        };
        if known.len() == N_KNOWN {
            known.remove(0);
        }
        if let Some((last, before)) = ledger.segments.split_last() {
            let (epoch, before, n_members) = (ledger.epoch, before.to_vec(), last.members.len());
            known.push(Known { epoch, before, n_members, plan: plan.clone() });
        }
        plan
    }

    /// Whether a ledger leaves samples of its epoch to be trained.
    pub(super) fn has_left(&self, ledger: &Ledger) -> bool {
        let plan = self.plan(ledger);
        ledger
            .segments
            .last()
            .is_some_and(|last| (0..plan.n_members()).any(|rank| !plan.left_by(rank, done(last, rank)).is_empty()))
    }

    /// The plan of a ledger's last segment, from that of its first `n_planned` segments.
    fn continued(&self, ledger: &Ledger, n_planned: usize, mut plan: Option<Arc<Plan>>) -> Arc<Plan> {
        for n in n_planned..ledger.segments.len() {
            let left = match &plan {
                None => (0..self.labels.len()).collect(),
                Some(plan) => self.left(plan, &ledger.segments[n - 1]),
            };
            plan = Some(Arc::new(self.share_out(ledger.epoch, &left, ledger.segments[n].members.len())));
        }
        plan.unwrap_or_else(|| Arc::new(self.share_out(ledger.epoch, &[], 0)))
    }

    /// What a segment's members left of their shares, each sample once and in order.
    fn left(&self, plan: &Plan, segment: &Segment) -> Vec<usize> {
        let mut is_left = vec![false; self.labels.len()];
        for rank in 0..plan.n_members() {
            plan.left_by(rank, done(segment, rank)).into_iter().for_each(|sample| is_left[sample] = true);
        }
        (0..is_left.len()).filter(|&sample| is_left[sample]).collect()
    }

    fn share_out(&self, epoch: u64, left: &[usize], n_members: usize) -> Plan {
        let labels: Vec<u32> = left.iter().map(|&sample| self.labels[sample]).collect();
        let split = self.rules.split.split(self.split_seed(epoch), &labels, n_members);
        let Split { peers, dropped } = split.unwrap_or_else(|_| dealt(left.len(), n_members));
        let members = peers.into_iter().enumerate().map(|(rank, places)| {
            let share: Vec<usize> = places.into_iter().map(|place| left[place]).collect();
            self.member_plan(share, rank, epoch)
        });
        let n_before = self.labels.len() - left.len();
        let counts = Counts { n_left: left.len(), n_before, n_dropped: dropped.len() };
        Plan::new(members.collect(), counts)
    }

    fn member_plan(&self, share: Vec<usize>, rank: usize, epoch: u64) -> MemberPlan {
        let shuffled = BatchRule { order: Order::Shuffled, ..self.rules.batches.clone() };
        let batches = self
            .epoch_batches(&self.rules.batches, &share, rank, epoch)
            .or_else(|_| self.epoch_batches(&shuffled, &share, rank, epoch))
            // Only batches of no samples cannot be shuffled, and with those no run starts.
            .unwrap_or_default();
        let mut batched = batches.concat();
        batched.sort_unstable();
        let mut left_out = share;
        left_out.retain(|sample| batched.binary_search(sample).is_err());
        MemberPlan { batches, left_out }
    }

    /// Each member has a stream of its own, for under `groups` some hold the same samples. The first one's is the run's
    /// own, so that a swarm of one trains as one machine does.
    fn epoch_batches(
        &self,
        rule: &BatchRule,
        share: &[usize],
        rank: usize,
        epoch: u64,
    ) -> Result<Vec<Vec<usize>>, BatchError> {
        rule.epoch_batches(share, &self.labels, self.rules.seed ^ mix(rank as u64), epoch)
    }

    fn split_seed(&self, epoch: u64) -> u64 {
        match self.rules.resplit {
            Resplit::Run => self.rules.seed,
            Resplit::Epoch => mix(self.rules.seed ^ mix(epoch)),
        }
    }
}

/// How much a member has done. A ledger that was checked says so of each.
fn done(segment: &Segment, rank: usize) -> u32 {
    segment.done.get(rank).copied().unwrap_or(0)
}

/// Samples dealt to the members in turn; some may get none.
fn dealt(n_samples: usize, n_members: usize) -> Split {
    let peers = (0..n_members).map(|rank| (rank..n_samples).step_by(n_members).collect()).collect();
    Split { peers, dropped: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Curriculum, CurriculumError, N_KNOWN, Plan, Resplit, Rules};
    use crate::data::batches::{BatchError, BatchRule, LastBatch, Order};
    use crate::data::ledger::{Ledger, Segment};
    use crate::data::split::{SplitError, SplitRule};
    use crate::rng::Rng;

    const SPLITS: [SplitRule; 7] = [
        SplitRule::Class,
        SplitRule::Equal,
        SplitRule::EqualSpread,
        SplitRule::Groups { networks: 2, sets: 1 },
        SplitRule::Groups { networks: 2, sets: 2 },
        SplitRule::Random,
        SplitRule::Range,
    ];

    fn curriculum(labels: &[u32], split: SplitRule, resplit: Resplit, batches: BatchRule, seed: u64) -> Curriculum {
        Curriculum::new(labels.into(), Rules { split, resplit, batches, seed })
    }

    fn plain(n_samples: usize, batch_size: usize) -> Curriculum {
        let labels: Vec<u32> = (0..n_samples as u32).map(|i| i % 3).collect();
        curriculum(&labels, SplitRule::Random, Resplit::Run, BatchRule::shuffled(batch_size), 1)
    }

    fn members(n: usize) -> Vec<u64> {
        (0..n as u64).map(|i| 100 + i).collect()
    }

    fn batches(plan: &Plan, rank: usize) -> Vec<Vec<usize>> {
        (0..plan.n_batches(rank)).map(|k| plan.batch(rank, k).to_vec()).collect()
    }

    fn random<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
        choices[rng.below(choices.len())]
    }

    fn random_curriculum(rng: &mut Rng, seed: u64) -> (Curriculum, Vec<u32>) {
        let (n_samples, n_classes) = (rng.below(300) + 1, rng.below(6) + 1);
        let labels: Vec<u32> = (0..n_samples).map(|_| rng.below(n_classes) as u32).collect();
        let batches = BatchRule {
            batch_size: rng.below(12) + 1,
            order: random(rng, &[Order::Balanced, Order::BalancedRepeat, Order::Shuffled, Order::Shuffled]),
            last: random(rng, &[LastBatch::Drop, LastBatch::Keep, LastBatch::Keep]),
        };
        let (split, resplit) = (random(rng, &SPLITS), random(rng, &[Resplit::Epoch, Resplit::Run]));
        (curriculum(&labels, split, resplit, batches, seed), labels)
    }

    /// Some members do nothing, some everything, most something.
    fn random_done(rng: &mut Rng, plan: &Plan) -> Vec<u32> {
        let everyone = rng.below(4);
        let done = |rank| match everyone {
            0 => plan.n_batches(rank),
            1 if rng.below(2) == 0 => 0,
            _ => rng.below(plan.n_batches(rank) + 1),
        };
        (0..plan.n_members()).map(done).map(|done| done as u32).collect()
    }

    /// What an epoch has come to, reckoned from the plans alone.
    #[derive(Default)]
    struct Tally {
        n_trained: Vec<usize>,
        n_dropped: usize,
        n_settled_before: usize,
    }

    #[test]
    fn every_sample_is_settled_once_in_an_epoch_whoever_comes_and_goes() {
        let mut n_changes = 0;
        for seed in 0..600 {
            let mut rng = Rng::new(seed);
            let (curriculum, labels) = random_curriculum(&mut rng, seed);
            let Rules { split, batches: rule, .. } = &curriculum.rules;
            let n_samples = labels.len();
            let limits = curriculum.limits(3, 12);
            let mut ledger = Ledger::new(members(rng.below(12) + 1));
            let mut tally = Tally { n_trained: vec![0; n_samples], ..Tally::default() };
            let mut n_segments = 0;
            while ledger.epoch < 3 {
                n_segments += 1;
                assert!(n_segments < 10_000, "seed {seed}: the epoch never ends");
                let hint = format!("seed {seed}, {:?}, {ledger:?}", curriculum.rules);
                assert_eq!(ledger.check(&limits), Ok(()), "{hint}");
                let plan = curriculum.plan(&ledger);
                let last = ledger.segments.len() - 1;
                assert_eq!(plan.n_members(), ledger.segments[last].members.len(), "{hint}");
                assert_eq!(plan.n_samples_before() + plan.n_samples_left(), n_samples, "{hint}");
                assert!(plan.n_samples_before() >= tally.n_settled_before, "{hint}: samples came back");
                tally.n_settled_before = plan.n_samples_before();
                let done = random_done(&mut rng, &plan);
                for (rank, &done) in done.iter().enumerate() {
                    let batches = batches(&plan, rank);
                    let trained = batches[..done as usize].iter().flatten();
                    trained.for_each(|&sample| tally.n_trained[sample] += 1);
                    assert!(batches.iter().all(|batch| (1..=rule.batch_size).contains(&batch.len())), "{hint}");
                }
                tally.n_dropped += if done.iter().any(|&done| done > 0) { plan.n_dropped() } else { 0 };
                ledger.segments[last].done = done;
                let next = ledger.next_segment(&curriculum, members(rng.below(12) + 1));
                n_changes += usize::from(next.epoch == ledger.epoch);
                if next.epoch != ledger.epoch {
                    assert_eq!((next.epoch, next.segments.len()), (ledger.epoch + 1, 1), "{hint}");
                    // Nobody else would have anything to do.
                    let more = Segment::new(members(3));
                    let segments = ledger.segments.iter().cloned().chain([more]).collect();
                    assert_eq!(
                        curriculum.plan(&Ledger { epoch: ledger.epoch, segments }).n_samples_left(),
                        0,
                        "{hint}"
                    );
                    let is_group = matches!(split, SplitRule::Groups { .. });
                    let repeats = is_group || rule.order == Order::BalancedRepeat;
                    let leaves_out = rule.last == LastBatch::Drop || rule.order == Order::Balanced;
                    assert!(repeats || tally.n_trained.iter().all(|&n| n <= 1), "{hint}: trained twice");
                    let n_missed = tally.n_trained.iter().filter(|&&n| n == 0).count();
                    assert!(leaves_out || n_missed == tally.n_dropped, "{hint}: {n_missed} missed");
                    tally = Tally { n_trained: vec![0; n_samples], ..Tally::default() };
                }
                ledger = next;
            }
        }
        assert!(n_changes > 1000, "only {n_changes} changes left something to others");
    }

    #[test]
    fn the_same_ledger_gives_the_same_plan() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let (curriculum, labels) = random_curriculum(&mut rng, seed);
            let mut asked: Vec<(Ledger, Arc<Plan>)> = Vec::new();
            let mut ledger = Ledger::new(members(rng.below(9) + 1));
            for _ in 0..3 * N_KNOWN {
                let plan = curriculum.plan(&ledger);
                asked.push((ledger.clone(), plan.clone()));
                let last = ledger.segments.last_mut().unwrap();
                last.done = random_done(&mut rng, &plan);
                assert!(
                    Arc::ptr_eq(&plan, &curriculum.plan(&ledger)),
                    "what is done of it is not part of the question"
                );
                ledger = ledger.next_segment(&curriculum, members(rng.below(9) + 1));
            }
            rng.shuffle(&mut asked);
            let other = Curriculum::new(labels.into(), curriculum.rules.clone());
            for (ledger, plan) in &asked {
                assert_eq!(curriculum.plan(ledger), *plan, "seed {seed}: after others, {ledger:?}");
                assert_eq!(other.plan(ledger), *plan, "seed {seed}: by others, {ledger:?}");
            }
        }
    }

    #[test]
    fn plans_are_remembered_but_not_all() {
        let curriculum = plain(100, 5);
        let first = Ledger::new(members(2));
        let plan = curriculum.plan(&first);
        for n in 3..3 + N_KNOWN - 1 {
            curriculum.plan(&Ledger::new(members(n)));
            assert!(Arc::ptr_eq(&plan, &curriculum.plan(&first)), "it was asked for a moment ago");
        }
        for n in 3..3 + N_KNOWN {
            curriculum.plan(&Ledger::new(members(n)));
        }
        assert!(!Arc::ptr_eq(&plan, &curriculum.plan(&first)));
        assert_eq!(curriculum.known.lock().unwrap().len(), N_KNOWN);
    }

    #[test]
    fn what_went_before_is_part_of_the_question() {
        let curriculum = plain(40, 4);
        let n_left = |done| {
            let before = Segment { members: members(2), done };
            curriculum.plan(&Ledger { epoch: 0, segments: vec![before, Segment::new(members(2))] }).n_samples_left()
        };
        assert_eq!((n_left(vec![1, 2]), n_left(vec![3, 0]), n_left(vec![4, 0])), (28, 28, 24));
    }

    #[test]
    fn what_a_member_would_have_left_out_is_left_to_others_unless_it_is_through() {
        for (order, last) in [(Order::Shuffled, LastBatch::Drop), (Order::Balanced, LastBatch::Keep)] {
            // Two full batches of five, or balanced ones of four (of two classes); the rest is in none.
            let labels = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
            let batch_size = if order == Order::Balanced { 4 } else { 5 };
            let rule = BatchRule { batch_size, order, last };
            let curriculum = curriculum(&labels, SplitRule::Random, Resplit::Run, rule, 1);
            assert_eq!(curriculum.plan(&Ledger::new(members(1))).n_batches(0), 2);
            for (done, n_left) in [(0, 14), (1, 14 - batch_size), (2, 0)] {
                let before = Segment { members: members(1), done: vec![done] };
                let plan = curriculum.plan(&Ledger { epoch: 0, segments: vec![before, Segment::new(members(3))] });
                assert_eq!(
                    (plan.n_samples_left(), plan.n_samples_before()),
                    (n_left, 14 - n_left),
                    "{order:?}, {done}"
                );
            }
        }
    }

    #[test]
    fn a_swarm_of_one_trains_as_one_machine_does() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (curriculum, labels) = random_curriculum(&mut rng, seed);
            let rules = Rules { split: SplitRule::Random, ..curriculum.rules };
            let alone = Curriculum::new(labels.clone().into(), rules.clone());
            let all: Vec<usize> = (0..labels.len()).collect();
            for epoch in 0..3 {
                let expected = rules.batches.epoch_batches(&all, &labels, seed, epoch);
                let plan = alone.plan(&Ledger { epoch, segments: vec![Segment::new(members(1))] });
                assert!(expected.is_err() || expected == Ok(batches(&plan, 0)), "seed {seed}, epoch {epoch}");
            }
        }
    }

    #[test]
    fn rounds_are_counted_over_all_members() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (curriculum, _) = random_curriculum(&mut rng, seed);
            let plan = curriculum.plan(&Ledger::new(members(rng.below(9) + 1)));
            for per_round in 1..5 {
                let most = (0..plan.n_members()).map(|rank| plan.n_batches(rank)).max().unwrap();
                assert_eq!(plan.n_rounds(per_round), most.div_ceil(per_round));
                for round in 0..plan.n_rounds(per_round) + 2 {
                    let of = |rank: usize| batches(&plan, rank).into_iter().skip(round * per_round).take(per_round);
                    let expected: usize = (0..plan.n_members()).flat_map(of).map(|batch| batch.len()).sum();
                    assert_eq!(plan.samples_in_round(round * per_round, per_round), expected, "seed {seed}");
                }
            }
            assert_eq!(plan.samples_in_round(usize::MAX, usize::MAX), 0);
        }
    }

    #[test]
    fn peers_that_hold_the_same_samples_take_them_in_another_order() {
        let split = SplitRule::Groups { networks: 2, sets: 1 };
        let curriculum = curriculum(&[0; 40], split, Resplit::Run, BatchRule::shuffled(4), 5);
        let plan = curriculum.plan(&Ledger::new(members(2)));
        let [first, second] = [0, 1].map(|rank| batches(&plan, rank).concat());
        assert_ne!(first, second);
        // Both leave the same samples: they are shared out once to three, for whom the rule has no groups.
        let segments = vec![Segment { members: members(2), done: vec![9, 9] }, Segment::new(members(3))];
        let left = curriculum.plan(&Ledger { epoch: 0, segments });
        let mut left_samples: Vec<usize> = (0..3).flat_map(|rank| batches(&left, rank).concat()).collect();
        left_samples.sort_unstable();
        let mut expected = [&first[36..], &second[36..]].concat();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(left_samples, expected);
    }

    #[test]
    fn shares_stay_for_a_run_or_change_with_the_epoch() {
        let share = |resplit, epoch| {
            let curriculum = curriculum(&[0; 40], SplitRule::Random, resplit, BatchRule::shuffled(4), 5);
            let plan = curriculum.plan(&Ledger { epoch, segments: vec![Segment::new(members(2))] });
            let mut share = batches(&plan, 0).concat();
            share.sort_unstable();
            share
        };
        assert_eq!(share(Resplit::Run, 0), share(Resplit::Run, 1));
        assert_ne!(share(Resplit::Epoch, 0), share(Resplit::Epoch, 1));
    }

    #[test]
    fn what_is_too_little_for_the_rule_is_dealt_in_turn() {
        for split in SPLITS {
            let curriculum = curriculum(&[0, 1, 1, 0, 1], split, Resplit::Run, BatchRule::shuffled(2), 5);
            let plan = curriculum.plan(&Ledger::new(members(7)));
            let sizes: Vec<usize> = (0..7).map(|rank| batches(&plan, rank).concat().len()).collect();
            assert_eq!(sizes, [1, 1, 1, 1, 1, 0, 0], "{split}");
        }
    }

    #[test]
    fn a_segment_in_which_nothing_was_trained_is_forgotten() {
        let curriculum = plain(20, 2);
        let mut ledger = Ledger::new(members(1));
        for n in 2..50 {
            ledger = ledger.next_segment(&curriculum, members(n));
        }
        assert_eq!(ledger, Ledger::new(members(49)));
        ledger.segments[0].done[3] = 1;
        let ledger = ledger.next_segment(&curriculum, members(2)).next_segment(&curriculum, members(3));
        assert_eq!(ledger.segments.len(), 2);
    }

    #[test]
    fn a_run_that_cannot_start_is_refused() {
        let labels = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2];
        let check = |split, order, last, batch_size, n_peers| {
            let batches = BatchRule { batch_size, order, last };
            curriculum(&labels, split, Resplit::Run, batches, 1).check(n_peers)
        };
        let (shuffled, keep) = (Order::Shuffled, LastBatch::Keep);
        let report = check(SplitRule::Equal, shuffled, keep, 2, 3).unwrap();
        assert_eq!((report.n_dropped, report.fewest_batches, report.most_batches), (1, 2, 2));
        let report = check(SplitRule::Class, shuffled, keep, 2, 2).unwrap();
        assert_eq!((report.n_dropped, report.fewest_batches, report.most_batches), (0, 2, 4));
        let few = SplitError::TooFewClasses { n_classes: 3, n_peers: 4 };
        assert_eq!(check(SplitRule::Class, shuffled, keep, 2, 4), Err(few.into()));
        assert_eq!(check(SplitRule::Random, shuffled, keep, 2, 0), Err(SplitError::NoPeers.into()));
        assert!(matches!(check(SplitRule::Random, shuffled, keep, 2, usize::MAX), Err(CurriculumError::Split(_))));
        let uneven = check(SplitRule::Equal, Order::Balanced, keep, 4, 1);
        assert!(matches!(uneven, Err(CurriculumError::Batches(BatchError::Uneven { .. }))));
        assert_eq!(check(SplitRule::Random, shuffled, keep, 0, 2), Err(BatchError::Empty.into()));
        let none = CurriculumError::NoBatch { rank: 0, n_peers: 2, n_samples: 5, batch_size: 6 };
        assert_eq!(check(SplitRule::Random, shuffled, LastBatch::Drop, 6, 2), Err(none));
    }

    #[test]
    fn ledgers_that_nobody_checked_do_no_harm() {
        for split in SPLITS {
            let curriculum = curriculum(&[0, 1, 1, 0, 1], split, Resplit::Run, BatchRule::shuffled(2), 5);
            let segment = |members: &[u64], done: &[u32]| Segment { members: members.to_vec(), done: done.to_vec() };
            for segments in [
                vec![],
                vec![segment(&[], &[])],
                vec![segment(&[], &[1]), segment(&[1], &[])],
                vec![segment(&[1, 1], &[u32::MAX; 2]), segment(&[1], &[0])],
                vec![segment(&[1, 2], &[]), segment(&[1, 1], &[7])],
            ] {
                let ledger = Ledger { epoch: u64::MAX, segments };
                assert!(ledger.check(&curriculum.limits(10, 5)).is_err());
                curriculum.plan(&ledger);
                assert!(!ledger.next_segment(&curriculum, members(2)).segments.is_empty());
            }
        }
    }

    #[test]
    fn plans_are_frozen() {
        // Peers of different releases must agree on who trains what: a change here parts them.
        let curriculum = curriculum(&[0; 9], SplitRule::Random, Resplit::Epoch, BatchRule::shuffled(2), 42);
        let before = Segment { members: members(2), done: vec![1, 1] };
        let first = curriculum.plan(&Ledger { epoch: 3, segments: vec![Segment::new(members(2))] });
        let second = curriculum.plan(&Ledger { epoch: 3, segments: vec![before, Segment::new(members(2))] });
        let all = |plan: &Plan| [0, 1].map(|rank| batches(plan, rank));
        assert_eq!(all(&first), [vec![vec![7, 3], vec![0, 5], vec![4]], vec![vec![2, 8], vec![6, 1]]]);
        assert_eq!(all(&second), [vec![vec![0, 5], vec![4]], vec![vec![6, 1]]]);
    }
}
