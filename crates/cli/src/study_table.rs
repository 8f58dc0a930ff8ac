//! What a study found, as a table in plain text.

use indicatif::HumanBytes;
use nettorrent_study::{Group, Results, Spread, groups, text};

/// The table: a line for each setting, and below it what failed.
pub(crate) fn table(results: &Results) -> String {
    let groups = groups(results);
    let target = results.study.target_accuracy;
    let mut head: Vec<String> = results.axes.iter().map(|axis| axis.name.clone()).collect();
    head.extend(["accuracy".to_owned(), target.map_or("-".into(), |target| format!("s to {} %", 100.0 * target))]);
    head.extend(["s", "samples/s", "foretold", "speed-up", "sent by a peer", "on its sockets"].map(str::to_owned));
    let mut lines = vec![head];
    for group in &groups {
        let axes = results.axes.iter().map(|axis| group.setting.get(&axis.name).cloned().unwrap_or_default());
        lines.push(axes.chain(cells(group)).collect());
    }
    let mut table = aligned(&lines);
    for run in &results.runs {
        if let nettorrent_study::Outcome::Failed(problem) = &run.outcome {
            table += &format!("failed: {}, trial {}: {problem}\n", text(&run.setting), run.trial);
        }
    }
    table
}

fn cells(group: &Group<'_>) -> [String; 8] {
    let bytes = |spread: Option<Spread>| spread.map_or(missing(), |spread| HumanBytes(spread.mean as u64).to_string());
    [
        shown(group.spread(|found| 100.0 * found.final_accuracy), 2),
        shown(group.spread_if_all(|found| found.convergence_s), 1),
        shown(group.spread(|found| found.total_s), 1),
        shown(group.spread(|found| found.samples_per_s), 0),
        shown(group.spread_if_all(|found| Some(found.prediction?.samples_per_s)), 0),
        shown(group.speed_up.map(|up| up.slowest), 2),
        bytes(group.spread(nettorrent_study::Measurement::payload_bytes_per_peer)),
        bytes(group.spread_if_all(nettorrent_study::Measurement::socket_bytes_per_peer)),
    ]
}

fn missing() -> String {
    "-".to_owned()
}

/// The mean, and the deviation if there is one.
fn shown(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread { mean, deviation, .. }) = spread else { return missing() };
    deviation.map_or(format!("{mean:.digits$}"), |deviation| format!("{mean:.digits$} ± {deviation:.digits$}"))
}

/// Columns as wide as their widest cell.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let width = |k: usize| lines.iter().map(|line| line[k].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn columns_are_aligned_by_what_people_see() {
        let line = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        assert_eq!(aligned(&[line("a", "b"), line("1 ± 2", "")]), "a      b\n1 ± 2\n");
    }
}
