//! Predicted vs. measured speed, beside what was measured.

use nettorrent_figures::{Axis, BarChart, BarSeries, Ideal, Unit};

use crate::compare::{Group, Spread, median};
use crate::report::document::{Block, Figure, Section, Table};
use crate::report::group::{Groups, cell};

/// How many times as fast as predicted a setting was.
fn ratio(group: &Group<'_>) -> Option<Spread> {
    group.spread_of_some(|measured| Some(measured.samples_per_s / measured.prediction?.samples_per_s))
}

/// In the summary: how far off it was.
pub(crate) fn sentence(groups: &Groups<'_>) -> Option<String> {
    let mut ratios: Vec<f64> = groups.all.iter().filter_map(|group| Some(ratio(group)?.mean)).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios.first()?, ratios.last()?);
    if ratios.len() == 1 {
        return Some(format!("The speed was {least:.2} times the predicted speed."));
    }
    Some(format!(
        "Speeds were {least:.2} to {most:.2} times the predicted speed, in the median {:.2} times.",
        median(&ratios)
    ))
}

/// The section; none where nothing was predicted.
pub(crate) fn section(groups: &Groups<'_>) -> Option<Section> {
    let known: Vec<(&Group<'_>, Spread)> = groups.all.iter().filter_map(|group| Some((group, ratio(group)?))).collect();
    if known.is_empty() {
        return None;
    }
    let chart = BarChart {
        title: "Measured vs. predicted speed".to_owned(),
        axis: Axis::linear("measured / predicted", Unit::Times),
        groups: known.iter().map(|(group, _)| groups.name(group)).collect(),
        series: vec![BarSeries {
            name: "measured / predicted".to_owned(),
            bars: known.iter().map(|(_, ratio)| Some(ratio.bar())).collect(),
        }],
        ideal: Some(Ideal { name: "as predicted".to_owned(), values: vec![Some(1.0); known.len()] }),
    };
    let unit = Unit::Other("samples/s".to_owned());
    let mut table =
        Table::new("Predicted and measured speed", &["configuration", "predicted", "measured", "measured / predicted"]);
    for (group, ratio) in &known {
        let predicted = group.spread_of_some(|measured| Some(measured.prediction?.samples_per_s));
        let measured = group.spread(|measured| measured.samples_per_s);
        let cells = [cell(predicted, &unit), cell(measured, &unit), ratio.text(&Unit::Times)];
        table.rows.push([groups.name(group)].into_iter().chain(cells).collect());
    }
    let text = "Predictions follow from the strategy's cost formula for a round, the measured time per batch of the run's own peers, and \
                the link. They exclude what happens once per epoch or once per run, such as the final all-reduce, and the CPU time \
                spent on messages: with short epochs or fast links, runs are slower than predicted.";
    let figure = Figure { name: "predicted".to_owned(), caption: String::new(), svg: chart.svg() };
    let blocks = vec![Block::Paragraph(text.to_owned()), Block::Figures(vec![figure]), Block::Table(table)];
    Some(Section { id: "predicted", title: "Predicted vs. measured speed", blocks })
}
