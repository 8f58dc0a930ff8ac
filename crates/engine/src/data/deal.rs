//! An epoch's common order of samples, dealt out to the members round by round, in proportion to how fast they are.

use super::batches::BatchRule;
use super::plan::{Dealt, MemberPlan, Rest};
use super::rounds::{RoundLength, RoundRule};

/// What is dealt out, and to whom.
pub(super) struct Deal<'a> {
    /// The epoch's batches, as one peer alone would train them.
    pub order: &'a [Vec<usize>],
    pub batches: &'a BatchRule,
    pub rule: &'a RoundRule,
    pub n_members: usize,
    /// How fast each member is; empty if it is not known yet, or does not matter.
    pub speeds: &'a [u16],
    /// How many rounds are dealt out at most; 0 for as many as there are.
    pub most_rounds: u32,
}

impl Deal<'_> {
    /// Deals out what earlier segments left, and then the order from where they came to. Returns also where in the order each round
    /// begins, and what no round comes to.
    pub(super) fn out(&self, left: Rest) -> (Vec<MemberPlan>, Dealt) {
        let Self { order, batches, rule, n_members, .. } = *self;
        let step = rule.scale.step_samples(batches.batch_size, n_members.max(1));
        // How many of the order's batches make a step of all members together.
        let per_step = step.div_ceil(batches.batch_size.max(1)).max(1);
        let n_steps = self.steps(order.len().div_ceil(per_step));
        let mut members = vec![MemberPlan::default(); n_members];
        let mut shares = Shares::new(self.speeds, n_members);
        let Rest { mut from, mut early } = left;
        let (mut n_rounds, mut positions) = (0, vec![from]);
        let may_go_on = |n_rounds: u32| self.most_rounds == 0 || n_rounds < self.most_rounds;
        while n_members > 0 && may_go_on(n_rounds) && (!early.is_empty() || from < order.len()) {
            let samples = if early.is_empty() {
                let until = order.len().min(from + n_steps * per_step);
                let samples = order[from..until].concat();
                from = until;
                samples
            } else {
                let rest = early.split_off(early.len().min(n_steps * step));
                std::mem::replace(&mut early, rest)
            };
            self.deal_round(&samples, &mut shares, &mut members);
            positions.push(from);
            n_rounds += 1;
        }
        (members, Dealt { positions, early })
    }

    /// How many steps a round has. As long as nobody knows how fast the members are, rounds are short.
    fn steps(&self, per_epoch: usize) -> usize {
        let is_trial = self.most_rounds > 0 && self.speeds.is_empty();
        let own = self.rule.own_samples(self.batches, self.n_members);
        if is_trial && self.rule.length != RoundLength::Epoch { 1 } else { self.rule.steps(per_epoch, own) }
    }

    fn deal_round(&self, samples: &[usize], shares: &mut Shares, members: &mut [MemberPlan]) {
        let own = self.rule.own_samples(self.batches, self.n_members);
        let mut rest = samples;
        for (member, len) in members.iter_mut().zip(shares.of(samples.len())) {
            let (piece, others) = rest.split_at(len);
            rest = others;
            let n_steps = match self.rule.length {
                RoundLength::Batches(1) => 1,
                _ => ((len as f64 / own).round() as usize).clamp(1, len.max(1)),
            };
            member.push_round(in_parts(piece, n_steps));
        }
    }
}

/// Samples in as many parts, whose lengths differ by at most one; nothing in no part.
fn in_parts(samples: &[usize], n_parts: usize) -> impl Iterator<Item = Vec<usize>> {
    let n_parts = n_parts.min(samples.len());
    (0..n_parts).map(move |k| samples[k * samples.len() / n_parts..(k + 1) * samples.len() / n_parts].to_vec())
}

/// Whole numbers in proportion to weights; what rounding takes from one in a round, it gets in a later one.
struct Shares {
    weights: Vec<i64>,
    sum: i64,
    owed: Vec<i64>,
}

impl Shares {
    fn new(speeds: &[u16], n_members: usize) -> Self {
        let is_sound = speeds.len() == n_members && speeds.iter().any(|&speed| speed > 0);
        let weights: Vec<i64> =
            if is_sound { speeds.iter().map(|&s| i64::from(s)).collect() } else { vec![1; n_members] };
        Self { sum: weights.iter().sum(), owed: vec![0; weights.len()], weights }
    }

    /// Shares out `n` things.
    fn of(&mut self, n: usize) -> Vec<usize> {
        let mut given = Vec::with_capacity(self.weights.len());
        for (owed, weight) in self.owed.iter_mut().zip(&self.weights) {
            *owed += n as i64 * weight;
            let whole = (*owed / self.sum).max(0);
            *owed -= whole * self.sum;
            given.push(whole as usize);
        }
        // Who was given one too many owes it, so the sum may be off either way.
        let mut missing = n as i64 - given.iter().sum::<usize>() as i64;
        while missing > 0 {
            let first = (0..self.owed.len()).max_by_key(|&k| (self.owed[k], std::cmp::Reverse(k))).unwrap_or(0);
            given[first] += 1;
            self.owed[first] -= self.sum;
            missing -= 1;
        }
        while missing < 0 {
            let last = (0..self.owed.len()).filter(|&k| given[k] > 0).min_by_key(|&k| self.owed[k]).unwrap_or(0);
            given[last] -= 1;
            self.owed[last] += self.sum;
            missing += 1;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn shares_follow_the_weights_and_add_up() {
        for speeds in [vec![], vec![1, 1, 1], vec![10, 1, 10], vec![1000, 0, 3], vec![0, 0, 0]] {
            let mut shares = Shares::new(&speeds, 3);
            let mut sums = [0; 3];
            let n_rounds = 1000;
            for round in 0..n_rounds {
                let given = shares.of(7 + round % 3);
                assert_eq!(given.iter().sum::<usize>(), 7 + round % 3, "{speeds:?}");
                sums.iter_mut().zip(given).for_each(|(sum, given)| *sum += given);
            }
            let all: usize = sums.iter().sum();
            for (sum, weight) in sums.iter().zip(&shares.weights) {
                let due = all as f64 * *weight as f64 / shares.sum as f64;
                assert!((*sum as f64 - due).abs() <= 2.0, "{speeds:?}: {sums:?}");
            }
        }
    }
}
