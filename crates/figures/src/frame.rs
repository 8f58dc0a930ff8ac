//! What surrounds the data of a figure: its title, its axes with marks, and the legend below.

use crate::axis::Ruler;
use crate::canvas::{Align, Canvas, LINE, Lettering, Pen, Place, TEXT, TITLE, WIDTH, draw};
use crate::legend::Legend;
use crate::palette::{GRID, INK, MUTED};
use crate::text::{clipped, text_width, wrapped};

const PLAIN: Lettering = Lettering::plain(MUTED);
const TITLE_LETTERING: Lettering = Lettering { size: TITLE, colour: INK, align: Align::Start, is_bold: true };

/// Where the data go.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    pub(crate) fn x(&self, share: f64) -> f64 {
        self.left + (self.right - self.left) * share
    }

    /// Shares of a vertical axis count from the bottom.
    pub(crate) fn y(&self, share: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * share
    }
}

/// Draws a figure with two axes of numbers.
pub(crate) fn with_axes(
    title: &str,
    (x, y): (&Ruler, &Ruler),
    legend: &Legend,
    paint: impl FnOnce(&mut Canvas, &Plot),
) -> String {
    let title_lines = title_lines(title);
    let widest = y.marks.iter().map(|(_, text)| text_width(text, TEXT)).fold(12.0, f64::max).min(110.0);
    let top = title_height(&title_lines) + LINE + 8.0;
    let plot = Plot { left: widest + 14.0, top, right: WIDTH - 14.0, bottom: top + 250.0 };
    let legend_top = plot.bottom + 2.0 * LINE + 14.0;
    draw(&description(title, [x, y]), legend_top + legend.height() + 6.0, |canvas| {
        draw_title(canvas, &title_lines);
        // Above the axis and not beside it: so it need not be turned, and the plot stays wide on a phone.
        canvas.text(&clipped(&y.title, TEXT, WIDTH - 20.0), (6.0, plot.top - LINE / 2.0 - 5.0), PLAIN);
        for (value, text) in &y.marks {
            let height = plot.y(y.place(*value));
            canvas.line((plot.left, height), (plot.right, height), Pen::plain(GRID, 1.0));
            let lettering = Lettering { align: Align::End, ..PLAIN };
            canvas.text(&clipped(text, TEXT, 110.0), (plot.left - 7.0, height), lettering);
        }
        draw_horizontal(canvas, &plot, x);
        paint(canvas, &plot);
        canvas.line((plot.left, plot.top), (plot.left, plot.bottom), Pen::plain(INK, 1.2));
        legend.draw(canvas, legend_top);
    })
}

/// A row of a figure with rows: its name and how high it is.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) height: f64,
}

/// Draws a figure with a named row for each thing and an axis of numbers below. `paint` is told each row's top.
pub(crate) fn with_rows(
    title: &str,
    (rows, x): (&[Row], &Ruler),
    legend: &Legend,
    paint: impl FnOnce(&mut Canvas, &Plot, &[f64]),
) -> String {
    let title_lines = title_lines(title);
    let widest = rows.iter().map(|row| text_width(&row.name, TEXT)).fold(20.0, f64::max);
    let label_width = widest.min(WIDTH * 0.44);
    let top = title_height(&title_lines) + 6.0;
    let mut tops = Vec::new();
    let mut bottom = top;
    for row in rows {
        tops.push(bottom);
        bottom += row.height;
    }
    let bottom = bottom.max(top + 40.0);
    let plot = Plot { left: label_width + 14.0, top, right: WIDTH - 14.0, bottom };
    let legend_top = plot.bottom + 2.0 * LINE + 14.0;
    draw(&description(title, [x]), legend_top + legend.height() + 6.0, |canvas| {
        draw_title(canvas, &title_lines);
        draw_horizontal(canvas, &plot, x);
        for (row, row_top) in rows.iter().zip(&tops) {
            draw_row_name(canvas, row, *row_top, &plot);
        }
        paint(canvas, &plot, &tops);
        canvas.line((plot.left, plot.top), (plot.left, plot.bottom), Pen::plain(INK, 1.2));
        legend.draw(canvas, legend_top);
    })
}

fn draw_row_name(canvas: &mut Canvas, row: &Row, top: f64, plot: &Plot) {
    let width = plot.left - 10.0;
    let most = ((row.height / (LINE - 2.0)) as usize).clamp(1, 3);
    let lines = wrapped(&row.name, TEXT, width, most);
    let first = top + row.height / 2.0 - (lines.len().saturating_sub(1)) as f64 * (LINE - 3.0) / 2.0;
    let lettering = Lettering { colour: INK, align: Align::End, ..PLAIN };
    for (index, line) in lines.iter().enumerate() {
        canvas.text(line, (plot.left - 7.0, first + index as f64 * (LINE - 3.0)), lettering);
    }
}

/// The axis below the data, with lines upwards at its marks.
fn draw_horizontal(canvas: &mut Canvas, plot: &Plot, ruler: &Ruler) {
    let mut free_from = f64::NEG_INFINITY;
    for (value, text) in &ruler.marks {
        let across = plot.x(ruler.place(*value));
        canvas.line((across, plot.top), (across, plot.bottom), Pen::plain(GRID, 1.0));
        let half = text_width(text, TEXT) / 2.0;
        // A name that would run into the one before is left out.
        if across - half < free_from + 6.0 || across + half > WIDTH + 8.0 {
            continue;
        }
        free_from = across + half;
        canvas.text(text, (across, plot.bottom + LINE / 2.0 + 3.0), Lettering { align: Align::Middle, ..PLAIN });
    }
    canvas.line((plot.left, plot.bottom), (plot.right, plot.bottom), Pen::plain(INK, 1.2));
    let middle = f64::midpoint(plot.left, plot.right);
    let title = clipped(&ruler.title, TEXT, 2.0 * (WIDTH - middle));
    canvas.text(&title, (middle, plot.bottom + 1.5 * LINE + 4.0), Lettering { align: Align::Middle, ..PLAIN });
}

/// A title of at most two lines.
pub(crate) fn title_lines(title: &str) -> Vec<String> {
    wrapped(title, TITLE * 1.04, WIDTH - 16.0, 2)
}

/// How much room a title takes.
pub(crate) fn title_height(lines: &[String]) -> f64 {
    lines.len() as f64 * (LINE + 2.0) + 6.0
}

pub(crate) fn draw_title(canvas: &mut Canvas, lines: &[String]) {
    for (index, line) in lines.iter().enumerate() {
        let at: Place = (6.0, index as f64 * (LINE + 2.0) + LINE / 2.0 + 3.0);
        canvas.text(line, at, TITLE_LETTERING);
    }
}

/// Says what is not there, in the middle of where it would be.
pub(crate) fn draw_empty(canvas: &mut Canvas, plot: &Plot) {
    let middle = (f64::midpoint(plot.left, plot.right), f64::midpoint(plot.top, plot.bottom));
    canvas.text("no data", middle, Lettering { align: Align::Middle, ..PLAIN });
}

fn description<const N: usize>(title: &str, rulers: [&Ruler; N]) -> String {
    let axes: Vec<&str> = rulers.iter().map(|ruler| ruler.title.as_str()).collect();
    format!("{title}: {}", axes.join(" against "))
}
