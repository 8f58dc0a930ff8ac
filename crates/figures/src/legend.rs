//! What the lines and colours of a figure mean, below it, in as many rows as it takes.

use crate::canvas::{Canvas, LINE, Lettering, Pen, Place, TEXT, WIDTH};
use crate::palette::{Colour, INK, Look};
use crate::text::{clipped, text_width};

/// What stands before an entry's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// A series of points.
    Series(Look),
    /// A filled area.
    Area(Colour, f64),
    /// A line without points.
    Line(Pen),
    /// An arrow.
    Arrow(Colour),
    /// A disc.
    Disc(Colour),
}

/// All entries, laid out.
pub(crate) struct Legend {
    entries: Vec<(Key, String, Place)>,
    height: f64,
}

const KEY_WIDTH: f64 = 34.0;
const GAP: f64 = 14.0;

impl Legend {
    /// Lays entries out from left to right, in rows.
    pub(crate) fn new(entries: impl IntoIterator<Item = (Key, String)>) -> Self {
        let (mut x, mut y) = (8.0, LINE / 2.0);
        let mut placed = Vec::new();
        for (key, name) in entries {
            let name = clipped(&name, TEXT, WIDTH - KEY_WIDTH - 2.0 * GAP);
            let width = KEY_WIDTH + text_width(&name, TEXT) + GAP;
            if x > 8.0 && x + width > WIDTH {
                (x, y) = (8.0, y + LINE);
            }
            placed.push((key, name, (x, y)));
            x += width;
        }
        let height = if placed.is_empty() { 0.0 } else { y + LINE / 2.0 };
        Self { entries: placed, height }
    }

    pub(crate) fn height(&self) -> f64 {
        self.height
    }

    /// Draws all entries below `top`.
    pub(crate) fn draw(&self, canvas: &mut Canvas, top: f64) {
        for (key, name, (x, y)) in &self.entries {
            let (x, y) = (*x, y + top);
            draw_key(canvas, *key, (x, y));
            let lettering = Lettering::plain(INK);
            canvas.text(name, (x + KEY_WIDTH, y), lettering);
        }
    }
}

fn draw_key(canvas: &mut Canvas, key: Key, (x, y): Place) {
    let (from, to, middle) = ((x, y), (x + 27.0, y), (x + 13.5, y));
    match key {
        Key::Series(look) => {
            canvas.line(from, to, Pen { colour: look.colour, width: 2.2, dash: look.dash, opacity: 1.0 });
            canvas.marker(middle, look);
        }
        Key::Area(colour, opacity) => canvas.rectangle((x + 10.0, y - 6.0), (x + 27.0, y + 6.0), colour, opacity),
        Key::Line(pen) => canvas.line(from, to, pen),
        Key::Arrow(colour) => arrow(canvas, from, to, colour),
        Key::Disc(colour) => canvas.disc((x + 19.0, y), 7.0, colour),
    }
}

/// A line with a head at its end.
pub(crate) fn arrow(canvas: &mut Canvas, from: Place, to: Place, colour: Colour) {
    let length = (to.0 - from.0).hypot(to.1 - from.1);
    if length < 1.0 {
        return;
    }
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let back = (to.0 - dx * 10.0, to.1 - dy * 10.0);
    canvas.line(from, back, Pen { colour, width: 2.4, dash: Some((5.0, 3.0)), opacity: 1.0 });
    let head = [to, (back.0 - dy * 5.5, back.1 + dx * 5.5), (back.0 + dy * 5.5, back.1 - dx * 5.5)];
    canvas.polygon(&head, colour, 1.0);
}
