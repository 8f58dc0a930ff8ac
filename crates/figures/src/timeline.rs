//! What each peer did when: a row of coloured spans for each.

use crate::axis::{Axis, Start};
use crate::frame::{Row, draw_empty, with_rows};
use crate::legend::{Key, Legend};
use crate::number::Unit;
use crate::palette::{MOST_NAMED, MUTED, look};

/// Rows of spans over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What the figure shows.
    pub title: String,
    /// What happens in the spans; a span names its kind by its place here. The first 16 have a colour.
    pub kinds: Vec<String>,
    /// The rows, from above.
    pub rows: Vec<TimelineRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineRow {
    /// Whose it is.
    pub name: String,
    /// What happened, in any order; where spans overlap, the later one lies above.
    pub spans: Vec<Span>,
}

/// Something that took some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// When it began, in seconds.
    pub from_s: f64,
    /// When it ended.
    pub to_s: f64,
    /// Which of the kinds it is.
    pub kind: usize,
}

/// More rows than this are counted and not shown.
const MOST_ROWS: usize = 32;
/// More spans than this in a row cannot be told apart.
const MOST_SPANS: usize = 2000;

impl Timeline {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let axis = Axis::linear("time", Unit::Seconds);
        let shown = &self.rows[..self.rows.len().min(MOST_ROWS)];
        let spans = |row: &TimelineRow| -> Vec<Span> {
            let is_whole = |span: &&Span| axis.has(span.from_s) && axis.has(span.to_s) && span.to_s > span.from_s;
            row.spans.iter().filter(is_whole).take(MOST_SPANS).copied().collect()
        };
        let ends = shown.iter().flat_map(|row| spans(row).into_iter().flat_map(|span| [span.from_s, span.to_s]));
        let ruler = axis.fit(ends, Start::Anywhere);
        let mut rows: Vec<Row> = shown.iter().map(|row| Row { name: row.name.clone(), height: 26.0 }).collect();
        if self.rows.len() > MOST_ROWS {
            rows.push(Row { name: format!("{} more", self.rows.len() - MOST_ROWS), height: 26.0 });
        }
        with_rows(&self.title, (&rows, &ruler), &self.legend(), |canvas, plot, tops| {
            for (row, top) in shown.iter().zip(tops) {
                for span in spans(row) {
                    let (left, right) = (plot.x(ruler.place(span.from_s)), plot.x(ruler.place(span.to_s)));
                    let colour = if span.kind < MOST_NAMED { look(span.kind).colour } else { MUTED };
                    // What is too short to be seen is shown as short as can be seen.
                    canvas.rectangle((left, top + 4.0), (right.max(left + 0.5), top + 22.0), colour, 0.9);
                }
            }
            if shown.iter().all(|row| spans(row).is_empty()) {
                draw_empty(canvas, plot);
            }
        })
    }

    fn legend(&self) -> Legend {
        let named = self.kinds.iter().take(MOST_NAMED).enumerate();
        let mut entries: Vec<(Key, String)> =
            named.map(|(index, name)| (Key::Area(look(index).colour, 0.9), name.clone())).collect();
        if self.kinds.len() > MOST_NAMED {
            entries.push((Key::Area(MUTED, 0.9), format!("{} more", self.kinds.len() - MOST_NAMED)));
        }
        Legend::new(entries)
    }
}
