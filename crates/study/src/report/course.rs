//! How what runs are judged by went: against time, against bytes and against epochs.

use nettorrent_engine::measure::Measure;
use nettorrent_figures::{Axis, LineChart, Point, Reference, Series, Unit};

use crate::compare::{Group, Spread};
use crate::report::document::{Block, Figure, NOTHING, Section, Table};
use crate::report::group::{Groups, cell};
use crate::report::judged;
use crate::report::panel::{MOST_PANELS, Panel, panels};
use crate::results::{Measurement, Results, TestPoint};

/// What it is shown against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    Time,
    Bytes,
    Epochs,
}

impl Against {
    const ALL: [Self; 3] = [Self::Time, Self::Bytes, Self::Epochs];

    fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Bytes => "bytes",
            Self::Epochs => "epochs",
        }
    }

    fn of(self, point: &TestPoint) -> f64 {
        match self {
            Self::Time => point.seconds,
            Self::Bytes => point.sent_bytes as f64,
            Self::Epochs => point.epoch,
        }
    }

    fn label(self) -> (&'static str, Unit) {
        match self {
            Self::Time => ("training time (evaluation excluded)", Unit::Seconds),
            Self::Bytes => ("sent by all peers", Unit::Bytes),
            Self::Epochs => ("epochs", Unit::Count),
        }
    }

    /// Where settings differ by a large factor, equal steps would press all but one against the edge.
    fn axis(self, last: &[f64]) -> Axis {
        let (label, unit) = self.label();
        let (low, high) =
            last.iter().filter(|x| **x > 0.0).fold((f64::MAX, 0f64), |(low, high), x| (low.min(*x), high.max(*x)));
        if self != Self::Epochs && high > 20.0 * low { Axis::log(label, unit) } else { Axis::linear(label, unit) }
    }
}

/// The section.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Section {
    let panels = panels(groups);
    let mut blocks = vec![Block::Paragraph(introduction(groups))];
    let kind = |against: Against| -> Vec<Figure> {
        let shown = panels.iter().take(MOST_PANELS).enumerate();
        shown.filter_map(|(index, panel)| figure(results, panel, (against, index))).collect()
    };
    let mut rows: Vec<Vec<Figure>> = Against::ALL.map(kind).to_vec();
    if panels.len() == 1 {
        // One of each kind: they belong in one row.
        rows = vec![rows.concat()];
    }
    blocks.extend(rows.into_iter().filter(|figures| !figures.is_empty()).map(Block::Figures));
    if panels.len() > MOST_PANELS {
        let n_more = panels.len() - MOST_PANELS;
        blocks.push(Block::Paragraph(format!(
            "{n_more} more figures of each kind are left out; epochs.csv has all numbers."
        )));
    }
    blocks.extend(at_fixed_times(groups).map(Block::Table));
    Section { id: groups.measure.noun(), title: judged::title(groups.measure), blocks }
}

fn introduction(groups: &Groups<'_>) -> String {
    let most = groups.all.iter().map(|group| group.measurements.len()).max().unwrap_or(0);
    let trials = if most > 1 {
        "Lines are means over trials, up to the end of the shortest; bands are one standard deviation."
    } else {
        "There was one trial per configuration, so the spread between trials is unknown."
    };
    let title = judged::title(groups.measure);
    format!("{title} on the test set, evaluated after each epoch and wherever the job evaluates within one. {trials}")
}

fn figure(results: &Results, panel: &Panel<'_, '_>, (against, index): (Against, usize)) -> Option<Figure> {
    let measure = results.measure();
    let series =
        |(name, group): &(String, &Group<'_>)| Series { name: name.clone(), points: curve(group, against, measure) };
    let curves: Vec<Series> = panel.groups.iter().map(series).collect();
    // Who trains alone sends nothing, so there it has no curve.
    let curves: Vec<Series> =
        if against == Against::Bytes { curves.into_iter().map(without_zeros).collect() } else { curves };
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return None;
    }
    let last: Vec<f64> = curves.iter().filter_map(|curve| curve.points.last().map(|point| point.x)).collect();
    let title = match panel.title.as_str() {
        "" => format!("{} against {}", judged::title(measure), against.name()),
        common => format!("{} against {}: {common}", judged::title(measure), against.name()),
    };
    let target = results.target();
    let chart = LineChart {
        title,
        x: against.axis(&last),
        y: value_axis(measure, &curves),
        series: curves,
        references: target.map(|value| Reference { name: "target".to_owned(), value }).into_iter().collect(),
    };
    let name = format!("{}-{}-{}", measure.noun(), against.name(), index + 1);
    Some(Figure { name, caption: String::new(), svg: chart.svg() })
}

/// A perplexity falls by large factors at the beginning, and equal steps would hide all that comes later.
fn value_axis(measure: Measure, curves: &[Series]) -> Axis {
    let (label, unit) = (format!("test {}", measure.noun()), judged::unit(measure));
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let is_wide = measure != Measure::Accuracy && low > 0.0 && high > 20.0 * low;
    if is_wide { Axis::log(label, unit) } else { Axis::linear(label, unit) }
}

fn without_zeros(series: Series) -> Series {
    Series { points: series.points.into_iter().filter(|point| point.x > 0.0).collect(), ..series }
}

/// The mean over trials, as far as all of them went: a mean over fewer would jump where one ends. Where tests went by time, trials have
/// few places in common besides the ends of epochs.
fn curve(group: &Group<'_>, against: Against, measure: Measure) -> Vec<Point> {
    let trials: Vec<Vec<TestPoint>> = group.measurements.iter().map(|measured| measured.tests()).collect();
    let Some((first, others)) = trials.split_first() else { return Vec::new() };
    let point = |test: &TestPoint| {
        let at = |trial: &Vec<TestPoint>| trial.iter().find(|other| other.epoch == test.epoch).copied();
        let all: Vec<TestPoint> =
            std::iter::once(Some(*test)).chain(others.iter().map(at)).collect::<Option<Vec<TestPoint>>>()?;
        let x = Spread::of(all.iter().map(|test| against.of(test)))?;
        let y = Spread::of(all.iter().map(|test| test.value(measure)))?;
        Some(Point { x: x.mean, y: y.mean, deviation: y.deviation.unwrap_or(0.0) })
    };
    first.iter().filter_map(point).collect()
}

/// What had been reached at fixed times.
fn at_fixed_times(groups: &Groups<'_>) -> Option<Table> {
    let times = |measured: &Measurement| measured.value_at.iter().map(|at| at.seconds).collect::<Vec<f64>>();
    let mut all: Vec<f64> =
        groups.all.iter().flat_map(|group| group.measurements.iter().copied()).flat_map(times).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    if all.is_empty() {
        return None;
    }
    let mut head = vec!["configuration".to_owned()];
    head.extend(all.iter().map(|seconds| format!("after {}", Unit::Seconds.format(*seconds))));
    let at = |group: &Group<'_>, seconds: f64| {
        group.spread_if_all(|measured| measured.value_at.iter().find(|at| at.seconds == seconds)?.value)
    };
    let row = |group: &Group<'_>| {
        let cells = all.iter().map(|seconds| cell(at(group, *seconds), &judged::unit(groups.measure)));
        [groups.name(group)].into_iter().chain(cells).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = groups.all.iter().map(row).collect();
    if rows.iter().all(|row| row.iter().skip(1).all(|cell| cell == NOTHING)) {
        return None;
    }
    Some(Table {
        caption: format!(
            "Best {} reached by fixed training times, where all trials lasted that long",
            groups.measure.noun()
        ),
        head,
        rows,
    })
}
