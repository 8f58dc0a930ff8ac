//! How much faster many are than one.

use nettorrent_figures::{Axis, BarChart, BarSeries, Ideal, Unit};

use crate::compare::{Group, SpeedUp, Spread};
use crate::report::document::{Block, Figure, Section, Table};
use crate::report::group::Groups;

/// A way to look at a speed-up, and its name.
type View = (&'static str, fn(&SpeedUp) -> Spread);

/// Up to so many settings are shown in all ways.
const MOST_AT_LENGTH: usize = 12;

/// The four ways.
const VIEWS: [View; 4] = [
    ("slowest worker", |speed_up| speed_up.slowest),
    ("median worker", |speed_up| speed_up.median),
    ("slowest, without encoding", |speed_up| speed_up.slowest_without_encoding),
    ("median, without encoding", |speed_up| speed_up.median_without_encoding),
];

/// The section; none where nothing can be compared.
pub(crate) fn section(groups: &Groups<'_>) -> Option<Section> {
    let is_swarm = |group: &&Group<'_>| group.facts.n_peers > 1;
    let known: Vec<(&Group<'_>, SpeedUp)> =
        groups.all.iter().filter(is_swarm).filter_map(|group| Some((group, group.speed_up?))).collect();
    if known.is_empty() {
        return None;
    }
    // Of many settings, four bars each would make a figure that nobody looks at to its end.
    let n_shown = if known.len() > MOST_AT_LENGTH { 1 } else { VIEWS.len() };
    let series = VIEWS[..n_shown].iter().map(|(name, view)| BarSeries {
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
    let caption = if n_shown < VIEWS.len() { "The other ways to look at it are in the table." } else { "" };
    let figure = Figure { name: "speed-up".to_owned(), caption: caption.to_owned(), svg: chart.svg() };
    let blocks = vec![Block::Paragraph(text.to_owned()), Block::Figures(vec![figure]), Block::Table(table)];
    Some(Section { id: "speed", title: "Speed", blocks })
}
