//! A report as text that reads well as it is; its figures are files beside it.

use crate::report::document::{Block, Document, Table};

/// The folder of the figures, beside the text.
pub(crate) const FIGURES: &str = "figures";

/// The text.
pub(crate) fn text(document: &Document) -> String {
    let mut text = format!("# {}\n", one_line(&document.title));
    if !document.question.is_empty() {
        text.push_str(&format!("\n{}\n", escape(&document.question)));
    }
    text.push_str("\n## Contents\n\n");
    for section in &document.sections {
        text.push_str(&format!("- [{}](#{})\n", section.title, anchor(section.title)));
    }
    for section in &document.sections {
        text.push_str(&format!("\n## {}\n", section.title));
        for block in &section.blocks {
            text.push('\n');
            text.push_str(&block_text(block));
        }
    }
    text
}

fn block_text(block: &Block) -> String {
    match block {
        Block::Paragraph(sentence) => format!("{}\n", escape(sentence)),
        Block::List(items) => items.iter().map(|item| format!("- {}\n", escape(item))).collect(),
        Block::Figures(figures) => {
            let each = figures.iter().map(|figure| {
                format!("![{}]({FIGURES}/{}.svg)\n\n{}\n", figure.name, figure.name, escape(&figure.caption))
            });
            each.collect::<Vec<_>>().join("\n")
        }
        Block::Table(table) => table_text(table),
        Block::Code(code) => format!("```\n{code}\n```\n"),
    }
}

fn table_text(table: &Table) -> String {
    let line =
        |cells: &[String]| format!("| {} |\n", cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>().join(" | "));
    let rule: Vec<&str> = (0..table.head.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
    let mut text = format!("{}\n\n{}| {} |\n", escape(&table.caption), line(&table.head), rule.join(" | "));
    for row in &table.rows {
        text.push_str(&line(row));
    }
    text
}

/// As the usual renderers make it from a title.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|character| character.is_alphanumeric() || *character == '-').collect()
}

/// What means something in this format is not to mean it here.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in one_line(text).chars() {
        if matches!(character, '|' | '*' | '<' | '>' | '`' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
