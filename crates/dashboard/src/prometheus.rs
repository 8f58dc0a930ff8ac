//! A run's numbers as Prometheus reads them.

use std::fmt::Write;

use nettorrent_history::{History, Resources};
use nettorrent_swarm::PeerId;

use crate::totals::{PeerTotals, Totals};

/// The exposition format, version 0.0.4.
pub(crate) fn text(run: &str, history: &History, totals: &Totals) -> String {
    let mut text = String::new();
    let progress = history.progress.last().map(|(_, progress)| progress);
    let epoch = history.epochs.last().map(|(_, epoch)| epoch);
    let tests = history.tests();
    let test = tests.last().map(|(_, test)| test);
    let whole = [
        ("epochs_done", "counter", "Completed epochs.", epoch.map(|epoch| epoch.epoch as f64)),
        (
            "test_accuracy",
            "gauge",
            "Accuracy on the test set, last evaluation.",
            test.map(|test| test.test_accuracy).filter(|accuracy| !accuracy.is_nan()),
        ),
        ("test_loss", "gauge", "Mean loss on the test set, last evaluation.", test.map(|test| test.test_loss)),
        ("training_loss", "gauge", "Mean training loss of the current epoch.", progress.map(|p| p.loss)),
        ("learning_rate", "gauge", "The learning rate.", progress.map(|p| f64::from(p.lr))),
        ("samples_per_second", "gauge", "Training throughput of all peers.", progress.map(|p| p.samples_per_s)),
        (
            "running",
            "gauge",
            "1 while the run is in progress, 0 afterwards.",
            Some(f64::from(u8::from(history.stop.is_none()))),
        ),
    ];
    for (name, kind, help, value) in whole {
        if let Some(value) = value {
            head(&mut text, name, kind, help);
            line(&mut text, name, run, "", value);
        }
    }
    if let Some(own) = test.map(|test| &test.metrics).filter(|own| !own.is_empty()) {
        head(&mut text, "test_metric", "gauge", "The task's own metrics on the test set, last evaluation.");
        own.iter().for_each(|(metric, value)| line(&mut text, "test_metric", run, &label("metric", metric), *value));
    }
    for (name, kind, help, value) in OF_EACH_PEER {
        let values: Vec<(PeerId, f64)> = totals.peers().filter_map(|(id, peer)| Some((id, value(peer)?))).collect();
        if !values.is_empty() {
            head(&mut text, name, kind, help);
            let of = |id: &PeerId| label("peer", &id.join_index().to_string());
            values.iter().for_each(|(id, value)| line(&mut text, name, run, &of(id), *value));
        }
    }
    text
}

/// A number that each peer has: its name, its kind, what it is, and its value if it is known.
type Measure = (&'static str, &'static str, &'static str, fn(&PeerTotals) -> Option<f64>);

const OF_EACH_PEER: [Measure; 13] = [
    ("compute_seconds_total", "counter", "Time spent on gradients.", |peer| Some(peer.times.compute_s)),
    ("wait_seconds_total", "counter", "Time spent waiting for other peers.", |peer| Some(peer.times.wait_s)),
    ("encode_seconds_total", "counter", "Time spent encoding the peer's own results.", |peer| {
        Some(peer.times.encode_s)
    }),
    ("decode_seconds_total", "counter", "Time spent decoding and applying what others sent.", |peer| {
        Some(peer.times.decode_s)
    }),
    ("send_seconds_total", "counter", "Time spent writing to links, summed over links.", |peer| {
        Some(peer.times.send_s)
    }),
    ("cpu_seconds_total", "counter", "CPU time.", |peer| Some(peer.cpu_s)),
    ("resident_memory_bytes", "gauge", "Resident memory.", |peer| used(peer, |used| used.rss_bytes)),
    ("network_sent_bytes_total", "counter", "Bytes sent over sockets.", |peer| used(peer, |used| used.net_sent_bytes)),
    ("network_received_bytes_total", "counter", "Bytes received over sockets.", |peer| {
        used(peer, |used| used.net_received_bytes)
    }),
    ("payload_sent_bytes_total", "counter", "Payload bytes sent by the exchange strategy.", |peer| {
        used(peer, |used| used.payload_sent_bytes)
    }),
    ("payload_received_bytes_total", "counter", "Payload bytes received from other peers' strategies.", |peer| {
        used(peer, |used| used.payload_received_bytes)
    }),
    ("disk_read_bytes_total", "counter", "Bytes read from disk.", |peer| used(peer, |used| used.disk_read_bytes)),
    ("disk_written_bytes_total", "counter", "Bytes written to disk.", |peer| {
        used(peer, |used| used.disk_written_bytes)
    }),
];

fn used(peer: &PeerTotals, number: fn(&Resources) -> u64) -> Option<f64> {
    peer.used.as_ref().map(|used| number(used) as f64)
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP nettorrent_{name} {help}\n# TYPE nettorrent_{name} {kind}");
}

/// One more label, with the comma before it.
fn label(name: &str, value: &str) -> String {
    format!(",{name}=\"{}\"", escaped(value))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn line(text: &mut String, name: &str, run: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "nettorrent_{name}{{run=\"{}\"{labels}}} {value}", escaped(run));
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::totals::Totals;
    use nettorrent_history::{Evaluation, Event, History, Line, Times};
    use nettorrent_swarm::PeerId;

    #[test]
    fn sums_of_each_peer_are_told_with_its_name() {
        let mut history = History::default();
        for compute_s in [0.5, 0.25] {
            let times = Times { compute_s, elapsed_s: 1.0, ..Times::of(PeerId(3)) };
            history.add(Line { at_s: 1.0, event: Event::Times(times) });
        }
        let mut totals = Totals::default();
        totals.add(&history);
        let text = text("a \"run\"", &history, &totals);
        let join_index = PeerId(3).join_index();
        let expected =
            format!("nettorrent_compute_seconds_total{{run=\"a \\\"run\\\"\",peer=\"{join_index}\"}} 0.75\n");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("# TYPE nettorrent_compute_seconds_total counter\n"));
        assert!(text.contains("\"} 0\n") && !text.contains("} -0"), "what did not happen is 0: {text}");
        assert!(!text.contains("test_accuracy"), "nothing is made up");
    }
    #[test]
    fn a_tasks_own_metrics_are_told_by_name() {
        let mut history = History::default();
        let test = Evaluation {
            epoch: 0.5,
            step: 1,
            test_loss: 1.0,
            test_accuracy: 0.5,
            metrics: [("a \"metric\"".to_owned(), 0.25)].into(),
            test_seconds: 0.5,
            sent_bytes: 0,
        };
        history.add(Line { at_s: 1.0, event: Event::Evaluation(test) });
        let text = text("run", &history, &Totals::default());
        assert!(text.contains("nettorrent_test_metric{run=\"run\",metric=\"a \\\"metric\\\"\"} 0.25\n"), "{text}");
        assert!(text.contains("# TYPE nettorrent_test_metric gauge\n"));
    }
}
