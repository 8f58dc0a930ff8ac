//! A short run of every target, and all that was ever found.

use nettorrent_allocation::Counting;
use nettorrent_fuzz::{Corpus, Finding, Fuzzer, TARGETS};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Where all randomness of these runs comes from.
const SEED: u64 = 1;

fn check(names: &[&str]) {
    for target in TARGETS.iter().filter(|target| names.contains(&target.name)) {
        let kept = Corpus::default().inputs(target.name).expect("the corpus can be read").into_iter();
        let mut fuzzer = Fuzzer::new(target, kept.map(|(_, input)| input), SEED);
        let outcome = fuzzer.read_known().and_then(|()| (0..target.n_quick).try_for_each(|_| fuzzer.step()));
        if let Err(finding) = outcome {
            let Finding { input, problem } = fuzzer.shortened(finding);
            panic!("{}: {problem}\n  by {:?}", target.name, String::from_utf8_lossy(&input));
        }
        assert!(fuzzer.answers().len() > 1, "{} answers everything alike: {:?}", target.name, fuzzer.answers());
    }
}

#[test]
fn what_people_write() {
    check(&["jobs", "models", "scenarios", "tickets"]);
}

#[test]
fn what_comes_over_the_wire() {
    check(&["deltas", "frames", "hello", "membership"]);
}

#[test]
fn what_peers_say_to_each_other() {
    check(&["messages", "snapshots"]);
}

#[test]
fn what_lies_on_a_disk() {
    check(&["checkpoints", "csv", "idx", "pictures", "recordings", "weights"]);
}

#[test]
fn what_texts_and_tables_are_read_from() {
    check(&["archives", "arrays", "jsonl", "npy", "shards", "text"]);
}

#[test]
fn nothing_is_left_out() {
    // Five tests, so that they share the cores; together they know all targets.
    assert_eq!(TARGETS.len(), 4 + 4 + 2 + 6 + 6);
    for folder in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).expect("a corpus").flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        assert!(nettorrent_fuzz::find(&name).is_some(), "there is no target for the inputs in {name}");
    }
}
