//! What holds for the source files of the whole workspace.

mod modules;
mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use modules::Modules;

#[test]
fn import_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for krate in std::fs::read_dir(crates).expect("the folder of all crates").flatten() {
        let dependencies = Modules::read(&krate.path()).dependencies();
        for circle in circles(&dependencies) {
            let arrow = |module: &&String| {
                let others: Vec<_> = dependencies[*module].iter().filter(|other| circle.contains(*other)).collect();
                format!("    {module} -> {others:?}\n")
            };
            let names: Vec<&str> = circle.iter().map(|name| name.as_str()).collect();
            let title = format!("{}: {}", krate.file_name().display(), names.join(" "));
            found.insert(title, circle.iter().map(arrow).collect::<String>());
        }
    }
    let found: String = found.iter().map(|(circle, arrows)| format!("{circle}\n{arrows}")).collect();
    assert!(found.is_empty(), "these modules import each other:\n{found}");
}

/// The sets of modules each of which depends on all others of its set, by whatever way.
fn circles(dependencies: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<&String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        dependencies.keys().map(|from| (from, reachable(from, dependencies))).collect();
    let mut circles = BTreeSet::new();
    for (from, reached) in &reach {
        let circle: BTreeSet<&String> = reached.iter().copied().filter(|to| reach[*to].contains(from)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles
}

fn reachable<'a>(from: &String, dependencies: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = dependencies[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&dependencies[module]);
        }
    }
    reached
}

#[test]
fn circles_are_found_and_only_circles() {
    let dependencies = |arrows: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        arrows.iter().map(|(from, to)| ((*from).into(), to.iter().map(|&name| name.into()).collect())).collect()
    };
    let none = dependencies(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert!(circles(&none).is_empty());
    let one = dependencies(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]);
    assert_eq!(circles(&one).len(), 1);
    assert_eq!(circles(&one).first().unwrap().len(), 2);
}
