//! Who joins takes a job that others have written, and bounds what it may take.

use crate::program::Place;
use crate::swarm::start;

#[test]
fn a_job_that_takes_more_than_it_may_is_refused_before_anything_is_made() {
    let (first, second) = (Place::new(), Place::new());
    let (_starter, ticket) = start(&first, &["--listen", "127.0.0.1:0"]);
    second.write("ticket.txt", &ticket);
    let join = |bound: [&str; 2]| second.fail(&[&["join", "--ticket-file", "ticket.txt"], &bound[..]].concat());
    let said = join(["--max-memory", "1MB"]);
    assert!(said.contains("MB of memory, and 1.0 MB are allowed") && said.contains("--max-memory SIZE"), "{said}");
    let said = join(["--max-disk", "1kB"]);
    assert!(said.contains("of the disk, and 1.0 kB are allowed") && said.contains("--max-disk SIZE"), "{said}");
    assert!(!second.path("runs").exists(), "nothing was begun");
    let said = second.run(&["join", "--max-memory", "much"]).stderr;
    assert!(said.contains("not a size"), "{said}");
}

#[test]
fn a_folder_that_holds_a_run_costs_no_use_of_the_ticket() {
    let (first, second) = (Place::new(), Place::new());
    let once = ["--listen", "127.0.0.1:0", "--epochs", "100000", "--ticket-uses", "1"];
    let (_starter, ticket) = start(&first, &once);
    second.succeed(&["train", "--model", "mlp:4", "--epochs", "1", "--run", "mine"]);
    let said = second.fail(&["join", &ticket, "--run", "mine"]);
    assert!(said.contains("mine holds a run already"), "{said}");
    let mut joiner = second.start(&["join", &ticket, "--json", "--run", "other"]);
    joiner.wait_for("start");
}

#[test]
fn numbers_that_nobody_means_are_refused_at_the_start() {
    let place = Place::new();
    for command in [&["train", "--peers", "2"][..], &["start"]] {
        let said = place.fail(&[command, &["--set", "swarm.deadline=1e300"]].concat());
        assert!(said.contains("must be a number of seconds from 0.2 to 86400"), "{said}");
    }
}
