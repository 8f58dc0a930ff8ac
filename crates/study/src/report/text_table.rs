//! What a study found, as a table in plain text.

use nettorrent_engine::measure::Measure;
use nettorrent_figures::{Side, Unit, aligned};

use crate::compare::{Group, Spread, groups};
use crate::plan::text;
use crate::results::{Measurement, Outcome, Results};

/// The table: a line for each setting, and below it what failed.
pub fn text_table(results: &Results) -> String {
    let groups = groups(results);
    let measure = results.measure();
    let target = results.target().map(|target| match measure {
        Measure::Accuracy => format!("s to {} %", 100.0 * target),
        Measure::Loss | Measure::Perplexity { .. } => format!("s to {target}"),
    });
    let mut head: Vec<String> = results.axes.iter().map(|axis| axis.name.clone()).collect();
    let has_target = target.is_some();
    head.push(measure.noun().to_owned());
    head.extend(target);
    head.extend(["s", "samples/s", "predicted", "speed-up", "sent by a peer", "on its sockets"].map(str::to_owned));
    let mut lines = vec![head];
    for group in &groups {
        let axes = results.axes.iter().map(|axis| group.setting.get(&axis.name).cloned().unwrap_or_default());
        lines.push(axes.chain(cells(group, measure, has_target)).collect());
    }
    let sides = [vec![Side::Left; results.axes.len()], vec![Side::Right]].concat();
    let mut table = aligned(&lines, &sides);
    for run in &results.runs {
        if let Outcome::Failed(problem) = &run.outcome {
            table += &format!("failed: {}, trial {}: {problem}\n", text(&run.setting), run.trial);
        }
    }
    table
}

fn cells(group: &Group<'_>, measure: Measure, has_target: bool) -> Vec<String> {
    let (scale, digits) = match measure {
        Measure::Accuracy => (100.0, 2),
        Measure::Loss => (1.0, 4),
        Measure::Perplexity { .. } => (1.0, 3),
    };
    let bytes = |spread: Option<Spread>| spread.map_or(missing(), |spread| Unit::Bytes.format(spread.mean));
    let mut cells = vec![shown(group.spread(|found| scale * found.final_value), digits)];
    cells.extend(has_target.then(|| shown(group.spread_if_all(|found| found.convergence_s), 1)));
    cells.extend([
        shown(group.spread(|found| found.total_s), 1),
        shown(group.spread(|found| found.samples_per_s), 0),
        shown(group.spread_if_all(|found| Some(found.prediction?.samples_per_s)), 0),
        shown(group.speed_up.map(|up| up.slowest), 2),
        bytes(group.spread(Measurement::payload_bytes_per_peer)),
        bytes(group.spread_if_all(Measurement::socket_bytes_per_peer)),
    ]);
    cells
}

fn missing() -> String {
    "-".to_owned()
}

/// The mean, and the deviation if there is one.
fn shown(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread { mean, deviation, .. }) = spread else { return missing() };
    deviation.map_or(format!("{mean:.digits$}"), |deviation| format!("{mean:.digits$} ± {deviation:.digits$}"))
}
