//! How much faster many are than one, and what had been foretold.

use nettorrent_figures::{Axis, BarChart, BarSeries, Ideal, Unit};

use crate::report::document::{Block, Figure, Section, Table};
use crate::report::group::{Group, Groups, Spread, cell};
use crate::results::Results;

/// The section; none where nothing can be compared.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Option<Section> {
    let blocks: Vec<Block> = speed_ups(results, groups).into_iter().chain(predictions(groups)).flatten().collect();
    (!blocks.is_empty()).then_some(Section { id: "speed", title: "Speed", blocks })
}

/// Samples a second against those of one who trains alone; none where nobody did.
pub(crate) fn speed_up(results: &Results, group: &Group<'_>) -> Option<Spread> {
    let is_baseline = |run: &&crate::results::RunResult| run.facts.n_peers <= 1 && run.facts.model == group.facts.model;
    let alone =
        Spread::of(results.runs.iter().filter(is_baseline).filter_map(|run| Some(run.measurement()?.samples_per_s)))?;
    group.spread(|measured| Some(measured.samples_per_s / alone.mean))
}

fn speed_ups(results: &Results, groups: &Groups<'_>) -> Option<Vec<Block>> {
    let swarms: Vec<&Group<'_>> = groups.all.iter().filter(|group| group.facts.n_peers > 1).collect();
    let all: Vec<Option<Spread>> = swarms.iter().map(|group| speed_up(results, group)).collect();
    if all.iter().all(Option::is_none) {
        return None;
    }
    let chart = BarChart {
        title: "Speed-up against one who trains alone".to_owned(),
        axis: Axis::linear("speed-up in samples a second", Unit::Times),
        groups: swarms.iter().map(|group| groups.name(group)).collect(),
        series: vec![BarSeries {
            name: "all".to_owned(),
            bars: all.iter().map(|spread| spread.map(|spread| spread.bar())).collect(),
        }],
        ideal: Some(Ideal {
            name: "ideal: as many times as there are peers".to_owned(),
            values: swarms.iter().map(|group| Some(group.facts.n_peers as f64)).collect(),
        }),
    };
    let figure = Figure { name: "speed-up".to_owned(), caption: String::new(), svg: chart.svg() };
    Some(vec![Block::Figures(vec![figure])])
}

/// What was foretold beside what was measured.
fn predictions(groups: &Groups<'_>) -> Option<Vec<Block>> {
    let foretold = |group: &Group<'_>| group.spread(|measured| Some(measured.prediction?.samples_per_s));
    let known: Vec<(&Group<'_>, Spread)> =
        groups.all.iter().filter_map(|group| Some((group, foretold(group)?))).collect();
    if known.is_empty() {
        return None;
    }
    let measured = |group: &Group<'_>| group.spread(|measured| Some(measured.samples_per_s));
    let unit = Unit::Other("samples/s".to_owned());
    let series = |name: &str, bars| BarSeries { name: name.to_owned(), bars };
    let chart = BarChart {
        title: "Foretold and measured speed".to_owned(),
        axis: Axis::linear("speed", unit.clone()),
        groups: known.iter().map(|(group, _)| groups.name(group)).collect(),
        series: vec![
            series("foretold", known.iter().map(|(_, foretold)| Some(foretold.bar())).collect()),
            series("measured", known.iter().map(|(group, _)| measured(group).map(|spread| spread.bar())).collect()),
        ],
        ideal: None,
    };
    let mut table =
        Table::new("Foretold and measured speed", &["setting", "foretold", "measured", "measured / foretold"]);
    for (group, foretold) in &known {
        let ratio = group.spread(|measured| Some(measured.samples_per_s / measured.prediction?.samples_per_s));
        let cells = [foretold.text(&unit), cell(measured(group), &unit), cell(ratio, &Unit::Times)];
        table.rows.push([groups.name(group)].into_iter().chain(cells).collect());
    }
    let figure = Figure { name: "prediction".to_owned(), caption: String::new(), svg: chart.svg() };
    Some(vec![Block::Figures(vec![figure]), Block::Table(table)])
}
