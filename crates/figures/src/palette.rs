//! Colours, dashes and markers that can be told apart by all, and how they change in the dark.

use std::fmt::{self, Display, Formatter};

/// A colour as the picture names it; [`style`] gives it another look in the dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

impl Display for Colour {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02X}{:02X}{:02X}", self.0, self.1, self.2)
    }
}

/// Text and axes.
pub(crate) const INK: Colour = Colour(0x1A, 0x1A, 0x1A);
/// What should be read second.
pub(crate) const MUTED: Colour = Colour(0x5A, 0x5A, 0x5A);
/// Lines that guide the eye.
pub(crate) const GRID: Colour = Colour(0xDD, 0xDD, 0xDD);
/// The paper, where something has to cover what lies below.
pub(crate) const PAPER: Colour = Colour(0xFF, 0xFF, 0xFF);
/// What asks for attention: a target, a wait.
pub(crate) const ALERT: Colour = Colour(0xB3, 0x00, 0x3C);

/// Blue, vermilion, green, purple, orange, sky blue: after Okabe and Ito, whose colours people with any colour vision can
/// tell apart. Their yellow and black do not stand out on white and on axes, so brown and grey take their places.
const SERIES: [Colour; 8] = [
    Colour(0x00, 0x72, 0xB2),
    Colour(0xD5, 0x5E, 0x00),
    Colour(0x00, 0x9E, 0x73),
    Colour(0xCC, 0x79, 0xA7),
    Colour(0xE6, 0x9F, 0x00),
    Colour(0x56, 0xB4, 0xE9),
    Colour(0x7A, 0x4B, 0x1E),
    Colour(0x78, 0x78, 0x78),
];

/// How many series a figure names and colours; all others are drawn in grey and counted.
pub(crate) const MOST_NAMED: usize = 16;

/// The shape that marks a series' points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Cross,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    pub(crate) colour: Colour,
    pub(crate) marker: Marker,
    /// Lengths of line and gap; none for a whole line.
    pub(crate) dash: Option<(f64, f64)>,
}

/// The look of the series with this number; colours come back after eight, then with other dashes and markers.
pub(crate) fn look(index: usize) -> Look {
    const MARKERS: [Marker; 5] = [Marker::Disc, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross];
    const DASHES: [Option<(f64, f64)>; 3] = [None, Some((9.0, 4.0)), Some((3.0, 3.0))];
    Look {
        colour: SERIES[index % SERIES.len()],
        marker: MARKERS[index % MARKERS.len()],
        dash: DASHES[index % DASHES.len()],
    }
}

/// What a colour becomes in the dark. The others can be seen in both.
const IN_THE_DARK: [(Colour, Colour); 11] = [
    (INK, Colour(0xE9, 0xE9, 0xE6)),
    (MUTED, Colour(0xB4, 0xB4, 0xB0)),
    (GRID, Colour(0x3A, 0x3D, 0x42)),
    (PAPER, Colour(0x16, 0x18, 0x1C)),
    (ALERT, Colour(0xFF, 0x6B, 0x8E)),
    (SERIES[0], Colour(0x3B, 0x8E, 0xDB)),
    (SERIES[5], Colour(0xA9, 0xE0, 0xFF)),
    (SERIES[1], Colour(0xF0, 0x7F, 0x2E)),
    (SERIES[2], Colour(0x22, 0xBF, 0x94)),
    (SERIES[6], Colour(0xBE, 0x8A, 0x57)),
    (SERIES[7], Colour(0x9C, 0x9C, 0x9C)),
];

/// The style sheet for figures in a page: they fill their box, and in the dark their colours change.
///
/// It finds colours by the attributes that figures carry, so it needs nothing from the page around it. On paper it is
/// always light.
pub fn style() -> String {
    let rule = |(light, dark): (Colour, Colour)| {
        ["fill", "stroke"].map(|what| format!("  svg.figure [{what}=\"{light}\"] {{ {what}: {dark}; }}\n")).concat()
    };
    let dark: String = IN_THE_DARK.into_iter().map(rule).collect();
    format!(
        "\nsvg.figure {{ display: block; width: 100%; height: auto; max-width: 600px; margin: 0 auto; }}\n\
         @media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n\
         @media print {{ svg.figure {{ max-width: 15cm; }} figure {{ break-inside: avoid; }} }}\n"
    )
}
