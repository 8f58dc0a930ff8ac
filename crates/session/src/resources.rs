//! What a process takes of its machine, as an event.

use nettorrent_history::Resources;
use nettorrent_swarm::PeerId;

use crate::monitor::Sample;

/// What a peer's process took, as it is told.
pub fn resources(peer: PeerId, sample: &Sample) -> Resources {
    let Sample { rss_bytes, disk_read_bytes, disk_written_bytes, sockets, .. } = *sample;
    Resources {
        peer,
        elapsed_s: sample.elapsed.as_secs_f64(),
        cpu_percent: sample.cpu_percent(),
        rss_bytes,
        net_received_bytes: sockets.received,
        net_sent_bytes: sockets.sent,
        payload_received_bytes: sockets.payload_received,
        payload_sent_bytes: sockets.payload_sent,
        disk_read_bytes,
        disk_written_bytes,
    }
}
