//! Who can make up a view: members that all hear each other.

use std::collections::{BTreeMap, BTreeSet};

use nettorrent_swarm::view::PeerId;

use super::links::{Links, are_linked};
use super::member::Member;

/// Chooses from the living those who can make up the next view, in order.
///
/// Of the present members (`is_member`), whoever lacks the most links is left out first, of equals one for whom another waits in vain,
/// then the latest, until no link is lacking among the rest. A newcomer is taken in if it and all of these say that they hear each other: one with a
/// broken link costs the members nothing.
pub(super) fn clique<'a>(
    live: impl Iterator<Item = &'a Member>,
    is_member: impl Fn(&Member) -> bool,
    links: &Links,
) -> Vec<&'a Member> {
    let live: Vec<_> = live.collect();
    let (members, newcomers): (Vec<&Member>, Vec<&Member>) = live.iter().copied().partition(|member| is_member(member));
    if newcomers.is_empty() && links.broken().next().is_none() {
        return live;
    }
    let mut chosen: BTreeSet<PeerId> = members.iter().map(|member| member.id).collect();
    let are_chosen = |chosen: &BTreeSet<PeerId>, (a, b)| chosen.contains(&a) && chosen.contains(&b);
    let broken = links.broken().filter(|pair| are_chosen(&chosen, *pair));
    let mut broken: BTreeSet<(PeerId, PeerId)> = broken.map(|(a, b)| (a.min(b), a.max(b))).collect();
    loop {
        broken.retain(|pair| are_chosen(&chosen, *pair));
        let mut n_broken: BTreeMap<PeerId, usize> = BTreeMap::new();
        broken.iter().flat_map(|(a, b)| [*a, *b]).for_each(|peer| *n_broken.entry(peer).or_default() += 1);
        let Some((worst, _)) = n_broken.into_iter().max_by_key(|(peer, n)| (*n, links.is_refused(*peer), *peer)) else {
            break;
        };
        chosen.remove(&worst);
    }
    // Looked up once: a swarm that is founded consists of newcomers, and each is asked about every other.
    let mut reports: Vec<_> = chosen.iter().map(|peer| Some((*peer, links.report(*peer)?))).collect();
    for newcomer in newcomers.into_iter().map(|newcomer| newcomer.id) {
        let said = links.report(newcomer).map(|report| (newcomer, report));
        let is_linked = |member: &Option<_>| member.zip(said).is_some_and(|(member, said)| are_linked(member, said));
        if reports.iter().all(is_linked) {
            chosen.insert(newcomer);
            reports.push(said);
        }
    }
    live.into_iter().filter(|member| chosen.contains(&member.id)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use nettorrent_swarm::view::{PeerId, View};

    use super::{Links, Member, clique};
    use crate::membership::links::Report;
    use crate::membership::work_state::WorkState;

    fn member(join_index: u32) -> Member {
        Member { id: PeerId::new(join_index, 0), generation: 0, address: "10.0.0.1:1".parse().unwrap() }
    }

    /// Who is chosen of five and a newcomer by peer 0, if these do not hear each other, and so many of the five hear the newcomer.
    fn chosen(deaf: &[(u32, u32)], n_hear_newcomer: u32) -> Vec<u32> {
        let id = |join_index: u32| member(join_index).id;
        let live: BTreeMap<_, _> = (0..6).map(|join_index| (id(join_index), member(join_index))).collect();
        let mut links = Links::new(id(0), Duration::from_secs(5), 1);
        links.follow(&live);
        let hears_newcomer = |peer: u32| peer < n_hear_newcomer;
        for peer in 1..6 {
            let unheard = deaf.iter().filter(|(a, _)| *a == peer).map(|(_, b)| id(*b)).collect();
            let is_newcomer = peer == 5;
            let beyond =
                (0..6).filter(|other| if is_newcomer { *other < 5 } else { *other == 5 && hears_newcomer(peer) });
            let beyond = beyond.map(id).collect();
            links.hear(Duration::ZERO, id(peer));
            links.on_report(
                id(peer),
                Report { view: if is_newcomer { 0 } else { 7 }, unheard, beyond, ..Report::default() },
            );
        }
        deaf.iter().filter(|(a, _)| *a == 0).for_each(|(_, b)| links.break_off(id(*b)));
        let view = View::new(7, (0..5).map(id).collect());
        links.renew_report(Some(&view), (false, &WorkState::Busy), Vec::new());
        clique(live.values(), |member| member.id < id(5), &links)
            .into_iter()
            .map(|member| member.id.join_index())
            .collect()
    }

    #[test]
    fn all_who_hear_each_other_are_chosen() {
        assert_eq!(chosen(&[], 5), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_newcomer_that_somebody_does_not_hear_is_not_taken_in() {
        assert_eq!(chosen(&[], 4), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(&[(5, 2)], 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn of_a_broken_pair_the_later_is_left_out_and_one_way_is_enough() {
        for pair in [(1, 3), (3, 1)] {
            assert_eq!(chosen(&[pair], 0), [0, 1, 2, 4]);
        }
        assert_eq!(chosen(&[(0, 2)], 0), [0, 1, 3, 4]);
        assert_eq!(chosen(&[(2, 0)], 0), [0, 1, 3, 4]);
    }

    #[test]
    fn of_two_the_one_is_left_out_for_whom_the_other_waits_in_vain() {
        let mut links = Links::new(member(0).id, Duration::from_secs(5), 1);
        let live: BTreeMap<_, _> = (0..3).map(|at| (member(at).id, member(at))).collect();
        links.follow(&live);
        links.hear(Duration::ZERO, member(2).id);
        links.on_report(member(2).id, Report { view: 7, refused: vec![member(1).id], ..Report::default() });
        let chosen = clique(live.values(), |_| true, &links);
        assert_eq!(chosen, [&member(0), &member(2)]);
    }

    #[test]
    fn who_lacks_the_most_links_is_left_out_first() {
        assert_eq!(chosen(&[(0, 1), (0, 2), (0, 3)], 0), [1, 2, 3, 4]);
        assert_eq!(chosen(&[(1, 0), (1, 2), (4, 1)], 0), [0, 2, 3, 4]);
        assert_eq!(chosen(&[(1, 3), (1, 4), (2, 3), (2, 4)], 0), [0, 1, 2]);
    }
}
