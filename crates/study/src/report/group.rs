//! The runs of one setting, taken together: what they have in common, and how far they lie apart.

use std::collections::BTreeMap;

use nettorrent_figures::{Bar, Unit};

use crate::report::document::NOTHING;
use crate::results::{Facts, Measurement, Results, RunResult};

/// All trials of a setting.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// What was varied, and how it was here.
    pub(crate) setting: &'a BTreeMap<String, String>,
    /// What was run.
    pub(crate) facts: &'a Facts,
    /// The trials, in their order.
    pub(crate) runs: Vec<&'a RunResult>,
}

/// All groups, and what tells them apart.
#[derive(Clone, Debug)]
pub(crate) struct Groups<'a> {
    /// In the order in which they first ran.
    pub(crate) all: Vec<Group<'a>>,
    /// The names of the axes that have more than one value, in the order of the study's file.
    pub(crate) varied: Vec<&'a str>,
}

impl<'a> Groups<'a> {
    /// The runs, by their setting.
    pub(crate) fn new(results: &'a Results) -> Self {
        let mut all: Vec<Group<'a>> = Vec::new();
        for run in &results.runs {
            match all.iter_mut().find(|group| *group.setting == run.setting) {
                Some(group) => group.runs.push(run),
                None => all.push(Group { setting: &run.setting, facts: &run.facts, runs: vec![run] }),
            }
        }
        let varies = |name: &str| {
            let mut values: Vec<&str> = all.iter().filter_map(|group| group.value(name)).collect();
            values.sort_unstable();
            values.dedup();
            values.len() > 1
        };
        let varied = results.axes.iter().map(|axis| axis.name.as_str()).filter(|name| varies(name)).collect();
        Self { all, varied }
    }

    /// A group's name: what it has that others have not.
    pub(crate) fn name(&self, group: &Group<'_>) -> String {
        group.name_by(&self.varied)
    }

    /// The axis whose values are compared with each other: strategies where they were varied, or else what has the most
    /// values.
    pub(crate) fn compared(&self) -> Option<&'a str> {
        if self.varied.contains(&"strategy") {
            return Some("strategy");
        }
        let n_values = |name: &str| {
            let mut values: Vec<&str> = self.all.iter().filter_map(|group| group.value(name)).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        // The first of those with the most.
        self.varied.iter().rev().copied().max_by_key(|name| n_values(name))
    }
}

impl<'a> Group<'a> {
    pub(crate) fn value(&self, axis: &str) -> Option<&'a str> {
        self.setting.get(axis).map(String::as_str)
    }

    /// What it is by these axes, in words: `ring-all-reduce, 3 peers`.
    pub(crate) fn name_by(&self, axes: &[&str]) -> String {
        let parts: Vec<String> = axes.iter().filter_map(|axis| Some(part(axis, self.value(axis)?))).collect();
        if !parts.is_empty() {
            return parts.join(", ");
        }
        self.facts.strategy.clone().unwrap_or_else(|| "alone".to_owned())
    }

    /// What was measured in the trials that ended as they should.
    pub(crate) fn measured(&self) -> Vec<&'a Measurement> {
        self.runs.iter().filter_map(|run| run.measurement()).collect()
    }

    /// A number of each trial, put together; none where no trial has it.
    pub(crate) fn spread(&self, number: impl Fn(&Measurement) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.measured().into_iter().filter_map(number))
    }

    /// Time to the target. Trials that did not reach it would make it look shorter than it is, so all must have.
    pub(crate) fn convergence(&self) -> Option<Spread> {
        let all = self.measured();
        let reached = Spread::of(all.iter().filter_map(|measurement| measurement.convergence_s))?;
        (reached.n == all.len()).then_some(reached)
    }

    /// Bytes of bodies that a peer sent.
    pub(crate) fn sent(&self) -> Option<Spread> {
        self.spread(|measurement| (!measurement.peers.is_empty()).then(|| measurement.payload_bytes_per_peer()))
    }
}

/// A value as it is said: `3 peers`, `tau 0.1`, `gossip`.
fn part(axis: &str, value: &str) -> String {
    match axis {
        "peers" if value == "1" => "1 peer".to_owned(),
        "peers" => format!("{value} peers"),
        // A number or a yes alone says nothing.
        _ if value.parse::<f64>().is_ok() || ["true", "false", "none"].contains(&value) => format!("{axis} {value}"),
        _ => value.to_owned(),
    }
}

/// A number in several trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Their mean.
    pub(crate) mean: f64,
    /// Their standard deviation, as a sample's; 0 where there is one only.
    pub(crate) deviation: f64,
    /// How many.
    pub(crate) n: usize,
}

impl Spread {
    /// None of no numbers; what is no number is left out.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.into_iter().filter(|number| number.is_finite()).collect();
        if numbers.is_empty() {
            return None;
        }
        let n = numbers.len();
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        Some(Self { mean, deviation, n })
    }

    /// How it is to be read against another.
    pub(crate) fn compare(&self, other: &Self) -> Difference {
        if self.n < 2 || other.n < 2 {
            return Difference::Unknown;
        }
        let noise = self.deviation.hypot(other.deviation);
        if (self.mean - other.mean).abs() <= noise { Difference::Noise } else { Difference::Clear }
    }

    /// With its deviation, if it has one.
    pub(crate) fn text(&self, unit: &Unit) -> String {
        unit.format_with_deviation(self.mean, self.deviation)
    }

    pub(crate) fn bar(&self) -> Bar {
        Bar { mean: self.mean, deviation: self.deviation }
    }
}

/// Whether two numbers differ by more than chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// By more than their deviations together.
    Clear,
    /// By less.
    Noise,
    /// There are too few trials to say.
    Unknown,
}

/// A cell of a table.
pub(crate) fn cell(spread: Option<Spread>, unit: &Unit) -> String {
    spread.map_or_else(|| NOTHING.to_owned(), |spread| spread.text(unit))
}

#[cfg(test)]
mod tests {
    use super::{Difference, Spread, part};

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let spread = Spread::of([2.0, 4.0, 4.0, 6.0, f64::NAN]).expect("there are numbers");
        assert_eq!((spread.mean, spread.n), (4.0, 4));
        assert!((spread.deviation - (8.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]).map(|spread| spread.deviation), Some(0.0));
    }

    #[test]
    fn a_difference_is_clear_only_beyond_both_deviations() {
        let near = Spread { mean: 10.0, deviation: 0.6, n: 3 };
        let same = Spread { mean: 10.9, deviation: 0.8, n: 3 };
        let far = Spread { mean: 11.1, deviation: 0.8, n: 3 };
        assert_eq!(near.compare(&same), Difference::Noise);
        assert_eq!(near.compare(&far), Difference::Clear);
        assert_eq!(near.compare(&Spread { n: 1, ..far }), Difference::Unknown);
    }

    #[test]
    fn numbers_are_said_with_what_they_are() {
        assert_eq!(part("peers", "3"), "3 peers");
        assert_eq!(part("tau", "0.1"), "tau 0.1");
        assert_eq!(part("split", "class"), "class");
    }
}
