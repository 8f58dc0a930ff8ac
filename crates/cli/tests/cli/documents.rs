//! The commands of the documents are run, at a small size, so that none goes stale; and no link of theirs is broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Place, text};
use crate::samples;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents below a path, sorted.
fn documents(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path).expect("a folder").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let documents =
        entries.iter().filter(|path| path.is_dir() || path.extension().is_some_and(|ending| ending == "md"));
    documents.flat_map(|path| self::documents(path)).collect()
}

/// The program's commands in a document's `sh` fences, as words.
fn commands(document: &Path) -> Vec<Vec<String>> {
    let content = fs::read_to_string(document).expect("a document");
    let mut fence = None;
    let mut commands = Vec::new();
    for line in content.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(kind), None) => fence = Some(kind),
            (None, Some("sh")) if line.starts_with("nettorrent ") => commands.push(words(line)),
            _ => {}
        }
    }
    commands
}

/// A line as a shell reads it, as far as documents need it: quotes, and comments.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '#') if word.is_empty() => break,
            (None, ' ') => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            _ => word.push(character),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// What documents take for granted: jobs and models, data that were fetched, and what placeholders stand for.
fn prepared() -> Place {
    let place = Place::new();
    for folder in ["jobs", "models", "studies"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder").flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            place.write(&name, fs::read(entry.path()).expect("a file"));
        }
    }
    samples::idx_set(&place, "cache/datasets/mnist", 28, 200, 50);
    samples::idx_set(&place, "files", 28, 200, 50);
    samples::pictures(&place, "pictures", 20);
    samples::recordings(&place, "recordings");
    samples::masks(&place, "cells", 60);
    place.write("hosts.txt", "lab-1\nme@lab-2 threads=2\nlab-3\n");
    place.write("book.txt", "To be, or not to be: that is the question.\n".repeat(100));
    image::GrayImage::from_pixel(8, 8, image::Luma([200])).save(place.path("IMAGE.png")).expect("a picture");
    place.succeed(&["train", "--epochs", "1", "--run", "base"]);
    place.succeed(&[
        "train",
        "--model",
        "gpt:1x16x2",
        "--data",
        "book.txt",
        "--set",
        "data.length=16",
        "--epochs",
        "1",
        "--run",
        "base-text",
    ]);
    place.succeed(&["model", "init", "digits-cnn", "-o", "weights.safetensors"]);
    place
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|other| other == word)
}

/// Whether a command cannot be run here: it wants the network, or another peer, or does not end.
fn is_left_out(words: &[String]) -> bool {
    has(words, "TICKET")
        || has(words, "ticket.txt")
        || words[1] == "launch" && !has(words, "--dry-run")
        || ["start", "join", "status", "ticket", "dashboard", "relay"].contains(&&*words[1])
        || words[1..].starts_with(&["data", "fetch"].map(str::to_owned))
}

/// The same command with little to do.
fn small(words: &[String], run: &str) -> Vec<String> {
    let is_picture = words.iter().any(|word| word.starts_with("data.size"));
    let mut small: Vec<String> = Vec::new();
    for word in &words[1..] {
        let last = small.last().map(String::as_str);
        let word = match (last, word.as_str()) {
            (_, "RUN") => run,
            (_, "DATA") => {
                if is_picture {
                    "pictures"
                } else {
                    "files"
                }
            }
            (_, "RECORDINGS") => "recordings",
            (Some("--epochs"), _) if words[1] != "resume" => "1",
            (Some("--seconds"), _) => "0.05",
            (Some("--budget" | "--seeds"), _) => "1",
            (Some("--metrics"), _) => "127.0.0.1:0",
            (_, word) => word,
        };
        small.push(word.to_owned());
        if word == "--dashboard" {
            small.push("127.0.0.1:0".into());
        }
    }
    let more: &[&str] = match words[1].as_str() {
        "train" | "simulate" if !has(words, "--epochs") => &["--epochs", "1"],
        "resume" if !has(words, "--epochs") => &["--epochs", "2"],
        "advise" if !has(words, "--no-pilots") && !has(words, "--budget") => &["--budget", "1"],
        "bench" if !has(words, "--seconds") => &["--seconds", "0.05"],
        "study" if words.len() > 2 && !has(words, "--list") => &["--list"],
        _ => &[],
    };
    small.extend(more.iter().map(|&word| word.to_owned()));
    small
}

/// Runs the commands of these documents.
fn run_commands(folders: &[&str]) {
    let (place, mut seen, mut n_run) = (prepared(), BTreeSet::new(), 0);
    for document in folders.iter().flat_map(|folder| documents(&root().join(folder))) {
        for words in commands(&document) {
            if !seen.insert(words.clone()) {
                continue;
            }
            let what = format!("{}: {}", document.display(), words.join(" "));
            // Options of those that cannot be run are looked up.
            let help = place.succeed(&[words[1].as_str(), "--help"]).stdout;
            let is_known = |word: &&String| help.contains(word.as_str()) || ["model", "data"].contains(&&*words[1]);
            let unknown = words.iter().filter(|word| word.starts_with("--")).find(|word| !is_known(word));
            assert!(unknown.is_none(), "{what}: there is no {unknown:?}");
            if is_left_out(&words) {
                continue;
            }
            n_run += 1;
            let run = format!("run-{n_run}");
            if has(&words, "RUN") {
                let base = if words[1] == "generate" || has(&words, "book.txt") { "base-text" } else { "base" };
                copy(&place.path(base), &place.path(&run));
            }
            let small = small(&words, &run);
            let outcome = place.run(&small.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(outcome.code, Some(0), "{what}, as {}: {}{}", small.join(" "), outcome.stdout, outcome.stderr);
        }
    }
    assert!(n_run > 0, "there are commands in {folders:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file");
        }
    }
}

#[test]
fn commands_of_the_readme_and_the_introduction_run() {
    run_commands(&["README.md", "docs/src/index.md"]);
}

#[test]
fn commands_of_the_guides_run() {
    run_commands(&["docs/src/guides"]);
}

#[test]
fn commands_of_the_strategy_pages_run() {
    run_commands(&["docs/src/strategies"]);
}

#[test]
fn commands_of_the_other_pages_run() {
    run_commands(&["docs/src/benchmarks", "docs/src/design.md", "docs/src/design"]);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut n_links = 0;
    for document in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/src", "reports/README.md"]
        .into_iter()
        .flat_map(|path| documents(&root().join(path)))
    {
        let content = fs::read_to_string(&document).expect("a document");
        for link in content.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            n_links += 1;
            let target = if path.is_empty() { document.clone() } else { document.with_file_name(path) };
            assert!(target.exists(), "{}: nothing is at {link}", document.display());
            let has_anchor = || headings(&fs::read_to_string(&target).expect("a document")).contains(anchor);
            assert!(anchor.is_empty() || has_anchor(), "{}: {} has no #{anchor}", document.display(), target.display());
        }
    }
    assert!(n_links > 100, "{n_links}");
    // Every page is in the table of contents.
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).expect("a summary");
    for page in documents(&root().join("docs/src")) {
        let page = page.strip_prefix(root().join("docs/src")).expect("a page");
        assert!(text(page) == "SUMMARY.md" || summary.contains(&format!("({})", text(page))), "{}", page.display());
    }
}

/// The anchors of a document's headings, as browsers know them.
fn headings(content: &str) -> BTreeSet<String> {
    let headings = content.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| -> String {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|character| character.is_alphanumeric() || "-_".contains(*character)).collect()
    };
    headings.map(anchor).collect()
}
