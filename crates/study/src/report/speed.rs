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
    ("slowest peer", |speed_up| speed_up.slowest),
    ("median peer", |speed_up| speed_up.median),
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
        title: "Speed-up over a single process".to_owned(),
        axis: Axis::linear("speed-up in samples/s", Unit::Times),
        groups: known.iter().map(|(group, _)| groups.name(group)).collect(),
        series: series.collect(),
        ideal: Some(Ideal {
            name: "ideal (linear)".to_owned(),
            values: known.iter().map(|(group, _)| Some(group.facts.n_peers as f64)).collect(),
        }),
    };
    let head: Vec<&str> = ["configuration", "peers"].into_iter().chain(VIEWS.iter().map(|(name, _)| *name)).collect();
    let mut table = Table::new("Speed-up in samples/s, mean ± standard deviation over trials", &head);
    for (group, speed_up) in &known {
        let cells = VIEWS.iter().map(|(_, view)| view(speed_up).text(&Unit::Times));
        let names = [groups.name(group), group.facts.n_peers.to_string()];
        table.rows.push(names.into_iter().chain(cells).collect());
    }
    let text = "Throughput relative to a single process with the same model, data and batch size. Peers finish an epoch together: the \
                slowest peer takes as long as the run, and any other peer takes less by the extra time it spent waiting. Without \
                encoding: as if encoding and decoding messages took no time.";
    let caption = if n_shown < VIEWS.len() { "The table has the other three measures." } else { "" };
    let figure = Figure { name: "speed-up".to_owned(), caption: caption.to_owned(), svg: chart.svg() };
    let blocks = vec![Block::Paragraph(text.to_owned()), Block::Figures(vec![figure]), Block::Table(table)];
    Some(Section { id: "speed", title: "Speed", blocks })
}
