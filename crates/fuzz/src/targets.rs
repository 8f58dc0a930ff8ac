//! THE LIST of targets, sorted by name.

mod arrays;
mod checkpoints;
mod files;
mod jobs;
mod membership;
mod pictures;
mod recordings;
mod swarms;
mod tables;
mod texts;
mod wire;

use crate::target::Target;

/// All targets.
pub static TARGETS: &[Target] = &[
    arrays::ARCHIVES,
    arrays::ARRAYS,
    checkpoints::CHECKPOINTS,
    tables::CSV,
    wire::DELTAS,
    wire::FRAMES,
    wire::HELLO,
    tables::IDX,
    jobs::JOBS,
    tables::JSONL,
    membership::MEMBERSHIP,
    swarms::MESSAGES,
    jobs::MODELS,
    arrays::NPY,
    pictures::PICTURES,
    recordings::RECORDINGS,
    jobs::SCENARIOS,
    pictures::SHARDS,
    swarms::SNAPSHOTS,
    texts::TEXT,
    wire::TICKETS,
    checkpoints::WEIGHTS,
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use super::TARGETS;

    #[test]
    fn the_list_is_sorted() {
        assert!(TARGETS.is_sorted_by_key(|target| target.name));
    }
}
