//! Which members are at one site: those who give it the same name, and who is near them by measured round trips.
//!
//! Members are linked by the shortest round trips first, by as few links as join them all (a minimum spanning tree). Where the times of
//! these links, in their order, leap the farthest, the longer ones lie between sites; if they leap nowhere, all are at one (single
//! linkage, cut at its widest gap). So nobody has to say how near is near, one late answer parts nobody who is near to any other of its
//! site, and a site may be a chain. Times within a local network say nothing and count alike. What the members agreed on before speaks
//! for itself, so that a division stays until times have changed by much.

use std::collections::BTreeMap;
use std::time::Duration;

/// Who is nearer than this is at one place, whatever the times are: a local network, with machines that are busy.
const NEAR: Duration = Duration::from_millis(3);

/// So many times as far as the farthest neighbours of a site are others at least.
const GAP: f64 = 3.0;

/// By what a time is divided between members who were at one site before, and multiplied between those who were not.
const HABIT: f64 = 1.5;

/// What is known of where a member is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whereabouts<'a> {
    /// The number of the site that it names; 0 if it names none.
    pub named: u64,
    /// By rank, in how many microseconds everybody answered it; 0 of whom it does not know that. Empty if it knows of nobody.
    pub round_trips: &'a [u32],
    /// At which site it was when it and others agreed before, if it did.
    pub before: Option<u32>,
}

/// By rank, the site of each member: they are numbered from 0, in the order of their first members. Empty if all are at one.
pub(crate) fn divide(members: &[Whereabouts<'_>]) -> Vec<u32> {
    let mut sites = Sites::new(members);
    let links = spanning_tree(members.len(), |a, b| time(members, a, b));
    let limit = farthest_within(&links);
    for link in links.iter().filter(|link| link.time <= limit) {
        sites.join(link.a, link.b);
    }
    // Of whom nothing is known are together, and with the first who names no site.
    let is_linked = |rank: usize| links.iter().any(|link| link.a == rank || link.b == rank);
    let mut unnamed = (0..members.len()).filter(|&rank| members[rank].named == 0);
    if let Some(first) = unnamed.next() {
        unnamed.filter(|&rank| !is_linked(rank)).for_each(|rank| sites.join(first, rank));
    }
    sites.numbered()
}

/// How far two members are from each other, as the one says who has heard the other sooner.
fn time(members: &[Whereabouts<'_>], a: usize, b: usize) -> Option<f64> {
    let told = |from: usize, to: usize| members[from].round_trips.get(to).copied().filter(|&time| time > 0);
    let time = f64::from(told(a, b).into_iter().chain(told(b, a)).min()?);
    let time = match (members[a].before, members[b].before) {
        (Some(a), Some(b)) if a == b => time / HABIT,
        (Some(_), Some(_)) => time * HABIT,
        _ => time,
    };
    Some(time.max(NEAR.as_micros() as f64))
}

/// Two members and the time between them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Link {
    time: f64,
    a: usize,
    b: usize,
}

/// The shortest links by which all are joined who can be, shortest first.
fn spanning_tree(n: usize, time: impl Fn(usize, usize) -> Option<f64>) -> Vec<Link> {
    let mut links = Vec::new();
    // Of all who are not joined, the nearest who is.
    let mut nearest: Vec<Option<Link>> = vec![None; n];
    let mut left: Vec<usize> = (0..n).collect();
    while !left.is_empty() {
        let distance = |rank: usize| nearest[rank].map_or(f64::INFINITY, |link| link.time);
        let at = (0..left.len()).min_by(|&a, &b| distance(left[a]).total_cmp(&distance(left[b])));
        let joined = left.remove(at.expect("somebody is left"));
        links.extend(nearest[joined]);
        for &rank in &left {
            if let Some(time) = time(joined, rank)
                && nearest[rank].is_none_or(|link| time < link.time)
            {
                nearest[rank] = Some(Link { time, a: joined, b: rank });
            }
        }
    }
    links.sort_by(|a, b| a.time.total_cmp(&b.time));
    links
}

/// The longest time of these links within sites: what follows it is much longer. Without such a leap, all are within one.
fn farthest_within(links: &[Link]) -> f64 {
    let (mut limit, mut widest) = (f64::INFINITY, GAP);
    let mut before = NEAR.as_micros() as f64;
    for link in links {
        let gap = link.time / before;
        if gap >= widest {
            (limit, widest) = (before, gap);
        }
        before = link.time;
    }
    limit
}

/// Who is with whom so far.
struct Sites {
    /// Somebody else of the same site, or the member itself, who then stands for its site.
    with: Vec<usize>,
    /// The number that the members of the site give it, of those who stand for one.
    named: Vec<u64>,
}

impl Sites {
    /// Those who give the same name are together.
    fn new(members: &[Whereabouts<'_>]) -> Self {
        let named: Vec<u64> = members.iter().map(|member| member.named).collect();
        let mut firsts = BTreeMap::new();
        let mut first_of =
            |rank: usize, named: u64| if named == 0 { rank } else { *firsts.entry(named).or_insert(rank) };
        let with = named.iter().enumerate().map(|(rank, &named)| first_of(rank, named)).collect();
        Self { with, named }
    }

    fn stands_for(&self, mut rank: usize) -> usize {
        while self.with[rank] != rank {
            rank = self.with[rank];
        }
        rank
    }

    /// Makes one of the sites of two members, unless these have different names.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.stands_for(a), self.stands_for(b));
        let (first, then) = (a.min(b), a.max(b));
        if first != then && (self.named[first] == 0 || self.named[then] == 0) {
            self.named[first] = self.named[first].max(self.named[then]);
            self.with[then] = first;
        }
    }

    fn numbered(&self) -> Vec<u32> {
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        let mut number = |rank: usize| {
            let next = numbers.len() as u32;
            *numbers.entry(self.stands_for(rank)).or_insert(next)
        };
        let sites: Vec<u32> = (0..self.with.len()).map(&mut number).collect();
        if sites.iter().all(|&site| site == 0) { Vec::new() } else { sites }
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::rng::Rng;

    use super::{Whereabouts, divide};

    /// All are at one site.
    const ONE: [u32; 0] = [];

    /// What all measure, given the milliseconds between each two, with none of them having agreed before.
    fn measured(n: usize, between: impl Fn(usize, usize) -> f64) -> Vec<Vec<u32>> {
        let micros = |from, to| if from == to { 0 } else { (1e3 * between(from, to)) as u32 };
        (0..n).map(|from| (0..n).map(|to| micros(from, to)).collect()).collect()
    }

    fn divided(times: &[Vec<u32>], before: &[Option<u32>]) -> Vec<u32> {
        let before = |rank: usize| before.get(rank).copied().flatten();
        let member = |(rank, times): (usize, &Vec<u32>)| (times.clone(), before(rank));
        let members: Vec<_> = times.iter().enumerate().map(member).collect();
        let members: Vec<_> = members
            .iter()
            .map(|(round_trips, before)| Whereabouts { named: 0, round_trips, before: *before })
            .collect();
        divide(&members)
    }

    /// What is divided where these are at places, with times within them and between.
    fn of_places(places: &[u32], within: f64, between: f64) -> Vec<u32> {
        divided(&measured(places.len(), |a, b| if places[a] == places[b] { within } else { between }), &[])
    }

    #[test]
    fn places_far_apart_are_sites_and_one_place_is_one() {
        assert_eq!(of_places(&[0, 0, 0, 0, 1, 1, 1, 1], 1.0, 50.0), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(of_places(&[0, 1, 0, 2, 1], 0.2, 20.0), [0, 1, 0, 2, 1]);
        assert_eq!(of_places(&[0; 6], 1.0, 1.0), ONE);
        assert_eq!(of_places(&[0], 1.0, 1.0), ONE);
        assert_eq!(of_places(&[], 1.0, 1.0), ONE);
        // Two who are far apart are so whether a third is near to one of them or not.
        assert_eq!(of_places(&[0, 1], 1.0, 50.0), [0, 1]);
        // A country with slow links within, and another one.
        assert_eq!(of_places(&[0, 0, 0, 1, 1], 12.0, 90.0), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn noise_parts_no_local_network() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            // Each measures by itself; now and then an answer is late by much.
            let mut noise = || match rng.below(10) {
                0 => 40.0 * f64::from(rng.uniform()),
                _ => 0.1 + 4.0 * f64::from(rng.uniform()),
            };
            let lan: Vec<Vec<f64>> = (0..8).map(|_| (0..8).map(|_| noise()).collect()).collect();
            assert_eq!(divided(&measured(8, |a, b| lan[a][b]), &[]), ONE, "seed {seed}");
            let two = measured(8, |a, b| lan[a][b] + if a / 4 == b / 4 { 0.0 } else { 50.0 });
            assert_eq!(divided(&two, &[]), [0, 0, 0, 0, 1, 1, 1, 1], "seed {seed}");
        }
    }

    #[test]
    fn a_division_stays_until_times_have_changed_by_much() {
        let at = |between: f64, before: &[Option<u32>]| {
            divided(&measured(4, |a, b| if a / 2 == b / 2 { 4.0 } else { between }), before)
        };
        let (one, two) = ([Some(0); 4], [Some(0), Some(0), Some(1), Some(1)]);
        // What is on the border remains what it was, on both sides of it.
        for between in [9.0, 11.9, 12.1, 13.0] {
            assert_eq!(at(between, &one), ONE, "{between} ms");
            assert_eq!(at(between, &two), [0, 0, 1, 1], "{between} ms");
        }
        assert_eq!(at(50.0, &one), [0, 0, 1, 1]);
        assert_eq!(at(4.0, &two), ONE);
        // Who comes is at the site that it is near to, and who goes takes nobody along.
        let with_newcomer = measured(5, |a, b| if a / 2 == b / 2 || a.min(b) > 1 { 4.0 } else { 12.1 });
        assert_eq!(divided(&with_newcomer, &two), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn who_names_no_site_is_at_the_one_it_is_near_to() {
        let (berlin, toronto) = (7, 2);
        let places = [0, 0, 1, 1, 2];
        let times = measured(5, |a, b| if places[a] == places[b] { 1.0 } else { 50.0 });
        let of = |named: [u64; 5], times: &[Vec<u32>]| {
            let member = |rank: usize| Whereabouts { named: named[rank], round_trips: &times[rank], before: None };
            divide(&[0, 1, 2, 3, 4].map(member))
        };
        assert_eq!(of([berlin, 0, toronto, 0, 0], &times), [0, 0, 1, 1, 2]);
        // What is said counts, however near or far they are.
        assert_eq!(of([berlin, toronto, 0, 0, berlin], &times), [0, 1, 2, 2, 0]);
        let unknown = vec![Vec::new(); 5];
        assert_eq!(of([berlin, 0, berlin, toronto, 0], &unknown), [0, 1, 0, 2, 1]);
        assert_eq!(of([0; 5], &unknown), ONE);
        assert_eq!(of([berlin; 5], &times), ONE);
    }

    #[test]
    fn it_is_enough_that_one_of_two_has_measured() {
        let mut times = measured(4, |a, b| if a / 2 == b / 2 { 1.0 } else { 60.0 });
        times[1] = Vec::new();
        times[3] = vec![0; 4];
        assert_eq!(divided(&times, &[]), [0, 0, 1, 1]);
        // Of whom nothing is known is not parted from the first.
        times.iter_mut().for_each(|times| times.truncate(3));
        assert_eq!(divided(&times, &[]), [0, 0, 1, 0]);
    }
}
