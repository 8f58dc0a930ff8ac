//! The table of the search: for every cut, the best ways to hold all layers above it.

use std::ops::Range;

use super::super::estimate::{Load, Surroundings, seconds, slowest};
use super::super::profile::Profile;
use super::super::question::Question;
use super::grids::{Grids, grids};
use crate::layers::plan::Group;

/// What the best way has least of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Time.
    Time,
    /// Memory of the peer that takes most.
    Memory,
}

/// One way to hold all layers above a cut.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    /// What the busiest peer takes.
    busiest: f64,
    /// How long a batch is on its way, without the sums.
    journey: f64,
    sums: f64,
    /// The lowest group ends at this cut and has these rows.
    end: usize,
    rows: usize,
    /// The way to hold what is above the lowest group: its cell and which of its ways.
    above: (usize, usize),
}

/// The best ways for one cut, number of columns and number of slots: by their time, by the busiest peer, and by the journey.
/// Which of these matters is known only when the layers below are there too.
type Cell = [Option<Way>; 3];

/// All cells, for pipelines of at most so many slots.
pub(super) struct Table<'a> {
    question: &'a Question<'a>,
    profile: &'a Profile,
    aim: Aim,
    n_slots: usize,
    n_replicas: usize,
    /// The numbers of columns that groups may have.
    columns: Vec<usize>,
    /// For each cut, by columns and slots.
    cells: Vec<Vec<Cell>>,
    /// For each slot, the slowest from there on to each later one.
    speeds: Vec<Vec<f64>>,
}

impl<'a> Table<'a> {
    /// The table for pipelines of up to so many slots.
    pub(super) fn fill(
        question: &'a Question<'a>,
        profile: &'a Profile,
        n_slots: usize,
        aim: Aim,
        tried: Grids,
    ) -> Self {
        let last = profile.cuts.len() - 1;
        let mut segments: Vec<Vec<Segment>> = Vec::with_capacity(last);
        for start in 0..last {
            let segment = |end: usize| {
                let layers = profile.cuts[start]..profile.cuts[end];
                let grids = match tried {
                    Grids::Single => vec![(1, 1)],
                    Grids::All => grids(question, &layers, n_slots),
                };
                Segment { end, layers, grids }
            };
            segments.push((start + 1..=last).map(segment).collect());
        }
        let all = segments.iter().flatten().flat_map(|segment| segment.grids.iter().map(|grid| grid.1));
        let mut columns: Vec<usize> = all.collect();
        columns.sort_unstable();
        columns.dedup();
        let cells = vec![vec![Cell::default(); columns.len() * (n_slots + 1)]; last + 1];
        let n_replicas = question.n_peers / n_slots;
        let speeds = slot_speeds(question, n_slots);
        let mut table = Self { question, profile, aim, n_slots, n_replicas, columns, cells, speeds };
        let nothing = Way { busiest: 0.0, journey: 0.0, sums: 0.0, end: last, rows: 0, above: (0, 0) };
        table.cells[last][0][0] = Some(nothing);
        for start in (0..last).rev() {
            for segment in &segments[start] {
                table.add(start, segment);
            }
        }
        table
    }

    /// Adds all ways whose lowest group is this segment.
    fn add(&mut self, start: usize, segment: &Segment) {
        let weight = self.profile.weight(&segment.layers);
        let is_last = segment.end == self.profile.cuts.len() - 1;
        let n_above = if is_last { 1 } else { self.columns.len() };
        for &(rows, columns) in &segment.grids {
            let group = Group { layers: segment.layers.clone(), rows, columns };
            for above in 0..n_above {
                let columns_above = (!is_last).then(|| self.columns[above]);
                let around = Surroundings { is_first: start == 0, columns_above, n_replicas: self.n_replicas };
                let load = Load::new(self.question, &weight, &group, around);
                if self.question.memory_limit.is_none_or(|limit| load.memory.ceil() <= limit as f64) {
                    self.add_below(start, &group, &load, (segment.end, above));
                }
            }
        }
    }

    /// Adds a group below all ways with so many columns above a cut.
    fn add_below(&mut self, start: usize, group: &Group, load: &Load, (end, above): (usize, usize)) {
        let delay = self.question.link.delay.as_secs_f64();
        let (is_first, is_last) = (start == 0, end == self.profile.cuts.len() - 1);
        let mut hops = seconds(self.question, load.up + load.down);
        hops += if is_first { 0.0 } else { 2.0 * delay };
        hops += if is_last && group.columns > 1 { delay } else { 0.0 };
        let (exchange, sums) = (load.exchange_s(self.question), load.sums_s(self.question));
        let n_mine = group.rows * group.columns;
        let column = self.columns.binary_search(&group.columns).expect("the list has the columns of all grids");
        for n_slots in 0..=self.n_slots - n_mine {
            let cell = self.place(above, n_slots);
            for which in 0..3 {
                let Some(way) = self.cells[end][cell][which] else { continue };
                if (0..which).any(|before| self.cells[end][cell][before] == Some(way)) {
                    continue;
                }
                let first_slot = self.n_slots - n_slots - n_mine;
                let compute = load.compute_s(self.question, self.speeds[first_slot][n_mine - 1]);
                let new = match self.aim {
                    Aim::Time => Way {
                        busiest: way.busiest.max(compute).max(exchange),
                        journey: way.journey + compute + hops,
                        sums: way.sums.max(sums),
                        end,
                        rows: group.rows,
                        above: (cell, which),
                    },
                    Aim::Memory => {
                        let busiest = way.busiest.max(load.memory);
                        Way { busiest, journey: 0.0, sums: 0.0, end, rows: group.rows, above: (cell, which) }
                    }
                };
                let place = self.place(column, n_slots + n_mine);
                self.put(start, place, new);
            }
        }
    }

    fn put(&mut self, start: usize, place: usize, new: Way) {
        let journey = |way: &Way| way.journey + way.sums;
        let is_whole = |way: &Way| start == 0 && way.end + 1 == self.cells.len();
        let in_flight = |way: &Way| self.question.in_flight(if is_whole(way) { 1 } else { 2 }) as f64;
        let time = |way: &Way| way.busiest.max(journey(way) / in_flight(way));
        let cell = &self.cells[start][place];
        // Of equals the first stays, so the result does not depend on anything but the question.
        let is_better: [bool; 3] = [
            cell[0].is_none_or(|old| (time(&new), journey(&new)) < (time(&old), journey(&old))),
            cell[1].is_none_or(|old| (new.busiest, journey(&new)) < (old.busiest, journey(&old))),
            cell[2].is_none_or(|old| (journey(&new), new.busiest) < (journey(&old), old.busiest)),
        ];
        for (old, is_better) in self.cells[start][place].iter_mut().zip(is_better) {
            if is_better {
                *old = Some(new);
            }
        }
    }

    fn place(&self, column: usize, n_slots: usize) -> usize {
        column * (self.n_slots + 1) + n_slots
    }

    /// The plans that hold all layers and leave just so many replicas as the table was made for.
    pub(super) fn plans(&self) -> Vec<Vec<Group>> {
        let mut plans = Vec::new();
        for column in 0..self.columns.len() {
            for n_slots in 1..=self.n_slots {
                if self.question.n_peers / n_slots != self.n_replicas {
                    continue;
                }
                let place = self.place(column, n_slots);
                let ways = (0..3).filter(|which| self.cells[0][place][*which].is_some());
                plans.extend(ways.map(|which| self.groups(place, which)));
            }
        }
        plans.dedup();
        plans
    }

    /// Follows a way upwards.
    fn groups(&self, mut place: usize, mut which: usize) -> Vec<Group> {
        let (mut groups, mut start) = (Vec::new(), 0);
        while start < self.profile.cuts.len() - 1 {
            let way = self.cells[start][place][which].expect("a way leads to ways");
            let layers = self.profile.cuts[start]..self.profile.cuts[way.end];
            groups.push(Group { layers, rows: way.rows, columns: self.columns[place / (self.n_slots + 1)] });
            start = way.end;
            (place, which) = way.above;
        }
        groups
    }
}

/// Layers that may be a group, and the grids worth trying.
struct Segment {
    end: usize,
    layers: Range<usize>,
    grids: Vec<(usize, usize)>,
}

fn slot_speeds(question: &Question<'_>, n_slots: usize) -> Vec<Vec<f64>> {
    let single: Vec<f64> = (0..n_slots).map(|slot| slowest(question, slot..slot + 1, n_slots)).collect();
    let from = |first: usize| {
        let later = single[first..].iter();
        later.scan(f64::INFINITY, |least, speed| {
            *least = least.min(*speed);
            Some(*least)
        })
    };
    (0..n_slots).map(|first| from(first).collect()).collect()
}
