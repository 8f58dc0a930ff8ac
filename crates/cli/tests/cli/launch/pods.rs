//! Peers in containers: the manifests, and the script of a pod, which runs here without a container.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::{BINARY, Place, Running, text};

const POD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../launch/src/pod.sh");
/// Nothing listens there.
const NOBODY: &str = "127.0.0.1:9";

/// A pod of two, whose volume is a folder.
fn pod(place: &Place, rank: &str, hosts: &str) -> Running {
    let work = place.path(&format!("pod-{rank}"));
    fs::create_dir_all(&work).expect("a folder");
    let mut command = Command::new("sh");
    place.shelter(&mut command);
    command.arg(POD).current_dir(work).env("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
    command.env("SWARM_SECRET", place.path("secret")).env("SWARM_JOB", place.path("job")).env("SWARM_HOSTS", hosts);
    command.env("SWARM_RANK", rank).env("SWARM_LISTEN", "127.0.0.1:0").env("SWARM_THREADS", "1");
    Running::of(command)
}

#[test]
fn pods_make_the_ticket_from_the_secret_and_train() {
    let place = Place::new();
    place.write("secret", "a secret of many letters, more than thirty-two\n");
    place.write("job/job.toml", "epochs = 3\n");
    fs::create_dir(place.path("bin")).expect("a folder");
    symlink(BINARY, place.path("bin/nettorrent")).expect("a link");
    let mut first = pod(&place, "0", &format!("{NOBODY} {NOBODY}"));
    first.wait_for("start");
    let run = place.path("pod-0/run");
    let members: Vec<Value> =
        serde_json::from_str(&place.succeed(&["members", text(&run), "--json"]).stdout).expect("a list");
    let address = members[0]["address"].as_str().expect("an address");
    let ticket = place.succeed(&["ticket", "--secret-file", "secret", "--at", address]).stdout;
    assert_eq!(ticket, fs::read_to_string(run.join("ticket")).expect("a ticket"));
    let outcomes = [pod(&place, "1", &format!("{address} {NOBODY}")), first].map(Running::finish);
    for (k, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.code, Some(0), "{k}: {}", outcome.stderr);
        assert!(!outcome.stdout.contains(ticket.trim()), "tickets are not for logs");
        assert!(place.path(&format!("pod-{k}/finished")).exists());
    }
    // A pod that is started again has nothing left to do.
    assert_eq!(pod(&place, "0", NOBODY).finish().code, Some(0));
}

#[test]
fn manifests_are_printed_or_applied() {
    let place = Place::new();
    let launch = ["launch", "--k8s", "--peers", "3", "--image", "lab/nettorrent:1", "--run", "My run"];
    let printed = place.succeed(&[&launch[..], &["--dry-run"]].concat()).stdout;
    for line in [
        "kind: Secret",
        "kind: PodDisruptionBudget",
        "  replicas: 3",
        "  name: nettorrent-my-run",
        "runAsNonRoot: true",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    let path = place.write("bin/kubectl", "#!/bin/sh\necho \"$*\"\ncat > applied.yaml\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    let apply = |path: &Path| {
        let mut command = place.command(&launch);
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        Running::of(command).finish()
    };
    let said = apply(&place.path("bin")).stdout;
    assert!(said.contains("apply --filename -") && said.contains("exec nettorrent-my-run-0"), "{said}");
    let applied = fs::read_to_string(place.path("applied.yaml")).expect("manifests");
    let secret = |yaml: &str| {
        let line = yaml.lines().find(|line| line.trim_start().starts_with("secret: ")).map(str::to_owned);
        line.expect("a secret")
    };
    assert_ne!(secret(&applied), secret(&printed), "a secret is made anew each time");
    assert_eq!(applied.replace(&secret(&applied), ""), printed.replace(&secret(&printed), ""));
    assert!(place.fail(&["launch", "--k8s", "--peers", "3"]).contains("--image"));
    assert!(place.fail(&["launch", "--k8s", "--image", "x"]).contains("--peers"));
}

#[test]
fn secrets_that_can_be_guessed_are_refused() {
    let place = Place::new();
    place.write("secret", "a word\n");
    let said = place.fail(&["ticket", "--secret-file", "secret", "--at", NOBODY]);
    assert!(said.contains("could be guessed"), "{said}");
    assert!(place.fail(&["start", "--secret-file", "secret"]).contains("could be guessed"));
    assert!(place.fail(&["start", "--secret-file", "nowhere"]).contains("cannot read the secret in nowhere"));
    place.write("secret", "a secret of many letters, more than thirty-two\n");
    let said = place.fail(&["ticket", "--secret-file", "secret", "--at", "no-port"]);
    assert!(said.contains("none of these is known"), "{said}");
}
