//! Bars in groups, with whiskers for deviation and marks for what would be ideal.

use crate::axis::{Axis, Ruler, Start};
use crate::canvas::{Align, Canvas, Lettering, Pen, TEXT};
use crate::frame::{Plot, Row, draw_empty, with_rows};
use crate::legend::{Key, Legend};
use crate::palette::{ALERT, INK, MOST_NAMED, look};
use crate::text::text_width;

/// Bars in groups. They lie, so that names can be read beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What the figure shows.
    pub title: String,
    /// The axis of the bars' lengths.
    pub axis: Axis,
    /// The names of the groups, from above.
    pub groups: Vec<String>,
    /// The bars of each group; at most 16 are shown.
    pub series: Vec<BarSeries>,
    /// What would be ideal for each group.
    pub ideal: Option<Ideal>,
}

/// One bar in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// A bar for each group; none where there is nothing to show.
    pub bars: Vec<Option<Bar>>,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its length.
    pub mean: f64,
    /// How far trials lay from it; 0 for no whisker.
    pub deviation: f64,
}

/// What would be ideal.
#[derive(Clone, Debug, PartialEq)]
pub struct Ideal {
    /// The name in the legend.
    pub name: String,
    /// A value for each group.
    pub values: Vec<Option<f64>>,
}

/// More groups than this are counted and not shown.
const MOST_GROUPS: usize = 40;
const BAR: f64 = 17.0;

impl BarChart {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let ruler = self.ruler();
        let n_series = self.series.len().clamp(1, MOST_NAMED);
        let mut rows: Vec<Row> = self
            .groups
            .iter()
            .take(MOST_GROUPS)
            .map(|name| Row { name: name.clone(), height: (n_series as f64 * BAR + 12.0).max(28.0) })
            .collect();
        if self.groups.len() > MOST_GROUPS {
            rows.push(Row { name: format!("{} more", self.groups.len() - MOST_GROUPS), height: 28.0 });
        }
        with_rows(&self.title, (&rows, &ruler), &self.legend(), |canvas, plot, tops| {
            for (group, top) in tops.iter().enumerate().take(MOST_GROUPS.min(self.groups.len())) {
                let used = n_series as f64 * BAR;
                let first = top + (rows[group].height - used) / 2.0;
                let ideal = self.ideal_of(group).map(|value| plot.x(ruler.place(value)));
                for (index, series) in self.series.iter().take(MOST_NAMED).enumerate() {
                    if let Some(Some(bar)) = series.bars.get(group) {
                        self.draw_bar(canvas, (plot, &ruler), (index, first + index as f64 * BAR), (*bar, ideal));
                    }
                }
                if let Some(across) = ideal {
                    canvas.line((across, first - 3.0), (across, first + used + 3.0), ideal_pen());
                }
            }
            if self.groups.is_empty() || self.series.is_empty() {
                draw_empty(canvas, plot);
            }
        })
    }

    fn ruler(&self) -> Ruler {
        let bars = self.series.iter().flat_map(|series| series.bars.iter().flatten());
        let ends = bars.flat_map(|bar| {
            let reach = if bar.deviation.is_finite() { bar.deviation } else { 0.0 };
            [bar.mean, bar.mean + reach]
        });
        let ideal = (0..self.groups.len()).filter_map(|group| self.ideal_of(group));
        // The room behind the longest bar is for its number.
        let ends: Vec<f64> = ends.chain(ideal).filter(|end| self.axis.has(*end)).collect();
        let longest = ends.iter().copied().fold(0.0, f64::max);
        self.axis.fit(ends.into_iter().chain([longest * 1.22]), Start::Zero)
    }

    fn ideal_of(&self, group: usize) -> Option<f64> {
        let value = *self.ideal.as_ref()?.values.get(group)?;
        value.filter(|value| self.axis.has(*value))
    }

    fn legend(&self) -> Legend {
        let shown = self.series.iter().take(MOST_NAMED).enumerate();
        let mut entries: Vec<(Key, String)> =
            shown.map(|(index, series)| (Key::Area(look(index).colour, 0.9), series.name.clone())).collect();
        if self.series.len() > MOST_NAMED {
            let n_more = self.series.len() - MOST_NAMED;
            entries.push((Key::Line(Pen { opacity: 0.0, ..ideal_pen() }), format!("{n_more} more are not shown")));
        }
        if let Some(ideal) = &self.ideal {
            entries.push((Key::Line(ideal_pen()), ideal.name.clone()));
        }
        if self.series.iter().flat_map(|series| series.bars.iter().flatten()).any(|bar| bar.deviation > 0.0) {
            entries.push((Key::Line(Pen::plain(INK, 1.4)), "± standard deviation".to_owned()));
        }
        Legend::new(entries)
    }

    /// Draws a bar and its number, which keeps clear of the mark of what would be ideal.
    fn draw_bar(
        &self,
        canvas: &mut Canvas,
        (plot, ruler): (&Plot, &Ruler),
        (index, top): (usize, f64),
        (bar, ideal): (Bar, Option<f64>),
    ) {
        if !self.axis.has(bar.mean) {
            return;
        }
        let (zero, end) = (plot.x(ruler.place(0.0)), plot.x(ruler.place(bar.mean)));
        let middle = top + BAR / 2.0;
        canvas.rectangle((zero, top + 1.5), (end, top + BAR - 1.5), look(index).colour, 0.9);
        let mut text_from = end.max(zero);
        if bar.deviation.is_finite() && bar.deviation > 0.0 {
            let low = plot.x(ruler.place(bar.mean - bar.deviation));
            let high = plot.x(ruler.place(bar.mean + bar.deviation));
            let pen = Pen::plain(INK, 1.4);
            canvas.line((low, middle), (high, middle), pen);
            canvas.line((low, middle - 4.0), (low, middle + 4.0), pen);
            canvas.line((high, middle - 4.0), (high, middle + 4.0), pen);
            text_from = text_from.max(high);
        }
        let text = self.axis.unit.format(bar.mean);
        let size = TEXT - 1.0;
        let text_end = text_from + 5.0 + text_width(&text, size);
        text_from = ideal.filter(|mark| (text_from..text_end).contains(mark)).unwrap_or(text_from);
        if text_from + 5.0 + text_width(&text, size) <= plot.right + 12.0 {
            let lettering = Lettering { size, colour: INK, align: Align::Start, is_bold: false };
            canvas.text(&text, (text_from + 5.0, middle), lettering);
        }
    }
}

fn ideal_pen() -> Pen {
    Pen { colour: ALERT, width: 2.0, dash: Some((4.0, 2.0)), opacity: 1.0 }
}
