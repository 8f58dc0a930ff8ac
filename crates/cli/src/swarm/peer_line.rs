//! What one peer of a swarm is doing, in a line.

use indicatif::{HumanBytes, HumanCount};
use nettorrent_history::{PeerProgress, Times};
use nettorrent_swarm::Phase;

/// What one peer is doing.
pub(super) fn peer_text(progress: &PeerProgress) -> String {
    let PeerProgress { n_samples, times, .. } = progress;
    let Times { elapsed_s, compute_s, wait_s, sent_bytes, .. } = times;
    let share = |seconds: f64| (100.0 * seconds / elapsed_s.max(1e-9)).min(100.0);
    let doing = match progress.phase {
        Phase::Agreeing => "synchronizing state",
        Phase::Syncing => "final sync",
        Phase::Testing => "testing",
        Phase::Finished => "finished",
        Phase::Training | Phase::Exchanging => "",
    };
    let waits: Vec<String> = progress.waits_for.iter().take(3).map(|peer| peer.join_index().to_string()).collect();
    let waits = if *n_samples == 0 && !waits.is_empty() {
        format!("waits for peer {}", waits.join(", "))
    } else {
        String::new()
    };
    format!(
        "{:<8} {:>7} samples/s  computes {:>3.0} %  waits {:>3.0} %  sends {:>10}/s  {doing}{waits}",
        times.peer.to_string(),
        HumanCount((*n_samples as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
        share(*compute_s),
        share(*wait_s),
        HumanBytes((*sent_bytes as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
    )
}
