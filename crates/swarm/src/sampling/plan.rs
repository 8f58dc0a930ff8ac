//! Who trains what in a segment: round by round, the batches of each member in the order in which it trains them.

use std::ops::Range;

/// The rounds of a segment. All members have as many; in some of them a member may have nothing to train.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    members: Vec<MemberPlan>,
    /// How many samples all members together have in the rounds before the `k`th; the last is the sum of all.
    n_until: Vec<usize>,
    counts: Counts,
    /// How it was dealt out, unless members own their samples.
    dealt: Option<Dealt>,
    /// Whether every round goes on in that order where the one before ended, and none comes back to what was left earlier.
    is_in_order: bool,
}

/// What a member trains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberPlan {
    /// The samples of each step.
    pub batches: Vec<Vec<usize>>,
    /// How many of these batches belong to each round and those before it.
    pub until: Vec<usize>,
    /// What of its own share is in none of its batches, because they are to be full or balanced.
    pub left_out: Vec<usize>,
}

/// What becomes of an epoch's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub n_left: usize,
    pub n_before: usize,
    pub n_dropped: usize,
}

/// How an epoch's common order was dealt out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// Where in the order each round begins, and where the last one ends. A round of samples that were left earlier ends where it
    /// begins.
    pub positions: Vec<usize>,
    /// Samples from before that, which earlier segments left and no round of this one comes to.
    pub early: Vec<usize>,
    /// How many batches the order has.
    pub n_batches: usize,
}

/// What of an epoch's common order is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// From where on.
    pub from: usize,
    /// Samples from before that, which somebody was to train and did not.
    pub early: Vec<usize>,
}

impl Dealt {
    /// How many rounds there are.
    pub(super) fn n_rounds(&self) -> usize {
        self.positions.len() - 1
    }
}

impl MemberPlan {
    /// The next round has these batches.
    pub(super) fn push_round(&mut self, batches: impl IntoIterator<Item = Vec<usize>>) {
        self.batches.extend(batches);
        self.until.push(self.batches.len());
    }

    fn batches_in(&self, round: usize) -> Range<usize> {
        let start = if round == 0 { 0 } else { self.until[round - 1] };
        start..self.until[round]
    }
}

impl Plan {
    pub(super) fn new(members: Vec<MemberPlan>, counts: Counts, dealt: Option<Dealt>) -> Self {
        let n_rounds = members.first().map_or(0, |member| member.until.len());
        let mut n_until = vec![0; n_rounds + 1];
        for round in 0..n_rounds {
            let of_member =
                |member: &MemberPlan| -> usize { member.batches[member.batches_in(round)].iter().map(Vec::len).sum() };
            n_until[round + 1] = n_until[round] + members.iter().map(of_member).sum::<usize>();
        }
        let is_in_order =
            dealt.as_ref().is_some_and(|dealt| dealt.early.is_empty() && dealt.positions.is_sorted_by(|a, b| a < b));
        Self { members, n_until, counts, dealt, is_in_order }
    }

    /// How many members there are.
    pub fn n_members(&self) -> usize {
        self.members.len()
    }

    /// How many rounds the segment has.
    pub fn n_rounds(&self) -> usize {
        self.n_until.len() - 1
    }

    /// How many batches a member has in all rounds.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn n_batches(&self, rank: usize) -> usize {
        self.members[rank].batches.len()
    }

    /// The samples of a member's batch, in order; batches are counted over all rounds.
    ///
    /// # Panics
    /// If there is no such member, or if it has no such batch.
    pub fn batch(&self, rank: usize, k: usize) -> &[usize] {
        &self.members[rank].batches[k]
    }

    /// Which of its batches a member trains in a round; none in rounds that the segment does not have.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn batches_in(&self, rank: usize, round: usize) -> Range<usize> {
        let n_batches = self.n_batches(rank);
        if round < self.n_rounds() { self.members[rank].batches_in(round) } else { n_batches..n_batches }
    }

    /// How many samples a member trains in a round.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn samples_of(&self, rank: usize, round: usize) -> usize {
        self.batches_in(rank, round).map(|k| self.batch(rank, k).len()).sum()
    }

    /// How many samples all members together train in a round.
    pub fn samples_in(&self, round: usize) -> usize {
        self.samples_until(round.saturating_add(1)) - self.samples_until(round)
    }

    /// How many samples all members together train in the rounds before this one.
    pub(crate) fn samples_until(&self, round: usize) -> usize {
        self.n_until[round.min(self.n_rounds())]
    }

    /// What share of the epoch is done before this round: by batches, as one machine counts; where the order has been left or members
    /// own their samples, by samples.
    pub fn share_done(&self, round: usize) -> f64 {
        if let Some(Dealt { positions, n_batches, .. }) = self.dealt.as_ref().filter(|_| self.is_in_order) {
            return positions[round.min(self.n_rounds())] as f64 / (*n_batches).max(1) as f64;
        }
        let Counts { n_left, n_before, .. } = self.counts;
        let done = match self.dealt {
            Some(_) => self.samples_until(round) as f64,
            // Some may have the same samples, and some samples may be nobody's; but the rounds take them to the epoch's end.
            None => {
                n_left as f64 * self.samples_until(round) as f64 / self.samples_until(self.n_rounds()).max(1) as f64
            }
        };
        (n_before as f64 + done) / (n_before + n_left).max(1) as f64
    }

    /// How many samples of the epoch were left to train when the segment began.
    pub fn n_samples_left(&self) -> usize {
        self.counts.n_left
    }

    /// How many samples were trained, or given up, in earlier segments of the epoch.
    pub fn n_samples_before(&self) -> usize {
        self.counts.n_before
    }

    /// How many of the samples that are left the rule gives to nobody.
    pub fn n_dropped(&self) -> usize {
        self.counts.n_dropped
    }

    /// What is left of the epoch's common order when each member has trained so many rounds.
    pub(super) fn rest(&self, done: &[u32]) -> Rest {
        let Some(Dealt { positions, early, .. }) = &self.dealt else { return Rest::default() };
        let n_rounds = self.n_rounds();
        let done = |rank: usize| done.get(rank).map_or(0, |&done| (done as usize).min(n_rounds));
        // Nobody has begun the rounds from here on: they follow one another in the order.
        let reached = (0..self.n_members()).map(done).max().unwrap_or(0);
        let mut rest = Rest { from: positions[reached], early: Vec::new() };
        for round in 0..n_rounds {
            if round >= reached && positions[round + 1] > positions[round] {
                break;
            }
            for rank in (0..self.n_members()).filter(|&rank| round >= done(rank)) {
                self.batches_in(rank, round).for_each(|k| rest.early.extend(self.batch(rank, k)));
            }
        }
        rest.early.extend(early);
        rest
    }

    /// What a member that owns its samples leaves to others when it has trained its first `done` rounds: the rest of its share, or
    /// nothing if it was through.
    pub(super) fn left_by(&self, rank: usize, done: u32) -> Vec<usize> {
        let MemberPlan { batches, left_out, .. } = &self.members[rank];
        let done = self.batches_in(rank, done as usize).start;
        if done >= batches.len() {
            return Vec::new();
        }
        // Where classes repeat, a sample may be in a later batch too, and once is enough.
        let mut trained = batches[..done].concat();
        trained.sort_unstable();
        let rest = batches[done..].iter().flatten().chain(left_out).copied();
        rest.filter(|sample| trained.binary_search(sample).is_err()).collect()
    }
}
