//! Members that own their samples: each share is cut into batches and spread over the rounds of the epoch.

use super::plan::MemberPlan;
use super::rounds::RoundRule;
use nettorrent_engine::data::batches::{BatchError, BatchRule, Order};
use nettorrent_engine::rng::mix;

/// How shares become batches.
pub(super) struct ShareRule<'a> {
    pub labels: &'a [u32],
    pub batches: &'a BatchRule,
    pub rule: &'a RoundRule,
    pub seed: u64,
    pub epoch: u64,
}

impl ShareRule<'_> {
    /// The rounds of members with these shares. What cannot be balanced is shuffled.
    pub(super) fn rounds(&self, shares: Vec<Vec<usize>>) -> Vec<MemberPlan> {
        let sizes = self.batch_sizes(&shares);
        let shuffled = BatchRule { order: Order::Shuffled, ..self.batches.clone() };
        let batches = shares.iter().zip(&sizes).enumerate().map(|(rank, (share, &size))| {
            self.share_batches(self.batches, share, rank, size)
                .or_else(|_| self.share_batches(&shuffled, share, rank, size))
                // Only batches of no samples cannot be shuffled, and with those no run starts.
                .unwrap_or_default()
        });
        let batches: Vec<Vec<Vec<usize>>> = batches.collect();
        let n_steps = batches.iter().map(Vec::len).max().unwrap_or(0);
        let own = sizes.iter().sum::<usize>() as f64 / sizes.len().max(1) as f64;
        let ends = self.rule.round_ends(self.epoch, n_steps, own, sizes.len());
        shares.into_iter().zip(batches).map(|(share, batches)| spread(share, batches, &ends)).collect()
    }

    /// How many batches each share has, or why it cannot be cut into any.
    pub(super) fn check(&self, shares: &[Vec<usize>]) -> Result<Vec<usize>, BatchError> {
        let sizes = self.batch_sizes(shares);
        let batches = shares.iter().zip(sizes).enumerate();
        batches.map(|(rank, (share, size))| Ok(self.share_batches(self.batches, share, rank, size)?.len())).collect()
    }

    /// How many samples of its share each member trains in a step: if a batch is the whole swarm's, in proportion to its share.
    fn batch_sizes(&self, shares: &[Vec<usize>]) -> Vec<usize> {
        let (batch, n_all) = (self.batches.batch_size, shares.iter().map(Vec::len).sum::<usize>().max(1));
        let of = |share: &Vec<usize>| match self.rule.scale.shares_batch() && batch > 0 {
            true => ((batch as f64 * share.len() as f64 / n_all as f64).round() as usize).max(1),
            false => batch,
        };
        shares.iter().map(of).collect()
    }

    /// Each member has a stream of its own, for under `groups` some hold the same samples. The first one's is the run's own, so
    /// that a swarm of one trains as one machine does.
    fn share_batches(
        &self,
        rule: &BatchRule,
        share: &[usize],
        rank: usize,
        batch_size: usize,
    ) -> Result<Vec<Vec<usize>>, BatchError> {
        let seed = self.seed ^ mix(rank as u64);
        let cut =
            |batch_size| BatchRule { batch_size, ..rule.clone() }.epoch_batches(share, self.labels, seed, self.epoch);
        match cut(batch_size) {
            // A member's part of a batch may be too small to be balanced, where the whole is not.
            Err(BatchError::Uneven { nearest, .. }) if batch_size != rule.batch_size => cut(nearest),
            result => result,
        }
    }
}

/// A member's batches over all steps of the epoch, as evenly as can be, in rounds that end after so many steps.
fn spread(share: Vec<usize>, batches: Vec<Vec<usize>>, ends: &[usize]) -> MemberPlan {
    let mut batched = batches.concat();
    batched.sort_unstable();
    let mut left_out = share;
    left_out.retain(|sample| batched.binary_search(sample).is_err());
    let mut member = MemberPlan { left_out, ..MemberPlan::default() };
    let (n_batches, n_steps) = (batches.len(), ends.last().copied().unwrap_or(0));
    let mut batches = batches.into_iter().enumerate().peekable();
    for &end in ends {
        let mut of_round = Vec::new();
        while let Some((_, batch)) = batches.next_if(|(k, _)| k * n_steps / n_batches.max(1) < end) {
            of_round.push(batch);
        }
        member.push_round(of_round);
    }
    member
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn few_batches_are_spread_over_all_rounds() {
        let batches: Vec<Vec<usize>> = (0..3).map(|k| vec![k]).collect();
        let member = spread(vec![0, 1, 2, 9], batches, &[2, 4, 6, 8, 10, 12]);
        assert_eq!(member.until, [1, 1, 2, 2, 3, 3]);
        assert_eq!(member.left_out, [9]);
    }
}
