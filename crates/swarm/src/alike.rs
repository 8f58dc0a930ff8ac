//! What follows alike for all members who stand alike, and takes a pass over all of them: in a process with thousands of peers, whoever
//! comes to it first reckons it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::recent::Recent;
use crate::sampling::ledger::Ledger;
use crate::sampling::plan::Plan;
use crate::sampling::sampler::Sampler;
use crate::shared::Shared;
use crate::view::PeerId;

/// How many stands of a segment are remembered: peers that do not wait for all are some rounds apart.
const STANDS: usize = 16;
/// How many ledgers, which others may have made long: little is to be held for them.
const LEDGERS: usize = 4;

/// What peers have reckoned lately. All of it are pure functions, so it does not matter who has.
#[derive(Default)]
pub(crate) struct Alike {
    /// How many rounds of a segment all have done who are there.
    pub least_done: Recent<Standing, usize, STANDS>,
    rounds: Recent<Counting, RoundCount, STANDS>,
    next_ledgers: Recent<NextLedger, Ledger, LEDGERS>,
    /// Ledgers that came with others' states.
    pub taken_over: Recent<Ledger, Ledger, LEDGERS>,
    /// Of ledgers, with what strategies say about them.
    pub fingerprints: Recent<(Ledger, Vec<u8>), u64, LEDGERS>,
    /// By rank, how fast the members of a view are, and where.
    pub speeds: Recent<Shared<u16>, Shared<u16>, LEDGERS>,
    pub sites: Recent<Shared<u32>, Shared<u32>, LEDGERS>,
    members_of_sites: Recent<(Shared<u32>, usize), Members, LEDGERS>,
}

/// The ranks of each site.
pub(crate) type Members = Arc<Vec<Vec<usize>>>;

/// How far those are who share out a segment, and who takes part now.
#[derive(Clone, PartialEq)]
pub(crate) struct Standing {
    pub members: Shared<u64>,
    /// By slot, how many rounds of it each has done.
    pub done: Shared<u32>,
    pub present: Arc<[PeerId]>,
}

impl Standing {
    /// The slots of those who are there.
    fn slots(&self) -> impl Iterator<Item = usize> {
        self.present.iter().filter_map(|peer| self.members.binary_search(&peer.0).ok())
    }

    /// How many rounds each of them has done, at least; of a segment whose members are all gone, all.
    pub(crate) fn least_done(&self) -> usize {
        self.slots().map(|slot| self.done[slot] as usize).min().unwrap_or(usize::MAX)
    }
}

/// A round of all who are there is to be counted.
struct Counting {
    standing: Standing,
    /// As long as this is here, no other plan lies where that one lay.
    plan: Weak<Plan>,
}

impl PartialEq for Counting {
    fn eq(&self, other: &Self) -> bool {
        self.plan.ptr_eq(&other.plan) && self.standing == other.standing
    }
}

/// What a round comes to.
#[derive(Clone)]
pub(crate) struct RoundCount {
    /// How far all are after it.
    pub done: Shared<u32>,
    pub n_samples: u64,
    /// How many batches whoever had the most.
    pub n_batches: u32,
}

impl RoundCount {
    /// Counts one more round of these slots.
    pub(crate) fn of(slots: impl Iterator<Item = usize>, mut done: Shared<u32>, plan: &Plan) -> Self {
        let (mut n_samples, mut n_batches) = (0, 0);
        let all_done: &mut Vec<u32> = &mut done;
        for slot in slots {
            let done = &mut all_done[slot];
            n_samples += plan.samples_of(slot, *done as usize) as u64;
            n_batches = n_batches.max(plan.batches_in(slot, *done as usize).len() as u32);
            *done = (*done + 1).min(plan.n_rounds() as u32);
        }
        Self { done, n_samples, n_batches }
    }
}

/// A ledger is to be followed by another segment, of these members.
#[derive(PartialEq)]
pub(crate) struct NextLedger {
    pub ledger: Ledger,
    pub members: Arc<[PeerId]>,
    pub speeds: Shared<u16>,
    /// Whether the rest of the epoch is left out.
    pub leaves_rest: bool,
}

impl NextLedger {
    fn answer(&self, sampler: &Sampler) -> Ledger {
        let Self { ledger, speeds, .. } = self;
        let members: Vec<u64> = self.members.iter().map(|member| member.0).collect();
        let speeds = if speeds.len() == members.len() { speeds.to_vec() } else { Vec::new() };
        if self.leaves_rest {
            return Ledger::of_segment(ledger.epoch + 1, sampler.segment(ledger.epoch + 1, members, speeds));
        }
        if ledger.segments.is_empty() {
            // None of these peers has trained anything of this epoch yet.
            let segment = sampler.segment(ledger.epoch, members, speeds);
            return Ledger { start: ledger.start, ..Ledger::of_segment(ledger.epoch, segment) };
        }
        sampler.next_segment(ledger, members, speeds)
    }
}

impl Alike {
    /// Counts one more round of all who are there.
    pub(crate) fn count_round(&self, standing: Standing, plan: &Arc<Plan>) -> RoundCount {
        let counting = Counting { standing, plan: Arc::downgrade(plan) };
        self.rounds
            .get(counting, |Counting { standing, .. }| RoundCount::of(standing.slots(), standing.done.clone(), plan))
    }

    /// The ledger that follows.
    pub(crate) fn next_ledger(&self, asked: NextLedger, sampler: &Sampler) -> Ledger {
        self.next_ledgers.get(asked, |asked| asked.answer(sampler))
    }

    /// Who is where, given the site of each: the ranks of each site in their order, and sites in the order of their first ranks. Of whom
    /// nothing is known are together.
    pub(crate) fn members_of_sites(&self, sites: Shared<u32>, n_peers: usize) -> Members {
        self.members_of_sites.get((sites, n_peers), |(sites, n_peers)| {
            let mut members: Vec<Vec<usize>> = Vec::new();
            let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
            for rank in 0..*n_peers {
                let site = sites.get(rank).copied().unwrap_or(0);
                let number = *numbers.entry(site).or_insert(members.len());
                members.resize(members.len().max(number + 1), Vec::new());
                members[number].push(rank);
            }
            Arc::new(members)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nettorrent_engine::data::batches::BatchRule;
    use nettorrent_engine::data::split::SplitRule;
    use nettorrent_engine::job::Resplit;

    use super::{Alike, NextLedger, RoundCount, Standing};
    use crate::sampling::ledger::Ledger;
    use crate::sampling::sampler::{Rules, Sampler};
    use crate::shared::Shared;
    use crate::view::PeerId;

    fn sampler() -> Sampler {
        let rules = Rules::new(SplitRule::Random, Resplit::Epoch, BatchRule::shuffled(4), 1);
        Sampler::new([0; 24].into(), rules)
    }

    fn present(peers: &[u64]) -> Arc<[PeerId]> {
        peers.iter().map(|&peer| PeerId(peer)).collect()
    }

    #[test]
    fn a_round_is_counted_of_those_who_are_there_and_once_for_all_who_stand_alike() {
        let (alike, sampler) = (Alike::default(), sampler());
        let mut ledger = Ledger::new(vec![3, 5, 8]);
        let plan = sampler.plan(&ledger);
        for round in 0..plan.n_rounds() as u32 {
            let segment = &ledger.segments[0];
            // 5 has gone, and 9 has come.
            let standing = || Standing {
                members: segment.members.clone(),
                done: segment.done.to_vec().into(),
                present: present(&[3, 8, 9]),
            };
            assert_eq!(standing().least_done(), round as usize);
            let (first, second) = (alike.count_round(standing(), &plan), alike.count_round(standing(), &plan));
            assert!(std::ptr::eq(first.done.as_slice(), second.done.as_slice()));
            let expected = RoundCount::of([0, 2].into_iter(), segment.done.clone(), &plan);
            assert_eq!(
                (&first.done, first.n_samples, first.n_batches),
                (&expected.done, expected.n_samples, expected.n_batches)
            );
            assert_eq!(first.done, vec![round + 1, 0, round + 1].into());
            ledger.segments[0].done = first.done;
        }
        let all_gone = Standing { members: vec![1].into(), done: vec![0].into(), present: present(&[2]) };
        assert_eq!(all_gone.least_done(), usize::MAX);
    }

    #[test]
    fn all_who_ask_share_the_ledger_that_follows() {
        let (alike, sampler) = (Alike::default(), sampler());
        let next = |members: &[u64]| {
            let (ledger, speeds) = (Ledger::new(vec![3, 5]), Shared::default());
            let asked = NextLedger { ledger, members: present(members), speeds, leaves_rest: false };
            alike.next_ledger(asked, &sampler)
        };
        let (first, second) = (next(&[3, 5, 8]), next(&[3, 5, 8]));
        assert_eq!(first, sampler.next_segment(&Ledger::new(vec![3, 5]), vec![3, 5, 8], Vec::new()));
        assert!(std::ptr::eq(first.segments[0].members.as_slice(), second.segments[0].members.as_slice()));
        assert_ne!(first, next(&[3, 8]));
    }

    #[test]
    fn members_of_a_site_are_together_and_so_are_those_who_say_nothing() {
        let alike = Alike::default();
        let of = |sites: &[u32], n_peers| alike.members_of_sites(sites.to_vec().into(), n_peers).to_vec();
        assert_eq!(of(&[7, 2, 7, 0, 2], 5), [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(of(&[], 3), [vec![0, 1, 2]]);
    }
}
