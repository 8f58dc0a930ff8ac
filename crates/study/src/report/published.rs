//! What others published beside what we measured.

use nettorrent_figures::Unit;

use crate::compare::{Group, Spread};
use crate::report::document::{Block, NOTHING, Section, Table};
use crate::report::group::{Groups, cell};
use crate::report::judged;
use crate::results::{Published, Results};

/// The section; none where nothing was published.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Option<Section> {
    if results.published.is_empty() {
        return None;
    }
    let mut table =
        Table::new("Published and measured here", &["what", "configuration", "published", "ours", "source"]);
    table.rows = results.published.iter().map(|published| row(groups, published)).collect();
    let text = "Published numbers come from other machines and other programs: compare trends rather than absolute numbers. Ours are \
                means ± standard deviation over trials, or the lowest and highest mean where several configurations match; a dash \
                marks what this study did not measure.";
    let blocks = vec![Block::Paragraph(text.to_owned()), Block::Table(table)];
    Some(Section { id: "published", title: "Published results", blocks })
}

fn row(groups: &Groups<'_>, published: &Published) -> Vec<String> {
    let (unit, size) = unit(&published.unit);
    let setting: Vec<String> = published.setting.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    let is_same = |group: &&Group<'_>| published.setting.iter().all(|(axis, value)| group.value(axis) == Some(value));
    let mut fitting: Vec<Spread> =
        groups.all.iter().filter(is_same).filter_map(|group| ours(groups, group, &published.name, &unit)).collect();
    fitting.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    // Where several settings fit, the published one may be any of them.
    let ours = match fitting.as_slice() {
        [least, .., most] => format!("{} to {}", unit.format(least.mean), unit.format(most.mean)),
        one => cell(one.first().copied(), &unit),
    };
    vec![
        published.name.clone(),
        if setting.is_empty() { NOTHING.to_owned() } else { setting.join(", ") },
        unit.format(published.value * size),
        ours,
        published.source.clone(),
    ]
}

/// How a unit is shown, and what its numbers are multiplied by.
fn unit(symbol: &str) -> (Unit, f64) {
    match symbol {
        "s" => (Unit::Seconds, 1.0),
        "%" => (Unit::Share, 0.01),
        "x" | "×" => (Unit::Times, 1.0),
        "B" => (Unit::Bytes, 1.0),
        "" => (Unit::Count, 1.0),
        other => (Unit::Other(other.to_owned()), 1.0),
    }
}

/// What we measured of the same; none if that is not known.
fn ours(groups: &Groups<'_>, group: &Group<'_>, name: &str, unit: &Unit) -> Option<Spread> {
    let name = name.to_lowercase();
    match unit {
        unit if *unit == judged::unit(groups.measure) && name.contains(groups.measure.noun()) => {
            group.spread(|measured| measured.final_value)
        }
        Unit::Times if name.contains("speed") => group.speed_up.map(|speed_up| speed_up.slowest),
        Unit::Seconds if name.contains("convergence") => group.spread_if_all(|measured| measured.convergence_s),
        Unit::Seconds if name.contains("training time") => group.spread(|measured| measured.total_s),
        _ => None,
    }
}
