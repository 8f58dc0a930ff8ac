//! What would have been predicted of a run of a study, to be shown beside what was measured in it.
//!
//! A batch takes as long as the run's own peers computed in the mean, so what is put to the test is the exchange; and where a
//! strategy can only say what a round costs at most, it is what was really sent. The vector is taken to be cut evenly, and to have
//! no running statistics.

use std::ops::Range;

use nettorrent_advise::{Situation, StepTime, predict};
use nettorrent_engine::job::Job;
use nettorrent_engine::model::BUCKET_LEN;
use nettorrent_sim::Scenario;
use nettorrent_swarm::collective::{Collective, Total};
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::sampling::rounds::RoundRule;
use nettorrent_swarm::strategies::find;
use nettorrent_swarm::strategy::{Cost, CostQuestion};

use crate::results::{Facts, Host, Measurement, PeerMeasurement, Prediction};

/// What would have been predicted; nothing of one who trains alone, of pipelines, and where the link is not known.
pub(crate) fn run_prediction(job: &Job, facts: &Facts, host: Host, found: &Measurement) -> Option<Prediction> {
    let link: LinkSpec = match (&facts.link, host) {
        (Some(text), _) => text.parse().ok()?,
        (None, Host::Sim) => Scenario::lan().link,
        (None, Host::Processes) => return None,
    };
    if facts.n_peers < 2 || found.peers.is_empty() || found.epochs.is_empty() || job.pipeline.is_some() {
        return None;
    }
    let strategy = (find(facts.strategy.as_deref()?).ok()?.build)(&job.swarm.options).ok()?;
    let compute_s: f64 = found.peers.iter().map(|peer| peer.compute_s).sum();
    let sample_s = compute_s / (found.epochs.len() * found.n_train.max(1)) as f64;
    let situation = Situation {
        n_peers: facts.n_peers,
        buckets: &even_buckets(found.n_params),
        n_params: found.n_params,
        optimizer: &job.optimizer,
        n_train: found.n_train,
        epochs: found.epochs.len() as u64,
        batch: facts.batch,
        scale: job.swarm.scale,
        step: StepTime { sample_s, ..StepTime::default() },
        link,
        messages: None,
        slowdown: 1.0,
    };
    let steps = situation.steps(RoundRule {
        length: strategy.round_plan().length,
        scale: job.swarm.scale,
        redeal: 0,
        overhead: 0,
    });
    let n_rounds = found.epochs.len() as u64 * steps.per_epoch.div_ceil(steps.per_round);
    let cost = strategy.cost_is_upper_bound().then(|| sent(&found.peers, n_rounds, &situation));
    Some(Prediction { samples_per_s: predict(&*strategy, &situation, cost).samples_per_s })
}

/// What a round cost in the mean. That replicas are brought together at the end is left out.
fn sent(peers: &[PeerMeasurement], n_rounds: u64, situation: &Situation<'_>) -> Cost {
    let Situation { n_peers, buckets, n_params, .. } = *situation;
    let question = CostQuestion { n_peers, buckets, n_params, round: 0, site_sizes: &[] };
    let final_sync = Total::default().cost(&question).most_sent;
    let per_round = |of: fn(&PeerMeasurement) -> u64| {
        peers.iter().map(move |peer| of(peer).saturating_sub(final_sync) / n_rounds.max(1))
    };
    Cost {
        total: per_round(|peer| peer.payload_sent_bytes).sum(),
        most_sent: per_round(|peer| peer.payload_sent_bytes).max().unwrap_or(0),
        most_received: per_round(|peer| peer.payload_received_bytes).max().unwrap_or(0),
        n_steps: 1,
    }
}

/// As many buckets as a network of this size has, about.
fn even_buckets(n_params: usize) -> Vec<Range<usize>> {
    let n = (n_params / BUCKET_LEN).max(1);
    (0..n).rev().map(|k| k * n_params / n..(k + 1) * n_params / n).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use nettorrent_engine::job::Job;
    use nettorrent_swarm::PeerId;

    use super::{even_buckets, run_prediction};
    use crate::results::{EpochPoint, Facts, Host, Measurement, PeerMeasurement};

    fn run() -> (Facts, Measurement) {
        let peer = |join_index| PeerMeasurement {
            peer: PeerId::new(join_index, 0),
            host: None,
            elapsed_s: 20.0,
            compute_s: 10.0,
            encode_s: 0.0,
            decode_s: 0.0,
            send_s: 0.0,
            wait_s: 10.0,
            waits: Vec::new(),
            payload_sent_bytes: 0,
            payload_received_bytes: 0,
            resources: None,
        };
        let epoch =
            EpochPoint { epoch: 1, seconds: 20.0, test_accuracy: 0.5, test_loss: 1.0, train_loss: 1.0, sent_bytes: 0 };
        let found = Measurement {
            n_params: 1_000_000,
            n_train: 2000,
            epochs: vec![epoch],
            peers: vec![peer(0), peer(1)],
            ..Measurement::default()
        };
        let strategy = Some("ring-all-reduce".to_owned());
        let link = Some("1gbit/0s".to_owned());
        (Facts { strategy, n_peers: 2, batch: 10, link, ..Facts::default() }, found)
    }

    #[test]
    fn swarms_with_known_links_are_predicted() {
        let (facts, found) = run();
        let told =
            |facts: &Facts, host| run_prediction(&Job::default(), facts, host, &found).map(|told| told.samples_per_s);
        // A peer computes 100 batches in 10 s, and 32 ms of each exchange may hide behind half of that.
        let speed = told(&facts, Host::Processes).unwrap();
        assert!((150.0..=200.0).contains(&speed), "{speed}");
        let slow = Facts { link: Some("10mbit/20ms".into()), ..facts.clone() };
        assert!(told(&slow, Host::Sim).unwrap() < 10.0);
        let unknown = Facts { link: None, ..facts.clone() };
        assert_eq!((told(&unknown, Host::Processes), told(&unknown, Host::Sim).is_some()), (None, true));
        assert_eq!(told(&Facts { n_peers: 1, strategy: None, ..facts }, Host::Sim), None);
    }

    #[test]
    fn buckets_cover_the_vector() {
        let buckets = even_buckets(1_000_001);
        assert_eq!(
            (buckets.len(), buckets[0].end, buckets.iter().map(Range::len).sum::<usize>()),
            (3, 1_000_001, 1_000_001)
        );
    }
}
