//! What others published beside what we measured.

use nettorrent_figures::Unit;

use crate::compare::{Group, Spread};
use crate::report::document::{Block, NOTHING, Section, Table};
use crate::report::group::{Groups, cell};
use crate::results::{Published, Results};

/// The section; none where nothing was published.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Option<Section> {
    if results.published.is_empty() {
        return None;
    }
    let mut table = Table::new("Published and ours", &["what", "setting", "published", "ours", "source"]);
    table.rows = results.published.iter().map(|published| row(groups, published)).collect();
    let text = "Other machines, other programs and often other faults: the courses may be compared, the numbers only with care. \
                Ours are means ± standard deviation over trials; a dash is what this study did not measure.";
    let blocks = vec![Block::Paragraph(text.to_owned()), Block::Table(table)];
    Some(Section { id: "published", title: "What others published", blocks })
}

fn row(groups: &Groups<'_>, published: &Published) -> Vec<String> {
    let (unit, size) = unit(&published.unit);
    let setting: Vec<String> = published.setting.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    let is_same = |group: &&Group<'_>| published.setting.iter().all(|(axis, value)| group.value(axis) == Some(value));
    // Where several settings fit, none of them is the one.
    let mut fitting = groups.all.iter().filter(is_same);
    let ours = match (fitting.next(), fitting.next()) {
        (Some(group), None) => ours(group, &published.name),
        _ => None,
    };
    vec![
        published.name.clone(),
        if setting.is_empty() { NOTHING.to_owned() } else { setting.join(", ") },
        unit.format(published.value * size),
        cell(ours, &unit),
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
fn ours(group: &Group<'_>, name: &str) -> Option<Spread> {
    let name = name.to_lowercase();
    if name.contains("accuracy") {
        return group.spread(|measured| measured.final_accuracy);
    }
    if name.contains("speed") {
        return group.speed_up.map(|speed_up| speed_up.slowest);
    }
    if name.contains("convergence") {
        return group.spread_if_all(|measured| measured.convergence_s);
    }
    if name.contains("time") {
        return group.spread(|measured| measured.total_s);
    }
    None
}
