//! Colours, dashes and markers that can be told apart by all, and how they change in the dark.

/// A colour as the picture names it; [`STYLE`] gives it another look in the dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

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

/// The style sheet for figures in a page: they fill their box, and in the dark their colours change.
///
/// It finds colours by the attributes that figures carry, so it needs nothing from the page around it. On paper it is
/// always light.
pub const STYLE: &str = r##"
svg.figure { display: block; width: 100%; height: auto; max-width: 600px; margin: 0 auto; }
@media screen and (prefers-color-scheme: dark) {
  svg.figure [fill="#1A1A1A"] { fill: #E9E9E6; }
  svg.figure [stroke="#1A1A1A"] { stroke: #E9E9E6; }
  svg.figure [fill="#5A5A5A"] { fill: #B4B4B0; }
  svg.figure [stroke="#5A5A5A"] { stroke: #B4B4B0; }
  svg.figure [fill="#DDDDDD"] { fill: #3A3D42; }
  svg.figure [stroke="#DDDDDD"] { stroke: #3A3D42; }
  svg.figure [fill="#FFFFFF"] { fill: #16181C; }
  svg.figure [stroke="#FFFFFF"] { stroke: #16181C; }
  svg.figure [fill="#B3003C"] { fill: #FF6B8E; }
  svg.figure [stroke="#B3003C"] { stroke: #FF6B8E; }
  svg.figure [fill="#0072B2"] { fill: #3B8EDB; }
  svg.figure [stroke="#0072B2"] { stroke: #3B8EDB; }
  svg.figure [fill="#56B4E9"] { fill: #A9E0FF; }
  svg.figure [stroke="#56B4E9"] { stroke: #A9E0FF; }
  svg.figure [fill="#D55E00"] { fill: #F07F2E; }
  svg.figure [stroke="#D55E00"] { stroke: #F07F2E; }
  svg.figure [fill="#009E73"] { fill: #22BF94; }
  svg.figure [stroke="#009E73"] { stroke: #22BF94; }
  svg.figure [fill="#7A4B1E"] { fill: #BE8A57; }
  svg.figure [stroke="#7A4B1E"] { stroke: #BE8A57; }
  svg.figure [fill="#787878"] { fill: #9C9C9C; }
  svg.figure [stroke="#787878"] { stroke: #9C9C9C; }
}
@media print { svg.figure { max-width: 15cm; } figure { break-inside: avoid; } }
"##;
