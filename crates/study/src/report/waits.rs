//! Where time went: in all settings, and in one run peer by peer, with who waited for whom and when.

use nettorrent_figures::{Heatmap, StackedBar, Unit, time_parts, timeline, where_time_went};
use nettorrent_history::History;
use nettorrent_swarm::PeerId;

use crate::compare::{Group, Spread};
use crate::report::document::{Block, Figure, Section};
use crate::report::group::Groups;
use crate::results::{Measurement, PeerMeasurement, RunResult};

/// More peers than this make no readable table.
const MOST_IN_TABLE: usize = 12;

/// The section; none where peers told nothing. `history` is that of the featured run, where its events are still there.
pub(crate) fn section(groups: &Groups<'_>, featured: Option<&RunResult>, history: Option<&History>) -> Option<Section> {
    let all = settings(groups)?;
    let mut blocks = vec![
        Block::Paragraph(
            "A peer computes gradients, encodes its own results, decodes what it receives, and waits for other peers; sending goes on \
             in the background. Activities that overlap are counted in full, so the parts may add up to more than the elapsed \
             time."
                .to_owned(),
        ),
        Block::Figures(vec![all]),
    ];
    if let Some((run, measured)) = featured.and_then(|run| Some((run, run.measurement()?)))
        && !measured.peers.is_empty()
    {
        blocks.push(Block::Paragraph(format!("Run {}, by peer:", run.id)));
        let figures = [Some(peers(measured)), whom(measured), history.and_then(when)];
        blocks.push(Block::Figures(figures.into_iter().flatten().collect()));
    }
    Some(Section { id: "waits", title: "Time breakdown and stragglers", blocks })
}

fn parts(peer: &PeerMeasurement) -> [f64; 5] {
    time_parts(peer.elapsed_s, [peer.compute_s, peer.encode_s, peer.decode_s, peer.wait_s])
}

/// A bar for each setting: the mean over its peers and trials.
fn settings(groups: &Groups<'_>) -> Option<Figure> {
    let bar = |group: &Group<'_>| {
        let all = group.measurements.iter().flat_map(|measured| &measured.peers);
        // Who only tells what it takes of its machine has no bar, rather than one without length.
        let peers: Vec<[f64; 5]> = all.filter(|peer| peer.elapsed_s > 0.0).map(parts).collect();
        let mean = |index: usize| Spread::of(peers.iter().map(|parts| parts[index])).map_or(0.0, |spread| spread.mean);
        let bar = StackedBar { name: groups.name(group), lengths: (0..5).map(mean).collect() };
        (!peers.is_empty()).then_some(bar)
    };
    let bars: Vec<StackedBar> = groups.all.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return None;
    }
    let chart = where_time_went("Time breakdown by configuration", bars);
    Some(Figure {
        name: "time-by-setting".to_owned(),
        caption: "Means over peers and trials.".to_owned(),
        svg: chart.svg(),
    })
}

fn peers(measured: &Measurement) -> Figure {
    let bar = |peer: &PeerMeasurement| StackedBar { name: peer.name(), lengths: parts(peer).to_vec() };
    let chart = where_time_went("Time breakdown by peer", measured.peers.iter().map(bar).collect());
    Figure { name: "time-by-peer".to_owned(), caption: String::new(), svg: chart.svg() }
}

/// How long each waited for each, as far as is known.
fn whom(measured: &Measurement) -> Option<Figure> {
    let known = measured.peers.iter().any(|peer| !peer.waits.is_empty());
    if !known || measured.peers.len() > MOST_IN_TABLE {
        return None;
    }
    let ids: Vec<PeerId> = measured.peers.iter().map(|peer| peer.peer).collect();
    let waited = |peer: &PeerMeasurement, whom: PeerId| -> f64 {
        peer.waits.iter().filter(|wait| wait.peer == whom).map(|wait| wait.seconds).sum()
    };
    let join_indices = ids.iter().map(|id| id.join_index().to_string());
    let map = Heatmap {
        title: "Wait time between peers".to_owned(),
        row_label: "waiting peer".to_owned(),
        column_label: "peer waited for".to_owned(),
        row_names: measured.peers.iter().map(PeerMeasurement::name).collect(),
        column_names: join_indices.collect(),
        unit: Unit::Seconds,
        rows: measured
            .peers
            .iter()
            // A tenth of a second is as exact as it is worth in a cell.
            .map(|peer| ids.iter().map(|whom| (waited(peer, *whom) * 10.0).round() / 10.0).collect())
            .collect(),
    };
    Some(Figure { name: "waits".to_owned(), caption: "Seconds, over the whole run.".to_owned(), svg: map.svg() })
}

/// What each peer did when.
fn when(history: &History) -> Option<Figure> {
    let caption =
        "Peers report about once a second, and waiting only when it is over. The order of activities within a report is not \
                   known; computing is drawn first."
            .to_owned();
    let svg = timeline(history, 0.0)?.svg();
    Some(Figure { name: "timeline".to_owned(), caption, svg })
}
