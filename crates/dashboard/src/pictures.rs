//! The figures of a run: how well it learns, how fast, and what its peers do.

use nettorrent_figures::{
    Axis, LineChart, PeerGraph, PeerLink, PeerNode, Point, Series, StackedBar, StackedBars, Unit, time_parts, timeline,
    where_time_went,
};
use nettorrent_history::{History, Measure, PeerHistory, Resources, Times};
use nettorrent_swarm::PeerId;

/// A figure with the name of its place in the page.
pub(crate) struct Picture {
    pub id: &'static str,
    pub svg: String,
}

/// Who waits for whom is shown for so long.
const RECENT_S: f64 = 5.0;
/// What peers did when is shown for so long.
const WINDOW_S: f64 = 60.0;
/// Of less than this one cannot say how fast anything went: at the end of a run a rest is told.
pub(crate) const SHORT_S: f64 = 0.1;
/// More points than this are thinned out: a figure has no more room.
const MOST_POINTS: usize = 400;

/// All figures for which there is something to show.
pub(crate) fn pictures(history: &History) -> Vec<Picture> {
    let mut pictures =
        vec![Picture { id: "loss", svg: loss(history).svg() }, Picture { id: "speed", svg: speed(history).svg() }];
    if history.measure() != Measure::Loss {
        pictures.insert(0, Picture { id: "accuracy", svg: accuracy(history).svg() });
    }
    if history.peers.values().any(|peer| !peer.times.is_empty()) {
        pictures.push(Picture { id: "graph", svg: graph(history).svg() });
        pictures.push(Picture { id: "times", svg: times(history).svg() });
        pictures.push(Picture { id: "network", svg: network(history).svg() });
    }
    if let Some(timeline) = timeline(history, history.last_s - WINDOW_S) {
        pictures.push(Picture { id: "timeline", svg: timeline.svg() });
    }
    if history.peers.values().any(|peer| !peer.resources.is_empty()) {
        let processor = |used: &Resources| used.cpu_percent;
        let memory = |used: &Resources| used.rss_bytes as f64;
        let percent = Unit::Other("%".to_owned());
        pictures.push(Picture { id: "processor", svg: course(history, "CPU", percent, processor).svg() });
        pictures.push(Picture { id: "memory", svg: course(history, "Resident memory", Unit::Bytes, memory).svg() });
    }
    pictures
}

fn chart(title: &str, what: &str, unit: Unit, series: Vec<Series>) -> LineChart {
    LineChart {
        title: title.to_owned(),
        x: Axis::linear("time", Unit::Seconds),
        y: Axis::linear(what, unit),
        series,
        references: Vec::new(),
    }
}

fn series<T>(name: impl Into<String>, events: &[(f64, T)], value: impl Fn(&T) -> f64) -> Series {
    let step = events.len().div_ceil(MOST_POINTS).max(1);
    // Counted from the end, so that the newest is always there.
    let mut points: Vec<Point> =
        events.iter().rev().step_by(step).map(|(at_s, event)| Point::new(*at_s, value(event))).collect();
    points.reverse();
    Series { name: name.into(), points }
}

fn accuracy(history: &History) -> LineChart {
    let measure = history.measure();
    let while_training =
        series("training, current epoch", &history.progress, |told| measure.value(told.loss, told.accuracy));
    let tested = series("test set", &history.tests(), |test| measure.value(test.test_loss, test.test_accuracy));
    let series = vec![tested, while_training];
    match measure {
        Measure::Perplexity { .. } => chart("Perplexity", "perplexity", Unit::Count, series),
        Measure::Accuracy | Measure::Loss => chart("Accuracy", "accuracy", Unit::Share, series),
    }
}

fn loss(history: &History) -> LineChart {
    let while_training = series("training, current epoch", &history.progress, |told| told.loss);
    let tested = series("test set", &history.tests(), |test| test.test_loss);
    chart("Loss", "loss", Unit::Count, vec![tested, while_training])
}

fn speed(history: &History) -> LineChart {
    let (counted, n_each) = history.measure().unit();
    let all = series("all peers", &history.progress, |told| told.samples_per_s * n_each as f64);
    chart("Throughput", &format!("{counted}/s"), Unit::Count, vec![all])
}

fn network(history: &History) -> LineChart {
    let of_peer = |(id, peer): (&PeerId, &PeerHistory)| {
        let lasting: Vec<_> = peer.times.iter().filter(|(_, times)| times.elapsed_s >= SHORT_S).cloned().collect();
        series(id.to_string(), &lasting, |times: &Times| times.sent_bytes as f64 / times.elapsed_s)
    };
    let all = history.peers.iter().map(of_peer).collect();
    chart("Send rate", "sent", Unit::BytesPerSecond, all)
}

fn course(history: &History, title: &str, unit: Unit, value: fn(&Resources) -> f64) -> LineChart {
    let of_peer = |(id, peer): (&PeerId, &PeerHistory)| {
        let lasting: Vec<_> = peer.resources.iter().filter(|(_, used)| used.elapsed_s >= SHORT_S).copied().collect();
        series(id.to_string(), &lasting, value)
    };
    chart(title, "per peer", unit, history.peers.iter().map(of_peer).collect())
}

/// What a peer did in the last seconds.
pub(crate) fn recent(history: &History, id: PeerId, peer: &PeerHistory) -> Times {
    let mut sum = Times::of(id);
    let since = history.last_s - RECENT_S;
    peer.times.iter().rev().take_while(|(at_s, _)| *at_s >= since).for_each(|(_, times)| sum += times);
    sum
}

/// Where the time of each peer went in the last seconds.
fn times(history: &History) -> StackedBars {
    let bar = |(id, peer): (&PeerId, &PeerHistory)| {
        let times = recent(history, *id, peer);
        let parts = [times.compute_s, times.encode_s, times.decode_s, times.wait_s];
        StackedBar { name: id.to_string(), lengths: time_parts(times.elapsed_s, parts).to_vec() }
    };
    let title = format!("Time breakdown, last {RECENT_S:.0} s");
    where_time_went(&title, history.peers.iter().map(bar).collect())
}

/// Who is there, linked with whom, and who waits for whom. Peers tell how much they send, not to whom: a link is as wide as
/// what its two ends send on average.
fn graph(history: &History) -> PeerGraph {
    let members: Vec<PeerId> = match history.views.iter().max_by_key(|(_, view)| view.view) {
        Some((_, view)) => view.members.clone(),
        None => history.peers.keys().copied().collect(),
    };
    let absent = PeerHistory::default();
    let recent: Vec<Times> =
        members.iter().map(|id| recent(history, *id, history.peers.get(id).unwrap_or(&absent))).collect();
    let rate = |times: &Times| times.sent_bytes as f64 / times.elapsed_s.max(1e-9);
    let peers = members.iter().zip(&recent).map(|(id, times)| {
        let waits = times.wait_s > times.compute_s;
        PeerNode { label: id.to_string(), detail: Unit::BytesPerSecond.format(rate(times)), state: usize::from(waits) }
    });
    let n_others = members.len().saturating_sub(1).max(1) as f64;
    let pairs = (0..members.len()).flat_map(|from| (from + 1..members.len()).map(move |to| (from, to)));
    let link = |(from, to): (usize, usize)| PeerLink {
        from,
        to,
        traffic: (rate(&recent[from]) + rate(&recent[to])) / (2.0 * n_others),
    };
    let place = |id: PeerId| members.iter().position(|member| *member == id);
    let waits = recent.iter().enumerate().flat_map(|(from, times)| {
        let longest = times.waits.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        // What is over in a moment is no reason to point at anybody.
        let longest = longest.filter(|wait| wait.seconds > 0.1 * times.elapsed_s);
        longest.and_then(|wait| place(wait.peer)).map(|to| (from, to))
    });
    PeerGraph {
        title: "Peers, traffic and waits".to_owned(),
        states: vec!["mostly computing".to_owned(), "mostly waiting".to_owned()],
        peers: peers.collect(),
        links: pairs.map(link).collect(),
        unit: Unit::BytesPerSecond,
        waits: waits.collect(),
    }
}
