//! Mistakes that people make: each is answered with what is wrong and what to do, and never with a panic.

use std::fs;

use crate::program::{Place, checkpoints, events, newest_checkpoint, text};
use crate::samples;

#[test]
fn mistakes_in_a_job_have_a_place_and_a_nearest_name() {
    let place = Place::new();
    for (job, parts) in [
        ("epochs = 3\nbach = 4\n", ["line 2, column 1: unknown field `bach`", "Did you mean `batch`?"].as_slice()),
        ("[optimizer]\nmomentun = 0.9\n", &["line 2, column 1", "Did you mean `momentum`?", "\n  momentun = 0.9"]),
        ("[optimizer]\nkind = \"adamm\"\n", &["line 2, column 8", "Did you mean `adam`?"]),
        ("[schedule]\nkind = \"cosin\"\n", &["line 2, column 8", "Did you mean `cosine`?"]),
        ("[data]\nformat = \"image\"\n", &["line 2", "Did you mean `images`?"]),
        ("order = \"balance\"\n", &["line 1, column 9", "Did you mean `balanced`?"]),
        ("epochs = \"many\"\n", &["line 1, column 10", "expected a whole number from 0 up"]),
        ("epochs = -1\n", &["line 1, column 10"]),
        ("epochs = \n", &["line 1, column"]),
        ("[optimizer\n", &["line 1, column"]),
        ("batch = 0\n", &["batch = 0: must be at least 1"]),
        ("[checkpoint]\nkeep = 0\n", &["checkpoint.keep = 0"]),
        ("[optimizer]\nlr = -1.0\n", &["optimizer.lr = -1", "from 0 up"]),
        ("[schedule]\nfloor = 2.0\n", &["schedule.floor = 2"]),
        ("backend = \"cup\"\n", &["there is no backend `cup`", "did you mean `cpu`?"]),
        ("model = \"mlp:\"\n", &["mlp"]),
        ("model = \"mlp:0\"\n", &["mlp:0"]),
        ("model = \"mlp:x\"\n", &["mlp:x"]),
        ("model = \"resnet20:3\"\n", &["resnet20:3"]),
        ("model = \"mnist-cn\"\n", &["mnist-cnn", "resnet50"]),
        ("model = \"none.toml\"\n", &["cannot read none.toml"]),
        ("[data]\nname = \"mnits\"\n", &["did you mean mnist?", "`digits` is part of the program"]),
        ("[data]\npath = \"nowhere\"\n", &["nowhere"]),
        ("[data]\nname = \"digits\"\nsize = 9\n", &["`size` means nothing", "remove it"]),
        ("[data]\nname = \"digits\"\npath = \"x\"\n", &["has no `path`", "remove one of the two"]),
        ("[data]\n", &["no data set was given", "`digits` is always here"]),
        ("order = \"balanced\"\nbatch = 32\n", &["balanced batch of 32", "use a multiple of 10, such as 30"]),
        ("last = \"drop\"\nbatch = 4000\n", &["use a smaller batch size"]),
    ] {
        place.write("job.toml", job);
        let message = place.fail(&["train", "job.toml", "--epochs", "1"]);
        for part in parts {
            assert!(message.contains(part), "{job}\n{message}");
        }
        if parts[0].starts_with("line") {
            assert!(message.starts_with("error: job.toml, line "), "{message}");
        }
        assert!(!place.path("runs").exists(), "nothing was begun\n{job}");
    }
}

#[test]
fn what_would_move_the_cursor_is_spelt_out() {
    let message = Place::new().fail(&["train", "--model", "\u{1b}]0;owned\u{7}"]);
    assert!(message.contains(r"\u{1b}]0;owned\u{7}") && !message.contains('\u{1b}'), "{message:?}");
}

#[test]
fn mistakes_in_arguments_are_answered() {
    let place = Place::new();
    place.write("junk.safetensors", "junk");
    for (arguments, parts) in [
        (["train", "--set", "optimizer.lrr=1"].as_slice(), ["--set optimizer.lrr=1", "Did you mean `lr`?"].as_slice()),
        (&["train", "--set", "epochs"], &["--set epochs", "field=value"]),
        (&["train", "--set", "epochs.x=1"], &["no fields of its own"]),
        (&["train", "--set", "optimizer.lr=nan"], &["optimizer.lr"]),
        (&["train", "--set", "epochs=0"], &["epochs = 0"]),
        (&["train", "--set", "data.path=x"], &["has no `path`"]),
        (&["train", "--model", "mpl"], &["mpl", "mlp"]),
        (&["train", "--data", "mnits"], &["did you mean mnist?", "nettorrent data list"]),
        (&["train", "none.toml"], &["cannot read none.toml"]),
        (&["train", "--weights", "none"], &["cannot read none"]),
        (&["train", "--weights", "junk.safetensors"], &["junk.safetensors", "not a whole safetensors file"]),
        (&["resume", "nowhere"], &["nowhere is no run", "nettorrent train"]),
        (&["eval", "nowhere"], &["nowhere is no run"]),
        (&["eval"], &["say which model"]),
        (&["eval", "--weights", "junk.safetensors", "--model", "mlp"], &["say which data"]),
        (&["predict", "nowhere", "x.png"], &["nowhere is no run"]),
        (&["model", "describe", "resnet21"], &["resnet20"]),
        (&["model", "describe", "mnist-cnn", "--input", "3,3,1"], &["mnist-cnn"]),
        (&["data", "info", "nowhere"], &["nowhere is neither a file or folder nor the name of a data set"]),
        (&["data", "fetch", "mnits"], &["did you mean mnist?"]),
    ] {
        let message = place.fail(arguments);
        for part in parts {
            assert!(message.contains(part), "{arguments:?}\n{message}");
        }
    }
}

#[test]
fn wrong_usage_has_a_code_of_its_own() {
    let place = Place::new();
    for arguments in [
        ["trian"].as_slice(),
        &[],
        &["train", "--epochs", "many"],
        &["train", "--epochs", "0"],
        &["train", "--epoch", "3"],
        &["resume"],
        &["eval", "run", "--weights", "x", "--model", "mlp"],
        &["model", "describe"],
        &["data"],
    ] {
        let outcome = place.run(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}\n{}", outcome.stderr);
        assert!(outcome.stdout.is_empty() && outcome.stderr.contains("--help"), "{}", outcome.stderr);
    }
    for arguments in [["train", "--metrics", "localhost:9100"], ["start", "--listen", "localhost:0"]] {
        let outcome = place.run(&arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}");
        assert!(outcome.stderr.contains("for example 127.0.0.1:9100"), "{}", outcome.stderr);
    }
    for arguments in [["--help"], ["--version"]] {
        assert!(!place.succeed(&arguments).stdout.is_empty());
    }
}

#[test]
fn data_that_cannot_be_used_are_named() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    place.write("empty.csv", "");
    place.write("bad.csv", "a,b,kind\n1,2,x\n3,oops,y\n");
    place.write("notes.pdf", "x");
    place.write("html/train-images-idx3-ubyte", "<html>");
    place.write("html/train-labels-idx1-ubyte", "<html>");
    place.write("single/a/1.png", "no picture");
    place.write("single/b/1.png", "no picture");
    for file in ["a/1.png", "a/2.png", "b/1.png", "b/2.png"] {
        place.write(&format!("broken/{file}"), "no picture");
    }
    for name in ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"] {
        let whole = fs::read(samples::digits_assets().join(name)).unwrap();
        place.write(&format!("cut/{name}"), &whole[..whole.len() / 2]);
    }
    for (data, parts) in [
        ("nowhere", ["nowhere"].as_slice()),
        ("empty", &["empty: holds no data set of a known format; looked for"]),
        ("empty.csv", &["empty.csv: is empty"]),
        ("bad.csv", &["bad.csv: line 3, column 2 (`b`): expected a number, found `oops`"]),
        ("notes.pdf", &["notes.pdf", "no known format", "name the folder"]),
        ("html", &["idx1-ubyte", "is no IDX file"]),
        ("cut", &["ubyte.gz: cannot be decompressed", "fetch it again"]),
        ("broken", &[".png"]),
        ("single", &["too few", "at least two"]),
    ] {
        let message = place.fail(&["train", "--data", data, "--model", "mlp:8", "--epochs", "1"]);
        for part in parts {
            assert!(message.contains(part), "{data}\n{message}");
        }
    }
}

#[test]
fn models_that_do_not_fit_the_data_are_refused() {
    let place = Place::new();
    let dense = |input: &str, out: usize| {
        format!("input = {input}\nlayers = [\n  \"flatten\",\n  {{ dense = {{ out = {out} }} }},\n]\n")
    };
    place.write("mnist.toml", dense("[28, 28, 1]", 10));
    place.write("few.toml", dense("[8, 8, 1]", 9));
    place.write("typo.toml", "input = [8, 8, 1]\nlayers = [\n  { dens = { out = 10 } },\n]\n");
    place.write("odd.toml", "input = [8, 8, 1]\nlayers = [\n  { conv = { out = 2, kernel = 9 } },\n]\n");
    for (model, parts) in [
        (
            "mnist.toml",
            ["takes samples of shape [28, 28, 1] and the data have [8, 8, 1]", "use another model"].as_slice(),
        ),
        ("few.toml", &["tells 9 classes apart and the data have 10", "as many outputs"]),
        ("typo.toml", &["typo.toml, line 3", "Did you mean `dense`?"]),
        ("odd.toml", &["model odd.toml"]),
    ] {
        let message = place.fail(&["train", "--model", model]);
        for part in parts {
            assert!(message.contains(part), "{model}\n{message}");
        }
        assert!(!place.path("runs").exists(), "nothing was begun");
    }
    // The same for a run that is tested on other data.
    place.succeed(&["train", "--run", "mine", "--model", "mlp:8", "--epochs", "1"]);
    let other = samples::idx_set(&place, "other", 28, 20, 10);
    let message = place.fail(&["eval", "mine", "--data", text(&other)]);
    assert!(message.contains("takes samples of shape [8, 8, 1]"), "{message}");
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_and_spares_its_checkpoints() {
    let place = Place::new();
    let mine = place.path("mine");
    place.succeed(&["train", "--run", "mine", "--model", "mlp:8", "--epochs", "1"]);
    let good = newest_checkpoint(&mine);
    let break_it = |batch: &str| {
        let message = place.fail(&["resume", "mine", "--epochs", "9", "--set", "optimizer.lr=1e30", "--set", batch]);
        for part in ["became NaN", "gone back 4 times", "Lower optimizer.lr", "last good checkpoint"] {
            assert!(message.contains(part), "{message}");
        }
        let reason = events(&mine, "stop").pop().unwrap()["reason"]["failed"].clone();
        assert!(reason.as_str().unwrap().contains("became NaN"), "{reason}");
        let accuracy = place.succeed(&["eval", "mine", "--json", "--checkpoint", text(&good)]).json().remove(0);
        assert!(accuracy["accuracy"].as_f64().unwrap() > 0.5, "{accuracy}");
    };
    break_it("batch=32");
    assert_eq!(checkpoints(&mine), [good.as_path()], "nothing was saved on the way");
    // With one batch an epoch the step that breaks everything is an epoch's last, after which it is saved; what was saved
    // is set aside.
    break_it("batch=4000");
    assert_eq!(checkpoints(&mine), [good.as_path()]);
    let repaired = ["--epochs", "2", "--set", "optimizer.lr=0.01", "--set", "batch=32"];
    place.succeed(&[["resume", "mine", "--checkpoint", text(&good)].as_slice(), &repaired].concat());
    place.succeed(&["eval", "mine"]);
    assert_eq!(events(&mine, "epoch").pop().unwrap()["epoch"], 2);
    // And from the very beginning.
    let message = place.fail(&["train", "--run", "hot", "--set", "optimizer.lr=1e30", "--model", "mlp:8"]);
    assert!(message.contains("Lower optimizer.lr"), "{message}");
}

#[test]
fn a_ready_study_goes_before_a_file_of_its_name() {
    let place = Place::new();
    place.write("averaging", [0xff, 0xfe]);
    assert!(place.succeed(&["study", "averaging", "--quick", "--list"]).stdout.contains("step-wise"));
    assert!(place.fail(&["study", "./averaging", "--list"]).contains("cannot read ./averaging"));
}

#[test]
fn a_strategy_is_looked_up_even_where_one_trains_alone() {
    let place = Place::new();
    place.write("name.toml", "[swarm]\nstrategy = \"nosuch\"\n");
    place.write("option.toml", "[swarm]\noptions = { bitz = 3 }\n");
    place.succeed(&["train", "--model", "mlp:4", "--epochs", "1", "--run", "mine"]);
    let job = fs::read(place.path("mine/job.toml")).unwrap();
    for (given, part) in [
        (&["--set", "swarm.strategy=nosuch"][..], "nosuch"),
        (&["--set", "swarm.options.bitz=3"], "bitz"),
        (&["name.toml"], "nosuch"),
        (&["option.toml"], "bitz"),
        (&["--strategy", "nosuch"], "nosuch"),
    ] {
        let expected = place.fail(&[&["train", "--peers", "2"], given].concat());
        assert!(expected.contains(part), "{given:?}\n{expected}");
        for command in ["train", "start", "simulate", "plan", "advise"] {
            assert_eq!(place.fail(&[&[command], given].concat()), expected, "{command} {given:?}");
        }
        if given[0] == "--set" {
            assert_eq!(place.fail(&[&["resume", "mine", "--epochs", "2"], given].concat()), expected);
        }
    }
    assert!(!place.path("runs").exists(), "nothing was begun");
    assert_eq!(fs::read(place.path("mine/job.toml")).unwrap(), job);
}

#[test]
fn a_model_that_this_machine_cannot_hold_is_refused_before_memory_is_taken_for_it() {
    let place = Place::new();
    for command in [&["train"][..], &["train", "--peers", "2"], &["start"], &["simulate"]] {
        // 30 TB of parameters: more than any machine has.
        let message = place.fail(&[command, &["--model", "mlp:99999999999"]].concat());
        assert!(message.contains("takes at least") && message.contains("TB of memory"), "{command:?}\n{message}");
        assert!(message.contains("choose a smaller model"), "{command:?}\n{message}");
    }
    assert!(!place.path("runs").exists(), "nothing was begun");
}

#[test]
fn more_threads_than_anybody_means_are_refused_before_they_are_started() {
    let place = Place::new();
    place.succeed(&["train", "--model", "mlp:4", "--epochs", "1", "--run", "mine"]);
    for command in [
        &["train"][..],
        &["train", "--peers", "2"],
        &["start"],
        &["simulate"],
        &["plan"],
        &["bench", "mnist-cnn"],
        &["eval", "mine"],
    ] {
        let message = place.fail(&[command, &["--threads", "5000"]].concat());
        assert!(message.contains("threads = 5000: must be at most 1024"), "{command:?}\n{message}");
    }
    let message = place.fail(&["resume", "mine", "--epochs", "2", "--set", "threads=5000"]);
    assert!(message.contains("threads = 5000: must be at most 1024"), "{message}");
    assert!(!place.path("runs").exists(), "nothing was begun");
}

#[test]
fn what_one_process_cannot_do_is_refused() {
    let place = Place::new();
    assert!(place.fail(&["train", "--set", "pipeline=auto"]).contains("say how many with --peers N"));
    for given in [&["--strategy", "gossip"][..], &["--link", "1gbit"], &["--speed", "500"], &["--plain"]] {
        let message = place.fail(&[&["train"], given].concat());
        assert!(message.contains(&format!("{} is for several peers", given[0])), "{message}");
    }
    let message = place.fail(&["train", "--set", "swarm.split=clas"]);
    assert_eq!(message.matches("Did you mean `class`?").count(), 1, "{message}");
    assert!(place.run(&["train", "--epochs", "0"]).stderr.contains("at least 1 epoch"));
    let message = place.fail(&["plan", "--model", "mlp:4000,4000", "--peers", "2", "--memory", "10MB"]);
    assert!(message.contains("fits in 10.0 MB of memory per peer"), "{message}");
}

#[test]
#[cfg(not(feature = "routers"))]
fn without_the_second_transport_its_options_say_how_to_get_it() {
    let place = Place::new();
    for arguments in [&["relay"][..], &["start", "--relay", "http://192.0.2.1:3340"]] {
        let said = place.fail(arguments);
        assert!(said.contains("--features routers"), "{said}");
    }
}

#[test]
#[cfg(feature = "routers")]
fn what_names_no_relay_is_refused() {
    let said = Place::new().fail(&["start", "--relay", "relay.example.org"]);
    assert!(said.contains("is no relay's URL"), "{said}");
}
