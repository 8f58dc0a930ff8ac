//! `moshpit`: in each round peers average their weights in small groups, along one axis of a grid; the axes take turns.
//!
//! The grid is drawn from the job's seed and the round, so nobody has to ask who is where. With N = gᵈ peers in groups of g it has d axes,
//! and after a round along each of them everybody would hold the mean of all, had nobody trained meanwhile; then the next grid is drawn. Where
//! N is no such power, groups are of g peers or one more (of up to 2g − 1 where there are few), and means of means come near the mean
//! of all. All members of a group count alike, however much they trained, so the mean over all peers stays what it was. At the end of an
//! epoch all weights are averaged.
//!
//! What a peer sends depends on how many are in its group, and not on how many there are. Nobody waits for more than its group, so
//! peers may be rounds apart, as in `gossip`, of which this is the form for more than two. Where a peer is in the grid it reckons by itself,
//! from its rank, without a list of all.
//!
//! Messages: those of a ring all-reduce, within the group.
//! Ryabinin et al. (2021), "Moshpit SGD: communication-efficient decentralized training on heterogeneous unreliable devices".

use nettorrent_engine::partition::block;
use nettorrent_engine::rng::{Rng, mix};
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::{Collective, Extent, Ring, Total};
use crate::strategy::{
    AnyStrategy, Averager, CODEC, Cost, CostQuestion, Ctx, LOCAL_STEPS, LocalSteps, Malformed, Message, Mixing,
    OPTIMIZER_STATE, OptimizerState, OptionDoc, OptionError, Payload, RoundPlan, Scale, Spec, default_options,
    read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "moshpit",
    about: "After each round's local phase peers average their weights in small groups, which are drawn so that averages mix \
            fast. What a peer sends does not grow with the swarm; replicas drift apart, and are equal after each epoch.",
    cost: "each peer sends 2M(g-1)/g in 2(g-1) steps, in a group of g, however many peers there are",
    paper: "Ryabinin et al. 2021",
    options: &[
        CODEC,
        OptionDoc {
            name: "group",
            about: "how many peers average in a group, or a few more where they do not come out even; `0`: the square root of their \
                    number, at least 2 and at most 16",
        },
        LOCAL_STEPS,
        OPTIMIZER_STATE,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { codec, group, local_steps, optimizer_state } = read_options(SPEC.name, table)?;
        if group == 1 {
            let problem =
                "group = 1: nobody would average with anybody; at least 2, or 0 for as many as suit".to_owned();
            return Err(OptionError::Option { strategy: SPEC.name, problem });
        }
        let optimizer_state = optimizer_state.check(SPEC.name, codec)?;
        let (payload, length) = (Payload::Weights, local_steps.into());
        let round_plan = RoundPlan { payload, length, scale: Scale::Rate, mixing: Mixing::Partial, optimizer_state };
        let groups = Groups { n_asked: group, ranks: Vec::new(), ring: Ring::new(codec, Extent::AllReduce) };
        Ok(AnyStrategy::round(Averager::new(round_plan, groups).keeping_local_phase().with_sync(Total::default())))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    codec: Codec,
    group: usize,
    local_steps: LocalSteps,
    optimizer_state: OptimizerState,
}

impl Default for Options {
    fn default() -> Self {
        Self { codec: Codec::F32, group: 0, local_steps: LocalSteps::Auto, optimizer_state: OptimizerState::Keep }
    }
}

/// Larger groups than this take longer over slow links than a round more.
const MOST_BY_DEFAULT: usize = 16;

/// The members of a group average their vectors round a ring.
struct Groups {
    n_asked: usize,
    /// This peer's group of the round.
    ranks: Vec<usize>,
    ring: Ring,
}

impl Collective for Groups {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        self.ranks = Grid::of_round(ctx.seed(), ctx.round(), ctx.n_peers(), self.n_asked).group(ctx.rank());
        self.ring.begin(&mut ctx.among(&self.ranks, 0));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, mut numbers: Vec<f32>) {
        let share = 1.0 / self.ranks.len() as f32;
        numbers.iter_mut().for_each(|number| *number *= share);
        self.ring.put(&mut ctx.among(&self.ranks, 0), bucket, numbers);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let Some(from) = self.ranks.iter().position(|&rank| rank == from) else {
            return Err(Malformed::new("it sends weights to a peer that is not in its group in this round"));
        };
        self.ring.receive(&mut ctx.among(&self.ranks, 0), from, message)
    }

    fn is_complete(&self) -> bool {
        self.ring.is_complete()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.ring.take_result()
    }

    fn waits_for(&self) -> Vec<usize> {
        self.ring.waits_for().into_iter().map(|place| self.ranks[place]).collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let lens = n_per_group(question.n_peers, self.n_asked);
        let mut all = Cost::default();
        for (n_groups, n_peers) in lens {
            let one = self.ring.cost(&CostQuestion { n_peers, ..*question });
            all = Cost {
                total: all.total + n_groups as u64 * one.total,
                most_sent: all.most_sent.max(one.most_sent),
                most_received: all.most_received.max(one.most_received),
                n_steps: all.n_steps.max(one.n_steps),
            };
        }
        all
    }
}

/// How many peers a group has at least.
fn least_in_group(n_peers: usize, n_asked: usize) -> usize {
    match n_asked {
        0 => ((n_peers as f64).sqrt().round() as usize).clamp(2, MOST_BY_DEFAULT),
        n => n,
    }
}

fn n_groups(n_peers: usize, n_asked: usize) -> usize {
    (n_peers / least_in_group(n_peers, n_asked)).max(1)
}

/// Groups and how many peers each has; the larger ones first.
fn n_per_group(n_peers: usize, n_asked: usize) -> [(usize, usize); 2] {
    let n_groups = n_groups(n_peers, n_asked);
    let (n_each, n_larger) = (n_peers / n_groups, n_peers % n_groups);
    // Where there are no larger ones, their length does not matter, but it may not count as the longest.
    [(n_larger, if n_larger > 0 { n_each + 1 } else { n_each }), (n_groups - n_larger, n_each)]
}

/// Where everybody is in a round.
///
/// Peers stand in a row, and groups are the blocks of it. For the next axis they change to the row in which the first of all blocks come
/// first, then the second of all, and so on: where the row has gᵈ places, the digits of a place turn by one.
struct Grid {
    n_peers: usize,
    n_groups: usize,
    axis: u32,
    row: Permutation,
}

impl Grid {
    fn of_round(seed: u64, round: u32, n_peers: usize, n_asked: usize) -> Self {
        let least = least_in_group(n_peers, n_asked);
        let mut n_axes = 1;
        let mut n_places = least;
        while n_places < n_peers {
            (n_axes, n_places) = (n_axes + 1, n_places.saturating_mul(least));
        }
        let key = Rng::stream(seed, "moshpit", u64::from(round / n_axes)).next_u64();
        let (n_groups, row) = (n_groups(n_peers, n_asked), Permutation::new(n_peers, key));
        Self { n_peers, n_groups, axis: round % n_axes, row }
    }

    /// The group of a rank: ranks, in the order in which sums go round.
    fn group(&self, rank: usize) -> Vec<usize> {
        let place = (0..self.axis).fold(self.row.place_of(rank), |place, _| self.turn(place));
        let places = block(self.block_of(place), self.n_groups, self.n_peers);
        places.map(|place| self.row.at((0..self.axis).fold(place, |place, _| self.turn_back(place)))).collect()
    }

    /// Which block a place is in.
    fn block_of(&self, place: usize) -> usize {
        let (n_each, n_longer) = (self.n_peers / self.n_groups, self.n_peers % self.n_groups);
        let end_of_longer = n_longer * (n_each + 1);
        if place < end_of_longer { place / (n_each + 1) } else { n_longer + (place - end_of_longer) / n_each }
    }

    /// Where in the next row somebody stands.
    fn turn(&self, place: usize) -> usize {
        let own = self.block_of(place);
        (place - block(own, self.n_groups, self.n_peers).start) * self.n_groups + own
    }

    /// Where it stood before.
    fn turn_back(&self, place: usize) -> usize {
        block(place % self.n_groups, self.n_groups, self.n_peers).start + place / self.n_groups
    }
}

/// A random order of 0..n of which one place can be known without the others.
///
/// A Feistel network shuffles the numbers of twice so many bits; whoever comes to a place beyond the end is shuffled on until it is none.
struct Permutation {
    n: u64,
    n_half_bits: u32,
    key: u64,
}

/// With few bits each of these changes little.
const N_SHUFFLES: u64 = 12;

impl Permutation {
    fn new(n: usize, key: u64) -> Self {
        let n = n as u64;
        let n_bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, n_half_bits: n_bits.div_ceil(2).max(1), key }
    }

    /// Who stands at a place.
    fn at(&self, place: usize) -> usize {
        self.walk(place, |left, right, shuffle| (right, left ^ self.scramble(right, shuffle)))
    }

    /// Where somebody stands.
    fn place_of(&self, who: usize) -> usize {
        self.walk(who, |left, right, shuffle| (right ^ self.scramble(left, N_SHUFFLES - 1 - shuffle), left))
    }

    fn walk(&self, from: usize, shuffled: impl Fn(u64, u64, u64) -> (u64, u64)) -> usize {
        let mut at = from as u64;
        loop {
            let halves = (at >> self.n_half_bits, at & self.half_mask());
            let (left, right) = (0..N_SHUFFLES).fold(halves, |(left, right), shuffle| shuffled(left, right, shuffle));
            at = left << self.n_half_bits | right;
            if at < self.n {
                return at as usize;
            }
        }
    }

    fn scramble(&self, half: u64, shuffle: u64) -> u64 {
        mix(self.key ^ mix(shuffle << u32::BITS | half)) & self.half_mask()
    }

    fn half_mask(&self) -> u64 {
        (1 << self.n_half_bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Grid, Permutation, least_in_group, n_per_group};

    #[test]
    fn a_permutation_names_everybody_once_and_knows_the_way_back() {
        for n in [1, 2, 3, 4, 5, 17, 64, 1000] {
            for key in 0..20 {
                let row = Permutation::new(n, key);
                let all: BTreeSet<usize> = (0..n).map(|place| row.at(place)).collect();
                assert!(all.iter().copied().eq(0..n), "{n}, key {key}: {all:?}");
                assert!((0..n).all(|place| row.place_of(row.at(place)) == place), "{n}, key {key}");
            }
        }
    }

    #[test]
    fn everybody_is_in_one_group_and_all_its_members_say_so() {
        for n_peers in 1..40 {
            for n_asked in [0, 2, 3, 5] {
                for round in 0..8 {
                    let grid = Grid::of_round(7, round, n_peers, n_asked);
                    let groups: BTreeSet<Vec<usize>> = (0..n_peers).map(|rank| grid.group(rank)).collect();
                    let mut members: Vec<usize> = groups.iter().flatten().copied().collect();
                    members.sort_unstable();
                    assert!(members.into_iter().eq(0..n_peers), "{n_peers} in {n_asked}, round {round}: {groups:?}");
                    assert!((0..n_peers).all(|rank| grid.group(rank).contains(&rank)));
                    let of_len = |len: usize| groups.iter().filter(|group| group.len() == len).count();
                    for (n_groups, len) in n_per_group(n_peers, n_asked) {
                        assert!(of_len(len) >= n_groups, "{n_peers} in {n_asked}: {groups:?}");
                    }
                    let least = least_in_group(n_peers, n_asked).min(n_peers);
                    assert!(groups.iter().all(|group| (least..2 * least).contains(&group.len().max(least))));
                }
            }
        }
    }

    /// What everybody holds after some rounds of nothing but averaging, if peer k held k.
    fn averaged(n_peers: usize, n_asked: usize, rounds: std::ops::Range<u32>) -> Vec<f64> {
        let mut held: Vec<f64> = (0..n_peers).map(|rank| rank as f64).collect();
        for round in rounds {
            let grid = Grid::of_round(3, round, n_peers, n_asked);
            let mean = |group: &[usize]| group.iter().map(|&rank| held[rank]).sum::<f64>() / group.len() as f64;
            held = (0..n_peers).map(|rank| mean(&grid.group(rank))).collect();
        }
        held
    }

    fn spread(held: &[f64]) -> f64 {
        let mean = held.iter().sum::<f64>() / held.len() as f64;
        (held.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / held.len() as f64).sqrt()
    }

    #[test]
    fn a_round_along_each_axis_makes_the_mean_of_all() {
        for (n_peers, n_in_group, n_axes) in [(9, 3, 2), (16, 4, 2), (27, 3, 3), (64, 2, 6), (64, 8, 2), (1000, 10, 3)]
        {
            // Any grid will do, but the axes have to be those of one.
            for cycle in [0, 1, 5] {
                let first = cycle * n_axes;
                let before = averaged(n_peers, n_in_group, first..first + n_axes - 1);
                assert!(spread(&before) > 1e-3, "{n_peers}: it is not there before the last axis");
                let after = averaged(n_peers, n_in_group, first..first + n_axes);
                let mean = (n_peers as f64 - 1.0) / 2.0;
                assert!(after.iter().all(|x| (x - mean).abs() < 1e-9), "{n_peers} in {n_in_group}: {after:?}");
            }
        }
    }

    #[test]
    fn where_peers_do_not_come_out_even_averages_mix_nearly_as_fast() {
        for n_peers in [5, 7, 11, 23, 100, 999] {
            let before: Vec<f64> = (0..n_peers).map(|rank| rank as f64).collect();
            let after = averaged(n_peers, 0, 0..6);
            let sum = |held: &[f64]| held.iter().sum::<f64>();
            assert!((sum(&after) - sum(&before)).abs() < 1e-6, "the mean of all stays what it was");
            assert!(spread(&after) < 0.02 * spread(&before), "{n_peers}: {} of {}", spread(&after), spread(&before));
        }
    }

    #[test]
    fn in_time_everybody_meets_everybody_about_as_often() {
        for (n_peers, n_asked) in [(4, 2), (6, 2), (9, 3), (12, 3)] {
            let mut met = vec![0_usize; n_peers];
            let n_rounds = 6000;
            for round in 0..n_rounds {
                Grid::of_round(1, round, n_peers, n_asked).group(2).into_iter().for_each(|rank| met[rank] += 1);
            }
            let expected = n_rounds as usize * (n_asked - 1) / (n_peers - 1);
            let others = met.iter().enumerate().filter(|(rank, _)| *rank != 2);
            for (_, &times) in others {
                assert!(times.abs_diff(expected) < expected / 5, "{n_peers} in {n_asked}: {met:?}");
            }
        }
    }

    #[test]
    fn another_seed_draws_another_grid() {
        let groups = |seed: u64| (0..20).map(move |round| Grid::of_round(seed, round, 30, 0).group(0));
        assert!(groups(1).eq(groups(1)));
        assert!(!groups(1).eq(groups(2)));
    }
}
