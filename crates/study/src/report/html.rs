//! A report as one page that needs nothing else: no network, no scripts.

use std::fmt::Write;

use nettorrent_figures::{escape, style};

use crate::report::document::{Block, Document, Figure, NOTHING, Section, Table};

/// The page's own style; that of figures comes from their crate.
const PAGE_STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --muted: #5a5a5a; --paper: #fff; --line: #ddd; --shade: #f5f5f2; --link: #0b5c96; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e9e9e6; --muted: #b4b4b0; --paper: #16181c; --line: #3a3d42; --shade: #202329; --link: #7cc0f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .6rem 0; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .7rem; padding-top: .7rem; border-top: 1px solid var(--line); }
p, ul, ol { max-width: 46rem; }
li { margin: .35rem 0; }
a { color: var(--link); }
.question { font-size: 1.12rem; color: var(--muted); }
nav { background: var(--shade); border-radius: .5rem; padding: .6rem 1rem; max-width: 46rem; }
nav ol { margin: .3rem 0; padding-left: 1.4rem; columns: 2 15rem; }
nav li { margin: .1rem 0; break-inside: avoid; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 1.6rem; margin: 1.2rem 0; }
.figures.single { grid-template-columns: minmax(0, 37rem); }
figure { margin: 0; min-width: 0; }
figcaption, .caption { color: var(--muted); font-size: .92rem; }
.caption { margin: 1.2rem 0 .3rem; }
figcaption { margin-top: .4rem; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0 0 1.2rem; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; min-width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.words { text-align: left; }
.long { white-space: normal; min-width: 16rem; text-align: left; }
th { background: var(--shade); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
pre { background: var(--shade); padding: .7rem 1rem; border-radius: .5rem; overflow-x: auto; }
@media (max-width: 40rem) { th:first-child, td:first-child { white-space: normal; min-width: 9rem; } }
@media print {
  body { max-width: none; font-size: 10pt; padding: 0; }
  nav { display: none; }
  .scroll { overflow: visible; border: 0; }
  table { font-size: 8pt; }
  th, td { white-space: normal; padding: .2rem .4rem; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; }
}
";

/// Cells with more characters than this are broken into lines.
const LONGEST_CELL: usize = 40;

/// The page.
pub(crate) fn page(document: &Document) -> String {
    let (title, figure_style) = (escape(&document.title), style());
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{PAGE_STYLE}{figure_style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    if !document.question.is_empty() {
        push(&mut page, format_args!("<p class=\"question\">{}</p>\n", escape(&document.question)));
    }
    page.push_str("<nav aria-label=\"Contents\"><strong>Contents</strong>\n<ol>\n");
    for section in &document.sections {
        push(&mut page, format_args!("<li><a href=\"#{}\">{}</a></li>\n", section.id, escape(section.title)));
    }
    page.push_str("</ol></nav>\n");
    for section in &document.sections {
        push_section(&mut page, section);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn push_section(page: &mut String, section: &Section) {
    push(page, format_args!("<section id=\"{}\">\n<h2>{}</h2>\n", section.id, escape(section.title)));
    for block in &section.blocks {
        match block {
            Block::Paragraph(text) => push(page, format_args!("<p>{}</p>\n", escape(text))),
            Block::List(items) => {
                page.push_str("<ul>\n");
                for item in items {
                    push(page, format_args!("<li>{}</li>\n", escape(item)));
                }
                page.push_str("</ul>\n");
            }
            Block::Figures(figures) => push_figures(page, figures),
            Block::Table(table) => push_table(page, table),
            Block::Code(text) => push(page, format_args!("<pre><code>{}</code></pre>\n", escape(text))),
        }
    }
    page.push_str("</section>\n");
}

fn push_figures(page: &mut String, figures: &[Figure]) {
    let class = if figures.len() == 1 { "figures single" } else { "figures" };
    push(page, format_args!("<div class=\"{class}\">\n"));
    for figure in figures {
        push(page, format_args!("<figure>\n{}", figure.svg));
        if !figure.caption.is_empty() {
            push(page, format_args!("<figcaption>{}</figcaption>\n", escape(&figure.caption)));
        }
        page.push_str("</figure>\n");
    }
    page.push_str("</div>\n");
}

fn push_table(page: &mut String, table: &Table) {
    let caption = escape(&table.caption);
    push(page, format_args!("<p class=\"caption\">{caption}</p>\n"));
    // A box that scrolls must be reached by the keyboard too.
    push(page, format_args!("<div class=\"scroll\" tabindex=\"0\"><table aria-label=\"{caption}\">\n<thead><tr>"));
    let classes: Vec<&str> = (0..table.head.len()).map(|column| class(table, column)).collect();
    for (name, class) in table.head.iter().zip(&classes) {
        push(page, format_args!("<th scope=\"col\"{class}>{}</th>", escape(name)));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (cell, class) in row.iter().zip(&classes) {
            push(page, format_args!("<td{class}>{}</td>", escape(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

/// Words begin at the left, numbers end at the right, and long words get lines of their own.
fn class(table: &Table, column: usize) -> &'static str {
    let cells = || table.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != NOTHING);
    let is_word = |cell: &String| cell.starts_with(|first: char| first.is_alphabetic());
    if cells().any(|cell| cell.chars().count() > LONGEST_CELL) {
        " class=\"long\""
    } else if cells().all(is_word) {
        " class=\"words\""
    } else {
        ""
    }
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
}
