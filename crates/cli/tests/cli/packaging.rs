//! What packages bring along beside the program.

use std::fs;

use crate::program::Place;

/// The commands that the program's help lists.
fn listed(place: &Place) -> Vec<String> {
    let help = place.succeed(&["--help"]).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn every_shell_completes_all_commands_that_are_listed_and_no_others() {
    let place = Place::new();
    let commands = listed(&place);
    assert!(commands.iter().any(|name| name == "train"), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.succeed(&["completions", shell]).stdout;
        for word in commands.iter().map(String::as_str).chain(["describe", "strategy"]) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
        assert!(!script.contains("One process of a swarm on this machine"), "{shell} offers what is hidden");
        assert!(!script.contains("nettorrent-man"), "{shell} offers what is hidden");
    }
}

#[test]
fn bash_completes_what_is_typed() {
    let place = Place::new();
    place.write("completions", place.succeed(&["completions", "bash"]).stdout);
    let typed = "source ./completions; COMP_WORDS=(nettorrent str); COMP_CWORD=1; _nettorrent nettorrent str nettorrent; \
                 echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", typed]);
    place.shelter(&mut bash);
    let output = bash.output().expect("there is a bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "strategies\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_unknown_shell_is_answered_with_the_known_ones() {
    let outcome = Place::new().run(&["completions", "csh"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("bash, elvish, fish, powershell, zsh"), "{}", outcome.stderr);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let place = Place::new();
    place.succeed(&["man", "--output", "pages/man1"]);
    let mut pages: Vec<String> = fs::read_dir(place.path("pages/man1"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort();
    for command in listed(&place) {
        assert!(pages.contains(&format!("nettorrent-{command}.1")), "{command}: {pages:?}");
    }
    assert!(
        pages.contains(&"nettorrent.1".to_owned()) && pages.contains(&"nettorrent-model-init.1".to_owned()),
        "{pages:?}"
    );
    assert!(!pages.iter().any(|page| page.contains("peer") || page.contains("help")), "{pages:?}");
    let page = fs::read_to_string(place.path("pages/man1/nettorrent-train.1")).expect("a page");
    assert!(page.contains("Train a model") && page.contains(r"\-\-strategy"), "{page}");
}

#[test]
fn a_manual_that_cannot_be_written_names_the_folder() {
    let place = Place::new();
    place.write("taken", "a file");
    assert!(place.fail(&["man", "--output", "taken"]).contains("the manual cannot be written to taken"));
}
