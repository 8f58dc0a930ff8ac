//! The table of the search: for every cut, the best ways to hold all layers above it.

use std::ops::Range;

use super::super::estimate::{Load, Surroundings, seconds, slowest};
use super::super::profile::Profile;
use super::super::question::Question;
use super::grids::{Grids, grids};
use crate::plan::Stage;

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
    /// The lowest stage ends at this cut and has these batch shards.
    end: usize,
    batch_shards: usize,
    /// The way to hold what is above the lowest stage: its cell and which of its ways.
    above: (usize, usize),
}

/// The best ways for one cut, number of tensor shards and number of slots: by their time, by the busiest peer, and by the journey.
/// Which of these matters is known only when the layers below are there too.
type Cell = [Option<Way>; 3];

/// All cells, for pipelines of at most so many slots.
pub(super) struct Table<'a> {
    question: &'a Question<'a>,
    profile: &'a Profile,
    aim: Aim,
    n_slots: usize,
    n_replicas: usize,
    /// The numbers of tensor shards that stages may have.
    tensor_shards: Vec<usize>,
    /// For each cut, by tensor shards and slots.
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
        let mut tensor_shards: Vec<usize> = all.collect();
        tensor_shards.sort_unstable();
        tensor_shards.dedup();
        let cells = vec![vec![Cell::default(); tensor_shards.len() * (n_slots + 1)]; last + 1];
        let n_replicas = question.n_peers / n_slots;
        let speeds = slot_speeds(question, n_slots);
        let mut table = Self { question, profile, aim, n_slots, n_replicas, tensor_shards, cells, speeds };
        let nothing = Way { busiest: 0.0, journey: 0.0, sums: 0.0, end: last, batch_shards: 0, above: (0, 0) };
        table.cells[last][0][0] = Some(nothing);
        for start in (0..last).rev() {
            for segment in &segments[start] {
                table.add(start, segment);
            }
        }
        table
    }

    /// Adds all ways whose lowest stage is this segment.
    fn add(&mut self, start: usize, segment: &Segment) {
        let weight = self.profile.weight(&segment.layers);
        let is_last = segment.end == self.profile.cuts.len() - 1;
        let n_above = if is_last { 1 } else { self.tensor_shards.len() };
        for &(batch_shards, tensor_shards) in &segment.grids {
            let stage = Stage { layers: segment.layers.clone(), batch_shards, tensor_shards };
            for above in 0..n_above {
                let tensor_shards_above = (!is_last).then(|| self.tensor_shards[above]);
                let around = Surroundings { is_first: start == 0, tensor_shards_above, n_replicas: self.n_replicas };
                let load = Load::new(self.question, &weight, &stage, around);
                if self.question.memory_limit.is_none_or(|limit| load.memory.ceil() <= limit as f64) {
                    self.add_below(start, &stage, &load, (segment.end, above));
                }
            }
        }
    }

    /// Adds a stage below all ways with so many tensor shards above a cut.
    fn add_below(&mut self, start: usize, stage: &Stage, load: &Load, (end, above): (usize, usize)) {
        let delay = self.question.link.delay.as_secs_f64();
        let (is_first, is_last) = (start == 0, end == self.profile.cuts.len() - 1);
        let mut hops = seconds(self.question, load.up + load.down);
        hops += if is_first { 0.0 } else { 2.0 * delay };
        hops += if is_last && stage.tensor_shards > 1 { delay } else { 0.0 };
        let (exchange, sums) = (load.exchange_s(self.question), load.sums_s(self.question));
        let n_mine = stage.batch_shards * stage.tensor_shards;
        let tensor_shard = self
            .tensor_shards
            .binary_search(&stage.tensor_shards)
            .expect("the list has the tensor shards of all grids");
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
                        batch_shards: stage.batch_shards,
                        above: (cell, which),
                    },
                    Aim::Memory => {
                        let busiest = way.busiest.max(load.memory);
                        Way {
                            busiest,
                            journey: 0.0,
                            sums: 0.0,
                            end,
                            batch_shards: stage.batch_shards,
                            above: (cell, which),
                        }
                    }
                };
                let place = self.place(tensor_shard, n_slots + n_mine);
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

    fn place(&self, tensor_shard: usize, n_slots: usize) -> usize {
        tensor_shard * (self.n_slots + 1) + n_slots
    }

    /// The plans that hold all layers and leave just so many replicas as the table was made for.
    pub(super) fn plans(&self) -> Vec<Vec<Stage>> {
        let mut plans = Vec::new();
        for tensor_shard in 0..self.tensor_shards.len() {
            for n_slots in 1..=self.n_slots {
                if self.question.n_peers / n_slots != self.n_replicas {
                    continue;
                }
                let place = self.place(tensor_shard, n_slots);
                let ways = (0..3).filter(|which| self.cells[0][place][*which].is_some());
                plans.extend(ways.map(|which| self.stages(place, which)));
            }
        }
        plans.dedup();
        plans
    }

    /// Follows a forward passwards.
    fn stages(&self, mut place: usize, mut which: usize) -> Vec<Stage> {
        let (mut stages, mut start) = (Vec::new(), 0);
        while start < self.profile.cuts.len() - 1 {
            let way = self.cells[start][place][which].expect("a way leads to ways");
            let layers = self.profile.cuts[start]..self.profile.cuts[way.end];
            stages.push(Stage {
                layers,
                batch_shards: way.batch_shards,
                tensor_shards: self.tensor_shards[place / (self.n_slots + 1)],
            });
            start = way.end;
            (place, which) = way.above;
        }
        stages
    }
}

/// Layers that may be a stage, and the grids worth trying.
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
