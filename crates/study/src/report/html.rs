//! A report as one page that needs nothing else: no network, no scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use nettorrent_figures::style;

use crate::report::document::{Block, Document, Figure, NOTHING, Section, Table};

/// The page's own style; that of figures comes from their crate.
const PAGE_STYLE: &str = include_str!("page.css");

/// Cells with more characters than this are broken into lines.
const LONGEST_CELL: usize = 40;

/// The page.
pub(crate) fn page(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (document.title) }
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(style())) }
            }
            body {
                h1 { (document.title) }
                @if !document.question.is_empty() {
                    p.question { (document.question) }
                }
                nav aria-label="Contents" {
                    strong { "Contents" }
                    ol {
                        @for section in &document.sections {
                            li { a href={ "#" (section.id) } { (section.title) } }
                        }
                    }
                }
                @for section in &document.sections { (section_html(section)) }
            }
        }
    };
    page.into_string()
}

fn section_html(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @for block in &section.blocks {
                @match block {
                    Block::Paragraph(text) => { p { (text) } },
                    Block::List(items) => { ul { @for item in items { li { (item) } } } },
                    Block::Figures(figures) => (figures_html(figures)),
                    Block::Table(table) => (table_html(table)),
                    Block::Code(text) => { pre { code { (text) } } },
                }
            }
        }
    }
}

fn figures_html(figures: &[Figure]) -> Markup {
    html! {
        div.figures.single[figures.len() == 1] {
            @for figure in figures {
                figure {
                    (PreEscaped(&figure.svg))
                    @if !figure.caption.is_empty() { figcaption { (figure.caption) } }
                }
            }
        }
    }
}

fn table_html(table: &Table) -> Markup {
    let classes: Vec<Option<&str>> = (0..table.head.len()).map(|column| class(table, column)).collect();
    html! {
        p.caption { (table.caption) }
        // A box that scrolls must be reached by the keyboard too.
        div.scroll tabindex="0" {
            table aria-label=(table.caption) {
                thead {
                    tr { @for (name, class) in table.head.iter().zip(&classes) { th scope="col" class=[class] { (name) } } }
                }
                tbody {
                    @for row in &table.rows {
                        tr { @for (cell, class) in row.iter().zip(&classes) { td class=[class] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Words begin at the left, numbers end at the right, and long words get lines of their own.
fn class(table: &Table, column: usize) -> Option<&'static str> {
    let cells = || table.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != NOTHING);
    let is_word = |cell: &String| cell.starts_with(|first: char| first.is_alphabetic());
    if cells().any(|cell| cell.chars().count() > LONGEST_CELL) {
        Some("long")
    } else if cells().all(is_word) {
        Some("words")
    } else {
        None
    }
}
