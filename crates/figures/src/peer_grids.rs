//! Which peers hold which layers: a grid of peers for each stage of layers, the first above.

use crate::canvas::{Align, Canvas, LINE, Lettering, Pen, TEXT, WIDTH, draw};
use crate::frame::{draw_title, title_height, title_lines};
use crate::palette::{INK, MUTED, look};
use crate::text::clipped;

/// Grids of peers, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerGrids {
    /// What the figure shows.
    pub title: String,
    /// The stages, from the first layers to the last.
    pub grids: Vec<PeerGrid>,
}

/// The peers that share some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerGrid {
    /// Which layers.
    pub name: String,
    /// Something about it, in few words.
    pub detail: String,
    /// Blocks of samples, drawn from above.
    pub rows: usize,
    /// Blocks of outputs, drawn from the left.
    pub columns: usize,
    /// The number of its first peer; they are counted row by row.
    pub first: usize,
    /// What passes between it and the next stage.
    pub passing: String,
}

/// More rows, columns or stages than this are counted and not shown.
const MOST: usize = 64;
const LEFT: f64 = 14.0;
const WIDEST_CELL: f64 = 46.0;
const HIGHEST_CELL: f64 = 26.0;
/// Narrower cells have no number.
const NARROWEST_WITH_NUMBER: f64 = 26.0;
const ARROW: f64 = 34.0;

impl PeerGrids {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let title = title_lines(&self.title);
        let shown = &self.grids[..self.grids.len().min(MOST)];
        let heights: f64 = shown.iter().map(PeerGrid::height).sum();
        let height = title_height(&title) + heights + LINE;
        let description = format!("{}: {} stages of layers", self.title, self.grids.len());
        draw(&description, height, |canvas| {
            draw_title(canvas, &title);
            let mut top = title_height(&title);
            for (index, grid) in shown.iter().enumerate() {
                grid.draw(canvas, top, index);
                top += grid.height();
                if index + 1 < shown.len() {
                    draw_passing(canvas, top - ARROW, &grid.passing);
                }
            }
            let n_more = self.grids.len() - shown.len();
            if n_more > 0 {
                canvas.text(&format!("and {n_more} more stages"), (LEFT, top), Lettering::plain(MUTED));
            }
        })
    }
}

impl PeerGrid {
    fn cell(&self) -> (f64, f64) {
        let width = ((WIDTH - 2.0 * LEFT) / self.columns.clamp(1, MOST) as f64).min(WIDEST_CELL);
        (width, width.min(HIGHEST_CELL))
    }

    fn height(&self) -> f64 {
        2.0 * LINE + self.rows.min(MOST) as f64 * self.cell().1 + ARROW + 6.0
    }

    fn draw(&self, canvas: &mut Canvas, top: f64, index: usize) {
        let (width, height) = self.cell();
        let room = WIDTH - 2.0 * LEFT;
        canvas.text(&clipped(&self.name, TEXT, room), (LEFT, top + LINE / 2.0), Lettering::plain(INK));
        canvas.text(&clipped(&self.described(), TEXT, room), (LEFT, top + 1.5 * LINE), Lettering::plain(MUTED));
        let top = top + 2.0 * LINE + 4.0;
        for row in 0..self.rows.min(MOST) {
            for column in 0..self.columns.min(MOST) {
                let from = (LEFT + column as f64 * width, top + row as f64 * height);
                let to = (from.0 + width - 2.0, from.1 + height - 2.0);
                canvas.rectangle(from, to, look(index).colour, 0.3);
                if width >= NARROWEST_WITH_NUMBER {
                    let number = (self.first + row * self.columns + column).to_string();
                    let middle = (f64::midpoint(from.0, to.0), f64::midpoint(from.1, to.1));
                    let number = clipped(&number, TEXT - 2.0, width);
                    canvas.text(
                        &number,
                        middle,
                        Lettering { size: TEXT - 2.0, align: Align::Middle, ..Lettering::plain(INK) },
                    );
                }
            }
        }
    }

    fn described(&self) -> String {
        let cut = if self.rows.max(self.columns) > MOST { format!(", {MOST} of them shown") } else { String::new() };
        format!("{} × {}{cut}; {}", self.rows, self.columns, self.detail)
    }
}

/// An arrow each way, and what they carry.
fn draw_passing(canvas: &mut Canvas, top: f64, text: &str) {
    let (high, low) = (top + 8.0, top + ARROW - 6.0);
    let pen = Pen::plain(MUTED, 1.4);
    for (x, tip, back) in [(LEFT + 10.0, low, -5.0), (LEFT + 24.0, high, 5.0)] {
        canvas.line((x, high), (x, low), pen);
        canvas.polygon(&[(x, tip), (x - 4.0, tip + back), (x + 4.0, tip + back)], MUTED, 1.0);
    }
    let text = clipped(text, TEXT, WIDTH - LEFT - 50.0);
    canvas.text(&text, (LEFT + 38.0, f64::midpoint(high, low)), Lettering::plain(MUTED));
}
