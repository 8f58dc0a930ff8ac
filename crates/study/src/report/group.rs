//! Settings as a report speaks of them: their names, what is compared with what, and their numbers in words.

use std::collections::BTreeSet;

use nettorrent_engine::measure::Measure;
use nettorrent_figures::{Bar, Unit};

use crate::compare::{Group, Spread, groups};
use crate::report::document::NOTHING;
use crate::results::{Measurement, Results};
use crate::welch::p_value;

/// All groups, and what tells them apart.
#[derive(Clone, Debug)]
pub(crate) struct Groups<'a> {
    /// In the order in which they first ran.
    pub(crate) all: Vec<Group<'a>>,
    /// The names of the axes that have more than one value, in the order of the study's file.
    pub(crate) varied: Vec<&'a str>,
    /// What they are judged by.
    pub(crate) measure: Measure,
}

impl<'a> Groups<'a> {
    /// The runs, by their setting.
    pub(crate) fn new(results: &'a Results) -> Self {
        let all = groups(results);
        // One who trains alone differs from all swarms in many things, which would then stand in every name.
        let swarms: Vec<&Group<'a>> = all.iter().filter(|group| group.facts.strategy.is_some()).collect();
        let told_apart = if swarms.len() > 1 { swarms } else { all.iter().collect() };
        let mut varied: Vec<&str> = results.axes.iter().map(|axis| axis.name.as_str()).collect();
        varied.retain(|axis| n_values(told_apart.iter().copied(), axis) > 1);
        // What one asks for first is said first.
        varied.sort_by_key(|axis| *axis != "strategy");
        Self { all, varied, measure: results.measure() }
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
        // The first of those with the most.
        self.varied.iter().rev().copied().max_by_key(|axis| n_values(self.all.iter(), axis))
    }
}

fn n_values<'a, 'b: 'a>(groups: impl Iterator<Item = &'a Group<'b>>, axis: &str) -> usize {
    groups.filter_map(|group| group.value(axis)).collect::<BTreeSet<&str>>().len()
}

impl<'a> Group<'a> {
    /// Its value on an axis.
    pub(crate) fn value(&self, axis: &str) -> Option<&'a str> {
        self.setting.get(axis).map(String::as_str)
    }

    /// What it is by these axes, in words: `ring-all-reduce, 3 peers`.
    pub(crate) fn name_by(&self, axes: &[&str]) -> String {
        let is_alone = self.facts.strategy.is_none();
        // Who is called alone need not be called one peer.
        let is_said = |axis: &&&str| !(is_alone && axes.contains(&"strategy") && ["peers", "strategy"].contains(*axis));
        let mut parts: Vec<String> =
            axes.iter().filter(is_said).filter_map(|axis| Some(part(axis, self.value(axis)?))).collect();
        if is_alone && (parts.is_empty() || axes.contains(&"strategy")) {
            parts.insert(0, "alone".to_owned());
        }
        if parts.is_empty() { self.facts.strategy.clone().unwrap_or_default() } else { parts.join(", ") }
    }

    /// A number that some trials have, put together; none where no trial has it.
    pub(crate) fn spread_of_some(&self, number: impl Fn(&Measurement) -> Option<f64>) -> Option<Spread> {
        let numbers = self.measurements.iter().filter_map(|measurement| number(measurement));
        Spread::of(numbers.filter(|number| number.is_finite()))
    }

    /// Bytes of bodies that a peer sent; none where one trained alone.
    pub(crate) fn sent(&self) -> Option<Spread> {
        self.spread_if_all(|measured| (!measured.peers.is_empty()).then(|| measured.payload_bytes_per_peer()))
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

impl Spread {
    /// How it is to be read against another.
    pub(crate) fn compare(&self, other: &Self) -> Difference {
        match p_value(self, other) {
            None => Difference::Unknown,
            Some(p) if p < SIGNIFICANT => Difference::Significant(p),
            Some(_) => Difference::Insignificant,
        }
    }

    /// With its deviation, if it has one.
    pub(crate) fn text(&self, unit: &Unit) -> String {
        unit.format_with_deviation(self.mean, self.deviation.unwrap_or(0.0))
    }

    /// As a bar with a whisker.
    pub(crate) fn bar(&self) -> Bar {
        Bar { mean: self.mean, deviation: self.deviation.unwrap_or(0.0) }
    }
}

/// A difference with a smaller p-value is significant.
const SIGNIFICANT: f64 = 0.05;

/// Whether two means differ by more than chance, by Welch's t-test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Difference {
    /// They do; this is the p-value.
    Significant(f64),
    /// It may be chance.
    Insignificant,
    /// There are too few trials to say.
    Unknown,
}

impl Difference {
    /// The p-value, to be put behind a sentence's claim.
    pub(crate) fn p_text(self) -> String {
        match self {
            Self::Significant(p) if p < 0.001 => " (p below 0.001)".to_owned(),
            Self::Significant(p) => format!(" (p = {p:.3})"),
            Self::Insignificant | Self::Unknown => String::new(),
        }
    }
}

/// A cell of a table.
pub(crate) fn cell(spread: Option<Spread>, unit: &Unit) -> String {
    spread.map_or_else(|| NOTHING.to_owned(), |spread| spread.text(unit))
}

#[cfg(test)]
mod tests {
    use super::{Difference, part};
    use crate::compare::Spread;

    #[test]
    fn differences_are_significant_by_the_number_of_trials_too() {
        let near = Spread { mean: 10.0, deviation: Some(0.6), n: 3 };
        let far = Spread { mean: 11.1, deviation: Some(0.8), n: 3 };
        assert_eq!(near.compare(&far), Difference::Insignificant, "of three trials each");
        let (near, far) = (Spread { n: 10, ..near }, Spread { n: 10, ..far });
        assert!(matches!(near.compare(&far), Difference::Significant(p) if p < 0.01), "of ten each");
        assert_eq!(near.compare(&Spread { deviation: None, n: 1, ..far }), Difference::Unknown);
        assert_eq!(Difference::Significant(0.0123).p_text(), " (p = 0.012)");
    }

    #[test]
    fn numbers_are_said_with_what_they_are() {
        assert_eq!(part("peers", "3"), "3 peers");
        assert_eq!(part("tau", "0.1"), "tau 0.1");
        assert_eq!(part("split", "class"), "class");
    }
}
