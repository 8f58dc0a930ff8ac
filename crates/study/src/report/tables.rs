//! The numbers as files that any program opens: a line a run, a line a test, a line a worker and second.

use csv::Writer;

use crate::results::{Measurement, Outcome, ResourcePoint, Results, RunResult};

/// A number of a run, and its name.
type Quantity = (&'static str, fn(&Measurement) -> Option<f64>);

/// A line a run, with all numbers that a run has one of.
pub(crate) fn runs(results: &Results) -> Result<Vec<u8>, csv::Error> {
    let numbers: [Quantity; 18] = [
        ("n_params", |measured| Some(measured.n_params as f64)),
        ("n_train", |measured| Some(measured.n_train as f64)),
        ("n_dropped", |measured| Some(measured.n_dropped as f64)),
        ("best_value", |measured| Some(measured.best_value)),
        ("final_value", |measured| Some(measured.final_value)),
        ("convergence_s", |measured| measured.convergence_s),
        ("total_s", |measured| Some(measured.total_s)),
        ("wall_s", |measured| Some(measured.wall_s)),
        ("samples_per_s", |measured| Some(measured.samples_per_s)),
        ("predicted_samples_per_s", |measured| Some(measured.prediction?.samples_per_s)),
        ("payload_bytes", |measured| Some(measured.payload_bytes as f64)),
        ("socket_bytes", |measured| Some(measured.socket_bytes? as f64)),
        ("compute_s", |measured| Some(measured.peers.iter().map(|peer| peer.compute_s).sum())),
        ("encode_s", |measured| Some(measured.peers.iter().map(|peer| peer.encode_s).sum())),
        ("decode_s", |measured| Some(measured.peers.iter().map(|peer| peer.decode_s).sum())),
        ("send_s", |measured| Some(measured.peers.iter().map(|peer| peer.send_s).sum())),
        ("wait_s", |measured| Some(measured.peers.iter().map(|peer| peer.wait_s).sum())),
        ("peak_rss_bytes", |measured| Some(measured.peak_rss_bytes? as f64)),
    ];
    let mut table = Writer::from_writer(Vec::new());
    let names = numbers.iter().map(|(name, _)| (*name).to_owned());
    table.write_record(head(results, &["n_peers", "outcome", "message", "measure"]).into_iter().chain(names))?;
    for run in &results.runs {
        let (outcome, message) = match &run.outcome {
            Outcome::Done(_) => ("done", ""),
            Outcome::Failed(message) => ("failed", message.as_str()),
        };
        let cells = numbers.iter().map(|(_, number)| run.measurement().and_then(number).map_or(String::new(), text));
        let measure = run.measurement().map_or("", |measured| measured.measure.noun());
        let facts = [run.facts.n_peers.to_string(), outcome.to_owned(), message.to_owned(), measure.to_owned()];
        table.write_record(start(results, run).into_iter().chain(facts).chain(cells))?;
    }
    finished(table)
}

/// A line a test: at the end of each epoch, and within.
pub(crate) fn epochs(results: &Results) -> Result<Vec<u8>, csv::Error> {
    let own = ["epoch", "seconds", "test_accuracy", "test_loss", "train_loss", "sent_bytes", "replica_distance"];
    let mut table = Writer::from_writer(Vec::new());
    table.write_record(head(results, &own))?;
    for run in &results.runs {
        let Some(measured) = run.measurement() else { continue };
        for test in measured.tests() {
            let epoch = measured.epochs.iter().find(|epoch| epoch.epoch as f64 == test.epoch);
            let distance = measured.replica_distances.iter().find(|distance| distance.epoch as f64 == test.epoch);
            let cells = [
                text(test.epoch),
                text(test.seconds),
                text(test.test_accuracy),
                text(test.test_loss),
                epoch.map_or(String::new(), |epoch| text(epoch.train_loss)),
                test.sent_bytes.to_string(),
                distance.map_or(String::new(), |distance| text(distance.distance)),
            ];
            table.write_record(start(results, run).into_iter().chain(cells))?;
        }
    }
    finished(table)
}

/// A line a worker and second.
pub(crate) fn resources(results: &Results) -> Result<Vec<u8>, csv::Error> {
    let own = [
        "peer",
        "at_s",
        "elapsed_s",
        "cpu_percent",
        "rss_bytes",
        "socket_sent_bytes",
        "socket_received_bytes",
        "disk_read_bytes",
        "disk_written_bytes",
    ];
    // Where peers had machines of their own, it is said which.
    let has_hosts = results.machines.iter().any(|machine| machine.host.is_some());
    let own: Vec<&str> = own.into_iter().chain(has_hosts.then_some("host")).collect();
    let mut table = Writer::from_writer(Vec::new());
    table.write_record(head(results, &own))?;
    for run in &results.runs {
        let Some(measured) = run.measurement() else { continue };
        for peer in &measured.peers {
            for point in peer.resources.iter().flat_map(|used| &used.series) {
                let join_index = peer.peer.join_index().to_string();
                let host = has_hosts.then(|| peer.host.clone().unwrap_or_default());
                let cells = [join_index].into_iter().chain(resource_cells(point)).chain(host);
                table.write_record(start(results, run).into_iter().chain(cells))?;
            }
        }
    }
    finished(table)
}

fn resource_cells(point: &ResourcePoint) -> [String; 8] {
    [
        text(point.at_s),
        text(point.elapsed_s),
        text(point.cpu_percent),
        point.rss_bytes.to_string(),
        point.socket_sent_bytes.to_string(),
        point.socket_received_bytes.to_string(),
        point.disk_read_bytes.to_string(),
        point.disk_written_bytes.to_string(),
    ]
}

/// Which run it is, by its name and by every axis.
fn head(results: &Results, own: &[&str]) -> Vec<String> {
    let axes = results.axes.iter().map(|axis| axis.name.as_str());
    let known = ["run", "trial", "seed"];
    known.into_iter().chain(axes).chain(own.iter().copied()).map(str::to_owned).collect()
}

fn start(results: &Results, run: &RunResult) -> Vec<String> {
    let axes = results.axes.iter().map(|axis| run.setting.get(&axis.name).cloned().unwrap_or_default());
    [run.id.clone(), run.trial.to_string(), run.seed.to_string()].into_iter().chain(axes).collect()
}

/// Numbers as they are, for programs; what is none is left empty.
fn text(number: f64) -> String {
    if number.is_finite() { number.to_string() } else { String::new() }
}

fn finished(table: Writer<Vec<u8>>) -> Result<Vec<u8>, csv::Error> {
    table.into_inner().map_err(|problem| csv::Error::from(problem.into_error()))
}
