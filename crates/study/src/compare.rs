//! Runs side by side: trials of one setting put together, and how much faster many are than one.

use std::collections::BTreeMap;

use crate::results::{Facts, Measurement, Results, RunResult};

/// All trials of one setting.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The setting.
    pub setting: &'a BTreeMap<String, String>,
    /// What was run.
    pub facts: &'a Facts,
    /// Its trials, in their order.
    pub runs: Vec<&'a RunResult>,
    /// What those measured that ended as they should.
    pub measurements: Vec<&'a Measurement>,
    /// How much faster it was than one alone, if one alone was measured.
    pub speed_up: Option<SpeedUp>,
}

/// The mean of some numbers, and how far they are from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, as of a sample; none of a single number.
    pub deviation: Option<f64>,
    /// How many they are.
    pub n: usize,
}

/// How many times more samples a second were trained than by one alone with the same model, data and batch.
///
/// Workers end an epoch together, so how fast each was shows in how long it waited: a worker's time is that of the run, less
/// what it waited longer than who waited least. The slowest worker's is the run's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedUp {
    /// At the speed of the slowest worker: what really happened.
    pub slowest: Spread,
    /// At the speed of the median worker.
    pub median: Spread,
    /// The slowest, if working on messages took no time.
    pub slowest_without_encoding: Spread,
    /// The median, if working on messages took no time.
    pub median_without_encoding: Spread,
}

/// The runs of a study by setting, in the order in which settings were run first.
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in &results.runs {
        let measurement = run.measurement();
        if let Some(group) = groups.iter_mut().find(|group| *group.setting == run.setting) {
            group.runs.push(run);
            group.measurements.extend(measurement);
            continue;
        }
        let measurements = measurement.into_iter().collect();
        groups.push(Group { setting: &run.setting, facts: &run.facts, runs: vec![run], measurements, speed_up: None });
    }
    for k in 0..groups.len() {
        groups[k].speed_up = baseline(&groups, groups[k].facts).and_then(|rate| speed_up(&groups[k], rate));
    }
    groups
}

impl Group<'_> {
    /// The spread of something that every run has.
    pub fn spread(&self, of: impl Fn(&Measurement) -> f64) -> Option<Spread> {
        Spread::of(self.measurements.iter().map(|measurement| of(measurement)))
    }

    /// The spread of something that a run may lack; none if any does.
    pub(crate) fn spread_if_all(&self, of: impl Fn(&Measurement) -> Option<f64>) -> Option<Spread> {
        let all: Option<Vec<f64>> = self.measurements.iter().map(|measurement| of(measurement)).collect();
        Spread::of(all?)
    }
}

impl Spread {
    /// That of these numbers; none of no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.into_iter().collect();
        let n = numbers.len();
        if n == 0 {
            return None;
        }
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let deviation = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        Some(Self { mean, deviation, n })
    }
}

/// Samples a second of one alone with the same model, data and batch.
fn baseline(groups: &[Group<'_>], facts: &Facts) -> Option<f64> {
    let is_same = |alone: &Facts| {
        alone.n_peers == 1 && alone.model == facts.model && alone.data == facts.data && alone.batch == facts.batch
    };
    let alone = groups.iter().filter(|group| is_same(group.facts)).flat_map(|group| &group.measurements);
    Spread::of(alone.map(|measurement| measurement.samples_per_s)).map(|rate| rate.mean)
}

fn speed_up(group: &Group<'_>, baseline: f64) -> Option<SpeedUp> {
    let over = |choose: fn(&[f64]) -> f64, encoding: Encoding| {
        group.spread(|measurement| {
            let n_samples = measurement.samples_per_s * measurement.total_s;
            n_samples / choose(&worker_times(measurement, encoding)).max(1e-9) / baseline
        })
    };
    Some(SpeedUp {
        slowest: over(longest, Encoding::Counted)?,
        median: over(median, Encoding::Counted)?,
        slowest_without_encoding: over(longest, Encoding::LeftOut)?,
        median_without_encoding: over(median, Encoding::LeftOut)?,
    })
}

/// Whether the time counts that peers worked on messages.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    Counted,
    LeftOut,
}

/// How long each worker trained, shortest first.
fn worker_times(measurement: &Measurement, encoding: Encoding) -> Vec<f64> {
    let least = measurement.peers.iter().map(|peer| peer.wait_s).fold(f64::INFINITY, f64::min);
    let mut times: Vec<f64> = Vec::new();
    for peer in &measurement.peers {
        let encoding_s = if encoding == Encoding::LeftOut { peer.encode_s + peer.decode_s } else { 0.0 };
        times.push(measurement.total_s - (peer.wait_s - least) - encoding_s);
    }
    if times.is_empty() {
        times.push(measurement.total_s);
    }
    times.sort_by(f64::total_cmp);
    times
}

fn longest(sorted: &[f64]) -> f64 {
    sorted[sorted.len() - 1]
}

/// The middle one; of an even number the mean of the middle two.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nettorrent_history::Times;
    use nettorrent_swarm::PeerId;

    use super::{Spread, groups};
    use crate::results::{
        Facts, Host, Machine, Measurement, Outcome, PeerMeasurement, Results, RunResult, StudyHead, Targets,
    };

    fn peer(join_index: u32, wait_s: f64, encode_s: f64) -> PeerMeasurement {
        let Times { elapsed_s, compute_s, send_s, .. } = Times::of(PeerId::new(join_index, 0));
        PeerMeasurement {
            peer: PeerId::new(join_index, 0),
            host: None,
            elapsed_s,
            compute_s,
            encode_s,
            decode_s: encode_s,
            send_s,
            wait_s,
            waits: Vec::new(),
            payload_sent_bytes: 0,
            payload_received_bytes: 0,
            resources: None,
        }
    }

    fn run(n_peers: usize, trial: u32, measured: Option<(f64, Vec<PeerMeasurement>)>) -> RunResult {
        let outcome = match measured {
            Some((samples_per_s, peers)) => {
                Outcome::Done(Box::new(Measurement { samples_per_s, total_s: 10.0, peers, ..Measurement::default() }))
            }
            None => Outcome::Failed("no".into()),
        };
        RunResult {
            id: String::new(),
            setting: BTreeMap::from([("peers".to_owned(), n_peers.to_string())]),
            facts: Facts { n_peers, batch: 8, ..Facts::default() },
            trial,
            seed: 1,
            outcome,
            folder: "runs".into(),
        }
    }

    fn results(runs: Vec<RunResult>) -> Results {
        let (name, about, host) = ("a".to_owned(), String::new(), Host::Processes);
        Results {
            study: StudyHead { name, about, host, is_quick: true, targets: Targets::default(), trials: 1 },
            command: String::new(),
            commit: String::new(),
            machines: vec![Machine::default()],
            is_side_by_side: false,
            date: String::new(),
            axes: Vec::new(),
            runs,
            published: Vec::new(),
        }
    }

    #[test]
    fn trials_of_a_setting_come_together() {
        let results = results(vec![run(1, 1, Some((90.0, vec![]))), run(2, 1, None), run(1, 2, Some((110.0, vec![])))]);
        let groups = groups(&results);
        assert_eq!(groups.iter().map(|group| group.runs.len()).collect::<Vec<_>>(), [2, 1]);
        let speed = groups[0].spread(|measurement| measurement.samples_per_s).unwrap();
        assert_eq!((speed.mean, speed.n), (100.0, 2));
        assert!((speed.deviation.unwrap() - 200_f64.sqrt()).abs() < 1e-9);
        assert_eq!(groups[0].spread_if_all(|measurement| measurement.convergence_s), None);
        assert_eq!(groups[1].spread(|measurement| measurement.samples_per_s), None);
        assert!(groups[1].speed_up.is_none());
    }

    #[test]
    fn speed_ups_are_of_the_slowest_and_of_the_median_worker() {
        let workers = vec![peer(0, 1.0, 0.0), peer(1, 3.0, 0.5), peer(2, 6.0, 0.0)];
        let alone = run(1, 1, Some((100.0, vec![])));
        let mut other = alone.clone();
        other.facts.batch = 16;
        other.setting.insert("batch".into(), "16".into());
        let results = results(vec![alone, other, run(3, 1, Some((200.0, workers)))]);
        let groups = groups(&results);
        // The workers' times are 10, 8 and 5 seconds; without encoding 10, 7 and 5.
        let up = groups[2].speed_up.unwrap();
        assert_eq!((up.slowest.mean, up.median.mean), (2.0, 2.5));
        assert_eq!(up.slowest_without_encoding.mean, 2.0);
        assert!((up.median_without_encoding.mean - 20.0 / 7.0).abs() < 1e-9);
        assert_eq!(groups[0].speed_up.unwrap().slowest.mean, 1.0);
    }

    #[test]
    fn without_one_alone_there_is_no_speed_up() {
        assert!(groups(&results(vec![run(3, 1, Some((200.0, vec![])))]))[0].speed_up.is_none());
    }

    #[test]
    fn one_number_has_no_deviation() {
        assert_eq!(Spread::of([3.0]), Some(Spread { mean: 3.0, deviation: None, n: 1 }));
        assert_eq!(Spread::of([]), None);
    }
}
