//! Which samples are trained by whom, each once per epoch, while members come and go: a pure function of a ledger.
//!
//! By the usual rule all members work on one common order of the samples, that of one peer alone: every round takes the next of
//! them and deals them out, in proportion to how fast members are. By other rules each member owns a share, and trains that.
//! When the members change, those who are there share what the earlier ones have left, and so on until nothing is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::deal::Deal;
use super::ledger::{Ledger, Left, Limits, Segment};
use super::plan::{Counts, MemberPlan, Plan, Rest};
use super::rounds::{RoundLength, RoundRule};
use super::shares::ShareRule;
use crate::shared::Shared;
use nettorrent_engine::data::batches::{BatchError, BatchRule, Order};
use nettorrent_engine::data::split::{PeerShares, SplitError, SplitRule};
use nettorrent_engine::job::Resplit;
use nettorrent_engine::rng::{Rng, mix};

pub use super::rules::Rules;

/// How many plans are remembered. Peers of one process ask for the same one; while members change, some still ask for the
/// one before.
const N_KNOWN: usize = 4;
/// How many segments of an epoch are believed. Each costs a pass over the samples, so there must be a limit; and a swarm
/// that changes a thousand times within an epoch gets nowhere.
const MOST_SEGMENTS: usize = 1024;

/// Why a run cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplerError {
    /// The samples cannot be shared out.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A share cannot be cut into batches.
    #[error(transparent)]
    Batches(#[from] BatchError),
    /// A peer would have nothing to do.
    #[error(
        "{who} would have no batch, because {n_samples} samples do not fill one of {batch_size}; use a smaller batch size, \
         last = \"keep\"{}", if *n_peers > 1 { " or fewer peers" } else { "" },
        who = if *n_peers > 1 { format!("peer {rank} of {n_peers}") } else { "an epoch".to_owned() }
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

/// What an epoch of a run makes of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// By what rule they are shared out.
    pub split: SplitRule,
    /// Samples that the rule shares out.
    pub n_trained: usize,
    /// Samples that the rule gives to nobody.
    pub n_dropped: usize,
}

/// Who trains what, for any ledger. Peers of one process share one.
///
/// ```
/// use nettorrent_engine::data::batches::BatchRule;
/// use nettorrent_engine::job::Resplit;
/// use nettorrent_swarm::sampling::sampler::{Rules, Sampler};
/// use nettorrent_swarm::sampling::ledger::Ledger;
/// use nettorrent_engine::data::split::SplitRule;
/// let rules = Rules::new(SplitRule::Random, Resplit::Epoch, BatchRule::shuffled(4), 1);
/// let sampler = Sampler::new([0; 20].into(), rules);
/// let mut ledger = Ledger::new(vec![7, 8]); // two peers share 20 samples in batches of 4, so each has 2 of every batch,
/// assert_eq!(sampler.plan(&ledger).n_rounds(), 5);
/// ledger.segments[0].done = vec![3, 3].into(); // train three rounds,
/// let ledger = sampler.next_segment(&ledger, vec![7, 8, 9, 10], Vec::new()); // and are joined by two others.
/// assert_eq!((ledger.epoch, sampler.plan(&ledger).n_samples_left()), (0, 8));
/// ```
pub struct Sampler {
    labels: Arc<[u32]>,
    rules: Rules,
    held_out: Arc<[usize]>,
    /// Plans are pure functions of ledgers, so it does not matter who computed one.
    cache: Mutex<Cache>,
}

/// What was computed before.
#[derive(Default)]
struct Cache {
    /// The latest asked for is last.
    plans: Vec<Known>,
    /// An epoch and its common order.
    order: Option<(u64, Arc<Vec<Vec<usize>>>)>,
}

/// A plan, and what it was computed from: what was done before, but not what has been done of it.
struct Known {
    epoch: u64,
    start: u32,
    before: Vec<Segment>,
    n_members: usize,
    speeds: Shared<u16>,
    rounds: u32,
    plan: Arc<Plan>,
}

impl Known {
    /// Whether this is the plan of a ledger's first `n_segments` segments.
    fn is_for(&self, ledger: &Ledger, n_segments: usize) -> bool {
        let last = &ledger.segments[n_segments - 1];
        (self.epoch, self.start, self.before.len() + 1) == (ledger.epoch, ledger.start, n_segments)
            && (self.n_members, self.rounds) == (last.members.len(), last.rounds)
            && self.speeds == last.speeds
            && self.before == ledger.segments[..n_segments - 1]
    }
}

impl Sampler {
    /// For samples with these labels.
    pub fn new(labels: Arc<[u32]>, rules: Rules) -> Self {
        let mut held_out: Vec<usize> = Vec::new();
        if rules.n_held_out > 0 {
            held_out = (0..labels.len()).collect();
            Rng::stream(rules.seed, "validation", 0).shuffle(&mut held_out);
            held_out.truncate(rules.n_held_out);
            held_out.sort_unstable();
        }
        Self { labels, rules, held_out: held_out.into(), cache: Mutex::default() }
    }

    /// The samples that nobody trains, because peers are judged by them.
    pub fn held_out(&self) -> &Arc<[usize]> {
        &self.held_out
    }

    /// Whether in an epoch the work is dealt out again and again, by how fast members are.
    pub fn follows_speed(&self, epoch: u64) -> bool {
        self.rules.follows_speed(epoch)
    }

    /// How many of so many members train in an epoch; if not all, the first ones.
    pub fn n_trainers(&self, epoch: u64, n_members: usize) -> usize {
        self.rules.n_trainers(epoch, n_members)
    }

    /// How many steps a member takes by itself in a round of a plan, in the mean.
    pub fn local_steps(&self, plan: &Plan, round: usize) -> f64 {
        let step = self.rules.rounds.scale.step_samples(self.rules.batches.batch_size, plan.n_members());
        plan.samples_in(round) as f64 / step.max(1) as f64
    }

    /// How many samples a batch of the job has.
    pub fn batch_size(&self) -> usize {
        self.rules.batches.batch_size
    }

    /// How many batches an epoch has, as one machine counts.
    pub fn n_batches(&self, epoch: u64) -> usize {
        self.order(epoch, &mut self.cache()).len()
    }

    /// Whether more of an epoch is done than it has batches, so that the ledger is of other samples or another batch size: how many batches
    /// are done at least, and how many there are.
    pub fn overrun(&self, ledger: &Ledger) -> Option<(usize, usize)> {
        let n_rounds = |segment: &Segment| segment.done.iter().copied().max().unwrap_or(0) as usize;
        let n_done = ledger.start as usize + ledger.segments.iter().map(n_rounds).sum::<usize>();
        if n_done == 0 || !self.rules.has_common_order(ledger.epoch) {
            return None;
        }
        let n_batches = self.n_batches(ledger.epoch);
        (n_done > n_batches).then_some((n_done, n_batches))
    }

    /// Whether a run can start with this many peers: whether the rules can be applied, and everybody has something to do.
    pub fn check(&self, n_peers: usize) -> Result<Report, SamplerError> {
        // If the first epochs have a common order, it is enough that the others can be trained.
        let (trained, epoch) = (self.trained(), self.rules.warmup.epochs);
        let labels: Vec<u32> = trained.iter().map(|&sample| self.labels[sample]).collect();
        let PeerShares { peers, dropped } = self.rules.split.split(self.split_seed(epoch), &labels, n_peers)?;
        let n_dropped = dropped.len();
        let report = Report { split: self.rules.split, n_trained: trained.len() - n_dropped, n_dropped };
        if self.rules.has_common_order(epoch) {
            let order = self.rules.batches.epoch_batches(&trained, &self.labels, self.rules.seed, epoch)?;
            if order.is_empty() {
                let (n_samples, batch_size) = (trained.len(), self.rules.batches.batch_size);
                return Err(SamplerError::NoBatch { rank: 0, n_peers, n_samples, batch_size });
            }
            return Ok(report);
        }
        let shares: Vec<Vec<usize>> = peers.iter().map(|places| places.iter().map(|&k| trained[k]).collect()).collect();
        let n_batches = self.share_rule(&self.rules.rounds_of(epoch), epoch).check(&shares)?;
        if let Some(rank) = n_batches.iter().position(|&n| n == 0) {
            let (n_samples, batch_size) = (shares[rank].len(), self.rules.batches.batch_size);
            return Err(SamplerError::NoBatch { rank, n_peers, n_samples, batch_size });
        }
        Ok(report)
    }

    /// How much a ledger of a run of so many epochs and at most so many members may say.
    pub fn limits(&self, n_epochs: u64, n_members: usize) -> Limits {
        // No batch is empty; where scarce classes come again and again, the commonest comes once, with at least one sample in each.
        let n_rounds = self.labels.len().try_into().unwrap_or(u32::MAX);
        Limits { n_epochs, n_segments: MOST_SEGMENTS, n_members, n_rounds }
    }

    /// A segment of these members, who are this fast.
    pub fn segment(&self, epoch: u64, members: Vec<u64>, speeds: Vec<u16>) -> Segment {
        let mut segment = Segment::new(members);
        let rule = self.rules.rounds_of(epoch);
        if !self.follows_speed(epoch) || segment.members.len() < 2 {
            return segment;
        }
        segment.rounds = match (rule.length, speeds.is_empty()) {
            (RoundLength::Epoch, _) => 0,
            // As long as nobody knows how fast the others are, little is dealt out.
            (_, true) => 1,
            (RoundLength::Batches(1), false) => rule.redeal,
            (RoundLength::Auto | RoundLength::Batches(_) | RoundLength::Samples(_), false) => 1,
        };
        Segment { speeds: speeds.into(), ..segment }
    }

    /// The plan of a ledger's last segment; what has been done of it does not matter. A ledger from outside is to be
    /// [checked](Ledger::check) first.
    ///
    /// Where the rules cannot be applied to what is left, because there are too few samples or too many members, samples are
    /// dealt in turn, and batches that cannot be balanced are shuffled ones.
    pub fn plan(&self, ledger: &Ledger) -> Arc<Plan> {
        // Held while the plan is computed: others who want it wait for it rather than compute it too.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let n_segments = ledger.segments.len();
        let place = |n: usize| cache.plans.iter().position(|known| known.is_for(ledger, n)).map(|place| (n, place));
        let plan = match (1..=n_segments).rev().find_map(place) {
            Some((n, place)) if n == n_segments => {
                let found = cache.plans.remove(place);
                let plan = found.plan.clone();
                cache.plans.push(found);
                return plan;
            }
            Some((n, place)) => {
                let plan = cache.plans[place].plan.clone();
                self.continued(ledger, n, Some(plan), &mut cache)
            }
            None => self.continued(ledger, 0, None, &mut cache),
        };
        if cache.plans.len() == N_KNOWN {
            cache.plans.remove(0);
        }
        if let Some((last, before)) = ledger.segments.split_last() {
            let Ledger { epoch, start, .. } = *ledger;
            let Segment { ref members, ref speeds, rounds, .. } = *last;
            let (before, n_members, speeds) = (before.to_vec(), members.len(), speeds.clone());
            cache.plans.push(Known { epoch, start, before, n_members, speeds, rounds, plan: plan.clone() });
        }
        plan
    }

    /// The ledger that follows on another from the moment on from which these are the members, or are this fast.
    ///
    /// If samples of the epoch are left, they share these in another segment; else another epoch begins. Segments of which nothing is
    /// left are forgotten, and so is a last one in which nothing was trained: the ledger does not grow while all goes well.
    #[must_use]
    pub fn next_segment(&self, ledger: &Ledger, members: Vec<u64>, speeds: Vec<u16>) -> Ledger {
        let left = self.left(ledger);
        let segment = self.segment(ledger.epoch_with(left), members, speeds);
        ledger.followed_by(segment, left)
    }

    /// What a ledger leaves of its epoch to be trained.
    fn left(&self, ledger: &Ledger) -> Left {
        let plan = self.plan(ledger);
        let Some(last) = ledger.segments.last() else { return Left::Nothing };
        if !self.rules.has_common_order(ledger.epoch) {
            let has_left = (0..plan.n_members()).any(|rank| !plan.left_by(rank, done(last, rank)).is_empty());
            return if has_left { Left::Some } else { Left::Nothing };
        }
        let Rest { from, early } = plan.rest(&last.done);
        let n_batches = self.order(ledger.epoch, &mut self.cache()).len();
        match (early.is_empty(), from < n_batches) {
            (true, false) => Left::Nothing,
            (true, true) => Left::From(from as u32),
            (false, _) => Left::Some,
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of a ledger's last segment, from that of its first `n_planned` segments.
    fn continued(
        &self,
        ledger: &Ledger,
        n_planned: usize,
        mut plan: Option<Arc<Plan>>,
        cache: &mut Cache,
    ) -> Arc<Plan> {
        let has_common_order = self.rules.has_common_order(ledger.epoch);
        for n in n_planned..ledger.segments.len() {
            let before = plan.as_deref().map(|plan| (plan, &ledger.segments[n - 1]));
            let segment = &ledger.segments[n];
            plan = Some(Arc::new(if has_common_order {
                let rest = before.map(|(plan, last)| plan.rest(&last.done));
                let rest = rest.unwrap_or(Rest { from: ledger.start as usize, early: Vec::new() });
                self.deal(ledger.epoch, rest, segment, cache)
            } else {
                let left = before.map_or_else(|| self.trained(), |(plan, last)| self.left_of_shares(plan, last));
                self.share_out(ledger.epoch, &left, segment.members.len())
            }));
        }
        plan.unwrap_or_else(|| Arc::new(self.share_out(ledger.epoch, &[], 0)))
    }

    /// The samples that are trained, in order.
    fn trained(&self) -> Vec<usize> {
        (0..self.labels.len()).filter(|sample| self.held_out.binary_search(sample).is_err()).collect()
    }

    /// The epoch's batches, as one peer alone trains them.
    fn order(&self, epoch: u64, cache: &mut Cache) -> Arc<Vec<Vec<usize>>> {
        if let Some((known, order)) = &cache.order
            && *known == epoch
        {
            return order.clone();
        }
        let (trained, rule) = (self.trained(), &self.rules.batches);
        let shuffled = BatchRule { order: Order::Shuffled, ..rule.clone() };
        let cut = |rule: &BatchRule| rule.epoch_batches(&trained, &self.labels, self.rules.seed, epoch);
        // Only batches of no samples cannot be shuffled, and with those no run starts.
        let order = Arc::new(cut(rule).or_else(|_| cut(&shuffled)).unwrap_or_default());
        cache.order = Some((epoch, order.clone()));
        order
    }

    fn deal(&self, epoch: u64, mut rest: Rest, segment: &Segment, cache: &mut Cache) -> Plan {
        let order = self.order(epoch, cache);
        rest.from = rest.from.min(order.len());
        let n_all: usize = order.iter().map(Vec::len).sum();
        let n_left = rest.early.len() + order[rest.from..].iter().map(Vec::len).sum::<usize>();
        let n_members = segment.members.len();
        let deal = Deal {
            epoch,
            order: &order,
            batches: &self.rules.batches,
            rule: &self.rules.rounds_of(epoch),
            n_members: self.rules.n_trainers(epoch, n_members),
            speeds: &segment.speeds,
            most_rounds: segment.rounds,
        };
        let (mut members, dealt) = deal.out(rest);
        // Who waits has as many rounds, with nothing in them.
        members.resize(n_members, MemberPlan { until: vec![0; dealt.n_rounds()], ..MemberPlan::default() });
        let counts = Counts { n_left, n_before: n_all.saturating_sub(n_left), n_dropped: 0 };
        Plan::new(members, counts, Some(dealt))
    }

    /// What a segment's members left of their shares, each sample once and in order.
    fn left_of_shares(&self, plan: &Plan, segment: &Segment) -> Vec<usize> {
        let mut is_left = vec![false; self.labels.len()];
        for rank in 0..plan.n_members() {
            plan.left_by(rank, done(segment, rank)).into_iter().for_each(|sample| is_left[sample] = true);
        }
        (0..is_left.len()).filter(|&sample| is_left[sample]).collect()
    }

    fn share_out(&self, epoch: u64, left: &[usize], n_members: usize) -> Plan {
        let labels: Vec<u32> = left.iter().map(|&sample| self.labels[sample]).collect();
        let split = self.rules.split.split(self.split_seed(epoch), &labels, n_members);
        let PeerShares { peers, dropped } = split.unwrap_or_else(|_| dealt(left.len(), n_members));
        let share = |places: Vec<usize>| places.into_iter().map(|place| left[place]).collect();
        let members =
            self.share_rule(&self.rules.rounds_of(epoch), epoch).rounds(peers.into_iter().map(share).collect());
        let n_before = self.labels.len() - self.held_out.len() - left.len();
        Plan::new(members, Counts { n_left: left.len(), n_before, n_dropped: dropped.len() }, None)
    }

    fn share_rule<'a>(&'a self, rule: &'a RoundRule, epoch: u64) -> ShareRule<'a> {
        let Rules { ref batches, seed, .. } = self.rules;
        ShareRule { labels: &self.labels, batches, rule, seed, epoch }
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
fn dealt(n_samples: usize, n_members: usize) -> PeerShares {
    let peers = (0..n_members).map(|rank| (rank..n_samples).step_by(n_members).collect()).collect();
    PeerShares { peers, dropped: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{N_KNOWN, Plan, Report, Rules, Sampler, SamplerError};
    use crate::sampling::ledger::{Ledger, Segment};
    use crate::sampling::rounds::{RoundLength, RoundRule};
    use nettorrent_engine::data::batches::{BatchError, BatchRule, LastBatch, Order};
    use nettorrent_engine::data::split::{SplitError, SplitRule};
    use nettorrent_engine::job::{Resplit, Warmup, WarmupRule};
    use nettorrent_engine::rng::Rng;
    use nettorrent_engine::scale::Scale;

    const SPLITS: [SplitRule; 7] = [
        SplitRule::Class,
        SplitRule::Equal,
        SplitRule::EqualSpread,
        SplitRule::Groups { networks: 2, sets: 1 },
        SplitRule::Groups { networks: 2, sets: 2 },
        SplitRule::Random,
        SplitRule::Range,
    ];

    fn sampler(labels: &[u32], split: SplitRule, resplit: Resplit, batches: BatchRule, seed: u64) -> Sampler {
        Sampler::new(labels.into(), Rules::new(split, resplit, batches, seed))
    }

    fn plain(n_samples: usize, batch_size: usize) -> Sampler {
        let labels: Vec<u32> = (0..n_samples as u32).map(|i| i % 3).collect();
        sampler(&labels, SplitRule::Random, Resplit::Run, BatchRule::shuffled(batch_size), 1)
    }

    fn members(n: usize) -> Vec<u64> {
        (0..n as u64).map(|i| 100 + i).collect()
    }

    fn batches(plan: &Plan, rank: usize) -> Vec<Vec<usize>> {
        (0..plan.n_batches(rank)).map(|k| plan.batch(rank, k).to_vec()).collect()
    }

    fn of_done(members: Vec<u64>, done: Vec<u32>) -> Segment {
        Segment { done: done.into(), ..Segment::new(members) }
    }

    fn of_segments(epoch: u64, segments: Vec<Segment>) -> Ledger {
        Ledger { epoch, start: 0, segments }
    }

    fn random<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
        choices[rng.below(choices.len())]
    }

    fn random_sampler(rng: &mut Rng, seed: u64) -> (Sampler, Vec<u32>) {
        let (n_samples, n_classes) = (rng.below(300) + 1, rng.below(6) + 1);
        let labels: Vec<u32> = (0..n_samples).map(|_| rng.below(n_classes) as u32).collect();
        let batches = BatchRule {
            batch_size: rng.below(12) + 1,
            order: random(rng, &[Order::Balanced, Order::BalancedRepeat, Order::Shuffled, Order::Shuffled]),
            last: random(rng, &[LastBatch::Drop, LastBatch::Keep, LastBatch::Keep]),
        };
        let (split, resplit) = (random(rng, &SPLITS), random(rng, &[Resplit::Epoch, Resplit::Run]));
        let rounds = RoundRule {
            length: random(
                rng,
                &[
                    RoundLength::Batches(1),
                    RoundLength::Batches(1),
                    RoundLength::Batches(3),
                    RoundLength::Samples(7),
                    RoundLength::Epoch,
                ],
            ),
            scale: random(rng, &[Scale::GlobalBatch, Scale::GlobalBatch, Scale::None]),
            redeal: random(rng, &[0, 1, 4]),
            overhead: random(rng, &[0, 0, 3]),
        };
        let kind = random(rng, &[Warmup::AllData, Warmup::Dense, Warmup::OnePeer]);
        let warmup = WarmupRule { kind, epochs: random(rng, &[0, 0, 1, 2]) };
        let n_held_out = random(rng, &[0, 0, n_samples / 10]);
        let rules = Rules { split, resplit, batches, rounds, warmup, n_held_out, seed };
        (Sampler::new(labels.clone().into(), rules), labels)
    }

    /// Some members do nothing, some everything, most something.
    fn random_done(rng: &mut Rng, plan: &Plan) -> Vec<u32> {
        let everyone = rng.below(4);
        let done = |_| match everyone {
            0 => plan.n_rounds(),
            1 if rng.below(2) == 0 => 0,
            _ => rng.below(plan.n_rounds() + 1),
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

    /// Speeds of all kinds, or none.
    fn random_speeds(rng: &mut Rng, n: usize) -> Vec<u16> {
        match rng.below(3) {
            0 => Vec::new(),
            1 => vec![7; n],
            _ => (0..n).map(|_| rng.below(1000) as u16).collect(),
        }
    }

    #[test]
    fn every_sample_is_trained_once_in_an_epoch_whoever_comes_and_goes() {
        let mut n_changes = 0;
        for seed in 0..600 {
            let mut rng = Rng::new(seed);
            let (sampler, labels) = random_sampler(&mut rng, seed);
            let Rules { split, batches: rule, .. } = &sampler.rules;
            let n_samples = labels.len();
            let limits = sampler.limits(3, 12);
            let mut ledger = Ledger::new(members(rng.below(12) + 1));
            let mut tally = Tally { n_trained: vec![0; n_samples], ..Tally::default() };
            let mut n_segments = 0;
            while ledger.epoch < 3 {
                n_segments += 1;
                assert!(n_segments < 10_000, "seed {seed}: the epoch never ends");
                let hint = format!("seed {seed}, {:?}, {ledger:?}", sampler.rules);
                assert_eq!(ledger.check(&limits), Ok(()), "{hint}");
                let plan = sampler.plan(&ledger);
                let last = ledger.segments.len() - 1;
                assert_eq!(plan.n_members(), ledger.segments[last].members.len(), "{hint}");
                assert!(plan.n_samples_before() >= tally.n_settled_before, "{hint}: samples came back");
                tally.n_settled_before = plan.n_samples_before();
                let done = random_done(&mut rng, &plan);
                for (rank, &done) in done.iter().enumerate() {
                    let n_done = plan.batches_in(rank, done as usize).start;
                    let batches = batches(&plan, rank);
                    batches[..n_done].iter().flatten().for_each(|&sample| tally.n_trained[sample] += 1);
                    assert!(batches.iter().all(|batch| !batch.is_empty()), "{hint}");
                }
                tally.n_dropped += if done.iter().any(|&done| done > 0) { plan.n_dropped() } else { 0 };
                ledger.segments[last].done = done.into();
                let n_members = rng.below(12) + 1;
                let next = sampler.next_segment(&ledger, members(n_members), random_speeds(&mut rng, n_members));
                n_changes += usize::from(next.epoch == ledger.epoch);
                if next.epoch != ledger.epoch {
                    assert_eq!((next.epoch, next.start, next.segments.len()), (ledger.epoch + 1, 0, 1), "{hint}");
                    // Nobody else would have anything to do.
                    let more = Segment::new(members(3));
                    let segments = ledger.segments.iter().cloned().chain([more]).collect();
                    let after = Ledger { epoch: ledger.epoch, start: ledger.start, segments };
                    assert_eq!(sampler.plan(&after).n_samples_left(), 0, "{hint}");
                    let is_group = matches!(split, SplitRule::Groups { .. });
                    let repeats = is_group || rule.order == Order::BalancedRepeat;
                    let leaves_out = rule.last == LastBatch::Drop || rule.order == Order::Balanced;
                    assert!(repeats || tally.n_trained.iter().all(|&n| n <= 1), "{hint}: trained twice");
                    let held_out = sampler.held_out();
                    assert!(held_out.iter().all(|&sample| tally.n_trained[sample] == 0), "{hint}: trained what judges");
                    let n_missed = tally.n_trained.iter().filter(|&&n| n == 0).count() - held_out.len();
                    assert!(leaves_out || n_missed == tally.n_dropped, "{hint}: {n_missed} missed");
                    tally = Tally { n_trained: vec![0; n_samples], ..Tally::default() };
                }
                ledger = next;
            }
        }
        assert!(n_changes > 1000, "only {n_changes} changes left something to others");
    }

    #[test]
    fn members_who_share_an_order_train_the_batches_of_one_peer_alone() {
        let labels: Vec<u32> = (0..103).map(|i| i % 3).collect();
        let rules = Rules::new(SplitRule::Random, Resplit::Epoch, BatchRule::shuffled(8), 5);
        let rounds = RoundRule { redeal: 4, ..RoundRule::alone() };
        let sampler = Sampler::new(labels.clone().into(), Rules { rounds, ..rules });
        let all: Vec<usize> = (0..labels.len()).collect();
        let mut alone = BatchRule::shuffled(8).epoch_batches(&all, &labels, 5, 0).unwrap().into_iter();
        let mut ledger = Ledger::of_segment(0, sampler.segment(0, members(3), Vec::new()));
        for (n_members, speeds, n_rounds) in
            [(3, vec![10, 1, 5], 1), (3, vec![10, 1, 5], 4), (5, vec![], 4), (2, vec![9, 9], 1)]
        {
            let plan = sampler.plan(&ledger);
            assert_eq!(plan.n_rounds(), n_rounds, "a trial round first, then a few");
            for round in 0..plan.n_rounds() {
                let of = |rank| plan.batches_in(rank, round).flat_map(|k| plan.batch(rank, k).to_vec()).collect();
                let pieces: Vec<Vec<usize>> = (0..plan.n_members()).map(of).collect();
                assert_eq!(Some(pieces.concat()), alone.next(), "round {round}");
            }
            let last = ledger.segments.last_mut().unwrap();
            last.done.fill(n_rounds as u32);
            ledger = sampler.next_segment(&ledger, members(n_members), speeds);
            assert_eq!(ledger.segments.len(), 1, "what is over is forgotten");
        }
    }

    #[test]
    fn in_a_warm_up_on_all_data_every_member_sees_every_class_and_later_its_own() {
        let labels: Vec<u32> = (0..120).map(|i| i % 4).collect();
        let rules = Rules::new(SplitRule::Class, Resplit::Epoch, BatchRule::shuffled(8), 5);
        let warmup = WarmupRule { kind: Warmup::AllData, epochs: 1 };
        let sampler = Sampler::new(labels.clone().into(), Rules { warmup, ..rules });
        for (epoch, n_classes) in [(0, 4), (1, 2)] {
            let plan = sampler.plan(&Ledger::of_segment(epoch, sampler.segment(epoch, members(2), Vec::new())));
            for rank in 0..2 {
                let mut seen: Vec<u32> = batches(&plan, rank).concat().iter().map(|&sample| labels[sample]).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), n_classes, "epoch {epoch}");
            }
        }
    }

    #[test]
    fn in_a_warm_up_by_one_peer_it_trains_what_one_machine_would_and_the_others_nothing() {
        let labels: Vec<u32> = (0..103).map(|i| i % 3).collect();
        let alone = BatchRule::shuffled(8).epoch_batches(&(0..103).collect::<Vec<_>>(), &labels, 5, 0).unwrap();
        for split in SPLITS {
            let rules = Rules::new(split, Resplit::Run, BatchRule::shuffled(8), 5);
            let warmup = WarmupRule { kind: Warmup::OnePeer, epochs: 1 };
            let rounds = RoundRule { redeal: 4, ..RoundRule::alone() };
            let sampler = Sampler::new(labels.clone().into(), Rules { warmup, rounds, ..rules });
            let ledger = Ledger::of_segment(0, sampler.segment(0, members(3), vec![1, 2, 3]));
            let plan = sampler.plan(&ledger);
            assert_eq!((plan.n_members(), plan.n_rounds()), (3, 1));
            assert_eq!((batches(&plan, 0), plan.n_batches(1), plan.n_batches(2)), (alone.clone(), 0, 0));
            // The one that trains is lost: another begins anew.
            let next = sampler.next_segment(&ledger, members(2), Vec::new());
            assert_eq!(batches(&sampler.plan(&next), 0), alone);
        }
    }

    #[test]
    fn who_is_faster_gets_more_and_a_round_stays_as_large() {
        let rules = Rules::new(SplitRule::Random, Resplit::Epoch, BatchRule::shuffled(31), 5);
        let rounds = RoundRule { redeal: 8, ..RoundRule::alone() };
        let sampler = Sampler::new([0; 3100].into(), Rules { rounds, ..rules });
        let plan = sampler.plan(&Ledger::of_segment(0, sampler.segment(0, members(4), vec![10, 10, 1, 10])));
        for round in 0..8 {
            assert_eq!([0, 1, 2, 3].map(|rank| plan.samples_of(rank, round)), [10, 10, 1, 10]);
            assert_eq!(plan.samples_in(round), 31);
        }
        // In a long phase it takes more steps, not longer ones.
        let rounds = RoundRule { length: RoundLength::Auto, ..rounds };
        let rules = Rules { rounds, ..sampler.rules.clone() };
        let sampler = Sampler::new([0; 3100].into(), rules);
        let plan_of =
            |epoch| sampler.plan(&Ledger::of_segment(epoch, sampler.segment(epoch, members(4), vec![10, 10, 1, 10])));
        assert_eq!(plan_of(0).samples_in(0), 31, "early phases are short");
        let plan = plan_of(4);
        assert_eq!(plan.n_rounds(), 1);
        assert_eq!([0, 2].map(|rank| plan.batches_in(rank, 0).len()), [4, 1], "of the 12 that all take together");
    }

    #[test]
    fn the_same_ledger_gives_the_same_plan() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let (sampler, labels) = random_sampler(&mut rng, seed);
            let mut asked: Vec<(Ledger, Arc<Plan>)> = Vec::new();
            let mut ledger = Ledger::new(members(rng.below(9) + 1));
            for _ in 0..3 * N_KNOWN {
                let plan = sampler.plan(&ledger);
                asked.push((ledger.clone(), plan.clone()));
                let last = ledger.segments.last_mut().unwrap();
                last.done = random_done(&mut rng, &plan).into();
                assert!(Arc::ptr_eq(&plan, &sampler.plan(&ledger)), "what is done of it is not part of the question");
                let n_members = rng.below(9) + 1;
                ledger = sampler.next_segment(&ledger, members(n_members), random_speeds(&mut rng, n_members));
            }
            rng.shuffle(&mut asked);
            let other = Sampler::new(labels.into(), sampler.rules.clone());
            for (ledger, plan) in &asked {
                assert_eq!(sampler.plan(ledger), *plan, "seed {seed}: after others, {ledger:?}");
                assert_eq!(other.plan(ledger), *plan, "seed {seed}: by others, {ledger:?}");
            }
        }
    }

    #[test]
    fn plans_are_remembered_but_not_all() {
        let sampler = plain(100, 5);
        let first = Ledger::new(members(2));
        let plan = sampler.plan(&first);
        for n in 3..3 + N_KNOWN - 1 {
            sampler.plan(&Ledger::new(members(n)));
            assert!(Arc::ptr_eq(&plan, &sampler.plan(&first)), "it was asked for a moment ago");
        }
        for n in 3..3 + N_KNOWN {
            sampler.plan(&Ledger::new(members(n)));
        }
        assert!(!Arc::ptr_eq(&plan, &sampler.plan(&first)));
        assert_eq!(sampler.cache().plans.len(), N_KNOWN);
    }

    #[test]
    fn what_went_before_is_part_of_the_question() {
        let sampler = plain(40, 4);
        let n_left = |done| {
            let before = of_done(members(2), done);
            sampler.plan(&of_segments(0, vec![before, Segment::new(members(2))])).n_samples_left()
        };
        assert_eq!((n_left(vec![1, 2]), n_left(vec![3, 0]), n_left(vec![4, 0])), (34, 34, 32));
    }

    #[test]
    fn what_a_member_would_have_left_out_is_left_to_others_unless_it_is_through() {
        for (order, last) in [(Order::Shuffled, LastBatch::Drop), (Order::Balanced, LastBatch::Keep)] {
            // Two full batches of five, or balanced ones of four (of two classes); the rest is in none.
            let labels = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
            let batch_size = if order == Order::Balanced { 4 } else { 5 };
            let rule = BatchRule { batch_size, order, last };
            let sampler = sampler(&labels, SplitRule::Random, Resplit::Run, rule, 1);
            assert_eq!(sampler.plan(&Ledger::new(members(1))).n_batches(0), 2);
            for (done, n_left) in [(0, 14), (1, 14 - batch_size), (2, 0)] {
                let before = of_done(members(1), vec![done]);
                let plan = sampler.plan(&of_segments(0, vec![before, Segment::new(members(3))]));
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
            let (sampler, labels) = random_sampler(&mut rng, seed);
            let rules = Rules { split: SplitRule::Random, n_held_out: 0, rounds: RoundRule::alone(), ..sampler.rules };
            let alone = Sampler::new(labels.clone().into(), rules.clone());
            let all: Vec<usize> = (0..labels.len()).collect();
            for epoch in 0..3 {
                let expected = rules.batches.epoch_batches(&all, &labels, seed, epoch);
                let plan = alone.plan(&of_segments(epoch, vec![Segment::new(members(1))]));
                assert!(expected.is_err() || expected == Ok(batches(&plan, 0)), "seed {seed}, epoch {epoch}");
            }
        }
    }

    #[test]
    fn rounds_are_counted_over_all_members() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (sampler, _) = random_sampler(&mut rng, seed);
            let plan = sampler.plan(&Ledger::new(members(rng.below(9) + 1)));
            for round in 0..plan.n_rounds() + 2 {
                let expected: usize = (0..plan.n_members()).map(|rank| plan.samples_of(rank, round)).sum();
                assert_eq!(plan.samples_in(round), expected, "seed {seed}");
            }
            let n_all: usize =
                (0..plan.n_members()).flat_map(|rank| batches(&plan, rank)).map(|batch| batch.len()).sum();
            assert_eq!((plan.samples_until(plan.n_rounds()), plan.samples_in(usize::MAX)), (n_all, 0));
        }
    }

    #[test]
    fn peers_that_hold_the_same_samples_take_them_in_another_order() {
        let split = SplitRule::Groups { networks: 2, sets: 1 };
        let sampler = sampler(&[0; 40], split, Resplit::Run, BatchRule::shuffled(4), 5);
        let plan = sampler.plan(&Ledger::new(members(2)));
        let [first, second] = [0, 1].map(|rank| batches(&plan, rank).concat());
        assert_ne!(first, second);
        // Both leave the same samples: they are shared out once to three, for whom the rule has no groups.
        let segments = vec![of_done(members(2), vec![18, 18]), Segment::new(members(3))];
        let left = sampler.plan(&of_segments(0, segments));
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
            let sampler = sampler(&[0; 40], SplitRule::Random, resplit, BatchRule::shuffled(4), 5);
            let plan = sampler.plan(&of_segments(epoch, vec![Segment::new(members(2))]));
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
            let sampler = sampler(&[0, 1, 1, 0, 1], split, Resplit::Run, BatchRule::shuffled(2), 5);
            let plan = sampler.plan(&Ledger::new(members(7)));
            let sizes: Vec<usize> = (0..7).map(|rank| batches(&plan, rank).concat().len()).collect();
            assert_eq!(sizes, [1, 1, 1, 1, 1, 0, 0], "{split}");
        }
    }

    #[test]
    fn a_segment_in_which_nothing_was_trained_is_forgotten() {
        let sampler = plain(20, 2);
        let mut ledger = Ledger::new(members(1));
        for n in 2..50 {
            ledger = sampler.next_segment(&ledger, members(n), Vec::new());
        }
        assert_eq!(ledger, Ledger::new(members(49)));
        ledger.segments[0].done[3] = 1;
        let ledger = sampler.next_segment(&ledger, members(2), Vec::new());
        let ledger = sampler.next_segment(&ledger, members(3), Vec::new());
        assert_eq!(ledger.segments.len(), 2);
    }

    #[test]
    fn a_run_that_cannot_start_is_refused() {
        let labels = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2];
        let check = |split, order, last, batch_size, n_peers| {
            let rules = Rules::new(split, Resplit::Run, BatchRule { batch_size, order, last }, 1);
            let rounds = RoundRule { scale: Scale::None, ..RoundRule::alone() };
            Sampler::new(labels.into(), Rules { rounds, ..rules }).check(n_peers)
        };
        let (shuffled, keep) = (Order::Shuffled, LastBatch::Keep);
        for (split, n_peers, n_dropped) in [(SplitRule::Equal, 3, 1), (SplitRule::Class, 2, 0)] {
            let report = Report { split, n_trained: 10 - n_dropped, n_dropped };
            assert_eq!(check(split, shuffled, keep, 2, n_peers), Ok(report));
        }
        let few = SplitError::TooFewClasses { n_classes: 3, n_peers: 4 };
        assert_eq!(check(SplitRule::Class, shuffled, keep, 2, 4), Err(few.into()));
        assert_eq!(check(SplitRule::Random, shuffled, keep, 2, 0), Err(SplitError::NoPeers.into()));
        assert!(matches!(check(SplitRule::Random, shuffled, keep, 2, usize::MAX), Err(SamplerError::Split(_))));
        let uneven = check(SplitRule::Equal, Order::Balanced, keep, 4, 1);
        assert!(matches!(uneven, Err(SamplerError::Batches(BatchError::Uneven { .. }))));
        assert_eq!(check(SplitRule::Random, shuffled, keep, 0, 2), Err(BatchError::Empty.into()));
        let none = SamplerError::NoBatch { rank: 0, n_peers: 2, n_samples: 5, batch_size: 6 };
        assert_eq!(check(SplitRule::Random, shuffled, LastBatch::Drop, 6, 2), Err(none));
    }

    #[test]
    fn ledgers_that_nobody_checked_do_no_harm() {
        for split in SPLITS {
            let sampler = sampler(&[0, 1, 1, 0, 1], split, Resplit::Run, BatchRule::shuffled(2), 5);
            let segment = |members: &[u64], done: &[u32]| of_done(members.to_vec(), done.to_vec());
            for segments in [
                vec![],
                vec![segment(&[], &[])],
                vec![segment(&[], &[1]), segment(&[1], &[])],
                vec![segment(&[1, 1], &[u32::MAX; 2]), segment(&[1], &[0])],
                vec![segment(&[1, 2], &[]), segment(&[1, 1], &[7])],
            ] {
                let ledger = Ledger { epoch: u64::MAX, start: 9, segments };
                assert!(ledger.check(&sampler.limits(10, 5)).is_err());
                sampler.plan(&ledger);
                assert!(!sampler.next_segment(&ledger, members(2), vec![1]).segments.is_empty());
            }
        }
    }

    #[test]
    fn plans_are_frozen() {
        // Peers of different releases must agree on who trains what: a change here parts them.
        for (resplit, n_done, first, second) in [
            (
                Resplit::Epoch,
                1,
                [vec![vec![2], vec![8], vec![0], vec![1], vec![5]], vec![vec![7], vec![3], vec![4], vec![6]]],
                [vec![vec![8], vec![0], vec![1], vec![5]], vec![vec![3], vec![4], vec![6]]],
            ),
            (
                Resplit::Run,
                2,
                [vec![vec![6], vec![2], vec![1], vec![5], vec![3]], vec![vec![4], vec![8], vec![7], vec![0]]],
                [vec![vec![0], vec![3], vec![1]], vec![vec![7], vec![5]]],
            ),
        ] {
            let sampler = sampler(&[0; 9], SplitRule::Random, resplit, BatchRule::shuffled(2), 42);
            let all = |segments| {
                let plan = sampler.plan(&of_segments(3, segments));
                [0, 1].map(|rank| batches(&plan, rank))
            };
            assert_eq!(all(vec![Segment::new(members(2))]), first);
            let before = of_done(members(2), vec![n_done; 2]);
            assert_eq!(all(vec![before, Segment::new(members(2))]), second);
        }
    }
}
