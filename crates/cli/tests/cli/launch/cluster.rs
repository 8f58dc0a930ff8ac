//! Peers that share a folder, under a Slurm of one job and an `mpirun` that are scripts of our own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::{Outcome, Place, Running, all_events, signal};

/// Slurm, as far as one job needs it: each task has its own group of processes, all of which get its signals.
const SLURM: &str = r#"#!/bin/sh
cd "$(dirname "$0")/../slurm"
case ${0##*/} in
sbatch)
    cp "$2" script
    (
        until [ -e ended ]; do
            rm -f requeue tasks
            status=0
            SLURM_JOB_ID=7 sh -c 'echo $$ > batch; exec sh script' || status=$?
            if [ ! -e requeue ]; then echo "$status" > ended; fi
        done
    ) > log 2>&1 < /dev/null &
    echo '7;lab' ;;
srun)
    while [ "${1#-}" != "$1" ]; do shift; done
    k=0
    while [ "$k" -lt "$(sed -n 's/^#SBATCH --nodes=//p' script)" ]; do
        SLURM_PROCID=$k setsid "$@" &
        echo $! >> tasks
        k=$((k + 1))
    done
    wait ;;
squeue)
    if [ ! -e ended ]; then echo RUNNING None
    elif [ "$(cat ended)" = 0 ]; then echo COMPLETED None
    else echo FAILED NonZeroExitCode; fi ;;
scancel)
    echo "$*" >> cancelled
    for task in $(cat tasks); do kill -TERM "-$task"; done ;;
scontrol)
    echo "$*" > requeue ;;
esac
"#;

/// It starts ranks, and ends all others when one fails, as Open MPI's does.
const MPIRUN: &str = r#"#!/bin/sh
if [ "$1 $2" != "--oversubscribe -n" ]; then echo "what is $*?" >&2; exit 2; fi
n=$3
shift 3
k=0
while [ "$k" -lt "$n" ]; do
    PMI_RANK=$k SLURM_PROCID=0 "$@" &
    k=$((k + 1))
done
wait
"#;

/// Programs that are found before all others, under these names.
pub(crate) fn programs(place: &Place, names: &[&str], script: &str) -> String {
    fs::create_dir_all(place.path("slurm")).expect("a folder");
    for name in names {
        let path = place.write(&format!("bin/{name}"), script);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    }
    format!("{}:/usr/bin:/bin", place.path("bin").display())
}

fn slurm(place: &Place) -> String {
    programs(place, &["sbatch", "srun", "squeue", "scancel", "scontrol"], SLURM)
}

fn start(place: &Place, path: &str, arguments: &[&str]) -> Running {
    let mut command = place.command(arguments);
    command.env("PATH", path);
    Running::of(command)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn peer(place: &Place, attempt: usize, k: usize) -> PathBuf {
    place.path(&format!("run/peers/attempt-{attempt}/peer-{k}"))
}

/// All of a run's story is here, and so is its result.
fn check_finished(place: &Place, outcome: &Outcome) {
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("Finished: 2 of 2 peers"), "{}", outcome.stdout);
    let events = all_events(&place.path("run"));
    let last = events.iter().rfind(|event| event["event"] == "epoch").expect("an epoch");
    let eval: Vec<Value> = place.succeed(&["eval", "run", "--json"]).json();
    assert_eq!(eval[0]["accuracy"], last["test_accuracy"]);
    for private in [place.path("run/peers"), peer(place, 0, 0)] {
        assert_eq!(mode(&private), 0o700);
    }
    assert_eq!(mode(&peer(place, 0, 0).join("ticket")), 0o600);
}

#[test]
fn a_batch_job_trains_and_is_collected() {
    let place = Place::new();
    let path = slurm(&place);
    let launch =
        ["launch", "--slurm", "--nodes", "2", "--time", "30:00", "--epochs", "2", "--threads", "1", "--run", "run"];
    let planned = place.succeed(&[&launch[..], &["--sbatch-option=--account=lab", "--dry-run"]].concat()).stdout;
    for line in
        ["#SBATCH --nodes=2", "#SBATCH --time=30:00", "#SBATCH --account=lab", "#SBATCH --requeue", "sbatch --parsable"]
    {
        assert!(planned.contains(line), "{planned}");
    }
    assert!(!place.path("run").exists(), "nothing was done");
    let outcome = start(&place, &path, &launch).finish();
    check_finished(&place, &outcome);
    assert!(outcome.stdout.contains("Slurm job 7: RUNNING"), "{}", outcome.stdout);
    assert_eq!(fs::read_to_string(place.path("slurm/ended")).expect("the job's end").trim(), "0");
}

#[test]
fn a_job_whose_time_is_up_is_requeued_and_goes_on_and_ctrl_c_cancels_it() {
    let place = Place::new();
    let path = slurm(&place);
    let launch =
        ["launch", "--slurm", "--nodes", "2", "--epochs", "100000", "--threads", "1", "--run", "run", "--json"];
    let mut running = start(&place, &path, &launch);
    assert_eq!(running.wait_for("start")["step"], 0);
    running.wait_for("epoch");
    let batch = fs::read_to_string(place.path("slurm/batch")).expect("the batch script's process");
    assert!(signal(batch.trim().parse().expect("a number"), &["USR1"]), "the job runs");
    let again = running.wait_for("start");
    assert!(again["step"].as_u64() > Some(0), "{again}");
    running.wait_for("epoch");
    running.signal(&["INT"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    for (attempt, k) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let events = all_events(&peer(&place, attempt, k));
        assert_eq!(events.last().expect("an end")["reason"], "interrupted", "attempt {attempt}, peer {k}");
    }
    let cancelled = fs::read_to_string(place.path("slurm/cancelled")).expect("what was cancelled");
    assert_eq!(cancelled, "--signal=TERM 7\n--signal=TERM 7\n", "by the job, and by Ctrl-C");
    place.succeed(&["eval", "run", "--json"]);
}

#[test]
fn ranks_of_mpirun_train_and_are_collected() {
    let place = Place::new();
    let path = programs(&place, &["my-mpirun"], MPIRUN);
    let launch = [
        "launch",
        "--mpi",
        "--peers",
        "2",
        "--mpi-command",
        "my-mpirun --oversubscribe",
        "--threads",
        "1",
        "--run",
        "run",
    ];
    let planned = place.succeed(&[&launch[..], &["--dry-run"]].concat()).stdout;
    assert!(planned.contains("my-mpirun --oversubscribe -n 2 sh "), "{planned}");
    let outcome = start(&place, &path, &[&launch[..], &["--epochs", "2", "--copy"]].concat()).finish();
    check_finished(&place, &outcome);
    assert!(place.path("run/peers/nettorrent").exists(), "the program was copied");
}

#[test]
fn ctrl_c_has_all_ranks_leave() {
    let place = Place::new();
    let path = programs(&place, &["mpirun"], MPIRUN);
    let launch = ["launch", "--mpi", "--peers", "2", "--epochs", "100000", "--threads", "1", "--run", "run", "--json"];
    let mut running = start(&place, &path, &[&launch[..], &["--mpi-command", "mpirun --oversubscribe"]].concat());
    running.wait_for("epoch");
    running.signal(&["INT"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the newest checkpoint of peer"), "{}", outcome.stderr);
    for k in [0, 1] {
        assert_eq!(all_events(&peer(&place, 0, k)).last().expect("an end")["reason"], "interrupted");
    }
}

#[test]
fn what_cannot_be_launched_is_said() {
    let place = Place::new();
    let path = programs(&place, &["mpirun"], MPIRUN);
    let fails = |arguments: &[&str], expected: &str| {
        let outcome = start(&place, &path, &[&["launch"], arguments].concat()).finish();
        assert!(outcome.code != Some(0) && outcome.stderr.contains(expected), "{}", outcome.stderr);
    };
    fails(&["--slurm"], "--nodes N");
    let nothing = start(&place, "", &["launch", "--slurm", "--nodes", "2", "--run", "one"]).finish();
    assert!(nothing.stderr.contains("cannot run `sbatch`"), "{}", nothing.stderr);
    fails(&["--slurm", "--nodes", "2", "--sbatch-option", "account"], "is no option of sbatch");
    fails(&["--mpi"], "--peers N");
    fails(&["--mpi", "--peers", "2", "--run", "two"], "what is -n 2");
    fails(&["--mpi", "--peers", "2", "--run", "three", "--mpi-command", "no-such"], "--mpi-command");
    fails(&["--slurm", "--mpi"], "cannot be used with");
    fails(&[], "--ssh");
    // A first peer that fails does not keep the others waiting.
    let job =
        ["--mpi", "--peers", "2", "--mpi-command", "mpirun --oversubscribe", "--run", "four", "--data", "nowhere.csv"];
    fails(&job, "nowhere.csv");
}
