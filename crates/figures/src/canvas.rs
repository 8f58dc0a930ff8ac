//! The sheet that all figures draw on, written as SVG.

use std::fmt::{self, Arguments, Display, Formatter, Write};

use crate::palette::{Colour, Look, Marker};
use crate::text::escape;

/// How wide every figure is, in its own units. A phone shows one of these units on about three quarters of a pixel, so
/// text of 14.5 units is still read there.
pub(crate) const WIDTH: f64 = 480.0;
/// The size of most text.
pub(crate) const TEXT: f64 = 14.5;
/// The size of titles.
pub(crate) const TITLE: f64 = 16.0;
/// The height of a line of text.
pub(crate) const LINE: f64 = 19.0;

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

impl Lettering {
    /// Text of the usual size that begins at its place.
    pub(crate) const fn plain(colour: Colour) -> Self {
        Self { size: TEXT, colour, align: Align::Start, is_bold: false }
    }
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

impl Display for Pen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { colour, width, dash, opacity } = self;
        write!(f, "stroke=\"{colour}\" stroke-width=\"{}\"{}", Length(*width), Opacity(*opacity))?;
        match dash {
            Some((on, off)) => write!(f, " stroke-dasharray=\"{} {}\"", Length(*on), Length(*off)),
            None => Ok(()),
        }
    }
}

/// A place on the sheet: from the left, from the top.
pub(crate) type Place = (f64, f64);

/// The sheet.
pub(crate) struct Canvas {
    svg: String,
    /// The attributes of a path that has not been closed: lines of the same look become one element, for a page holds dozens
    /// of figures.
    open_path: Option<String>,
}

/// Draws a figure as high as is said; its description is for those who hear the page.
pub(crate) fn draw(description: &str, height: f64, paint: impl FnOnce(&mut Canvas)) -> String {
    let (description, height) = (escape(description), Length(height.max(1.0).ceil()));
    let svg = format!(
        "<svg class=\"figure\" role=\"img\" aria-label=\"{description}\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" fill=\"none\" xmlns=\"http://www.w3.org/2000/svg\">"
    );
    let mut canvas = Canvas { svg, open_path: None };
    paint(&mut canvas);
    canvas.element(format_args!("</svg>\n"));
    canvas.svg
}

impl Canvas {
    pub(crate) fn line(&mut self, from: Place, to: Place, pen: Pen) {
        self.path(&[from, to], pen);
    }

    /// A line through all places.
    pub(crate) fn path(&mut self, places: &[Place], pen: Pen) {
        if places.len() < 2 {
            return;
        }
        let look = Some(pen.to_string());
        if look != self.open_path {
            self.element(format_args!("<path {pen} d=\""));
            self.open_path = look;
        }
        self.write(format_args!("M{}", Places(places)));
    }

    pub(crate) fn polygon(&mut self, places: &[Place], colour: Colour, opacity: f64) {
        let opacity = Opacity(opacity);
        self.element(format_args!("<polygon fill=\"{colour}\"{opacity} points=\"{}\"/>", Places(places)));
    }

    pub(crate) fn rectangle(&mut self, from: Place, to: Place, colour: Colour, opacity: f64) {
        // Corners are rounded, not widths: neighbours must meet.
        let corner = |a: f64, b: f64| (rounded(a.min(b)), rounded(a.max(b)));
        let ((left, right), (top, bottom)) = (corner(from.0, to.0), corner(from.1, to.1));
        let (x, y, width, height) = (Length(left), Length(top), Length(right - left), Length(bottom - top));
        let opacity = Opacity(opacity);
        self.element(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"{opacity}/>"
        ));
    }

    pub(crate) fn disc(&mut self, (x, y): Place, radius: f64, colour: Colour) {
        let (x, y, radius) = (Length(x), Length(y), Length(radius));
        self.element(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>"));
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
    pub(crate) fn text(&mut self, text: &str, (x, y): Place, lettering: Lettering) {
        let Lettering { size, colour, align, is_bold } = lettering;
        let anchor = match align {
            Align::Start => "",
            Align::Middle => " text-anchor=\"middle\"",
            Align::End => " text-anchor=\"end\"",
        };
        let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
        // Half as high as a small letter, in about every font: not all programs know how to place text by its middle.
        let (x, baseline, size) = (Length(x), Length(y + MIDDLE * size), Length(size));
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{baseline}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{weight}>{}</text>",
            escape(text)
        ));
    }

    /// Writes what is no line; a path that is still open ends here.
    fn element(&mut self, element: Arguments<'_>) {
        if self.open_path.take().is_some() {
            self.svg.push_str("\"/>");
        }
        self.write(element);
    }

    fn write(&mut self, text: Arguments<'_>) {
        self.svg.write_fmt(text).expect("a string takes everything");
    }
}

/// From the baseline of text to its middle line, by its size.
const MIDDLE: f64 = 0.28;

/// A length as it is written.
struct Length(f64);

impl Display for Length {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", rounded(self.0))
    }
}

/// Tenths are finer than what can be seen. What is no number lies in the corner, and nothing lies further out than numbers
/// can say.
fn rounded(length: f64) -> f64 {
    // A zero is added, or there would be a "-0".
    if length.is_finite() { (length.clamp(-1e5, 1e5) * 10.0).round() / 10.0 + 0.0 } else { 0.0 }
}

/// An attribute for what is not opaque.
struct Opacity(f64);

impl Display for Opacity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0.clamp(0.0, 1.0) * 100.0).round();
        if hundredths == 100.0 { Ok(()) } else { write!(f, " opacity=\"{}\"", hundredths / 100.0) }
    }
}

/// Places as paths and polygons list them.
struct Places<'a>(&'a [Place]);

impl Display for Places<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (x, y)) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{},{}", Length(*x), Length(*y))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Pen, draw};
    use crate::palette::{GRID, INK};

    #[test]
    fn lines_of_one_look_are_one_element() {
        let (thin, thick) = (Pen::plain(INK, 1.0), Pen { dash: Some((4.0, 2.0)), ..Pen::plain(INK, 2.0) });
        let svg = draw("", 10.0, |canvas| {
            canvas.line((0.0, 0.0), (1.0, 1.0), thin);
            canvas.line((2.0, 2.0), (3.04, 3.06), thin);
            canvas.line((4.0, 4.0), (5.0, 5.0), thick);
            canvas.disc((1.0, 1.0), 2.0, GRID);
            canvas.line((6.0, 6.0), (7.0, 7.0), thick);
        });
        let (_, body) = svg.split_once('>').expect("a head");
        let thick = "<path stroke=\"#1A1A1A\" stroke-width=\"2\" stroke-dasharray=\"4 2\" d=\"M";
        let expected = format!(
            "<path stroke=\"#1A1A1A\" stroke-width=\"1\" d=\"M0,0 1,1M2,2 3,3.1\"/>{thick}4,4 5,5\"/>\
             <circle cx=\"1\" cy=\"1\" r=\"2\" fill=\"#DDDDDD\"/>{thick}6,6 7,7\"/></svg>\n"
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn places_that_are_none_are_written_as_numbers() {
        let svg = draw("", f64::NAN, |canvas| {
            canvas.line((f64::NAN, f64::INFINITY), (-1e300, -0.01), Pen::plain(INK, 1.0));
        });
        assert!(svg.contains("M0,0 -100000,0\""), "{svg}");
    }
}
