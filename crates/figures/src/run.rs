//! What the peers of a run did with their time, from what they told.

use nettorrent_history::{History, PeerHistory, Times};
use nettorrent_swarm::PeerId;

use crate::axis::Axis;
use crate::number::Unit;
use crate::stacked_bars::{StackedBar, StackedBars};
use crate::timeline::{Span, Timeline, TimelineRow};

/// What a peer does with its time; the names of [`time_parts`].
const PARTS: [&str; 5] = ["computing", "encoding", "decoding", "waiting", "other"];

/// Computing, encoding, decoding and waiting, and what is left of a time: the lengths of a bar of [`where_time_went`].
pub fn time_parts(elapsed_s: f64, [compute_s, encode_s, decode_s, wait_s]: [f64; 4]) -> [f64; 5] {
    let known = compute_s + encode_s + decode_s + wait_s;
    [compute_s, encode_s, decode_s, wait_s, (elapsed_s - known).max(0.0)]
}

/// Where time went, a bar for each peer or setting.
pub fn where_time_went(title: &str, bars: Vec<StackedBar>) -> StackedBars {
    StackedBars {
        title: title.to_owned(),
        axis: Axis::linear("time", Unit::Seconds),
        parts: PARTS.map(str::to_owned).to_vec(),
        bars,
    }
}

/// For more peers than this it is not shown for whom they waited: there are not enough colours.
const MOST_NAMED: usize = 8;

/// What each peer did when, from a time on; nothing if nobody told. Peers tell about once a second how much of it they did
/// what; within that second the order is not known, so it is shown in the order of the work. How long a peer waited in a round it
/// tells when the round is over, so that may reach back over seconds of which nothing was told.
pub fn timeline(history: &History, from_s: f64) -> Option<Timeline> {
    let ids: Vec<PeerId> = history.peers.keys().copied().collect();
    let mut kinds: Vec<String> = ["computing", "encoding and decoding"].map(str::to_owned).to_vec();
    let n_own = kinds.len();
    let is_few = ids.len() <= MOST_NAMED;
    if is_few {
        kinds.extend(ids.iter().map(|id| format!("waiting for {id}")));
    }
    kinds.push(if is_few { "waiting for an unknown peer" } else { "waiting" }.to_owned());
    let unknown = kinds.len() - 1;
    let row = |(id, peer): (&PeerId, &PeerHistory)| {
        let kind_of =
            // Of a run that went on, by the join index: the names have changed.
            |whom: PeerId| {
                let index = ids.iter().position(|id| id.join_index() == whom.join_index() && is_few);
                index.map_or(unknown, |index| n_own + index)
            };
        let mut drawn_s = f64::NEG_INFINITY;
        let told = peer.times.iter().filter(|(at_s, _)| *at_s >= from_s);
        let spans = told.flat_map(|(at_s, times)| {
            let spans = spans(*at_s, times, drawn_s, kind_of, unknown);
            drawn_s = spans.last().map_or(drawn_s, |span| span.to_s);
            spans
        });
        TimelineRow { name: id.to_string(), spans: spans.collect() }
    };
    let rows: Vec<TimelineRow> = history.peers.iter().map(row).collect();
    if rows.iter().all(|row| row.spans.is_empty()) {
        return None;
    }
    Some(Timeline { title: "Activity over time".to_owned(), kinds, rows })
}

/// What a peer told at a time. What is older than `drawn_s` is drawn already.
fn spans(at_s: f64, times: &Times, drawn_s: f64, kind_of: impl Fn(PeerId) -> usize, unknown: usize) -> Vec<Span> {
    let named: f64 = times.waits.iter().map(|wait| wait.seconds).sum();
    let mut parts = vec![(0, times.compute_s), (1, times.encode_s + times.decode_s)];
    parts.extend(times.waits.iter().map(|wait| (kind_of(wait.peer), wait.seconds)));
    parts.push((unknown, (times.wait_s - named).max(0.0)));
    let whole: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let mut from_s = (at_s - times.elapsed_s.max(whole)).max(drawn_s.min(at_s - times.elapsed_s));
    // Work that went on at the same time must not run into the next second.
    let scale = if whole > 0.0 { ((at_s - from_s) / whole).min(1.0) } else { 1.0 };
    let span = |(kind, seconds): (usize, f64)| {
        let to_s = from_s + seconds * scale;
        let span = Span { from_s, to_s, kind };
        from_s = to_s;
        span
    };
    parts.into_iter().filter(|(_, seconds)| *seconds > 0.0).map(span).collect()
}

#[cfg(test)]
mod tests {
    use nettorrent_history::Times;
    use nettorrent_swarm::PeerId;

    use super::spans;

    fn times(elapsed_s: f64, compute_s: f64, wait_s: f64) -> Times {
        Times { elapsed_s, compute_s, wait_s, ..Times::of(PeerId::new(0, 0)) }
    }

    fn drawn(at_s: f64, times: &Times, drawn_s: f64) -> Vec<(f64, f64, usize)> {
        spans(at_s, times, drawn_s, |_| 2, 3).iter().map(|span| (span.from_s, span.to_s, span.kind)).collect()
    }

    #[test]
    fn what_is_told_late_reaches_back_to_what_is_drawn() {
        let late = times(1.0, 0.5, 4.0);
        assert_eq!(drawn(10.0, &late, 2.0), [(5.5, 6.0, 0), (6.0, 10.0, 3)]);
        assert_eq!(drawn(10.0, &late, f64::NEG_INFINITY), [(5.5, 6.0, 0), (6.0, 10.0, 3)]);
        assert_eq!(drawn(10.0, &late, 9.0), [(9.0, 9.0 + 0.5 / 4.5, 0), (9.0 + 0.5 / 4.5, 10.0, 3)]);
        assert_eq!(drawn(10.0, &times(2.0, 0.5, 0.0), 3.0), [(8.0, 8.5, 0)]);
    }
}
