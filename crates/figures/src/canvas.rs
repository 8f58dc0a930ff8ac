//! The sheet that all figures draw on: SVG by way of `plotters`' backend, in fractions of a unit.

use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontFamily, FontStyle, RGBAColor, ShapeStyle, TextStyle};

use crate::palette::{Colour, Look, Marker};

/// How wide every figure is, in its own units. A phone shows one of these units on about three quarters of a pixel, so
/// text of 14.5 units is still read there.
pub(crate) const WIDTH: f64 = 480.0;
/// The size of most text.
pub(crate) const TEXT: f64 = 14.5;
/// The size of titles.
pub(crate) const TITLE: f64 = 16.0;
/// The height of a line of text.
pub(crate) const LINE: f64 = 19.0;

/// The backend knows whole numbers only; with eight to a unit, curves stay smooth.
const FINE: f64 = 8.0;

/// Where text lies by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Start,
    Middle,
    End,
}

/// How text looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lettering {
    pub(crate) size: f64,
    pub(crate) colour: Colour,
    pub(crate) align: Align,
    pub(crate) is_bold: bool,
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen {
    pub(crate) colour: Colour,
    pub(crate) width: f64,
    pub(crate) dash: Option<(f64, f64)>,
    pub(crate) opacity: f64,
}

impl Pen {
    /// A whole, opaque line.
    pub(crate) fn plain(colour: Colour, width: f64) -> Self {
        Self { colour, width, dash: None, opacity: 1.0 }
    }
}

/// A place on the sheet: from the left, from the top.
pub(crate) type Place = (f64, f64);

/// The sheet.
pub(crate) struct Canvas<'a> {
    backend: SVGBackend<'a>,
}

/// Draws a figure as high as is said; its description is for those who hear the page.
pub(crate) fn draw(description: &str, height: f64, paint: impl FnOnce(&mut Canvas<'_>)) -> String {
    let mut svg = String::new();
    let size = (fine(WIDTH) as u32, fine(height.max(1.0)) as u32);
    let mut canvas = Canvas { backend: SVGBackend::with_string(&mut svg, size) };
    paint(&mut canvas);
    canvas.backend.present().expect("a string takes everything");
    drop(canvas);
    // The backend's head gives the size in fine units, and knows neither class nor description.
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let (description, body) = (escape(description), compact(body));
    format!(
        "<svg class=\"figure\" role=\"img\" aria-label=\"{description}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" xmlns=\"http://www.w3.org/2000/svg\">{body}\n",
        size.0, size.1
    )
}

/// One line, without what is the same everywhere, and with lines of the same look as one: a page holds dozens of figures.
fn compact(body: &str) -> String {
    let mut text = String::new();
    let mut last_look = "";
    for line in body.lines().map(str::trim) {
        let piece = line.strip_prefix("<polyline").and_then(|rest| rest.split_once(" points=\""));
        match piece {
            Some((look, points)) => {
                let points = points.trim_end_matches("\"/>").trim_end();
                if look == last_look {
                    text.truncate(text.len() - "\"/>".len());
                } else {
                    text += &format!("<path{look} d=\"");
                }
                text += &format!("M{points}\"/>");
                last_look = look;
            }
            None => {
                text += line;
                last_look = "";
            }
        }
    }
    text.replace(" font-family=\"sans-serif\"", "").replace(" opacity=\"1\"", "")
}

impl Canvas<'_> {
    pub(crate) fn line(&mut self, from: Place, to: Place, pen: Pen) {
        self.path(&[from, to], pen);
    }

    /// A line through all places, dashed by walking along it.
    pub(crate) fn path(&mut self, places: &[Place], pen: Pen) {
        let style = shape(pen.colour, pen.opacity, pen.width, false);
        for piece in pen.dash.map_or_else(|| vec![places.to_vec()], |dash| dashed(places, dash)) {
            if piece.len() > 1 {
                self.backend.draw_path(piece.into_iter().map(whole), &style).expect("a string takes everything");
            }
        }
    }

    pub(crate) fn polygon(&mut self, places: &[Place], colour: Colour, opacity: f64) {
        let style = shape(colour, opacity, 0.0, true);
        self.backend.fill_polygon(places.iter().copied().map(whole), &style).expect("a string takes everything");
    }

    pub(crate) fn rectangle(&mut self, from: Place, to: Place, colour: Colour, opacity: f64) {
        let style = shape(colour, opacity, 0.0, true);
        let (a, b) = (whole(from), whole(to));
        // A rectangle that is thinner than a unit would be lost.
        let (low, high) = ((a.0.min(b.0), a.1.min(b.1)), (a.0.max(b.0), a.1.max(b.1)));
        self.backend.draw_rect(low, high, &style, true).expect("a string takes everything");
    }

    pub(crate) fn disc(&mut self, centre: Place, radius: f64, colour: Colour) {
        let style = shape(colour, 1.0, 0.0, true);
        self.backend.draw_circle(whole(centre), fine(radius) as u32, &style, true).expect("a string takes everything");
    }

    pub(crate) fn marker(&mut self, centre: Place, look: Look) {
        let (x, y) = centre;
        let around = |offsets: &[Place]| offsets.iter().map(|(dx, dy)| (x + dx, y + dy)).collect::<Vec<_>>();
        match look.marker {
            Marker::Disc => self.disc(centre, 3.6, look.colour),
            Marker::Square => self.rectangle((x - 3.3, y - 3.3), (x + 3.3, y + 3.3), look.colour, 1.0),
            Marker::Triangle => self.polygon(&around(&[(-4.2, 3.4), (0.0, -4.4), (4.2, 3.4)]), look.colour, 1.0),
            Marker::Diamond => {
                self.polygon(&around(&[(-4.6, 0.0), (0.0, -4.6), (4.6, 0.0), (0.0, 4.6)]), look.colour, 1.0);
            }
            Marker::Cross => {
                let pen = Pen::plain(look.colour, 2.0);
                self.line((x - 3.6, y - 3.6), (x + 3.6, y + 3.6), pen);
                self.line((x - 3.6, y + 3.6), (x + 3.6, y - 3.6), pen);
            }
        }
    }

    /// Writes text whose middle line is at the place's height.
    pub(crate) fn text(&mut self, text: &str, at: Place, lettering: Lettering) {
        let h_pos = match lettering.align {
            Align::Start => HPos::Left,
            Align::Middle => HPos::Center,
            Align::End => HPos::Right,
        };
        let weight = if lettering.is_bold { FontStyle::Bold } else { FontStyle::Normal };
        // The backend divides sizes by 1.24, to agree with the sizes of its bitmaps.
        let font = (FontFamily::SansSerif, lettering.size * FINE * 1.24, weight);
        let colour = rgba(lettering.colour, 1.0);
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(h_pos, VPos::Center));
        self.backend.draw_text(&printable(text), &style, whole(at)).expect("a string takes everything");
    }
}

/// About how wide text is. Fonts differ; this is on the safe side for the usual ones.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|character| match character {
            'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '(' | ')' => 0.34,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
            character if character.is_ascii_uppercase() => 0.68,
            character if (character as u32) > 0x2e80 => 1.0,
            _ => 0.57,
        })
        .sum();
    ems * size
}

/// The text, or its beginning and an ellipsis where it is too wide.
pub(crate) fn clipped(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut short: String = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + size > width {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// The text on as many lines as it takes, up to `most`; the last is clipped.
pub(crate) fn wrapped(text: &str, size: f64, width: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == most;
        match lines.last_mut() {
            Some(line) if is_last || text_width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| clipped(line, size, width)).collect()
}

fn dashed(places: &[Place], (on, off): (f64, f64)) -> Vec<Vec<Place>> {
    let mut pieces: Vec<Vec<Place>> = Vec::new();
    let (mut is_on, mut left) = (true, on);
    let mut piece: Vec<Place> = places.first().copied().into_iter().collect();
    for pair in places.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length <= left {
                left -= length;
                if is_on {
                    piece.push(to);
                }
                break;
            }
            let share = left / length;
            from = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            if is_on {
                piece.push(from);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![from];
            }
            is_on = !is_on;
            left = if is_on { on } else { off };
        }
    }
    pieces.push(piece);
    pieces
}

/// What is no number lies in the corner, and nothing lies so far out that its place has no number.
fn fine(length: f64) -> i32 {
    if length.is_finite() { (length.clamp(-1e5, 1e5) * FINE).round() as i32 } else { 0 }
}

fn whole((x, y): Place) -> (i32, i32) {
    (fine(x), fine(y))
}

fn rgba(colour: Colour, opacity: f64) -> RGBAColor {
    // Two decimals are enough, and keep the picture short.
    RGBAColor(colour.0, colour.1, colour.2, (opacity.clamp(0.0, 1.0) * 100.0).round() / 100.0)
}

fn shape(colour: Colour, opacity: f64, width: f64, filled: bool) -> ShapeStyle {
    ShapeStyle { color: rgba(colour, opacity), filled, stroke_width: fine(width).max(1) as u32 }
}

/// XML has no place for control characters, not even escaped.
fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            character if character.is_control() => ' ',
            character => character,
        })
        .collect()
}

/// Text as it stands in SVG and HTML: nothing in it is a tag, and nothing ends an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in printable(text).chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{clipped, compact, dashed, text_width, wrapped};

    #[test]
    fn dashes_leave_gaps_and_follow_corners() {
        let pieces = dashed(&[(0.0, 0.0), (5.0, 0.0), (5.0, 5.0)], (4.0, 2.0));
        assert_eq!(pieces, vec![vec![(0.0, 0.0), (4.0, 0.0)], vec![(5.0, 1.0), (5.0, 5.0)]]);
    }

    #[test]
    fn long_text_is_wrapped_and_then_clipped() {
        assert_eq!(clipped("short", 14.0, 100.0), "short");
        let lines = wrapped("one two three four five six seven eight", 14.0, 90.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…'), "{lines:?}");
        assert!(lines.iter().all(|line| text_width(line, 14.0) <= 90.0 + 14.0));
    }

    #[test]
    fn lines_of_one_look_are_one_element() {
        let line = |look: &str, points: &str| format!("<polyline {look} points=\"{points} \"/>\n");
        let body = [line("a=\"1\"", "0,0 1,1"), line("a=\"1\"", "2,2 3,3"), line("a=\"2\"", "4,4 5,5")].concat();
        let text = "<text opacity=\"1\" font-family=\"sans-serif\">\nx\n</text>\n</svg>";
        let expected = "<path a=\"1\" d=\"M0,0 1,1M2,2 3,3\"/><path a=\"2\" d=\"M4,4 5,5\"/><text>x</text></svg>";
        assert_eq!(compact(&(body + text)), expected);
    }
}
