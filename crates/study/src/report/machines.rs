//! Which machine was which, where every peer had one of its own.

use nettorrent_figures::Unit;

use crate::report::document::{Block, NOTHING, Section, Table};
use crate::results::{Machine, Results, RunResult};

/// Whether peers had a machine each.
pub(crate) fn are_remote(results: &Results) -> bool {
    results.machines.iter().any(|machine| machine.host.is_some())
}

/// The section; none where all ran on the machine that ran the study.
pub(crate) fn section(results: &Results) -> Option<Section> {
    if !are_remote(results) {
        return None;
    }
    let hosts: Vec<(&str, &Machine)> =
        results.machines.iter().filter_map(|machine| Some((machine.host.as_deref()?, machine))).collect();
    let mut machines = Table::new("Machines", &["machine", "processor", "threads", "memory", "system"]);
    for (host, machine) in &hosts {
        let memory = machine.memory_bytes.map_or(NOTHING.to_owned(), |bytes| Unit::Bytes.format(bytes as f64));
        let Machine { cpu, n_cores, system, .. } = machine;
        machines.rows.push(vec![(*host).to_owned(), cpu.clone(), n_cores.to_string(), memory, system.clone()]);
    }
    let names: Vec<&str> = hosts.iter().map(|(host, _)| *host).collect();
    let mut peers = Table::new("Peers on each machine, by run", &[&["run"], names.as_slice()].concat());
    for run in results.runs.iter().filter(|run| run.measurement().is_some()) {
        let cells = names.iter().map(|host| at(run, host));
        peers.rows.push([run.id.clone()].into_iter().chain(cells).collect());
    }
    let text = "Each peer ran on a machine of its own, reached by ssh. Peers other than peer 0 are numbered in the order in which they \
                joined, which may differ between runs."
        .to_owned();
    let blocks = vec![Block::Paragraph(text), Block::Table(machines), Block::Table(peers)];
    Some(Section { id: "machines", title: "Machines", blocks })
}

/// The peers of a run on a machine.
fn at(run: &RunResult, host: &str) -> String {
    let peers = run.measurement().into_iter().flat_map(|measured| &measured.peers);
    let here: Vec<String> =
        peers.filter(|peer| peer.host.as_deref() == Some(host)).map(|peer| peer.peer.to_string()).collect();
    if here.is_empty() { NOTHING.to_owned() } else { here.join(", ") }
}
