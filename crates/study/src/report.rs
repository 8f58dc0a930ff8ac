//! A study's report: one page, a text and tables, made from what the study found.

mod churn;
mod course;
mod document;
mod group;
mod html;
mod judged;
mod machines;
mod markdown;
mod method;
mod overview;
mod panel;
mod predicted;
mod published;
mod replicas;
mod resources;
mod speed;
mod summary;
mod tables;
mod text_table;
mod waits;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nettorrent_files::{WriteError, write_file};
use nettorrent_history::History;
use thiserror::Error;

use crate::compare::Group;
use crate::report::document::{Block, Document, Figure};
use crate::report::group::Groups;
use crate::results::{Results, RunResult};

pub use text_table::text_table;

/// Why there is no report. What was there before is still there.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A table could not be made.
    #[error("cannot write the tables of the report: {0}")]
    Table(#[from] csv::Error),
    /// The results could not be turned into JSON.
    #[error("cannot write the results as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A folder could not be made.
    #[error("cannot create the folder {path}: {source}", path = path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes `report.html`, `report.md` with its figures, `runs.csv`, `epochs.csv`, `resources.csv` and `results.json` into the
/// study's folder, each whole or not at all. Everything is made before anything is written, so what cannot be made leaves the
/// last report as it was.
pub fn write(results: &Results, folder: &Path) -> Result<(), ReportError> {
    let document = document(results, folder);
    let mut files: Vec<(PathBuf, Vec<u8>)> = vec![
        (folder.join("results.json"), serde_json::to_vec_pretty(results)?),
        (folder.join("runs.csv"), tables::runs(results)?),
        (folder.join("epochs.csv"), tables::epochs(results)?),
        (folder.join("resources.csv"), tables::resources(results)?),
    ];
    let figures = folder.join(markdown::FIGURES);
    for figure in all_figures(&document) {
        files.push((figures.join(format!("{}.svg", figure.name)), figure.svg.clone().into_bytes()));
    }
    files.push((folder.join("report.md"), markdown::text(&document).into_bytes()));
    files.push((folder.join("report.html"), html::page(&document).into_bytes()));
    fs::create_dir_all(&figures).map_err(|source| ReportError::Folder { path: figures.clone(), source })?;
    for (path, bytes) in &files {
        write_file(path, bytes)?;
    }
    remove_others(&figures, &files);
    Ok(())
}

/// Figures of the last report that this one has not. If one cannot be removed, nothing is lost.
fn remove_others(figures: &Path, files: &[(PathBuf, Vec<u8>)]) {
    for path in fs::read_dir(figures).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "svg") && files.iter().all(|(own, _)| *own != path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn all_figures(document: &Document) -> impl Iterator<Item = &Figure> {
    let blocks = document.sections.iter().flat_map(|section| &section.blocks);
    blocks.flat_map(|block| match block {
        Block::Figures(figures) => figures.as_slice(),
        _ => &[],
    })
}

fn document(results: &Results, folder: &Path) -> Document {
    let groups = Groups::new(results);
    let featured = featured(&groups);
    // Only for the course of waits; the report stands without it.
    let history = featured.and_then(|run| History::read(&folder.join(&run.folder).join("events.jsonl")).ok());
    let sections = [
        Some(summary::section(results, &groups)),
        Some(overview::section(results, &groups)),
        Some(course::section(results, &groups)),
        speed::section(&groups),
        predicted::section(&groups),
        waits::section(&groups, featured, history.as_ref()),
        resources::section(&groups, featured),
        replicas::section(&groups),
        replicas::confusion(results),
        churn::section(results),
        published::section(results, &groups),
        machines::section(results),
        method::failures(results),
        Some(method::section(results, &groups)),
    ];
    Document {
        title: format!("Study: {}", results.study.name),
        question: results.study.about.clone(),
        sections: sections.into_iter().flatten().collect(),
    }
}

/// The run that is shown in detail: the first trial of the swarm whose peers waited the longest, since that is where there is
/// something to find.
fn featured<'a>(groups: &Groups<'a>) -> Option<&'a RunResult> {
    let waited = |group: &Group<'a>| {
        group.spread_of_some(|measured| {
            let waited: f64 = measured.peers.iter().map(|peer| peer.wait_s).sum();
            (!measured.peers.is_empty()).then_some(waited / measured.peers.len() as f64)
        })
    };
    let swarms = groups.all.iter().filter_map(|group| Some((group, waited(group)?.mean)));
    let (group, _) = swarms.reduce(|most, next| if next.1 > most.1 { next } else { most })?;
    group.runs.iter().copied().find(|run| run.measurement().is_some_and(|measured| !measured.peers.is_empty()))
}
