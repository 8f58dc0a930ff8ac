//! What went wrong, and how to repeat what went right.

use std::collections::BTreeSet;

use nettorrent_figures::Unit;

use crate::report::document::{Block, Section, Table};
use crate::report::group::Groups;
use crate::report::machines;
use crate::results::{Host, Measurement, Outcome, Results};

/// Runs that failed, with what they said; none if all went well.
pub(crate) fn failures(results: &Results) -> Option<Section> {
    let mut table = Table::new("Runs that failed", &["run", "trial", "message"]);
    for run in &results.runs {
        if let Outcome::Failed(message) = &run.outcome {
            table.rows.push(vec![run.id.clone(), run.trial.to_string(), message.clone()]);
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    let text = "These runs are left out of all means above. They are repeated when the study is run again.".to_owned();
    Some(Section { id: "failures", title: "Failed runs", blocks: vec![Block::Paragraph(text), Block::Table(table)] })
}

/// How to repeat it.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Section {
    let host = match results.study.host {
        Host::Processes if machines::are_remote(results) => "each on a machine of its own",
        Host::Processes if results.has_no_peers() => "one process for each run",
        Host::Processes => "processes on this machine that communicate over sockets",
        Host::Sim => "simulated; all times but that of the whole study are simulated time",
    };
    let mut seeds: Vec<u64> = results.runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let mut facts = Vec::new();
    let mut say = |what: &str, value: String| facts.push(format!("{what}: {value}"));
    say("program", results.commit.clone());
    say("date", format!("{} UTC", results.date));
    for machine in results.machines.iter().filter(|machine| machine.host.is_none()) {
        let memory = machine.memory_bytes.map(|bytes| format!(", {} of memory", Unit::Bytes.format(bytes as f64)));
        say("processor", format!("{}, {} threads{}", machine.cpu, machine.n_cores, memory.unwrap_or_default()));
        say("system", machine.system.clone());
    }
    say("peers", host.to_owned());
    let pace = if results.is_side_by_side { "side by side, each on its own cores" } else { "one after the other" };
    say("runs", pace.to_owned());
    say("trials per configuration", results.study.trials.to_string());
    say("seeds", some(&seeds));
    for axis in &results.axes {
        say(&axis.name, some(&axis.values));
    }
    say("models", distinct(groups, |facts| facts.model.clone()));
    say("data", distinct(groups, |facts| facts.data.clone()));
    let dropped = distinct_measured(groups, |measured| measured.n_dropped);
    if dropped.iter().any(|&n_dropped| n_dropped > 0) {
        say("samples per epoch dropped by the split", some(&dropped));
    }
    let damaged = distinct_measured(groups, |measured| measured.n_damaged);
    if damaged.iter().any(|&n_damaged| n_damaged > 0) {
        say("damaged lines of a run's events, left out", some(&damaged));
    }
    let text = "Each run's folder holds its job, events and model. Beside this report are runs.csv (a line per run), epochs.csv (a line \
                per evaluation), resources.csv (a line per peer and second) and results.json (everything).";
    let blocks = vec![
        Block::Code(results.command.clone()),
        Block::List(facts),
        Block::Paragraph(text.to_owned()),
        Block::Paragraph(terms()),
    ];
    Section { id: "method", title: "Reproducing this study", blocks }
}

fn terms() -> String {
    "Training time excludes evaluation. Time to a target is that of the first evaluation that reached it. Payload is what the \
     exchange strategy sends; network bytes also include framing and encryption. Deviations are sample standard deviations; a \
     difference is significant when Welch's t-test (two-sided) gives p < 0.05."
        .to_owned()
}

/// All, or the first and how many more.
fn some(values: &[impl ToString]) -> String {
    const MOST: usize = 12;
    let mut shown: Vec<String> = values.iter().take(MOST).map(ToString::to_string).collect();
    if values.len() > MOST {
        shown.push(format!("and {} more", values.len() - MOST));
    }
    shown.join(", ")
}

fn distinct_measured(groups: &Groups<'_>, value: impl Fn(&Measurement) -> usize) -> Vec<usize> {
    let measurements = groups.all.iter().flat_map(|group| &group.measurements);
    measurements.map(|measured| value(measured)).collect::<BTreeSet<usize>>().into_iter().collect()
}

fn distinct(groups: &Groups<'_>, fact: impl Fn(&crate::results::Facts) -> String) -> String {
    let mut values: Vec<String> = groups.all.iter().map(|group| fact(group.facts)).collect();
    values.sort();
    values.dedup();
    some(&values)
}
