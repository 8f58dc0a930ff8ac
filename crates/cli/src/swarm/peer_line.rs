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
        // Before the first view nobody can say who is missing.
        Phase::Agreeing if progress.waits_for.is_empty() => "waits for members",
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
    let between = if doing.is_empty() || waits.is_empty() { "" } else { ", " };
    format!(
        "{:<8} {:>7} samples/s  computes {:>3.0} %  waits {:>3.0} %  sends {:>10}/s  {doing}{between}{waits}",
        times.peer.to_string(),
        HumanCount((*n_samples as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
        share(*compute_s),
        share(*wait_s),
        HumanBytes((*sent_bytes as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use nettorrent_history::{PeerProgress, Times};
    use nettorrent_swarm::{PeerId, Phase};

    use super::peer_text;

    fn ending(phase: Phase, waits_for: Vec<PeerId>) -> String {
        let times = Times { elapsed_s: 1.0, wait_s: 1.0, ..Times::of(PeerId::new(0, 7)) };
        let text = peer_text(&PeerProgress {
            epoch: 0,
            n_tested: 0,
            step: 0,
            n_samples_all: 0,
            n_ahead: 0,
            trained_in: 0,
            n_samples: 0,
            loss_sum: 0.0,
            n_correct: 0,
            lr: 0.1,
            times,
            phase,
            waits_for,
        });
        text.rsplit("/s  ").next().expect("what it does comes last").to_owned()
    }

    #[test]
    fn what_a_peer_does_and_whom_it_waits_for_are_told_apart() {
        let two = || vec![PeerId::new(1, 9), PeerId::new(2, 9)];
        assert_eq!(ending(Phase::Agreeing, two()), "synchronizing state, waits for peer 1, 2");
        assert_eq!(ending(Phase::Exchanging, two()), "waits for peer 1, 2");
        assert_eq!(ending(Phase::Agreeing, Vec::new()), "waits for members");
        assert_eq!(ending(Phase::Testing, Vec::new()), "testing");
    }
}
