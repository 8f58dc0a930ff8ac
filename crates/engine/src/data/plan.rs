//! Who trains what while the members stay the same: the batches of each, in the order in which it trains them.

/// The batches of all members of a segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    members: Vec<MemberPlan>,
    /// How many samples the members have in their batches before the `k`th, all together; the last is the sum of all.
    n_until: Vec<usize>,
    counts: Counts,
}

/// What becomes of a member's share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemberPlan {
    /// What it trains.
    pub batches: Vec<Vec<usize>>,
    /// What is in none of its batches, because they are to be full or balanced.
    pub left_out: Vec<usize>,
}

/// What becomes of an epoch's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub n_left: usize,
    pub n_before: usize,
    pub n_dropped: usize,
}

impl Plan {
    pub(super) fn new(members: Vec<MemberPlan>, counts: Counts) -> Self {
        let most = members.iter().map(|member| member.batches.len()).max().unwrap_or(0);
        let mut n_until = vec![0; most + 1];
        for member in &members {
            n_until[1..].iter_mut().zip(&member.batches).for_each(|(n, batch)| *n += batch.len());
        }
        for k in 0..most {
            n_until[k + 1] += n_until[k];
        }
        Self { members, n_until, counts }
    }

    /// How many members there are.
    pub fn n_members(&self) -> usize {
        self.members.len()
    }

    /// How many batches a member has. It may be none, for one of many who share what is left of an epoch.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn n_batches(&self, rank: usize) -> usize {
        self.members[rank].batches.len()
    }

    /// The samples of a member's batch, in order.
    ///
    /// # Panics
    /// If there is no such member, or if it has no such batch.
    pub fn batch(&self, rank: usize, k: usize) -> &[usize] {
        &self.members[rank].batches[k]
    }

    /// In how many rounds of so many batches the member with the most is done.
    pub fn n_rounds(&self, batches_per_round: usize) -> usize {
        (self.n_until.len() - 1).div_ceil(batches_per_round.max(1))
    }

    /// How many samples all members together train in a round of `n_batches`, from their batch `first_batch` on.
    pub fn samples_in_round(&self, first_batch: usize, n_batches: usize) -> usize {
        let n_until = |batch: usize| self.n_until[batch.min(self.n_until.len() - 1)];
        n_until(first_batch.saturating_add(n_batches)) - n_until(first_batch)
    }

    /// How many samples of the epoch are this segment's to settle.
    pub fn n_samples_left(&self) -> usize {
        self.counts.n_left
    }

    /// How many samples were settled in earlier segments of the epoch.
    pub fn n_samples_before(&self) -> usize {
        self.counts.n_before
    }

    /// How many of the samples that are left the rule gives to nobody. They count as settled.
    pub fn n_dropped(&self) -> usize {
        self.counts.n_dropped
    }

    /// What a member leaves to others when it has trained its first `done` batches: the rest of its share, or nothing if it
    /// was through.
    pub(super) fn left_by(&self, rank: usize, done: u32) -> Vec<usize> {
        let MemberPlan { batches, left_out } = &self.members[rank];
        let done = done as usize;
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
