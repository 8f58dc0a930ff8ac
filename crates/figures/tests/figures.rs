//! Every figure is whole XML, says what it shows and in what, and stands whatever its data are.

use nettorrent_figures::{
    Axis, Bar, BarChart, BarSeries, Heatmap, Ideal, LineChart, PeerGraph, PeerGrid, PeerGrids, PeerLink, PeerNode,
    Point, Reference, Series, Span, StackedBar, StackedBars, Timeline, TimelineRow, Unit, style,
};
use roxmltree::{Document, Node};

/// All text of a figure, one line a piece. That it can be read at all shows that it is well-formed.
fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap_or_else(|problem| panic!("{problem}\n{svg}"));
    assert_eq!(document.root_element().tag_name().name(), "svg");
    assert!(document.root_element().attribute("viewBox").is_some());
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect()
}

#[track_caller]
fn assert_says(svg: &str, wanted: &[&str]) {
    let texts = texts(svg);
    for text in wanted {
        assert!(texts.iter().any(|found| found == text), "{text:?} is not among {texts:?}");
    }
}

fn count(svg: &str, tag: &str) -> usize {
    let document = Document::parse(svg).expect("well-formed");
    document.descendants().filter(|node: &Node<'_, '_>| node.has_tag_name(tag)).count()
}

/// Numbers that a figure must bear.
fn awkward() -> Vec<Vec<f64>> {
    vec![
        vec![],
        vec![1.0],
        vec![5.0; 4],
        vec![0.0; 3],
        vec![f64::NAN; 3],
        vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2.0],
        vec![-1.0, 1.0],
        vec![f64::MAX, f64::MIN, f64::MIN_POSITIVE],
        vec![1e-12, 1e12],
        (0..5000).map(f64::from).collect(),
    ]
}

fn line_chart(series: Vec<Series>) -> LineChart {
    LineChart {
        title: "Accuracy against time".to_owned(),
        x: Axis::linear("training time", Unit::Seconds),
        y: Axis::linear("test accuracy", Unit::Share),
        series,
        references: vec![Reference { name: "target".to_owned(), value: 0.97 }],
    }
}

fn series(name: &str, values: &[f64]) -> Series {
    let points =
        values.iter().enumerate().map(|(index, value)| Point { x: index as f64, y: *value, deviation: *value });
    Series { name: name.to_owned(), points: points.collect() }
}

#[test]
fn a_line_chart_names_its_axes_and_series() {
    let chart = line_chart(vec![series("ring", &[0.5, 0.9]), series("step-wise", &[0.4, 0.8])]);
    let axes = ["Accuracy against time", "training time (s)", "test accuracy (%)"];
    let legend = ["ring", "step-wise", "target (97.0 %)", "± standard deviation"];
    assert_says(&chart.svg(), &[&axes[..], &legend[..]].concat());
}

#[test]
fn a_line_is_broken_where_a_number_is_missing() {
    let whole = line_chart(vec![series("a", &[0.1, 0.2, 0.3, 0.4])]).svg();
    let broken = line_chart(vec![series("a", &[0.1, 0.2, f64::NAN, 0.3, 0.4])]).svg();
    let lines = |svg: &str| svg.matches("stroke=\"#0072B2\"").count();
    assert_eq!(lines(&broken), lines(&whole) + 1);
}

#[test]
fn line_charts_bear_all_numbers() {
    for values in awkward() {
        for (x, y) in [(Axis::linear("a", Unit::Bytes), Axis::linear("b", Unit::Share)), log_axes()] {
            let points = values.iter().map(|value| Point { x: *value, y: *value, deviation: *value }).collect();
            let series = vec![Series { name: "it".to_owned(), points }];
            let references = vec![Reference { name: "none".to_owned(), value: f64::NAN }];
            texts(&LineChart { x, y, references, ..line_chart(series) }.svg());
        }
    }
    assert_says(&line_chart(vec![]).svg(), &["no data"]);
}

fn log_axes() -> (Axis, Axis) {
    (Axis::log("a", Unit::Seconds), Axis::log("b", Unit::Count))
}

#[test]
fn a_thousand_series_are_counted_and_not_all_named() {
    let svg = line_chart((0..1000).map(|index| series(&format!("series {index}"), &[0.1, 0.2])).collect()).svg();
    assert_says(&svg, &["series 0", "series 15", "984 more"]);
    assert!(texts(&svg).len() < 60);
}

#[test]
fn text_from_outside_is_escaped() {
    let hostile = "</text><script>alert('1 & 2')</script>\u{0}\u{1b}";
    let svg = line_chart(vec![series(hostile, &[0.1, 0.2])]).svg();
    assert!(!svg.contains("<script"));
    assert!(texts(&svg).iter().any(|text| text.starts_with("</text><script>")));
    let chart = LineChart { title: hostile.to_owned(), ..line_chart(vec![]) };
    assert!(!chart.svg().contains("<script"));
}

fn bar_chart(values: &[f64]) -> BarChart {
    let bars =
        |factor: f64| values.iter().map(|value| Some(Bar { mean: value * factor, deviation: value / 9.0 })).collect();
    BarChart {
        title: "Speed-up".to_owned(),
        axis: Axis::linear("speed-up", Unit::Times),
        groups: (0..values.len()).map(|index| format!("{index} peers")).collect(),
        series: vec![
            BarSeries { name: "slowest".to_owned(), bars: bars(0.5) },
            BarSeries { name: "median".to_owned(), bars: bars(1.0) },
        ],
        ideal: Some(Ideal { name: "ideal".to_owned(), values: values.iter().copied().map(Some).collect() }),
    }
}

#[test]
fn bars_have_names_numbers_and_an_ideal() {
    let svg = bar_chart(&[1.0, 3.0]).svg();
    let wanted = ["Speed-up", "speed-up (×)", "0 peers", "1 peers", "slowest", "median", "ideal", "1.5 ×", "3 ×"];
    assert_says(&svg, &wanted);
    assert_says(&svg, &["± standard deviation"]);
}

#[test]
fn bars_bear_all_numbers_and_missing_ones() {
    for values in awkward() {
        texts(&bar_chart(&values).svg());
        texts(&BarChart { axis: Axis::log("b", Unit::Bytes), ..bar_chart(&values) }.svg());
    }
    let mut chart = bar_chart(&[1.0, 2.0]);
    chart.series[0].bars = vec![None];
    assert_says(&chart.svg(), &["slowest", "2 ×"]);
    chart.series = (0..1000).map(|index| BarSeries { name: format!("{index}"), bars: vec![] }).collect();
    assert_says(&chart.svg(), &["984 more are not shown"]);
}

#[test]
fn stacked_bars_name_their_parts() {
    let bars = |values: &[f64]| StackedBars {
        title: "Time breakdown".to_owned(),
        axis: Axis::linear("time", Unit::Seconds),
        parts: vec!["computing".to_owned(), "waiting".to_owned()],
        bars: (0..3).map(|index| StackedBar { name: format!("peer {index}"), lengths: values.to_vec() }).collect(),
    };
    assert_says(&bars(&[3.0, 4.0]).svg(), &["peer 0", "peer 2", "computing", "waiting", "time (s)"]);
    for values in awkward() {
        texts(&bars(&values).svg());
    }
    assert_says(&StackedBars { bars: vec![], ..bars(&[]) }.svg(), &["no data"]);
}

#[test]
fn a_timeline_has_a_row_for_each_peer() {
    let row = |index: usize| {
        let spans = (0..2).map(|kind| Span { from_s: kind as f64, to_s: kind as f64 + 1.0, kind }).collect();
        TimelineRow { name: format!("peer {index}"), spans }
    };
    let kinds = vec!["computing".to_owned(), "waiting for peer 0".to_owned()];
    let timeline = Timeline { title: "Waits".to_owned(), kinds, rows: (0..3).map(row).collect() };
    assert_says(&timeline.svg(), &["Waits", "time (s)", "peer 0", "peer 2", "computing", "waiting for peer 0"]);
    let many = Timeline { rows: (0..1000).map(row).collect(), ..timeline.clone() };
    assert_says(&many.svg(), &["968 more"]);
    for values in awkward() {
        let spans = values.iter().map(|value| Span { from_s: *value, to_s: value + 1.0, kind: 77 }).collect();
        let rows = vec![TimelineRow { name: "it".to_owned(), spans }];
        texts(&Timeline { rows, ..timeline.clone() }.svg());
    }
    assert_says(&Timeline { rows: vec![], ..timeline }.svg(), &["no data"]);
}

fn heatmap(rows: Vec<Vec<f64>>) -> Heatmap {
    let names = || (0..rows.len()).map(|index| format!("class {index}")).collect();
    Heatmap {
        title: "Confusion matrix".to_owned(),
        row_label: "true class".to_owned(),
        column_label: "predicted class".to_owned(),
        row_names: names(),
        column_names: names(),
        unit: Unit::Other("samples".to_owned()),
        rows,
    }
}

#[test]
fn a_heatmap_has_its_numbers_in_its_cells() {
    let svg = heatmap(vec![vec![90.0, 3.0], vec![0.0, 85.0]]).svg();
    let wanted = [
        "90",
        "3",
        "85",
        "class 0",
        "rows: true class, columns: predicted class",
        "few (0 samples)",
        "many (90 samples)",
    ];
    assert_says(&svg, &wanted);
}

#[test]
fn heatmaps_bear_all_numbers_and_sizes() {
    for values in awkward() {
        texts(&heatmap(vec![values.clone(), vec![1.0], vec![]]).svg());
    }
    assert_says(&heatmap(vec![]).svg(), &["no data"]);
    let large = heatmap(vec![vec![1.0; 1000]; 1000]).svg();
    assert!(count(&large, "rect") <= 100 * 100 + 2);
}

fn peer_graph(n: usize) -> PeerGraph {
    PeerGraph {
        title: "Peers".to_owned(),
        states: vec!["computing".to_owned(), "waiting".to_owned()],
        peers: (0..n)
            .map(|index| PeerNode { label: format!("peer {index}"), detail: "98.6 %".to_owned(), state: index % 3 })
            .collect(),
        links: (0..n).map(|from| PeerLink { from, to: (from + 1) % n, traffic: 4e6 + from as f64 }).collect(),
        unit: Unit::BytesPerSecond,
        waits: vec![(0, 1), (5, 5), (1_000_000, 0)],
    }
}

#[test]
fn a_graph_of_peers_shows_traffic_and_waits() {
    let svg = peer_graph(4).svg();
    let wanted = ["Peers", "peer 0", "peer 3", "98.6 %", "computing", "waiting", "waits for", "4 MB/s", "1 MB/s"];
    assert_says(&svg, &wanted);
    // Four peers, each on paper, and one disc for each state in the legend.
    assert_eq!(count(&svg, "circle"), 4 * 2 + 2);
}

#[test]
fn graphs_bear_all_numbers_of_peers_and_traffic() {
    for n in [0, 1, 2, 3, 25, 1000, 1200] {
        texts(&peer_graph(n).svg());
    }
    for values in awkward() {
        let links = values.iter().map(|traffic| PeerLink { from: 0, to: 1, traffic: *traffic }).collect();
        texts(&PeerGraph { links, ..peer_graph(3) }.svg());
    }
    assert_says(&peer_graph(0).svg(), &["no peers"]);
    assert_says(&peer_graph(1200).svg(), &["200 more peers are not shown", "only the 600 busiest links are shown"]);
}

#[test]
fn every_colour_of_text_and_axes_changes_in_the_dark() {
    let svg = [line_chart(vec![series("a", &[0.1, 0.2])]).svg(), peer_graph(3).svg()].concat();
    for colour in ["#1A1A1A", "#5A5A5A", "#DDDDDD", "#FFFFFF", "#B3003C"] {
        assert!(svg.contains(colour), "{colour}");
        let style = style();
        assert!(style.contains(&format!("[fill=\"{colour}\"]")) && style.contains(&format!("[stroke=\"{colour}\"]")));
    }
}

#[test]
fn grids_of_peers_have_a_cell_for_each() {
    let grid = |rows, columns, first| PeerGrid {
        name: format!("layers <{rows}>"),
        detail: "3 MB".to_owned(),
        rows,
        columns,
        first,
        passing: "12 kB up".to_owned(),
    };
    let figure = |grids| PeerGrids { title: "A plan".to_owned(), grids };
    let svg = figure(vec![grid(10, 10, 0), grid(1, 1, 100)]).svg();
    assert_says(&svg, &["A plan", "layers <10>", "10 × 10; 3 MB", "0", "99", "100", "12 kB up"]);
    assert_eq!(count(&svg, "rect"), 101);
    assert!(texts(&figure(vec![]).svg()).contains(&"A plan".to_owned()));
    let huge = figure(vec![grid(1000, 1000, 0); 3]).svg();
    assert_eq!(count(&huge, "rect"), 3 * 64 * 64);
    texts(&figure(vec![grid(0, 0, 0)]).svg());
}
