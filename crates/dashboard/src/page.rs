//! The page itself: its frame, its looks and the few lines that keep it up to date.

use axum::http::header;
use axum::response::{Html, IntoResponse};
use nettorrent_figures::style;

/// What a browser may load for it: what comes from here.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                                 connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn html() -> impl IntoResponse {
    Html(include_str!("page.html"))
}

pub(crate) fn css() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], [include_str!("page.css"), &style()].concat())
}

pub(crate) fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page.js"))
}
