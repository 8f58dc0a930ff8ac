//! How much faster many are than one, and what had been foretold.

use nettorrent_figures::{Axis, BarChart, BarSeries, Ideal, Unit};

use crate::compare::{Group, SpeedUp, Spread};
use crate::report::document::{Block, Figure, Section, Table};
use crate::report::group::{Groups, cell};

/// The section; none where nothing can be compared.
pub(crate) fn section(groups: &Groups<'_>) -> Option<Section> {
    let blocks: Vec<Block> = speed_ups(groups).into_iter().chain(predictions(groups)).flatten().collect();
    (!blocks.is_empty()).then_some(Section { id: "speed", title: "Speed", blocks })
}

/// A way to look at a speed-up, and its name.
type View = (&'static str, fn(&SpeedUp) -> Spread);

/// The four ways.
const VIEWS: [View; 4] = [
    ("slowest worker", |speed_up| speed_up.slowest),
    ("median worker", |speed_up| speed_up.median),
    ("slowest, without encoding", |speed_up| speed_up.slowest_without_encoding),
    ("median, without encoding", |speed_up| speed_up.median_without_encoding),
];

fn speed_ups(groups: &Groups<'_>) -> Option<Vec<Block>> {
    let is_swarm = |group: &&Group<'_>| group.facts.n_peers > 1;
    let known: Vec<(&Group<'_>, SpeedUp)> =
        groups.all.iter().filter(is_swarm).filter_map(|group| Some((group, group.speed_up?))).collect();
    if known.is_empty() {
        return None;
    }
    let series = VIEWS.iter().map(|(name, view)| BarSeries {
        name: (*name).to_owned(),
        bars: known.iter().map(|(_, speed_up)| Some(view(speed_up).bar())).collect(),
    });
    let chart = BarChart {
        title: "Speed-up against one who trains alone".to_owned(),
        axis: Axis::linear("speed-up in samples a second", Unit::Times),
        groups: known.iter().map(|(group, _)| groups.name(group)).collect(),
        series: series.collect(),
        ideal: Some(Ideal {
            name: "ideal: as many times as there are peers".to_owned(),
            values: known.iter().map(|(group, _)| Some(group.facts.n_peers as f64)).collect(),
        }),
    };
    let head: Vec<&str> = ["setting", "peers"].into_iter().chain(VIEWS.iter().map(|(name, _)| *name)).collect();
    let mut table = Table::new("Speed-up in samples a second, means ± standard deviation over trials", &head);
    for (group, speed_up) in &known {
        let cells = VIEWS.iter().map(|(_, view)| view(speed_up).text(&Unit::Times));
        let names = [groups.name(group), group.facts.n_peers.to_string()];
        table.rows.push(names.into_iter().chain(cells).collect());
    }
    let text = "How many times more samples a second were trained than by one alone with the same model, data and batch. Workers \
                end an epoch together: the slowest worker's time is that of the run, and another's is shorter by what it waited \
                longer. Without encoding: as if working on messages took no time.";
    let figure = Figure { name: "speed-up".to_owned(), caption: String::new(), svg: chart.svg() };
    Some(vec![Block::Paragraph(text.to_owned()), Block::Figures(vec![figure]), Block::Table(table)])
}

/// What was foretold beside what was measured.
fn predictions(groups: &Groups<'_>) -> Option<Vec<Block>> {
    let foretold = |group: &Group<'_>| group.spread_of_some(|measured| Some(measured.prediction?.samples_per_s));
    let known: Vec<(&Group<'_>, Spread)> =
        groups.all.iter().filter_map(|group| Some((group, foretold(group)?))).collect();
    if known.is_empty() {
        return None;
    }
    let measured = |group: &Group<'_>| group.spread(|measured| measured.samples_per_s);
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
        let ratio = group.spread_of_some(|measured| Some(measured.samples_per_s / measured.prediction?.samples_per_s));
        let cells = [foretold.text(&unit), cell(measured(group), &unit), cell(ratio, &Unit::Times)];
        table.rows.push([groups.name(group)].into_iter().chain(cells).collect());
    }
    let figure = Figure { name: "prediction".to_owned(), caption: String::new(), svg: chart.svg() };
    Some(vec![Block::Figures(vec![figure]), Block::Table(table)])
}
