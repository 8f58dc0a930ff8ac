//! From a run's history to what was measured in it.

use std::path::{Path, PathBuf};

use nettorrent_history::{
    self as history, Epoch, History, HistoryError, JoinSummary, LossSummary, PeerHistory, Reason, Times,
};
use nettorrent_swarm::PeerId;
use serde::Deserialize;

use crate::results::{
    EpochPoint, JoinMeasurement, LossMeasurement, Measurement, PeerMeasurement, ReplicaDistance, ResourcePoint,
    ResourceUse, TestPoint, TimedValue, WaitedFor,
};

/// Why a run cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Its events cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// It did not come to its end.
    #[error("the run in {} has no stop event: {problem}", folder.display())]
    Unfinished {
        /// The run's folder.
        folder: PathBuf,
        /// What is known.
        problem: String,
    },
}

/// What `eval --json` says of a trained model.
#[derive(Debug, Deserialize)]
pub struct Evaluation {
    /// The classes' names.
    pub classes: Vec<String>,
    /// Rows are what samples are, columns what the model took them for.
    pub confusion: Vec<Vec<u64>>,
}

/// Measures a run that ended as it should, by what its folder tells.
pub fn measure(folder: &Path) -> Result<Measurement, MeasureError> {
    let history = History::read(&folder.join("events.jsonl"))?;
    let unfinished = |problem: String| MeasureError::Unfinished { folder: folder.to_owned(), problem };
    let start = history.start.as_ref().ok_or_else(|| unfinished("it did not begin".into()))?;
    let (wall_s, stop) = history.stop.as_ref().ok_or_else(|| unfinished("it was cut off".into()))?;
    match &stop.reason {
        Reason::Finished => {}
        Reason::Interrupted => return Err(unfinished("it was interrupted".into())),
        Reason::Failed(problem) => return Err(unfinished(problem.clone())),
    }
    let (epochs, evaluations) = tests(&history);
    let last = epochs.last().ok_or_else(|| unfinished("no epoch was evaluated".into()))?;
    let (total_s, measure) = (last.seconds, start.measure);
    let final_value = TestPoint::from(last).value(measure);
    let values = history.tests().into_iter().map(|(_, test)| measure.value(test.test_loss, test.test_accuracy));
    let best_value = values.fold(f64::NAN, |best, value| measure.better(best, value));
    let n_samples: f64 = history.epochs.iter().map(|(_, epoch)| epoch.samples_per_s * epoch.seconds).sum();
    let mut peers: Vec<PeerMeasurement> = history.peers.iter().map(|(&id, peer)| measure_peer(id, peer)).collect();
    if let (None, [alone]) = (&start.strategy, peers.as_mut_slice()) {
        add_times_alone(alone, &history);
    }
    let is_counted = !peers.is_empty() && peers.iter().all(|peer| peer.resources.is_some());
    let on_sockets = || peers.iter().flat_map(|peer| &peer.resources).map(|used| used.socket_sent_bytes).sum();
    Ok(Measurement {
        n_params: start.n_params,
        n_train: start.n_train,
        n_damaged: history.n_damaged,
        n_dropped: history.dropped.last().map_or(0, |(_, dropped)| dropped.n_dropped),
        measure,
        best_value,
        final_value,
        total_s,
        wall_s: *wall_s,
        samples_per_s: n_samples / total_s.max(1e-9),
        payload_bytes: peers.iter().map(|peer| peer.payload_sent_bytes).sum(),
        socket_bytes: is_counted.then(on_sockets),
        replica_distances: history.replicas.iter().map(|(_, replicas)| distance(replicas)).collect(),
        joins: history.join_summaries().iter().map(join).collect(),
        losses: history.loss_summaries().iter().map(loss).collect(),
        peak_rss_bytes: stop.peak_rss_bytes,
        epochs,
        evaluations,
        peers,
        ..Measurement::default()
    })
}

impl Measurement {
    /// Compares it with a target, and looks how far it was at these times.
    pub fn judge(&mut self, target: Option<f64>, at_s: &[f64]) {
        let (tests, measure) = (self.tests(), self.measure);
        let reached = |target: f64| tests.iter().find(|test| measure.reaches(test.value(measure), target));
        self.convergence_s = target.and_then(reached).map(|test| test.seconds);
        let best_by = |seconds: f64| {
            let tested = tests.iter().take_while(|test| test.seconds <= seconds);
            tested.map(|test| test.value(measure)).reduce(|best, value| measure.better(best, value))
        };
        self.value_at = at_s.iter().map(|&seconds| TimedValue { seconds, value: best_by(seconds) }).collect();
    }

    /// Takes in on which machine each peer was.
    pub(crate) fn add_hosts(&mut self, hosts: &[(PeerId, String)]) {
        for peer in &mut self.peers {
            peer.host = hosts.iter().find(|(id, _)| *id == peer.peer).map(|(_, host)| host.clone());
        }
    }

    /// Takes in how the trained model does.
    pub(crate) fn add_evaluation(&mut self, evaluation: Evaluation) {
        (self.classes, self.confusion) = (evaluation.classes, evaluation.confusion);
    }
}

/// The ends of epochs, and the tests within, in time without tests. Until the peers of a swarm have agreed on whose parameters go on,
/// nobody trains; that time does not count either.
fn tests(history: &History) -> (Vec<EpochPoint>, Vec<TestPoint>) {
    let began_s = history.views.first().map_or(0.0, |(at_s, _)| *at_s);
    let mut testing_s = began_s;
    let point = |(at_s, test): (f64, history::Evaluation)| {
        testing_s += test.test_seconds;
        let history::Evaluation { epoch, test_accuracy, test_loss, sent_bytes, .. } = test;
        TestPoint { epoch, seconds: (at_s - testing_s).max(0.0), test_accuracy, test_loss, sent_bytes }
    };
    let all: Vec<TestPoint> = history.tests().into_iter().map(point).collect();
    let of_epoch = |(_, epoch): &(f64, Epoch)| {
        let test = all.iter().find(|test| test.epoch == epoch.epoch as f64)?;
        Some(EpochPoint {
            epoch: epoch.epoch,
            seconds: test.seconds,
            test_accuracy: epoch.test_accuracy,
            test_loss: epoch.test_loss,
            train_loss: epoch.train_loss,
            sent_bytes: epoch.sent_bytes,
        })
    };
    let epochs = history.epochs.iter().filter_map(of_epoch).collect();
    (epochs, all.into_iter().filter(|test| test.epoch.fract() != 0.0).collect())
}

fn distance(replicas: &nettorrent_history::Replicas) -> ReplicaDistance {
    ReplicaDistance { epoch: replicas.epoch, distance: replicas.distance }
}

fn join(join: &JoinSummary) -> JoinMeasurement {
    let JoinSummary { peer, n_bytes, state_s, ref donors, round_s, .. } = *join;
    JoinMeasurement { peer, n_bytes, state_s, n_donors: donors.len(), round_s }
}

fn loss(loss: &LossSummary) -> LossMeasurement {
    let LossSummary { lost, cause, detection_s, recovery_s, .. } = *loss;
    LossMeasurement { peer: lost, cause, detection_s, recovery_s }
}

fn measure_peer(peer: PeerId, history: &PeerHistory) -> PeerMeasurement {
    let mut sum = Times::of(peer);
    history.times.iter().for_each(|(_, times)| sum += times);
    sum.waits.sort_by_key(|wait| wait.peer);
    PeerMeasurement {
        peer,
        host: None,
        elapsed_s: sum.elapsed_s,
        compute_s: sum.compute_s,
        encode_s: sum.encode_s,
        decode_s: sum.decode_s,
        send_s: sum.send_s,
        wait_s: sum.wait_s,
        waits: sum.waits.iter().map(|wait| WaitedFor { peer: wait.peer, seconds: wait.seconds }).collect(),
        payload_sent_bytes: sum.sent_bytes,
        payload_received_bytes: sum.received_bytes,
        resources: (!history.resources.is_empty()).then(|| resources(history)),
    }
}

/// One who trains alone does not tell where its time went, but how long it trained and tested. It waits for nobody, so it
/// computed while it trained.
fn add_times_alone(alone: &mut PeerMeasurement, history: &History) {
    if alone.elapsed_s > 0.0 {
        return;
    }
    alone.compute_s = history.epochs.iter().map(|(_, epoch)| epoch.seconds).sum();
    let last_s = history.epochs.last().map_or(0.0, |(at_s, _)| *at_s);
    alone.elapsed_s = last_s.max(alone.compute_s);
}

/// Processor time is counted in ticks, so the last moment of a run says nothing about how busy it was.
const LEAST_INTERVAL_S: f64 = 0.5;

fn resources(history: &PeerHistory) -> ResourceUse {
    let mut used = ResourceUse::default();
    let (mut cpu_s, mut elapsed_s) = (0.0, 0.0);
    for (at_s, told) in &history.resources {
        cpu_s += told.cpu_percent * told.elapsed_s;
        elapsed_s += told.elapsed_s;
        if told.elapsed_s >= LEAST_INTERVAL_S {
            used.cpu_percent_max = used.cpu_percent_max.max(told.cpu_percent);
        }
        used.rss_bytes_max = used.rss_bytes_max.max(told.rss_bytes);
        used.socket_sent_bytes += told.net_sent_bytes;
        used.socket_received_bytes += told.net_received_bytes;
        used.disk_read_bytes += told.disk_read_bytes;
        used.disk_written_bytes += told.disk_written_bytes;
        used.series.push(ResourcePoint {
            at_s: *at_s,
            elapsed_s: told.elapsed_s,
            cpu_percent: told.cpu_percent,
            rss_bytes: told.rss_bytes,
            socket_sent_bytes: told.net_sent_bytes,
            socket_received_bytes: told.net_received_bytes,
            disk_read_bytes: told.disk_read_bytes,
            disk_written_bytes: told.disk_written_bytes,
        });
    }
    used.cpu_percent_mean = cpu_s / elapsed_s.max(1e-9);
    used.cpu_percent_max = used.cpu_percent_max.max(used.cpu_percent_mean);
    used
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nettorrent_engine::measure::Measure;
    use nettorrent_swarm::PeerId;

    use super::{MeasureError, measure};
    use crate::results::WaitedFor;

    const BEGINNING: &str = r#"{"at_s":0,"event":"start","run":"a","model":"mlp","n_params":10,"n_train":100,"n_test":10,"threads":1,"seed":1,"strategy":"gossip","n_peers":2,"epochs":2,"epoch":0,"step":0,"version":"0"}
{"at_s":1,"event":"view","peer":0,"view":1,"members":[0,1],"donor":0,"was_behind":false,"round":0}
{"at_s":3.5,"event":"replicas","epoch":1,"distance":0.25,"n_peers":2}
{"at_s":4,"event":"epoch","epoch":1,"step":5,"train_loss":1.5,"train_accuracy":0.5,"test_loss":1.0,"test_accuracy":0.9,"lr":0.1,"samples_per_s":40,"seconds":2.5,"test_seconds":0.5,"sent_bytes":70}
{"at_s":4.1,"event":"times","peer":0,"elapsed_s":3,"compute_s":1,"wait_s":1,"encode_s":0.25,"decode_s":0.5,"send_s":0.1,"sent_bytes":40,"received_bytes":30,"waits":[{"peer":1,"seconds":0.5}]}
{"at_s":4.1,"event":"times","peer":1,"elapsed_s":3,"compute_s":2,"wait_s":0,"encode_s":0,"decode_s":0,"send_s":0,"sent_bytes":30,"received_bytes":40}
{"at_s":4.2,"event":"resources","peer":0,"elapsed_s":1,"cpu_percent":100,"rss_bytes":7,"net_received_bytes":35,"net_sent_bytes":45,"payload_received_bytes":30,"payload_sent_bytes":40,"disk_read_bytes":1,"disk_written_bytes":2}
{"at_s":5.2,"event":"resources","peer":0,"elapsed_s":3,"cpu_percent":20,"rss_bytes":6,"net_received_bytes":35,"net_sent_bytes":45,"payload_received_bytes":30,"payload_sent_bytes":40,"disk_read_bytes":1,"disk_written_bytes":2}
{"at_s":7,"event":"epoch","epoch":2,"step":10,"train_loss":1.0,"train_accuracy":0.6,"test_loss":0.8,"test_accuracy":0.8,"lr":0.1,"samples_per_s":50,"seconds":2,"test_seconds":0.5,"sent_bytes":140}
{"at_s":7.1,"event":"times","peer":0,"elapsed_s":3,"compute_s":1,"wait_s":1,"encode_s":0.25,"decode_s":0.5,"send_s":0.1,"sent_bytes":40,"received_bytes":30,"waits":[{"peer":1,"seconds":0.5}]}
"#;
    const RESOURCES_OF_1: &str = r#"{"at_s":7.1,"event":"resources","peer":1,"elapsed_s":1,"cpu_percent":1,"rss_bytes":1,"net_received_bytes":1,"net_sent_bytes":10,"payload_received_bytes":1,"payload_sent_bytes":1,"disk_read_bytes":1,"disk_written_bytes":1}
"#;
    const FINISHED: &str = r#"{"at_s":8,"event":"stop","reason":"finished","epoch":2,"step":10,"seconds":8,"peak_rss_bytes":99}
"#;

    fn measured(parts: &[&str]) -> Result<crate::Measurement, MeasureError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("events.jsonl"), parts.concat()).unwrap();
        measure(folder.path())
    }

    #[test]
    fn a_run_is_measured_without_its_tests_and_its_beginning() {
        let mut measured = measured(&[BEGINNING, FINISHED]).unwrap();
        let seconds: Vec<f64> = measured.epochs.iter().map(|epoch| epoch.seconds).collect();
        assert_eq!(seconds, [2.5, 5.0]);
        assert_eq!((measured.best_value, measured.final_value), (0.9, 0.8));
        assert_eq!((measured.total_s, measured.wall_s, measured.samples_per_s), (5.0, 8.0, 40.0));
        assert_eq!((measured.n_params, measured.peak_rss_bytes), (10, Some(99)));
        assert_eq!((measured.payload_bytes, measured.payload_bytes_per_peer()), (110, 55.0));
        assert_eq!(measured.replica_distances[0].distance, 0.25);
        measured.judge(Some(0.85), &[1.0, 3.0, 9.0]);
        assert_eq!(measured.convergence_s, Some(2.5));
        let accuracies: Vec<_> = measured.value_at.iter().map(|at| at.value).collect();
        assert_eq!(accuracies, [None, Some(0.9), Some(0.9)]);
        measured.judge(Some(0.95), &[]);
        assert_eq!(measured.convergence_s, None);
    }

    #[test]
    fn a_run_is_judged_by_its_own_measure() {
        let mut measured = measured(&[BEGINNING, FINISHED]).unwrap();
        measured.measure = Measure::Loss;
        measured.judge(Some(0.9), &[3.0, 9.0]);
        assert_eq!(measured.convergence_s, Some(5.0), "the lower the better");
        assert_eq!(measured.value_at.iter().map(|at| at.value).collect::<Vec<_>>(), [Some(1.0), Some(0.8)]);
    }

    #[test]
    fn tests_within_epochs_tell_sooner_when_the_target_was_reached() {
        let within = r#"{"at_s":3,"event":"evaluation","epoch":0.5,"step":2,"test_loss":1.1,"test_accuracy":0.87,"test_seconds":0.25,"sent_bytes":30}
"#;
        let mut measured = measured(&[BEGINNING, within, FINISHED]).unwrap();
        let seconds: Vec<f64> = measured.tests().iter().map(|test| test.seconds).collect();
        assert_eq!(seconds, [1.75, 2.25, 4.75], "no test counts as training");
        assert_eq!((measured.epochs.len(), measured.evaluations.len(), measured.total_s), (2, 1, 4.75));
        measured.judge(Some(0.85), &[2.0]);
        assert_eq!((measured.convergence_s, measured.value_at[0].value), (Some(1.75), Some(0.87)));
    }

    #[test]
    fn peers_are_measured_one_by_one() {
        let measured = measured(&[BEGINNING, FINISHED]).unwrap();
        let [first, second] = measured.peers.as_slice() else { panic!("two peers") };
        assert_eq!((first.compute_s, first.wait_s, first.encode_s, first.decode_s), (2.0, 2.0, 0.5, 1.0));
        assert_eq!(first.waits, [WaitedFor { peer: PeerId(1), seconds: 1.0 }]);
        assert_eq!((first.payload_sent_bytes, first.payload_received_bytes), (80, 60));
        let used = first.resources.as_ref().unwrap();
        assert_eq!((used.cpu_percent_mean, used.cpu_percent_max, used.rss_bytes_max), (40.0, 100.0, 7));
        assert_eq!((used.socket_sent_bytes, used.series.len()), (90, 2));
        assert_eq!(second.resources, None);
    }

    #[test]
    fn who_trains_alone_computes_while_it_trains() {
        let alone =
            |line: &&str| !["view", "replicas", "times"].iter().any(|event| line.contains(&format!("\"{event}\"")));
        let lines: String = BEGINNING.split_inclusive('\n').filter(alone).collect();
        let lines = lines.replace(r#""strategy":"gossip","n_peers":2,"#, "");
        let measured = measured(&[&lines, FINISHED]).unwrap();
        let [peer] = measured.peers.as_slice() else { panic!("one peer") };
        assert_eq!((peer.elapsed_s, peer.compute_s, peer.wait_s), (7.0, 4.5, 0.0));
        assert!(peer.resources.is_some() && peer.waits.is_empty());
    }

    #[test]
    fn bytes_on_sockets_are_known_only_if_every_peer_tells() {
        assert_eq!(measured(&[BEGINNING, FINISHED]).unwrap().socket_bytes, None);
        assert_eq!(measured(&[BEGINNING, RESOURCES_OF_1, FINISHED]).unwrap().socket_bytes, Some(100));
    }

    #[test]
    fn a_run_without_its_end_is_no_result() {
        let interrupted = FINISHED.replace("finished", "interrupted");
        let failed = FINISHED.replace("\"finished\"", "{\"failed\":\"no luck\"}");
        for (parts, answer) in [
            ([BEGINNING, ""], "cut off"),
            ([BEGINNING, interrupted.as_str()], "interrupted"),
            ([BEGINNING, failed.as_str()], "no luck"),
            ([BEGINNING.split_inclusive('\n').next().unwrap(), FINISHED], "no epoch"),
        ] {
            let message = measured(&parts).unwrap_err().to_string();
            assert!(message.contains(answer), "{message}");
        }
        assert!(matches!(measure(Path::new("nowhere")), Err(MeasureError::History(_))));
    }
}
