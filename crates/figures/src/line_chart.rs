//! Curves: one number against another, a line for each series, with bands for their deviation.

use crate::axis::{Axis, Ruler, Start};
use crate::canvas::{Canvas, Pen, Place};
use crate::frame::{Plot, draw_empty, with_axes};
use crate::legend::{Key, Legend};
use crate::palette::{ALERT, GRID, INK, Look, MOST_NAMED, MUTED, look};

/// Curves in one plot.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// What the figure shows.
    pub title: String,
    /// The axis below.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The curves; the first 16 have a look and a name of their own, all others are grey.
    pub series: Vec<Series>,
    /// Heights to compare with.
    pub references: Vec<Reference>,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order of the line. Where a number is missing (NaN) the line is broken.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Along the axis below.
    pub x: f64,
    /// Along the axis at the left.
    pub y: f64,
    /// How far trials lay from it, up and down; 0 for no band.
    pub deviation: f64,
}

impl Point {
    /// A point without deviation.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, deviation: 0.0 }
    }
}

/// A horizontal line to compare with, such as a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Its name in the legend.
    pub name: String,
    /// Its height.
    pub value: f64,
}

/// More points than this in a line cannot be seen.
const MOST_POINTS: usize = 400;
/// Lines with more points than this have no marks at them.
const MOST_MARKED: usize = 25;

impl LineChart {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let (x, y) = (self.x_ruler(), self.y_ruler());
        with_axes(&self.title, (&x, &y), &self.legend(), |canvas, plot| {
            // What is named lies above what is not.
            for (index, series) in self.series.iter().enumerate().skip(MOST_NAMED).take(1000) {
                self.draw_series(canvas, &Stage { plot, x: &x, y: &y }, (index, series));
            }
            for (index, series) in self.series.iter().enumerate().take(MOST_NAMED) {
                self.draw_series(canvas, &Stage { plot, x: &x, y: &y }, (index, series));
            }
            for reference in self.shown_references() {
                let height = plot.y(y.place(reference.value));
                canvas.line((plot.left, height), (plot.right, height), reference_pen());
            }
            if self.places().next().is_none() {
                draw_empty(canvas, plot);
            }
        })
    }

    fn legend(&self) -> Legend {
        let mut entries: Vec<(Key, String)> = self
            .series
            .iter()
            .take(MOST_NAMED)
            .enumerate()
            .map(|(index, series)| (Key::Series(look(index)), series.name.clone()))
            .collect();
        if self.series.len() > MOST_NAMED {
            let n_more = self.series.len() - MOST_NAMED;
            entries.push((Key::Line(Pen::plain(MUTED, 1.0)), format!("{n_more} more")));
        }
        for reference in self.shown_references() {
            let value = self.y.unit.format(reference.value);
            entries.push((Key::Line(reference_pen()), format!("{} ({value})", reference.name)));
        }
        if self.series.iter().take(MOST_NAMED).flat_map(|series| &series.points).any(|point| point.deviation > 0.0) {
            entries.push((Key::Area(INK, 0.15), "± standard deviation".to_owned()));
        }
        Legend::new(entries)
    }

    fn x_ruler(&self) -> Ruler {
        self.x.fit(self.places().map(|point| point.x), Start::Anywhere)
    }

    fn y_ruler(&self) -> Ruler {
        let curves = self.places().flat_map(|point| {
            let reach = if point.deviation.is_finite() { point.deviation } else { 0.0 };
            // On a logarithmic axis a band may reach below 0, which has no place there.
            let low = if self.y.has(point.y - reach) { point.y - reach } else { point.y };
            [low, point.y, point.y + reach]
        });
        self.y.fit(curves.chain(self.shown_references().map(|reference| reference.value)), Start::Anywhere)
    }

    fn places(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|series| &series.points).filter(|point| self.is_shown(point))
    }

    fn is_shown(&self, point: &Point) -> bool {
        self.x.has(point.x) && self.y.has(point.y)
    }

    fn shown_references(&self) -> impl Iterator<Item = &Reference> {
        self.references.iter().filter(|reference| self.y.has(reference.value))
    }

    fn draw_series(&self, canvas: &mut Canvas, stage: &Stage<'_>, (index, series): (usize, &Series)) {
        let is_named = index < MOST_NAMED;
        let look = look(index);
        for piece in series.points.split(|point| !self.is_shown(point)) {
            let piece = thinned(piece);
            if is_named {
                stage.draw_band(canvas, &piece, look);
            }
            let places: Vec<Place> = piece.iter().map(|point| stage.place(point.x, point.y)).collect();
            if !is_named {
                canvas.path(&places, Pen::plain(GRID, 1.0));
                continue;
            }
            canvas.path(&places, Pen { colour: look.colour, width: 2.2, dash: look.dash, opacity: 1.0 });
            if places.len() <= MOST_MARKED {
                for place in places {
                    canvas.marker(place, look);
                }
            }
        }
    }
}

/// Where a series is drawn.
struct Stage<'a> {
    plot: &'a Plot,
    x: &'a Ruler,
    y: &'a Ruler,
}

impl Stage<'_> {
    fn place(&self, x: f64, y: f64) -> Place {
        (self.plot.x(self.x.place(x)), self.plot.y(self.y.place(y)))
    }

    fn draw_band(&self, canvas: &mut Canvas, points: &[Point], look: Look) {
        if !points.iter().any(|point| point.deviation > 0.0) {
            return;
        }
        let reach = |point: &Point| if point.deviation.is_finite() { point.deviation.max(0.0) } else { 0.0 };
        let upper = points.iter().map(|point| self.place(point.x, point.y + reach(point)));
        let lower = points.iter().rev().map(|point| self.place(point.x, point.y - reach(point)));
        let around: Vec<Place> = upper.chain(lower).collect();
        canvas.polygon(&around, look.colour, 0.15);
    }
}

fn reference_pen() -> Pen {
    Pen { colour: ALERT, width: 1.6, dash: Some((2.0, 4.0)), opacity: 1.0 }
}

/// At most [`MOST_POINTS`] of the points: the lowest and the highest of each stretch, so that no peak is lost.
fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(MOST_POINTS);
    for stretch in points.chunks(points.len().div_ceil(MOST_POINTS / 2)) {
        let by_height = |a: &(usize, &Point), b: &(usize, &Point)| a.1.y.total_cmp(&b.1.y);
        let low = stretch.iter().enumerate().min_by(by_height).map_or(0, |(index, _)| index);
        let high = stretch.iter().enumerate().max_by(by_height).map_or(0, |(index, _)| index);
        kept.push(stretch[low.min(high)]);
        kept.push(stretch[low.max(high)]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{MOST_POINTS, Point, thinned};

    #[test]
    fn thinning_keeps_peaks() {
        let mut points: Vec<Point> = (0..10_000).map(|index| Point::new(f64::from(index), 0.0)).collect();
        points[4711].y = 1.0;
        let kept = thinned(&points);
        assert!(kept.len() <= MOST_POINTS);
        assert!(kept.contains(&Point::new(4711.0, 1.0)));
        assert!(kept.windows(2).all(|pair| pair[0].x <= pair[1].x));
    }
}
