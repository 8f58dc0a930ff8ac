//! A plan as a picture: the grid of peers of each stage, in plain text and as a figure.

use nettorrent_engine::partition::block;
use nettorrent_figures::{PeerGrid, PeerGrids};
use nettorrent_pipeline::plan::Stage;
use nettorrent_pipeline::planner::{Candidate, StageEstimate};

use super::{PipelineReport, bytes};

/// More than so many columns, or twice as many rows, are left out in the middle.
const MOST_SHOWN: usize = 12;

/// The first replica's peers in plain text, from the first layers to the last.
pub(super) fn picture(report: &PipelineReport<'_>) -> String {
    let Candidate { plan, estimate, .. } = &report.choice.best;
    // A number, and a blank at each side.
    let cell = plan.n_slots().saturating_sub(1).to_string().len() + 2;
    let mut text = String::new();
    let mut first = 0;
    for (index, (stage, one)) in plan.stages.iter().zip(&estimate.stages).enumerate() {
        text += &format!("  stage {index}: {}\n", report.layers_of(stage));
        text += &grid(stage, first, cell, report.question.batch);
        first += stage.batch_shards * stage.tensor_shards;
        if let Some(above) = estimate.stages.get(index + 1) {
            text += &format!("   ↓ ↑   {}\n", passing(one, above));
        }
    }
    if estimate.n_replicas > 1 {
        let n_slots = plan.n_slots();
        let (n_more, last) = (estimate.n_replicas - 1, estimate.n_replicas * n_slots - 1);
        text += &match (n_more, n_slots) {
            (1, 1) => "  1 more replica: peer 1\n".to_owned(),
            (1, _) => format!("  1 more replica: peers {n_slots} to {last}\n"),
            _ => format!("  {n_more} more replicas: peers {n_slots} to {last}\n"),
        };
    }
    text
}

impl PipelineReport<'_> {
    /// The same as a figure.
    pub fn figure(&self) -> PeerGrids {
        let Candidate { plan, estimate, .. } = &self.choice.best;
        let mut first = 0;
        let mut grids = Vec::with_capacity(plan.stages.len());
        for (index, (stage, one)) in plan.stages.iter().zip(&estimate.stages).enumerate() {
            let above = estimate.stages.get(index + 1);
            let each = if stage.batch_shards * stage.tensor_shards > 1 { " each" } else { "" };
            grids.push(PeerGrid {
                name: self.layers_of(stage),
                detail: format!(
                    "{} parameters, {}{each}",
                    indicatif::HumanCount(one.n_params),
                    bytes(one.memory_bytes)
                ),
                rows: stage.batch_shards,
                columns: stage.tensor_shards,
                first,
                passing: above.map_or(String::new(), |above| passing(one, above)),
            });
            first += stage.batch_shards * stage.tensor_shards;
        }
        let replicas = match estimate.n_replicas {
            1 => String::new(),
            n => format!(", the first of {n} replicas"),
        };
        PeerGrids { title: format!("{} on {first} peers{}{replicas}", self.job.model, self.of_batches()), grids }
    }
}

/// One stage's peers, row by row; beside each row its samples.
fn grid(stage: &Stage, first: usize, cell: usize, batch: usize) -> String {
    let columns = shown(stage.tensor_shards, MOST_SHOWN);
    let rows = shown(stage.batch_shards, 2 * MOST_SHOWN);
    let bar = "─".repeat(cell);
    let line = |left: &str, middle: &str, right: &str| {
        format!("  {left}{}{right}\n", vec![bar.as_str(); columns.len()].join(middle))
    };
    let mut text = line("┌", "┬", "┐");
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            text += &line("├", "┼", "┤");
        }
        let number = |column: &Option<usize>| match (row, column) {
            (Some(row), Some(column)) => (first + row * stage.tensor_shards + column).to_string(),
            _ => "…".to_owned(),
        };
        let cells: Vec<String> = columns.iter().map(|column| format!("{:^cell$}", number(column))).collect();
        text += &format!("  │{}│{}\n", cells.join("│"), samples(*row, stage.batch_shards, batch));
    }
    text + &line("└", "┴", "┘")
}

/// Which samples a row has, where there are several rows.
fn samples(row: Option<usize>, n_rows: usize, batch: usize) -> String {
    match row {
        Some(row) if n_rows > 1 => {
            let samples = block(row, n_rows, batch);
            match samples.len() {
                0 => "  no samples".to_owned(),
                1 => format!("  sample {}", samples.start),
                _ => format!("  samples {} – {}", samples.start, samples.end - 1),
            }
        }
        _ => String::new(),
    }
}

/// All numbers below `n`, or the first and the last with a gap between.
fn shown(n: usize, most: usize) -> Vec<Option<usize>> {
    if n <= most {
        return (0..n).map(Some).collect();
    }
    (0..most - 2).map(Some).chain([None, Some(n - 1)]).collect()
}

fn passing(below: &StageEstimate, above: &StageEstimate) -> String {
    format!("a peer below sends {} up, a peer above {} down", bytes(below.up_bytes), bytes(above.down_bytes))
}

#[cfg(test)]
mod tests {
    use nettorrent_pipeline::plan::Stage;

    use super::grid;

    #[test]
    fn grids_are_drawn_whatever_their_size() {
        let stage = |rows, columns| Stage { layers: 0..1, batch_shards: rows, tensor_shards: columns };
        assert_eq!(grid(&stage(1, 1), 7, 3, 10), "  ┌───┐\n  │ 7 │\n  └───┘\n");
        let two =
            "  ┌────┬────┐\n  │ 8  │ 9  │  samples 0 – 1\n  ├────┼────┤\n  │ 10 │ 11 │  sample 2\n  └────┴────┘\n";
        assert_eq!(grid(&stage(2, 2), 8, 4, 3), two);
        let square = grid(&stage(10, 10), 0, 4, 100);
        assert_eq!(square.lines().count(), 21);
        assert!(square.contains("│ 99 │  samples 90 – 99"), "{square}");
        let large = grid(&stage(100, 100), 0, 6, 100);
        assert!(large.lines().all(|line| line.chars().count() <= 100), "{large}");
        assert!(large.contains("9999") && large.contains('…'), "{large}");
    }
}
