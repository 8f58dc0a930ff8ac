//! Bars made of parts: what a whole consists of, such as where a peer's time went.

use crate::axis::{Axis, Start};
use crate::frame::{Row, draw_empty, with_rows};
use crate::legend::{Key, Legend};
use crate::palette::{MOST_NAMED, look};

/// Bars made of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBars {
    /// What the figure shows.
    pub title: String,
    /// The axis of the bars' lengths.
    pub axis: Axis,
    /// The kinds of parts, from the left; at most 16.
    pub parts: Vec<String>,
    /// The bars, from above.
    pub bars: Vec<StackedBar>,
}

/// A bar made of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    /// Its name.
    pub name: String,
    /// The length of each kind of part.
    pub lengths: Vec<f64>,
}

/// More bars than this are counted and not shown.
const MOST_BARS: usize = 40;

impl StackedBars {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let shown = &self.bars[..self.bars.len().min(MOST_BARS)];
        let n_parts = self.parts.len().min(MOST_NAMED);
        let length = |value: f64| if self.axis.has(value) { value.max(0.0) } else { 0.0 };
        let whole = |bar: &StackedBar| bar.lengths.iter().take(n_parts).map(|value| length(*value)).sum::<f64>();
        let ruler = self.axis.fit(shown.iter().map(whole), Start::Zero);
        let mut rows: Vec<Row> = shown.iter().map(|bar| Row { name: bar.name.clone(), height: 26.0 }).collect();
        if self.bars.len() > MOST_BARS {
            rows.push(Row { name: format!("{} more", self.bars.len() - MOST_BARS), height: 26.0 });
        }
        let names = self.parts.iter().take(n_parts).enumerate();
        let legend = Legend::new(names.map(|(index, name)| (Key::Area(look(index).colour, 0.9), name.clone())));
        with_rows(&self.title, (&rows, &ruler), &legend, |canvas, plot, tops| {
            for (bar, top) in shown.iter().zip(tops) {
                let mut from = 0.0;
                for (index, value) in bar.lengths.iter().take(n_parts).enumerate() {
                    let to = from + length(*value);
                    if to > from {
                        let (left, right) = (plot.x(ruler.place(from)), plot.x(ruler.place(to)));
                        canvas.rectangle((left, top + 4.0), (right, top + 22.0), look(index).colour, 0.9);
                    }
                    from = to;
                }
            }
            if shown.iter().all(|bar| whole(bar) == 0.0) {
                draw_empty(canvas, plot);
            }
        })
    }
}
