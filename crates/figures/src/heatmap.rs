//! A table of numbers as shades, such as a confusion matrix.

use crate::canvas::{Align, Canvas, LINE, Lettering, Pen, TEXT, WIDTH, draw};
use crate::frame::{draw_title, title_height, title_lines};
use crate::legend::{Key, Legend};
use crate::number::Unit;
use crate::palette::{GRID, INK, MUTED, look};
use crate::text::{clipped, text_width};

/// A table of shades with its numbers in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// What the figure shows.
    pub title: String,
    /// What the rows are, such as "true class".
    pub row_label: String,
    /// What the columns are, such as "predicted class".
    pub column_label: String,
    /// Names of the rows.
    pub row_names: Vec<String>,
    /// Names of the columns.
    pub column_names: Vec<String>,
    /// What the numbers count.
    pub unit: Unit,
    /// The numbers, row by row.
    pub rows: Vec<Vec<f64>>,
}

/// More rows or columns than this are left out; the numbers would be too small to see.
const MOST: usize = 100;
/// Up to so many columns there is room for numbers.
const MOST_WITH_NUMBERS: usize = 12;
/// The darkest shade, such that text can be read on it in light and in dark.
const DARKEST: f64 = 0.62;

impl Heatmap {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let title = title_lines(&self.title);
        let n_rows = self.rows.len().min(MOST);
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).min(MOST);
        let names = self.row_names.iter().take(n_rows).map(|name| text_width(name, TEXT));
        let left = names.fold(10.0, f64::max).min(WIDTH * 0.25) + 12.0;
        let cell = (WIDTH - 14.0 - left) / n_columns.max(4) as f64;
        let height = cell.min(if n_columns > MOST_WITH_NUMBERS { cell } else { 34.0 });
        let top = title_height(&title) + 2.0 * LINE + 8.0;
        let legend_top = top + n_rows.max(1) as f64 * height + LINE;
        let largest = self.largest();
        let legend = self.legend(largest);
        let grid = Grid { left, top, cell, height };
        let description = format!("{}: {} against {}", self.title, self.row_label, self.column_label);
        draw(&description, legend_top + legend.height() + 6.0, |canvas| {
            draw_title(canvas, &title);
            let labels = format!("rows: {}, columns: {}", self.row_label, self.column_label);
            canvas.text(
                &clipped(&labels, TEXT, WIDTH - 12.0),
                (6.0, title_height(&title) + LINE / 2.0),
                Lettering::plain(MUTED),
            );
            if n_rows == 0 || n_columns == 0 {
                canvas.text("no data", (left + 10.0, top + height / 2.0), Lettering::plain(MUTED));
            }
            for (index, row) in self.rows.iter().take(n_rows).enumerate() {
                grid.draw_row(canvas, (index, row), largest, n_columns <= MOST_WITH_NUMBERS);
            }
            self.draw_names(canvas, &grid, (n_rows, n_columns));
            legend.draw(canvas, legend_top);
        })
    }

    fn draw_names(&self, canvas: &mut Canvas, grid: &Grid, (n_rows, n_columns): (usize, usize)) {
        // Where there are many, only some are named.
        let every = |size: f64, wanted: f64| (wanted / size).ceil().max(1.0) as usize;
        for (index, name) in self.row_names.iter().take(n_rows).enumerate().step_by(every(grid.height, 16.0)) {
            let middle = grid.top + (index as f64 + 0.5) * grid.height;
            let lettering = Lettering { align: Align::End, ..Lettering::plain(INK) };
            canvas.text(&clipped(name, TEXT, grid.left - 10.0), (grid.left - 7.0, middle), lettering);
        }
        for (index, name) in self.column_names.iter().take(n_columns).enumerate().step_by(every(grid.cell, 26.0)) {
            let middle = grid.left + (index as f64 + 0.5) * grid.cell;
            let lettering = Lettering { align: Align::Middle, ..Lettering::plain(INK) };
            let name = clipped(name, TEXT, grid.cell.max(26.0) + 4.0);
            canvas.text(&name, (middle, grid.top - LINE / 2.0 - 1.0), lettering);
        }
    }

    fn largest(&self) -> f64 {
        let finite = self.rows.iter().flatten().filter(|value| value.is_finite());
        finite.copied().fold(0.0, f64::max)
    }

    fn legend(&self, largest: f64) -> Legend {
        let colour = look(0).colour;
        Legend::new([
            (Key::Area(colour, 0.08), format!("few ({})", self.unit.format(0.0))),
            (Key::Area(colour, DARKEST), format!("many ({})", self.unit.format(largest))),
        ])
    }
}

/// Where the cells lie.
struct Grid {
    left: f64,
    top: f64,
    cell: f64,
    height: f64,
}

impl Grid {
    fn draw_row(&self, canvas: &mut Canvas, (index, row): (usize, &[f64]), largest: f64, has_numbers: bool) {
        let top = self.top + index as f64 * self.height;
        let size = if self.cell < 36.0 { TEXT - 2.0 } else { TEXT };
        for (column, value) in row.iter().take(MOST).enumerate() {
            let left = self.left + column as f64 * self.cell;
            let (from, to) = ((left, top), (left + self.cell, top + self.height));
            if value.is_finite() && *value > 0.0 && largest > 0.0 {
                // The root, or the many right ones would make the few wrong ones invisible.
                canvas.rectangle(from, to, look(0).colour, ((value / largest).sqrt() * DARKEST).max(0.06));
            }
            if has_numbers && *value != 0.0 {
                let text = number(*value);
                let lettering = Lettering { size, align: Align::Middle, ..Lettering::plain(INK) };
                let text = clipped(&text, size, self.cell + 2.0);
                canvas.text(&text, (left + self.cell / 2.0, top + self.height / 2.0), lettering);
            }
        }
        let right = self.left + row.len().min(MOST) as f64 * self.cell;
        if has_numbers {
            canvas.line((self.left, top), (right, top), Pen::plain(GRID, 1.0));
        }
    }
}

/// A number that fits a cell; its unit is in the legend.
fn number(value: f64) -> String {
    if value.is_finite() && value >= 10_000.0 { format!("{:.0}k", value / 1000.0) } else { Unit::Count.format(value) }
}
