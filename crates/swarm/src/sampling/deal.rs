//! An epoch's common order of samples, dealt out to the members round by round, in proportion to how fast they are.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::plan::{Dealt, MemberPlan, Rest};
use super::rounds::{RoundLength, RoundRule};
use nettorrent_engine::data::batches::BatchRule;

/// What is dealt out, and to whom.
pub(super) struct Deal<'a> {
    pub epoch: u64,
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
        let per_epoch = order.len().div_ceil(per_step);
        let mut members = vec![MemberPlan::default(); n_members];
        let mut shares = Shares::new(self.speeds, n_members, rule.overhead as f64);
        let Rest { mut from, mut early } = left;
        let (mut n_rounds, mut positions) = (0, vec![from]);
        let may_go_on = |n_rounds: u32| self.most_rounds == 0 || n_rounds < self.most_rounds;
        while n_members > 0 && may_go_on(n_rounds) && (!early.is_empty() || from < order.len()) {
            let n_steps = self.steps(per_epoch, from / per_step);
            if early.is_empty() {
                let until = order.len().min(from + n_steps * per_step);
                match &mut members[..] {
                    // Who trains alone trains the very batches of the order.
                    [alone] => alone.push_round(order[from..until].iter().cloned()),
                    members => self.deal_round(&order[from..until].concat(), &mut shares, members),
                }
                from = until;
            } else {
                let rest = early.split_off(early.len().min(n_steps * step));
                self.deal_round(&std::mem::replace(&mut early, rest), &mut shares, &mut members);
            }
            positions.push(from);
            n_rounds += 1;
        }
        (members, Dealt { positions, early, n_batches: order.len() })
    }

    /// How many steps a round has after so many of the epoch. As long as nobody knows how fast the members are, rounds are short.
    fn steps(&self, per_epoch: usize, n_done: usize) -> usize {
        let is_trial = self.most_rounds > 0 && self.speeds.is_empty();
        let own = self.rule.own_samples(self.batches, self.n_members);
        if is_trial && self.rule.length != RoundLength::Epoch {
            1
        } else {
            let n_done = (self.epoch as usize).saturating_mul(per_epoch).saturating_add(n_done);
            self.rule.steps(per_epoch, n_done, own, self.n_members)
        }
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

/// Samples for members of different speeds, so that all are done as soon as can be.
struct Shares {
    speeds: Vec<f64>,
    /// How many samples could be trained in the time of what a member does besides, if it trains any.
    overhead: f64,
    /// How many each was given so far.
    given: Vec<usize>,
}

impl Shares {
    fn new(speeds: &[u16], n_members: usize, overhead: f64) -> Self {
        let is_sound = speeds.len() == n_members && speeds.iter().any(|&speed| speed > 0);
        let speeds = if is_sound { speeds.iter().map(|&s| f64::from(s)).collect() } else { vec![1.0; n_members] };
        Self { given: vec![0; speeds.len()], speeds, overhead }
    }

    /// Shares out `n` samples: each goes to who is done with it first; of equals to who was given the least so far.
    fn of(&mut self, n: usize) -> Vec<usize> {
        let Self { speeds, overhead, given } = self;
        // All cannot be done sooner than this; where nobody does anything besides, so much of each share is certain.
        let soonest = if *overhead > 0.0 { 0.0 } else { n as f64 / speeds.iter().sum::<f64>().max(1.0) };
        let mut shares: Vec<usize> = speeds.iter().map(|speed| (soonest * speed - 1.0).max(0.0) as usize).collect();
        let mut missing = n.saturating_sub(shares.iter().sum());
        let done_at = |member: usize, share: usize| match speeds[member] > 0.0 {
            true => (share as f64 + 1.0 + *overhead) / speeds[member],
            false => f64::INFINITY,
        };
        let mut queue: BinaryHeap<Reverse<RoundPlan>> = BinaryHeap::new();
        queue.extend(
            (0..speeds.len()).map(|member| Reverse(RoundPlan(done_at(member, shares[member]), given[member], member))),
        );
        while missing > 0
            && let Some(Reverse(RoundPlan(_, n_given, member))) = queue.pop()
        {
            shares[member] += 1;
            missing -= 1;
            queue.push(Reverse(RoundPlan(done_at(member, shares[member]), n_given, member)));
        }
        given.iter_mut().zip(&shares).for_each(|(given, share)| *given += share);
        shares
    }
}

/// When a member would be done with one sample more, how many it was given before, and who it is.
#[derive(Clone, Copy, PartialEq)]
struct RoundPlan(f64, usize, usize);

impl Eq for RoundPlan {}

impl Ord for RoundPlan {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then((self.1, self.2).cmp(&(other.1, other.2)))
    }
}

impl PartialOrd for RoundPlan {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn all_are_done_as_soon_as_can_be() {
        for (speeds, n, overhead, expected) in [
            (vec![], 7, 0.0, vec![3, 2, 2]),
            (vec![10, 1, 10], 21, 0.0, vec![10, 1, 10]),
            (vec![10, 1, 10], 10, 0.0, vec![5, 0, 5]),
            (vec![8, 4, 2], 0, 0.0, vec![0, 0, 0]),
            (vec![0, 0, 0], 3, 0.0, vec![1, 1, 1]),
            (vec![1000, 0, 3], 9, 0.0, vec![9, 0, 0]),
            // Who is slow would be busy for long with what it has to do besides.
            (vec![10, 1, 10], 42, 30.0, vec![21, 0, 21]),
            (vec![10, 5, 10], 100, 10.0, vec![42, 16, 42]),
        ] {
            assert_eq!(Shares::new(&speeds, 3, overhead).of(n), expected, "{n} among {speeds:?}");
        }
    }

    #[test]
    fn of_equals_nobody_gets_more_than_one_more_in_the_end() {
        let mut shares = Shares::new(&[], 5, 0.0);
        for round in 0..100 {
            assert_eq!(shares.of(32).iter().sum::<usize>(), 32);
            let (least, most) = (shares.given.iter().min().unwrap(), shares.given.iter().max().unwrap());
            assert!(most - least <= 1, "after {round} rounds: {:?}", shares.given);
        }
    }
}
