//! Studies: from a file to runs and results, stopped and taken up again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::launch::cluster::programs;
use crate::launch::fake_ssh;
use crate::program::{BINARY, Place, text};
#[cfg(target_os = "linux")]
use crate::program::{Outcome, Running};

const STUDY: &str = r#"
    name = "tiny"
    about = "Do two learn what one learns?"
    target_accuracy = 0.1
    [job]
    model = "mlp:16"
    epochs = 1
    threads = 1
    swarm.work = "equal"
    [matrix]
    peers = [1, 2]
    strategy = ["ring-all-reduce"]
    [quick]
    [quick.matrix]
    peers = [2]
"#;

fn results(stdout: &str) -> Value {
    serde_json::from_str(stdout.trim()).expect("one JSON object")
}

fn run<'a>(results: &'a Value, id: &str) -> &'a Value {
    let runs = results["runs"].as_array().expect("a list");
    runs.iter().find(|run| run["id"] == id).unwrap_or_else(|| panic!("no {id} in {runs:?}"))
}

/// When each run's result was written.
fn written(place: &Place, out: &str) -> Vec<(PathBuf, SystemTime)> {
    let entries = fs::read_dir(place.path(out).join("runs")).expect("the runs");
    let mut all: Vec<(PathBuf, SystemTime)> = Vec::new();
    for entry in entries {
        let path = entry.expect("a folder").path().join("result.json");
        if let Ok(metadata) = fs::metadata(&path) {
            all.push((path, metadata.modified().expect("a time")));
        }
    }
    all.sort();
    all
}

/// A file of hosts that have the program.
fn hosts(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name} program='{BINARY}' listen=127.0.0.1:0\n")).collect()
}

const ALONE: &str = "peers-1_strategy-alone_trial-1";
const TWO: &str = "peers-2_strategy-ring-all-reduce_trial-1";

#[test]
fn a_study_is_run_measured_and_never_run_twice() {
    let place = Place::new();
    place.write("tiny.toml", STUDY);
    // One of two runs first, as if it had been stopped; and half of the other is left.
    place.succeed(&["study", "tiny.toml", "--out", "out", "--only", "peers=1"]);
    place.write(&format!("out/runs/{TWO}/job.toml"), "half");
    let first = written(&place, "out");
    assert_eq!(first.len(), 1);
    let outcome = place.succeed(&["study", "tiny.toml", "--out", "out", "--json"]);
    let found = results(&outcome.stdout);
    let (alone, two) = (&run(&found, ALONE)["outcome"]["done"], &run(&found, TWO)["outcome"]["done"]);
    for measured in [alone, two] {
        assert_eq!(measured["epochs"].as_array().map(Vec::len), Some(1));
        assert!(measured["convergence_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{measured}");
        assert!(measured["samples_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{measured}");
        let confusion = measured["confusion"].as_array().expect("a table");
        let n: u64 = confusion.iter().flat_map(|row| row.as_array().expect("a row")).filter_map(Value::as_u64).sum();
        assert_eq!(n, 1797);
    }
    assert_eq!(two["peers"].as_array().map(Vec::len), Some(2));
    let n_params = two["n_params"].as_u64().expect("a number");
    // A peer sends 2(N-1)/N of the vector in each of 120 rounds.
    assert_eq!(two["payload_bytes"].as_u64(), Some(120 * 2 * 4 * n_params));
    let second = written(&place, "out");
    assert_eq!((second.len(), &second[0]), (2, &first[0]), "what was done is not done again");
    place.succeed(&["study", "tiny.toml", "--out", "out"]);
    assert_eq!(written(&place, "out"), second);
    let kept = results(&fs::read_to_string(place.path("out/results.json")).expect("results"));
    assert_eq!(kept["runs"], found["runs"]);
    let again = place.succeed(&["study", "--report", "out", "--json"]);
    assert_eq!(results(&again.stdout)["runs"], found["runs"]);
    // A job that has changed is another one, and may not take its place.
    place.write("tiny.toml", STUDY.replace("mlp:16", "mlp:8"));
    let refused = place.run(&["study", "tiny.toml", "--out", "out", "--only", "peers=1"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("--out"), "{}", refused.stderr);
    assert_eq!(written(&place, "out"), second);
    place.succeed(&["study", "tiny.toml", "--out", "other", "--only", "peers=1"]);
}

#[test]
fn texts_are_judged_by_perplexity() {
    let place = Place::new();
    place.write("abc.txt", "abc".repeat(300));
    place.write(
        "texts.toml",
        "name = \"texts\"\ntarget_perplexity = 2.9\n[job]\nmodel = \"gpt:1x8x2\"\nepochs = 8\nthreads = 1\nbatch = 8\n\
         data = { path = \"abc.txt\", length = 8 }\noptimizer = { kind = \"adam\" }\n[matrix]\n\"optimizer.lr\" = [0.000001, 0.01]\n",
    );
    let outcome = place.succeed(&["study", "texts.toml", "--json", "--out", "out"]);
    let found = results(&outcome.stdout);
    let [slow, fast] = found["runs"].as_array().expect("a list").as_slice() else { panic!("two runs: {found}") };
    let of = |run: &Value, field: &str| run["outcome"]["done"][field].clone();
    assert!(of(slow, "final_value").as_f64().unwrap() > of(fast, "final_value").as_f64().unwrap(), "{found}");
    assert!(of(slow, "convergence_s").is_null() && of(fast, "convergence_s").is_number(), "{found}");
    let report = fs::read_to_string(place.path("out/report.md")).expect("a report");
    for words in
        ["final perplexity", "reached a perplexity of 2.9", "ended with the lowest perplexity", "## Perplexity"]
    {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(!report.contains("ccuracy"), "{report}");
    let again = place.succeed(&["study", "texts.toml", "--out", "out"]);
    assert!(again.stdout.contains("perplexity") && again.stdout.contains("s to 2.9"), "{}", again.stdout);
}

#[test]
fn peers_of_a_study_have_machines_of_their_own() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    place.write("tiny.toml", STUDY);
    place.write("hosts", hosts(&["one", "two"]));
    let study = ["study", "tiny.toml", "--hosts", "hosts", "--ssh-command", &ssh, "--out", "out", "--json"];
    let found = results(&place.succeed(&study).stdout);
    let (alone, two) = (&run(&found, ALONE)["outcome"]["done"], &run(&found, TWO)["outcome"]["done"]);
    let hosts_of = |measured: &Value| -> Vec<Value> {
        measured["peers"].as_array().expect("a list").iter().map(|peer| peer["host"].clone()).collect()
    };
    assert_eq!((hosts_of(alone), hosts_of(two)), (vec!["one".into()], vec!["one".into(), "two".into()]));
    // What is measured is what is measured on one machine.
    let n_params = two["n_params"].as_u64().expect("a number");
    assert_eq!(two["payload_bytes"].as_u64(), Some(120 * 2 * 4 * n_params));
    for measured in [alone, two] {
        assert!(measured["convergence_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{measured}");
        assert!(
            measured["peers"].as_array().unwrap().iter().all(|peer| peer["compute_s"].as_f64() > Some(0.0)),
            "{measured}"
        );
    }
    let machines: Vec<&Value> = found["machines"].as_array().expect("a list").iter().collect();
    assert_eq!(machines.iter().filter_map(|machine| machine["host"].as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert!(machines.iter().all(|machine| machine["n_cores"].as_u64() > Some(0)), "{machines:?}");
    let report = fs::read_to_string(place.path("out/report.md")).expect("a report");
    for words in ["## Machines", "each on a machine of its own", "Each peer ran on a machine of its own."] {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(fs::read_to_string(place.path("out/resources.csv")).expect("a table").contains(",two\n"));
    for host in ["one", "two"] {
        let left = fs::read_dir(place.path(&format!("homes/{host}/nettorrent"))).expect("a folder");
        assert_eq!(left.count(), 0, "nothing stays there");
    }
    // Nothing is run twice; and the same swarm on other machines is another one.
    let first = written(&place, "out");
    place.succeed(&study);
    assert_eq!(written(&place, "out"), first);
    place.write("hosts", hosts(&["two", "one"]));
    let refused = place.run(&study);
    assert!(refused.code == Some(1) && refused.stderr.contains("--out"), "{}", refused.stderr);
    assert_eq!(written(&place, "out"), first);
}

#[test]
fn a_machine_that_cannot_be_reached_is_named_and_the_study_goes_on_later() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    place.write("tiny.toml", STUDY);
    let study = ["study", "tiny.toml", "--hosts", "hosts", "--ssh-command", &ssh, "--out", "out"];
    place.write("hosts", hosts(&["one"]));
    assert!(place.fail(&study).contains("it has 2 peers, and there is 1 to run on"));
    place.write("hosts", hosts(&["one", "gone"]));
    assert!(place.fail(&study).contains("gone: no route to gone"));
    assert!(!place.path("out").exists(), "nothing was made");
    place.write("sim.toml", STUDY.replace("name =", "host = \"sim\"\nname ="));
    assert!(place.fail(&["study", "sim.toml", "--hosts", "hosts", "--out", "sim"]).contains("leave out --hosts"));
    // One that has no data: nobody waits for it, and the study goes on.
    place.write("hosts", hosts(&["one", "two"]).replace("two", "two data=nowhere.csv"));
    let failed =
        place.run(&["study", "tiny.toml", "--hosts", "hosts", "--ssh-command", &ssh, "--out", "failed", "--json"]);
    let found = results(&failed.stdout);
    let problem = run(&found, TWO)["outcome"]["failed"].as_str().expect("a problem");
    assert!(failed.code == Some(1) && problem.starts_with("two: ") && problem.contains("nowhere.csv"), "{problem}");
    // This one is lost after the first run.
    place.write("hosts", hosts(&["one", "two"]));
    let moody = place.write(
        "moody-ssh",
        format!("#!/bin/sh\nif [ \"$1\" = two ] && [ -e runs-are-made ]; then echo 'no route to two' >&2; exit 255; fi\ncase \"$*\" in \
                 *' train job.toml'*) : > runs-are-made ;; esac\nexec {ssh} \"$@\"\n"),
    );
    fs::set_permissions(&moody, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    let moody = ["study", "tiny.toml", "--hosts", "hosts", "--ssh-command", text(&moody), "--out", "out"];
    let said = place.fail(&moody);
    assert!(said.contains("two: no route to two; what is done is kept, and the same command goes on"), "{said}");
    let first = written(&place, "out");
    assert_eq!(first.len(), 1);
    place.succeed(&study);
    let then = written(&place, "out");
    assert_eq!((then.len(), &then[0]), (2, &first[0]));
}

/// An allocation's Slurm, whose nodes are folders.
#[cfg(target_os = "linux")]
const ALLOCATION: &str = r#"#!/bin/sh
case ${0##*/} in
scontrol)
    [ "$*" = 'show hostnames n[1-2]' ] || exit 2
    echo n1; echo n2 ;;
srun)
    [ -z "$SLURM_NTASKS_PER_NODE" ] || exit 2
    while [ "${1#-}" != "$1" ]; do
        case $1 in --nodelist=*) node=${1#*=} ;; esac
        shift
    done
    exec "$(dirname "$0")/../fake-ssh" "$node" "$3" ;;
esac
"#;

#[cfg(target_os = "linux")]
#[test]
fn peers_of_a_study_are_on_the_nodes_of_a_slurm_allocation() {
    let place = Place::new();
    fake_ssh(&place);
    let path = programs(&place, &["scontrol", "srun"], ALLOCATION);
    place.write("tiny.toml", STUDY);
    let study = ["study", "tiny.toml", "--slurm", "--json"];
    assert!(place.fail(&study).contains("salloc --nodes=4"), "there is no allocation");
    let within = |n_tasks: &str, arguments: &[&str]| -> Outcome {
        let mut command = place.command(&[&study[..], arguments].concat());
        command.env("PATH", &path).env("SLURM_JOB_NODELIST", "n[1-2]").env("SLURM_JOB_CPUS_PER_NODE", "2(x2)");
        command.env("SLURM_NTASKS_PER_NODE", n_tasks);
        Running::of(command).finish()
    };
    for (n_tasks, nodes) in [("1", ["n1", "n2"]), ("2", ["n1", "n1"])] {
        let outcome = within(n_tasks, &["--out", n_tasks]);
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
        let found = results(&outcome.stdout);
        let peers = run(&found, TWO)["outcome"]["done"]["peers"].as_array().expect("a list").clone();
        assert_eq!(peers.iter().filter_map(|peer| peer["host"].as_str()).collect::<Vec<_>>(), nodes);
    }
    assert!(!place.path("runs").exists());
    assert_eq!(within("1", &["--only", "peers=1"]).code, Some(0));
    assert!(place.path("runs/study-tiny-slurm/report.html").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn runs_side_by_side_learn_the_same() {
    let place = Place::new();
    place.write("tiny.toml", STUDY.replace("[matrix]", "[matrix]\nseed = [1, 2]"));
    let accuracies = |arguments: &[&str]| -> Vec<Value> {
        let found = results(&place.succeed(&[&["study", "tiny.toml", "--json", "--out"], arguments].concat()).stdout);
        let runs = found["runs"].as_array().expect("a list").clone();
        assert_eq!(runs.len(), 4);
        runs.iter().map(|run| run["outcome"]["done"]["final_value"].clone()).collect()
    };
    assert_eq!(accuracies(&["together", "--side-by-side"]), accuracies(&["in-turn"]));
    let report = fs::read_to_string(place.path("together/report.md")).expect("a report");
    assert!(report.contains("side by side, each on its own cores"), "{report}");
}

#[test]
fn a_run_that_fails_is_written_down_and_the_study_goes_on() {
    let place = Place::new();
    // There are ten classes, so twelve peers cannot have one each.
    let text = STUDY.replace("peers = [1, 2]", "peers = [1, 12]").replace("[matrix]", "[matrix]\nsplit = [\"class\"]");
    place.write("tiny.toml", text.replace("name =", "host = \"sim\"\nname ="));
    let outcome = place.run(&["study", "tiny.toml", "--out", "out", "--json"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let found = results(&outcome.stdout);
    let failed = &run(&found, "split-class_peers-12_strategy-ring-all-reduce_trial-1")["outcome"]["failed"];
    assert!(failed.as_str().is_some_and(|problem| problem.contains("class")), "{failed}");
    assert!(run(&found, ALONE)["outcome"]["done"].is_object());
}

#[test]
fn a_stopped_study_goes_on() {
    let place = Place::new();
    // The second run takes as long as nobody waits for.
    place.write("tiny.toml", STUDY.replace("[matrix]", "[matrix]\nepochs = [1, 1000000]"));
    let mut running = place.start(&["study", "tiny.toml", "--out", "out", "--only", "peers=1"]);
    running.wait_for_line(|line| line.starts_with("1/2"));
    running.signal(&["TERM"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stderr.contains("The same command goes on"), "{}", outcome.stderr);
    assert_eq!(written(&place, "out").len(), 1);
    let found = results(&place.succeed(&["study", "--report", "out", "--json"]).stdout);
    assert_eq!(found["runs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_run_is_told_before_anything_runs() {
    let place = Place::new();
    let study = text(&place.write("tiny.toml", STUDY)).to_owned();
    let listed = place.succeed(&["study", &study, "--quick", "--list", "--json", "--trials", "2"]).json();
    assert_eq!(listed.iter().filter_map(|run| run["trial"].as_u64()).collect::<Vec<_>>(), [1, 2]);
    assert!(place.fail(&["study", "avereging"]).contains("did you mean `averaging`?"));
    assert!(place.fail(&["study", &study, "--only", "peers=3"]).contains("there are 1, 2"));
    assert!(place.fail(&["study", "averaging"]).contains("nettorrent data fetch mnist"));
    assert!(place.succeed(&["study"]).stdout.contains("averaging"));
    place.write("wrong.toml", STUDY.replace("ring-all-reduce", "ring-al-reduce"));
    assert!(place.fail(&["study", "wrong.toml"]).contains("did you mean `ring-all-reduce`?"));
    assert!(!place.path("runs").exists(), "nothing ran");
}
