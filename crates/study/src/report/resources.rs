//! What each worker took of its machine: processor, memory, network and disk.

use nettorrent_figures::{Axis, BarChart, BarSeries, LineChart, Point, Series, Unit};

use crate::compare::{Group, Spread};
use crate::report::document::{Block, Figure, Section, Table};
use crate::report::group::{Groups, cell};
use crate::results::{Measurement, ResourcePoint, ResourceUse, RunResult};

/// The section; none where nobody looked. The course over time is that of `featured`.
pub(crate) fn section(groups: &Groups<'_>, featured: Option<&RunResult>) -> Option<Section> {
    let is_measured = |group: &&Group<'_>| group.measurements.iter().any(|measured| uses(measured).next().is_some());
    let measured: Vec<&Group<'_>> = groups.all.iter().filter(is_measured).collect();
    if measured.is_empty() {
        return None;
    }
    let named: Vec<Named<'_, '_>> = measured.into_iter().map(|group| (groups.name(group), group)).collect();
    let mut blocks = vec![
        Block::Paragraph(
            "Measured by each peer about once a second. 100 % CPU is one fully busy core. Whiskers are the standard deviation over \
             peers."
                .to_owned(),
        ),
        Block::Figures(KINDS.iter().map(|kind| bars(&named, kind)).collect()),
        Block::Table(table(&named)),
    ];
    if let Some((run, measured)) = featured.and_then(|run| Some((run, run.measurement()?))) {
        let courses: Vec<Figure> = COURSES.iter().filter_map(|course| over_time(measured, course)).collect();
        if !courses.is_empty() {
            blocks.push(Block::Paragraph(format!("Run {} over time, by peer:", run.id)));
            blocks.push(Block::Figures(courses));
        }
    }
    Some(Section { id: "resources", title: "CPU, memory, network and disk", blocks })
}

/// A setting and its name.
type Named<'a, 'b> = (String, &'b Group<'a>);

/// A number of a worker, and its name.
type Quantity = (&'static str, fn(&ResourceUse) -> f64);

/// Something that a worker took, as a whole.
struct Kind {
    name: &'static str,
    title: &'static str,
    unit: fn() -> Unit,
    series: &'static [Quantity],
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "CPU",
        title: "CPU per peer",
        unit: || Unit::Other("%".to_owned()),
        series: &[("mean", |used| used.cpu_percent_mean), ("maximum over a second", |used| used.cpu_percent_max)],
    },
    Kind {
        name: "memory",
        title: "Peak memory per peer",
        unit: || Unit::Bytes,
        series: &[("peak resident memory", |used| used.rss_bytes_max as f64)],
    },
    Kind {
        name: "network",
        title: "Network traffic per peer",
        unit: || Unit::Bytes,
        series: &[
            ("sent", |used| used.socket_sent_bytes as f64),
            ("received", |used| used.socket_received_bytes as f64),
        ],
    },
    Kind {
        name: "disk",
        title: "Disk traffic per peer",
        unit: || Unit::Bytes,
        series: &[("read", |used| used.disk_read_bytes as f64), ("written", |used| used.disk_written_bytes as f64)],
    },
];

fn uses(measured: &Measurement) -> impl Iterator<Item = &ResourceUse> {
    measured.peers.iter().filter_map(|peer| peer.resources.as_ref())
}

/// Over all workers of all trials.
fn spread(group: &Group<'_>, number: fn(&ResourceUse) -> f64) -> Option<Spread> {
    Spread::of(group.measurements.iter().flat_map(|measured| uses(measured)).map(number))
}

fn bars(named: &[Named<'_, '_>], kind: &Kind) -> Figure {
    let bar = |group: &Group<'_>, number| spread(group, number).map(|spread| spread.bar());
    let series = kind.series.iter().map(|(name, number)| BarSeries {
        name: (*name).to_owned(),
        bars: named.iter().map(|(_, group)| bar(group, *number)).collect(),
    });
    let chart = BarChart {
        title: kind.title.to_owned(),
        axis: Axis::linear(kind.name, (kind.unit)()),
        groups: named.iter().map(|(name, _)| name.clone()).collect(),
        series: series.collect(),
        ideal: None,
    };
    Figure { name: format!("resources-{}", kind.name.to_lowercase()), caption: String::new(), svg: chart.svg() }
}

fn table(named: &[Named<'_, '_>]) -> Table {
    let head = KINDS.iter().flat_map(|kind| kind.series.iter().map(move |(name, _)| format!("{}: {name}", kind.name)));
    let head: Vec<String> = ["configuration".to_owned()].into_iter().chain(head).collect();
    let row = |(name, group): &Named<'_, '_>| {
        let cells = KINDS.iter().flat_map(|kind| {
            kind.series.iter().map(move |(_, number)| cell(spread(group, *number), &(kind.unit)())).collect::<Vec<_>>()
        });
        [name.clone()].into_iter().chain(cells).collect()
    };
    let caption = "Resource usage per peer: mean ± standard deviation over all peers of all trials".to_owned();
    Table { caption, head, rows: named.iter().map(row).collect() }
}

/// Something that a worker took, over time.
struct Course {
    name: &'static str,
    title: &'static str,
    unit: fn() -> Unit,
    number: fn(&ResourcePoint) -> f64,
}

const COURSES: [Course; 4] = [
    Course {
        name: "CPU",
        title: "CPU over time",
        unit: || Unit::Other("%".to_owned()),
        number: |point| point.cpu_percent,
    },
    Course { name: "memory", title: "Memory over time", unit: || Unit::Bytes, number: |point| point.rss_bytes as f64 },
    Course {
        name: "sent",
        title: "Network send rate",
        unit: || Unit::BytesPerSecond,
        number: |point| rate(point.socket_sent_bytes, point),
    },
    Course {
        name: "disk",
        title: "Disk write rate",
        unit: || Unit::BytesPerSecond,
        number: |point| rate(point.disk_written_bytes, point),
    },
];

fn rate(n_bytes: u64, point: &ResourcePoint) -> f64 {
    if point.elapsed_s > 0.0 { n_bytes as f64 / point.elapsed_s } else { f64::NAN }
}

fn over_time(measured: &Measurement, course: &Course) -> Option<Figure> {
    let series: Vec<Series> = measured
        .peers
        .iter()
        .filter_map(|peer| {
            let points = peer.resources.as_ref()?.series.iter();
            let points: Vec<Point> = points.map(|point| Point::new(point.at_s, (course.number)(point))).collect();
            (!points.is_empty()).then(|| Series { name: peer.name(), points })
        })
        .collect();
    if series.is_empty() {
        return None;
    }
    let chart = LineChart {
        title: course.title.to_owned(),
        x: Axis::linear("training time", Unit::Seconds),
        y: Axis::linear(course.name, (course.unit)()),
        series,
        references: Vec::new(),
    };
    Some(Figure { name: format!("course-{}", course.name.to_lowercase()), caption: String::new(), svg: chart.svg() })
}
