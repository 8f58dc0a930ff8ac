//! Tells the program which commit it was built from, for what it measures to be found again.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = git(&["describe", "--always", "--dirty"]);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=NETTORRENT_COMMIT={}", commit.unwrap_or(version));
    // Where git keeps what the answer follows from. What is not there must not be named, or it would be built anew each time.
    for name in ["HEAD", "index", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Whether anything is changed that no commit has.
    println!("cargo::rerun-if-changed=..");
}

/// What git says, if it is there and this is one of its folders.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
