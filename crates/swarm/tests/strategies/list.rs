//! The list of strategies and the folder of their files belong together, and nobody else knows their names.

use std::fs;
use std::path::{Path, PathBuf};

use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::{AnyStrategy, Payload};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files under a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_is_in_the_list_and_the_list_is_sorted() {
    let mut in_folder = Vec::new();
    files(&source().join("strategies"), &mut in_folder);
    let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().replace('_', "-");
    let mut in_folder: Vec<String> = in_folder.iter().map(stem).collect();
    in_folder.sort();
    let listed: Vec<&str> = STRATEGIES.iter().map(|spec| spec.name).collect();
    assert_eq!(listed, in_folder, "strategies.rs and strategies/ differ, or the list is not sorted");
}

#[test]
fn updates_are_handed_over_by_asynchronous_strategies_and_by_no_others() {
    for spec in STRATEGIES {
        let strategy = (spec.build)(&(spec.defaults)()).expect("defaults are right");
        let is_asynchronous = matches!(strategy, AnyStrategy::Async(_));
        assert_eq!(strategy.round_plan().payload == Payload::Updates, is_asynchronous, "{}", spec.name);
    }
}

#[test]
fn no_strategy_is_named_outside_its_own_file() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
    let mut all = Vec::new();
    for name in ["engine", "net", "pipeline", "sim", "swarm", "cli"] {
        files(&crates.join(name).join("src"), &mut all);
    }
    for path in all {
        let text = fs::read_to_string(&path).expect("a source file");
        // What is said in comments and tests may name them; what is done may not.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for spec in STRATEGIES {
            let own = path.file_stem().is_some_and(|stem| stem.to_string_lossy().replace('_', "-") == spec.name);
            // A job that says nothing has to mean something: the default is a name like any other a user could write.
            let is_default = path.ends_with("engine/src/job/swarm.rs");
            let is_named = code.contains(&format!("\"{}\"", spec.name));
            assert!(own || is_default || !is_named, "{} names {}", path.display(), spec.name);
        }
    }
}
