//! A run's numbers as Prometheus reads them.

use std::fmt::Write;

use nettorrent_history::{History, PeerHistory, Resources, Times};
use nettorrent_swarm::PeerId;

/// A number that each peer has.
struct Measure<'a> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: &'a dyn Fn(&PeerHistory) -> Option<f64>,
}

/// The exposition format, version 0.0.4.
pub(crate) fn text(run: &str, history: &History) -> String {
    let mut text = String::new();
    let progress = history.progress.last().map(|(_, progress)| progress);
    let epoch = history.epochs.last().map(|(_, epoch)| epoch);
    let test = history.tests().last().map(|(_, test)| *test);
    let whole = [
        ("epochs_done", "counter", "Epochs that are done.", epoch.map(|epoch| epoch.epoch as f64)),
        (
            "test_accuracy",
            "gauge",
            "Share of the test samples known in the last test.",
            test.map(|test| test.test_accuracy),
        ),
        ("test_loss", "gauge", "Mean loss of the test samples in the last test.", test.map(|test| test.test_loss)),
        ("training_loss", "gauge", "Mean loss of the epoch's samples so far.", progress.map(|p| p.loss)),
        ("learning_rate", "gauge", "The learning rate.", progress.map(|p| f64::from(p.lr))),
        ("samples_per_second", "gauge", "Samples trained in a second by all peers.", progress.map(|p| p.samples_per_s)),
        ("running", "gauge", "Whether the run goes on.", Some(f64::from(u8::from(history.stop.is_none())))),
    ];
    for (name, kind, help, value) in whole {
        if let Some(value) = value {
            head(&mut text, name, kind, help);
            line(&mut text, name, run, None, value);
        }
    }
    let summed = |seconds: fn(&Times) -> f64| {
        move |peer: &PeerHistory| Some(peer.times.iter().map(|(_, times)| seconds(times)).sum())
    };
    let used = |number: fn(&Resources) -> u64| {
        move |peer: &PeerHistory| Some(peer.resources.iter().map(|(_, used)| number(used)).sum::<u64>() as f64)
    };
    let (compute, wait, encode) = (summed(|t| t.compute_s), summed(|t| t.wait_s), summed(|t| t.encode_s));
    let (decode, send) = (summed(|t| t.decode_s), summed(|t| t.send_s));
    let (sent, received) = (used(|used| used.net_sent_bytes), used(|used| used.net_received_bytes));
    let (said, heard) = (used(|used| used.payload_sent_bytes), used(|used| used.payload_received_bytes));
    let (read, written) = (used(|used| used.disk_read_bytes), used(|used| used.disk_written_bytes));
    let cpu = |peer: &PeerHistory| {
        Some(peer.resources.iter().map(|(_, used)| used.cpu_percent / 100.0 * used.elapsed_s).sum::<f64>())
    };
    let memory = |peer: &PeerHistory| peer.resources.last().map(|(_, used)| used.rss_bytes as f64);
    let measure = |name, kind, help, value| Measure { name, kind, help, value };
    for Measure { name, kind, help, value } in [
        measure("compute_seconds_total", "counter", "Time spent on gradients.", &compute),
        measure("wait_seconds_total", "counter", "Time spent waiting for other peers.", &wait),
        measure("encode_seconds_total", "counter", "Time spent on what the peer had computed.", &encode),
        measure("decode_seconds_total", "counter", "Time spent on what others had sent.", &decode),
        measure("send_seconds_total", "counter", "Time in which links wrote, added up over links.", &send),
        measure("cpu_seconds_total", "counter", "Processor time.", &cpu),
        measure("resident_memory_bytes", "gauge", "Resident memory.", &memory),
        measure("network_sent_bytes_total", "counter", "Bytes sent at the sockets.", &sent),
        measure("network_received_bytes_total", "counter", "Bytes received at the sockets.", &received),
        measure("payload_sent_bytes_total", "counter", "Payload bytes sent by the exchange strategy.", &said),
        measure(
            "payload_received_bytes_total",
            "counter",
            "Payload bytes received from other peers' strategies.",
            &heard,
        ),
        measure("disk_read_bytes_total", "counter", "Bytes read from disks.", &read),
        measure("disk_written_bytes_total", "counter", "Bytes written to disks.", &written),
    ] as [Measure<'_>; 13]
    {
        let values: Vec<(PeerId, f64)> =
            history.peers.iter().filter_map(|(id, peer)| Some((*id, value(peer)?))).collect();
        if !values.is_empty() {
            head(&mut text, name, kind, help);
            values.iter().for_each(|(id, value)| line(&mut text, name, run, Some(*id), *value));
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP nettorrent_{name} {help}\n# TYPE nettorrent_{name} {kind}");
}

fn line(text: &mut String, name: &str, run: &str, peer: Option<PeerId>, value: f64) {
    let run = run.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let peer = peer.map_or_else(String::new, |peer| format!(",peer=\"{}\"", peer.seat()));
    let _ = writeln!(text, "nettorrent_{name}{{run=\"{run}\"{peer}}} {value}");
}

#[cfg(test)]
mod tests {
    use super::text;
    use nettorrent_history::{Event, History, Line, Times};
    use nettorrent_swarm::PeerId;

    #[test]
    fn sums_of_each_peer_are_told_with_its_name() {
        let mut history = History::default();
        for compute_s in [0.5, 0.25] {
            let times = Times { compute_s, elapsed_s: 1.0, ..Times::of(PeerId(3)) };
            history.add(Line { at_s: 1.0, event: Event::Times(times) });
        }
        let text = text("a \"run\"", &history);
        let seat = PeerId(3).seat();
        let expected = format!("nettorrent_compute_seconds_total{{run=\"a \\\"run\\\"\",peer=\"{seat}\"}} 0.75\n");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("# TYPE nettorrent_compute_seconds_total counter\n"));
        assert!(!text.contains("test_accuracy"), "nothing is made up");
    }
}
