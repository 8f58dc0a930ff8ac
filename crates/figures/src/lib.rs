//! Figures as SVG: data in, a picture out; and tables in plain text.
//!
//! Every figure has its units and a legend, is as wide as its box allows, and is drawn in colours, dashes and marks that all can
//! tell apart. With [`style()`] in the page it follows the reader's choice of light or dark. Whatever the data are, there is a
//! figure: what is no number is left out, and what is too much is counted instead.
//!
//! ```
//! use nettorrent_figures::{Axis, LineChart, Point, Reference, Series, Unit};
//!
//! let chart = LineChart {
//!     title: "Accuracy".to_owned(),
//!     x: Axis::linear("time", Unit::Seconds),
//!     y: Axis::linear("test accuracy", Unit::Share),
//!     series: vec![Series {
//!         name: "ring-all-reduce".to_owned(),
//!         points: vec![Point::new(1.0, 0.81), Point { x: 2.0, y: 0.93, deviation: 0.01 }],
//!     }],
//!     references: vec![Reference { name: "target".to_owned(), value: 0.97 }],
//! };
//! assert!(chart.svg().contains("test accuracy (%)"));
//! ```

mod axis;
mod bar_chart;
mod canvas;
mod frame;
mod heatmap;
mod legend;
mod line_chart;
mod number;
mod palette;
mod peer_graph;
mod peer_grids;
mod run;
mod stacked_bars;
mod text;
mod text_table;
mod timeline;

pub use axis::{Axis, Scale};
pub use bar_chart::{Bar, BarChart, BarSeries, Ideal};
pub use heatmap::Heatmap;
pub use line_chart::{LineChart, Point, Reference, Series};
pub use number::Unit;
pub use palette::style;
pub use peer_graph::{PeerGraph, PeerLink, PeerNode};
pub use peer_grids::{PeerGrid, PeerGrids};
pub use run::{time_parts, timeline, where_time_went};
pub use stacked_bars::{StackedBar, StackedBars};
pub use text_table::{Side, aligned};
pub use timeline::{Span, Timeline, TimelineRow};
