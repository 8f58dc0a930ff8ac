//! How far replicas were apart, and what the best model takes for what.

use nettorrent_figures::{Axis, Heatmap, LineChart, Point, Series, Unit};

use crate::compare::{Group, Spread};
use crate::report::document::{Block, Figure, Section};
use crate::report::group::Groups;
use crate::report::panel::{MOST_PANELS, Panel, panels};
use crate::results::{Measurement, Results, RunResult};

/// The section on replicas; none where they were not compared.
pub(crate) fn section(groups: &Groups<'_>) -> Option<Section> {
    let (id, title) = ("replicas", "Distance of replicas");
    let curves: Vec<Vec<Point>> = groups.all.iter().map(curve).collect();
    if curves.iter().all(Vec::is_empty) {
        return None;
    }
    if curves.iter().flatten().all(|point| point.y == 0.0) {
        let text = "All replicas were identical at the end of every epoch.".to_owned();
        return Some(Section { id, title, blocks: vec![Block::Paragraph(text)] });
    }
    let panels = panels(groups);
    let figures: Vec<Figure> = panels.iter().take(MOST_PANELS).enumerate().filter_map(figure).collect();
    let text = "Root mean square distance of the replicas from their mean, relative to the norm of that mean, at the end of each epoch \
                and before replicas are synchronised. It is 0 for strategies that keep replicas identical.";
    Some(Section { id, title, blocks: vec![Block::Paragraph(text.to_owned()), Block::Figures(figures)] })
}

fn figure((index, panel): (usize, &Panel<'_, '_>)) -> Option<Figure> {
    let series = panel.groups.iter().map(|(name, group)| Series { name: name.clone(), points: curve(group) });
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    if series.is_empty() {
        return None;
    }
    let title = match panel.title.as_str() {
        "" => "Distance of replicas from their mean".to_owned(),
        common => format!("Distance of replicas: {common}"),
    };
    let chart = LineChart {
        title,
        x: Axis::linear("epochs", Unit::Count),
        y: Axis::linear("relative distance", Unit::Share),
        series,
        references: Vec::new(),
    };
    Some(Figure { name: format!("replicas-{}", index + 1), caption: String::new(), svg: chart.svg() })
}

fn curve(group: &Group<'_>) -> Vec<Point> {
    let measured = &group.measurements;
    let mut epochs: Vec<u64> =
        measured.iter().flat_map(|measured| measured.replica_distances.iter().map(|distance| distance.epoch)).collect();
    epochs.sort_unstable();
    epochs.dedup();
    let at = |measured: &Measurement, epoch: u64| {
        measured.replica_distances.iter().find(|distance| distance.epoch == epoch).map(|distance| distance.distance)
    };
    let point = |epoch: u64| {
        let spread = Spread::of(measured.iter().filter_map(|measured| at(measured, epoch)))?;
        Some(Point { x: epoch as f64, y: spread.mean, deviation: spread.deviation.unwrap_or(0.0) })
    };
    epochs.into_iter().filter_map(point).collect()
}

/// What the best run's model takes for what; none where no model was tested by class.
pub(crate) fn confusion(results: &Results) -> Option<Section> {
    let tested = results.runs.iter().filter_map(|run| Some((run, run.measurement()?)));
    let tested = tested.filter(|(_, measured)| !measured.confusion.is_empty());
    let best: (&RunResult, &Measurement) =
        tested.max_by(|a, b| a.1.final_value.total_cmp(&b.1.final_value).then(b.0.id.cmp(&a.0.id)))?;
    let (run, measured) = best;
    let n = measured.confusion.len();
    let name = |index: usize| measured.classes.get(index).cloned().unwrap_or_else(|| index.to_string());
    let map = Heatmap {
        title: "Confusion matrix".to_owned(),
        row_label: "true class".to_owned(),
        column_label: "predicted class".to_owned(),
        row_names: (0..n).map(name).collect(),
        column_names: (0..n).map(name).collect(),
        unit: Unit::Other("samples".to_owned()),
        rows: measured.confusion.iter().map(|row| row.iter().map(|count| *count as f64).collect()).collect(),
    };
    let text = format!(
        "Test samples of the run with the highest final accuracy, {} ({}). {}",
        run.id,
        Unit::Share.format(measured.final_value),
        most_confused(measured, name)
    );
    let figure = Figure { name: "confusion".to_owned(), caption: String::new(), svg: map.svg() };
    let blocks = vec![Block::Paragraph(text), Block::Figures(vec![figure])];
    Some(Section { id: "confusion", title: "Confusion matrix of the best run", blocks })
}

fn most_confused(measured: &Measurement, name: impl Fn(usize) -> String) -> String {
    let cells = measured.confusion.iter().enumerate().flat_map(|(is, row)| {
        row.iter().enumerate().filter(move |(taken, _)| *taken != is).map(move |(taken, count)| (*count, is, taken))
    });
    // Of equal ones, the first.
    match cells.max_by_key(|(count, is, taken)| (*count, std::cmp::Reverse((*is, *taken)))) {
        Some((count, is, taken)) if count > 0 => {
            format!("Most frequent error: {} classified as {}, {count} times.", name(is), name(taken))
        }
        _ => "No sample was misclassified.".to_owned(),
    }
}
