//! All settings in one table, and how long each took to the target.

use nettorrent_engine::measure::Measure;
use nettorrent_figures::{Axis, BarChart, BarSeries, Unit};

use crate::compare::Group;
use crate::report::document::{Block, Figure, NOTHING, Section, Table};
use crate::report::group::{Groups, cell};
use crate::report::judged;
use crate::results::{Measurement, Results};

/// More settings than this are counted rather than named.
const MOST_NAMED: usize = 8;

/// The section.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Section {
    let mut blocks = Vec::new();
    if groups.all.iter().any(|group| group.spread_if_all(|measured| measured.convergence_s).is_some()) {
        blocks.push(Block::Figures(vec![convergence(results, groups)]));
    }
    blocks.push(Block::Table(table(results, groups)));
    Section { id: "settings", title: "All configurations", blocks }
}

/// `97.0 %`, `a perplexity of 5.2`, or words where there is no target.
pub(crate) fn target(results: &Results) -> String {
    let text = |target| judged::target_text(results.measure(), target);
    results.target().map_or_else(|| "the target".to_owned(), text)
}

fn convergence(results: &Results, groups: &Groups<'_>) -> Figure {
    let target = target(results);
    let time = |group: &Group<'_>| group.spread_if_all(|measured| measured.convergence_s);
    let (reached, missed): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
        groups.all.iter().partition(|group| time(group).is_some());
    let chart = BarChart {
        title: match groups.measure {
            Measure::Accuracy => format!("Training time to an accuracy of {target}"),
            Measure::Loss | Measure::Perplexity { .. } => format!("Training time to {target}"),
        },
        axis: Axis::linear("training time (evaluation excluded)", Unit::Seconds),
        groups: reached.iter().map(|group| groups.name(group)).collect(),
        series: vec![BarSeries {
            name: format!("time to {target}"),
            bars: reached.iter().map(|group| time(group).map(|spread| spread.bar())).collect(),
        }],
        ideal: None,
    };
    let missed: Vec<String> = missed.into_iter().map(|group| groups.name(group)).collect();
    let caption = match missed.len() {
        0 => String::new(),
        n if n > MOST_NAMED => format!("{n} other configurations did not reach it in every trial."),
        _ => format!("Not reached in every trial: {}.", missed.join("; ")),
    };
    Figure { name: "convergence".to_owned(), caption, svg: chart.svg() }
}

fn table(results: &Results, groups: &Groups<'_>) -> Table {
    let to_target = format!("time to {}", target(results));
    let [best, last] = ["best", "final"].map(|which| format!("{which} {}", groups.measure.noun()));
    let head = [
        "configuration",
        "trials",
        &best,
        &last,
        &to_target,
        "training time",
        "samples/s",
        "payload per peer",
        "network bytes per peer",
        "peak memory",
    ];
    let mut table =
        Table::new("Mean ± standard deviation over trials; times exclude evaluation; bytes are bytes sent", &head);
    table.rows = groups.all.iter().map(|group| row(groups, group)).collect();
    table.without_empty_columns()
}

fn row(groups: &Groups<'_>, group: &Group<'_>) -> Vec<String> {
    let n_done = group.measurements.len();
    let trials =
        if n_done == group.runs.len() { n_done.to_string() } else { format!("{n_done} of {}", group.runs.len()) };
    let (rate, judged) = (Unit::Count, judged::unit(groups.measure));
    vec![
        groups.name(group),
        trials,
        cell(group.spread(|measured| measured.best_value), &judged),
        cell(group.spread(|measured| measured.final_value), &judged),
        convergence_cell(group),
        cell(group.spread(|measured| measured.total_s), &Unit::Seconds),
        cell(group.spread(|measured| measured.samples_per_s), &rate),
        cell(group.sent(), &Unit::Bytes),
        cell(group.spread_of_some(Measurement::socket_bytes_per_peer), &Unit::Bytes),
        cell(group.spread_of_some(|measured| measured.peak_rss_bytes.map(|bytes| bytes as f64)), &Unit::Bytes),
    ]
}

/// Where only some trials reached the target, a mean of those would be too good.
fn convergence_cell(group: &Group<'_>) -> String {
    let n_reached = group.measurements.iter().filter(|measured| measured.convergence_s.is_some()).count();
    match group.spread_if_all(|measured| measured.convergence_s) {
        Some(spread) => spread.text(&Unit::Seconds),
        None if n_reached > 0 => format!("reached in {n_reached} of {}", group.measurements.len()),
        None => NOTHING.to_owned(),
    }
}
