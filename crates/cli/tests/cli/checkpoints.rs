//! Checkpoints: whole or not there at all, whatever happens while they are written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{BINARY, Outcome, Place, Running, all_events, checkpoints, events, newest_checkpoint, text};
use crate::samples;

/// A run whose epochs are short: a checkpoint every few milliseconds, without end.
fn busy(place: &Place) -> Vec<String> {
    let table = samples::csv(place, "table.csv", 40, 2);
    let arguments = ["train", "--json", "--run", "mine", "--model", "mlp:8", "--threads", "1", "--epochs", "1000000"];
    let settings = ["--set", "batch=40", "--set", "schedule.kind=constant", "--data", text(&table)];
    arguments.iter().chain(&settings).map(ToString::to_string).collect()
}

fn all_load(place: &Place) {
    for checkpoint in checkpoints(&place.path("mine")) {
        place.succeed(&["eval", "mine", "--checkpoint", text(&checkpoint)]);
    }
}

#[test]
fn a_process_killed_at_any_moment_leaves_only_whole_checkpoints() {
    let place = Place::new();
    let train = busy(&place);
    let mut arguments: Vec<&str> = train.iter().map(String::as_str).collect();
    for round in 1..=25 {
        let mut running = place.start(&arguments);
        // The program runs ahead of its reader, so that the kill comes at another place in its work each time.
        (0..1 + round * 7 % 11).for_each(|_| drop(running.wait_for("checkpoint")));
        running.signal(&["KILL"]);
        assert_eq!(running.finish().code, None, "the signal ended it");
        all_load(&place);
        arguments = vec!["resume", "mine", "--json"];
    }
    let epoch = events(&place.path("mine"), "checkpoint").pop().unwrap()["epoch"].as_u64().unwrap();
    let (last, more) = (newest_checkpoint(&place.path("mine")), (epoch + 5).to_string());
    place.succeed(&["resume", "mine", "--epochs", &more]);
    assert!(newest_checkpoint(&place.path("mine")) > last);
    let left = fs::read_dir(place.path("mine/checkpoints")).unwrap().count();
    assert_eq!(left, 2, "what the killed processes left behind is gone");
}

#[test]
fn damaged_files_are_named_and_so_are_the_whole_ones() {
    let place = Place::new();
    place.succeed(&["train", "--run", "mine", "--model", "mlp:8", "--epochs", "2"]);
    let mine = place.path("mine");
    let all = checkpoints(&mine);
    let [older, newest] = all.as_slice() else { panic!("two are kept: {all:?}") };
    for file in ["model.safetensors", "state.safetensors"] {
        let path = newest.join(file);
        let whole = fs::read(&path).unwrap();
        let cut = &whole[..whole.len() - 1];
        let noise: Vec<u8> = (0..whole.len()).map(|i| (i * 37 % 251) as u8).collect();
        let mut turned = whole.clone();
        *turned.last_mut().unwrap() ^= 1;
        for damaged in [&[], &whole[..7], cut, noise.as_slice(), turned.as_slice()] {
            fs::write(&path, damaged).unwrap();
            let named = format!("mine/checkpoints/{}/{file}", name_of(newest));
            let mut messages = vec![place.fail(&["resume", "mine", "--epochs", "3", "--checkpoint", text(newest)])];
            if file == "model.safetensors" {
                messages.push(place.fail(&["eval", "mine"]));
            }
            for message in messages {
                assert!(message.contains(&named), "{message}");
                let others = format!("others are there for --checkpoint: mine/checkpoints/{}: ", name_of(older));
                assert!(message.contains(&others), "{message}");
            }
        }
        fs::write(&path, &whole).unwrap();
    }
    // With a damaged newest one the older one does, and what is damaged is out of the way afterwards.
    let whole = fs::read(newest.join("model.safetensors")).unwrap();
    fs::write(newest.join("model.safetensors"), "nonsense").unwrap();
    place.succeed(&["eval", "mine", "--checkpoint", text(older)]);
    place.succeed(&["resume", "mine", "--checkpoint", text(older)]);
    place.succeed(&["eval", "mine"]);
    all_load(&place);
    assert_eq!(fs::read(newest.join("model.safetensors")).unwrap(), whole, "it was trained again");
}

#[test]
fn a_run_goes_on_from_the_newest_whole_checkpoint_and_says_so() {
    for peers in [&[][..], &["--peers", "2"]] {
        let place = Place::new();
        place.succeed(&["train", "--run", "mine", "--model", "mlp:8", "--epochs", "2"]);
        let all = checkpoints(&place.path("mine"));
        let [older, newest] = all.as_slice() else { panic!("two are kept: {all:?}") };
        let path = newest.join("state.safetensors");
        let mut turned = fs::read(&path).unwrap();
        *turned.last_mut().unwrap() ^= 1;
        fs::write(&path, turned).unwrap();
        let said = place.succeed(&[&["resume", "mine", "--epochs", "3"], peers].concat()).stdout;
        let names = [name_of(older), name_of(newest)].map(|name| format!("mine/checkpoints/{name}"));
        for part in [&format!("{}/state.safetensors: the tensor `", names[1]), &format!("goes on from {}", names[0])] {
            assert!(said.contains(part.as_str()), "{said}");
        }
        assert_eq!(events(&place.path("mine"), "epoch").pop().unwrap()["epoch"], 3);
        all_load(&place);
        // If none is whole, there is nothing to go on from; but where the model is, a new run begins from it.
        for checkpoint in checkpoints(&place.path("mine")) {
            fs::write(checkpoint.join("state.safetensors"), "nonsense").unwrap();
        }
        let message = place.fail(&[&["resume", "mine", "--epochs", "4"], peers].concat());
        let newest = newest_checkpoint(&place.path("mine"));
        let weights = format!("mine/checkpoints/{}/model.safetensors", name_of(&newest));
        let next = format!("`nettorrent train mine/job.toml --weights {weights}`");
        assert!(message.contains(&next) && !message.contains("earlier checkpoint"), "{message}");
        place.succeed(&["train", "mine/job.toml", "--weights", &weights, "--run", "again"]);
        for checkpoint in checkpoints(&place.path("mine")) {
            fs::write(checkpoint.join("model.safetensors"), "nonsense").unwrap();
        }
        let message = place.fail(&[&["resume", "mine", "--epochs", "4"], peers].concat());
        assert!(message.contains("no checkpoint of the run is whole"), "{message}");
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8")
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let place = Place::new();
    for (run, model) in [("small", "mlp:8"), ("large", "mlp:16"), ("deep", "mlp:8,8")] {
        place.succeed(&["train", "--run", run, "--model", model, "--epochs", "1"]);
    }
    for other in ["large", "deep"] {
        let checkpoint = newest_checkpoint(&place.path(other));
        for command in [["eval", "small"], ["resume", "small"]] {
            let message = place.fail(&[command.as_slice(), &["--checkpoint", text(&checkpoint)]].concat());
            assert!(message.contains(text(&checkpoint)) && message.contains("another model"), "{message}");
        }
        let weights = checkpoint.join("model.safetensors");
        let message = place.fail(&["train", "--model", "mlp:8", "--weights", text(&weights)]);
        assert!(message.contains("another model"), "{message}");
    }
    // The same model, trained by another optimizer.
    place.succeed(&["train", "--run", "adam", "--model", "mlp:8", "--epochs", "1", "--set", "optimizer={kind='adam'}"]);
    let checkpoint = newest_checkpoint(&place.path("adam"));
    let message = place.fail(&["resume", "small", "--epochs", "2", "--checkpoint", text(&checkpoint)]);
    assert!(message.contains("another optimizer") && message.contains("state.safetensors"), "{message}");
    let others = place.fail(&["resume", "small", "--checkpoint", "nowhere"]);
    assert!(others.contains("nowhere") && others.contains("small/checkpoints/step-"), "{others}");
}

/// A shell that becomes the program under a limit on the size of files, in blocks of 512 bytes.
fn limited(place: &Place, before: &str, n_blocks: u32, arguments: &[&str]) -> Command {
    let line = format!("{before} ulimit -f {n_blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &line, BINARY]).args(arguments);
    place.shelter(&mut command);
    command
}

fn run_limited(place: &Place, before: &str, n_blocks: u32, arguments: &[&str]) -> Outcome {
    Outcome::of(limited(place, before, n_blocks, arguments).output().expect("a shell"))
}

#[test]
fn a_limit_on_the_size_of_files_spoils_no_checkpoint() {
    let place = Place::new();
    // A model of about 50 kB, and a limit of at most 16 kB.
    place.succeed(&["train", "--run", "mine", "--model", "mlp:150", "--epochs", "1"]);
    let more = ["resume", "mine", "--epochs", "2"];
    // Where the signal that tells of the limit is ignored, the write fails and says so.
    for peers in [&[][..], &["--peers", "2"]] {
        let outcome = run_limited(&place, "trap '' XFSZ;", 16, &[more.as_slice(), peers].concat());
        assert_eq!(outcome.code, Some(1), "{}{}", outcome.stdout, outcome.stderr);
        let whole = checkpoints(&place.path("mine"));
        let [newest] = whole.as_slice() else { panic!("{whole:?}") };
        let newest = format!("the newest checkpoint is mine/checkpoints/{}", name_of(newest));
        let parts = [
            "error: all epochs are trained",
            "cannot write",
            "step-",
            "earlier checkpoints are untouched",
            "ulimit -f",
        ];
        for part in parts.into_iter().chain([&*newest]) {
            assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
        }
        assert!(outcome.stdout.contains("is not on the disk: cannot write"), "it is told at once: {}", outcome.stdout);
        all_load(&place);
    }
    // Where it is not, it ends the program, as it does any other: but nothing half-written is taken for a checkpoint.
    assert_ne!(run_limited(&place, "", 16, &more).code, Some(0));
    assert_eq!(checkpoints(&place.path("mine")).len(), 1);
    all_load(&place);
    place.succeed(&more);
    all_load(&place);
}

#[test]
fn events_that_cannot_be_written_cost_no_run() {
    let place = Place::new();
    for (run, peers) in [("alone", &[][..]), ("two", &["--peers", "2"])] {
        // No file may have more than 8 kB: the model's have less, the events more.
        let train = ["train", "--json", "--run", run, "--model", "mlp:8", "--threads", "1", "--epochs", "60"];
        let outcome = run_limited(&place, "trap '' XFSZ;", 16, &[train.as_slice(), peers].concat());
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.json().last().unwrap()["reason"], "finished");
        let said: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("could not be written")).collect();
        assert!(
            said.len() == 2 && said[0].starts_with("1 event ") && said[1] > said[0],
            "at once and at the end: {said:?}"
        );
        let written = all_events(&place.path(run)).len();
        assert!(written > 10 && written < outcome.json().len(), "{written}");
        let last = outcome.json().into_iter().rfind(|event| event["event"] == "epoch").unwrap();
        let eval = place.succeed(&["eval", run, "--json"]).json();
        assert_eq!(eval[0]["accuracy"], last["test_accuracy"]);
    }
}

#[test]
fn who_leaves_a_run_whose_events_cannot_be_written_finds_all_of_it_saved() {
    let place = Place::new();
    for (run, begin) in [
        ("alone", &["train"][..]),
        ("two", &["train", "--peers", "2"]),
        ("starter", &["start", "--listen", "127.0.0.1:0", "--wait-for", "1"]),
    ] {
        // No checkpoint is due before it is told to leave, and its events have more than 8 kB long before that.
        let settings = ["--json", "--run", run, "--model", "mlp:8", "--threads", "1", "--epochs", "1000000"];
        let arguments = [begin, &settings, &["--set", "checkpoint.every=1000000"]].concat();
        let mut running = Running::of(limited(&place, "trap '' XFSZ;", 16, &arguments));
        running.wait_for("log-failed");
        running.signal(&["INT"]);
        let outcome = running.finish();
        assert_eq!(outcome.code, Some(130), "{run}: {}{}", outcome.stdout, outcome.stderr);
        let stop = outcome.json().pop().expect("a last event");
        assert_eq!(stop["reason"], "interrupted", "{run}");
        let step = stop["step"].as_u64().expect("a number");
        assert_eq!(name_of(&newest_checkpoint(&place.path(run))), format!("step-{step:010}"), "{run}");
        place.succeed(&["eval", run]);
    }
}

/// A small disk of its own, where we may make one; else a reason why not.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        fs::create_dir_all(path).expect("a folder");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(path);
        match command.output() {
            Ok(output) if output.status.success() => Some(Self(path)),
            Ok(output) => {
                println!("skipped, no disk to fill up: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped, no disk to fill up: mount: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0).status().ok();
    }
}

#[test]
fn a_full_disk_says_what_to_do_and_spoils_no_checkpoint() {
    let place = Place::new();
    let path = place.path("disk");
    let Some(_disk) = SmallDisk::mount(&path) else { return };
    for peers in [&[][..], &["--peers", "2"]] {
        // A checkpoint with momentum has about 90 kB: two fit, and a third does not while they are there.
        let train =
            ["train", "--run", "disk/mine", "--model", "mlp:150", "--epochs", "9", "--set", "checkpoint.keep=9"];
        let outcome = place.run(&[train.as_slice(), peers].concat());
        let message = &outcome.stderr;
        assert_eq!(outcome.code, Some(1), "{message}");
        for part in ["No space left on device", "make room on the disk and resume", "earlier checkpoints are untouched"]
        {
            assert!(message.contains(part), "{message}");
        }
        let mine = place.path("disk/mine");
        assert!(!checkpoints(&mine).is_empty());
        // That the last one fails again when the run ends is told by its end.
        let told: Vec<&str> = outcome.stdout.lines().filter(|line| line.contains("is not on the disk")).collect();
        let once: BTreeSet<&str> = told.iter().copied().collect();
        assert!(!told.is_empty() && once.len() == told.len(), "{}", outcome.stdout);
        for checkpoint in checkpoints(&mine) {
            place.succeed(&["eval", "disk/mine", "--checkpoint", text(&checkpoint)]);
        }
        // With room made, as the message says, the run goes on.
        fs::remove_dir_all(&checkpoints(&mine)[0]).unwrap();
        place.succeed(&["resume", "disk/mine", "--set", "checkpoint.keep=1"]);
        assert_eq!(events(&mine, "epoch").pop().unwrap()["epoch"], 9);
        fs::remove_dir_all(&mine).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.write("file", "");
    let mut folders = vec!["file/run"];
    if cfg!(target_os = "linux") {
        // Nobody can make a folder there, not even root.
        folders.push("/proc/nettorrent-run");
    }
    for folder in folders {
        let message = place.fail(&["train", "--model", "mlp:8", "--epochs", "1", "--run", folder]);
        assert!(message.contains(&format!("cannot make the run's folder {folder}")), "{message}");
        assert!(message.contains("choose a place that can be written with --run"), "{message}");
    }
}
