//! Who joined and who was lost in the runs, and how long that took.

use nettorrent_figures::Unit;
use nettorrent_history::cause_text;

use crate::report::document::{Block, Section, Table};
use crate::results::{Measurement, Results, RunResult};

/// The section; none where nobody came or went.
pub(crate) fn section(results: &Results) -> Option<Section> {
    let measured = || results.runs.iter().filter_map(|run| Some((run, run.measurement()?)));
    let mut blocks = Vec::new();
    blocks.extend(joins(measured()));
    blocks.extend(losses(measured()));
    (!blocks.is_empty()).then_some(Section { id: "churn", title: "Joins and losses", blocks })
}

fn seconds(seconds: Option<f64>) -> String {
    Unit::Seconds.format(seconds.unwrap_or(f64::NAN))
}

fn joins<'a>(runs: impl Iterator<Item = (&'a RunResult, &'a Measurement)>) -> Option<Block> {
    let caption =
        "Peers that joined or came back: the state that they received, and the time until their first round counted";
    let mut table = Table::new(caption, &["run", "peer", "state", "transfer", "donors", "until first round"]);
    for (run, measured) in runs {
        table.rows.extend(measured.joins.iter().map(|join| {
            let (n_bytes, state_s) = (Unit::Bytes.format(join.n_bytes as f64), seconds(Some(join.state_s)));
            let (id, peer) = (run.id.clone(), join.peer.to_string());
            vec![id, peer, n_bytes, state_s, join.n_donors.to_string(), seconds(join.round_s)]
        }));
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn losses<'a>(runs: impl Iterator<Item = (&'a RunResult, &'a Measurement)>) -> Option<Block> {
    let caption = "Members that were lost: from the last sign of life to a view without them (detection), \
                   and from there to the next round that counted (recovery)";
    let mut table = Table::new(caption, &["run", "peer", "cause", "detection", "recovery"]);
    for (run, measured) in runs {
        table.rows.extend(measured.losses.iter().map(|loss| {
            let (id, peer, cause) = (run.id.clone(), loss.peer.to_string(), cause_text(loss.cause).to_owned());
            vec![id, peer, cause, seconds(Some(loss.detection_s)), seconds(loss.recovery_s)]
        }));
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}
