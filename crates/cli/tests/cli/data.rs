//! `data`: listing, describing, fetching.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::json;

use crate::program::{Place, text};
use crate::samples;

#[test]
fn the_list_says_what_is_here() {
    let place = Place::new();
    let table = place.succeed(&["data", "list"]).stdout;
    for name in ["digits", "mnist", "fashion-mnist", "cifar-10", "imagenette"] {
        assert!(table.lines().any(|line| line.starts_with(name)), "{name}\n{table}");
    }
    let find = |name: &str| {
        let entries = place.succeed(&["data", "list", "--json"]).json();
        entries.into_iter().find(|entry| entry["name"] == name).expect("a known name")
    };
    assert!(find("mnist")["path"].is_null() && find("mnist")["n_bytes"].as_u64().unwrap() > 1_000_000);
    assert_eq!((&find("digits")["here"], &find("mnist")["here"]), (&true.into(), &false.into()));
    // Only what is under its final name counts, in the cache that the environment names.
    fs::create_dir_all(place.path("cache/downloads/mnist")).unwrap();
    assert!(find("mnist")["path"].is_null());
    fs::create_dir_all(place.path("cache/datasets/mnist")).unwrap();
    assert_eq!(find("mnist")["path"], text(&place.path("cache/datasets/mnist")));
}

#[test]
fn sets_are_described() {
    let place = Place::new();
    let info = |arguments: &[&str]| {
        let arguments = [["data", "info"].as_slice(), arguments].concat();
        assert!(place.succeed(&arguments).stdout.starts_with("format   "));
        place.succeed(&[arguments.as_slice(), &["--json"]].concat()).json().remove(0)
    };
    let digits = info(&["digits"]);
    assert_eq!((&digits["format"], &digits["shape"]), (&json!("digits"), &json!([8, 8, 1])));
    assert_eq!((&digits["n_train"], &digits["n_test"]), (&json!(3823), &json!(1797)));

    let table = info(&[text(&samples::csv(&place, "table.csv", 40, 2))]);
    assert_eq!((&table["format"], &table["shape"], &table["held_back"]), (&json!("csv"), &json!([2]), &json!(true)));
    assert_eq!((&table["n_train"], &table["n_test"]), (&json!(36), &json!(4)));
    assert_eq!(table["classes"][1], json!({ "name": "c1", "n_train": 18, "n_test": 2 }));

    let pictures = samples::pictures(&place, "pictures", 5);
    let pictures = info(&[text(&pictures), "--set", "size=8", "--set", "test_fraction=0.4"]);
    assert_eq!((&pictures["format"], &pictures["shape"]), (&json!("images"), &json!([8, 8, 3])));
    assert_eq!((&pictures["n_train"], &pictures["n_test"]), (&json!(6), &json!(4)));
    assert_eq!(pictures["classes"][0]["name"], "bright");

    let idx = info(&[text(&samples::idx_set(&place, "idx", 28, 30, 10))]);
    assert_eq!((&idx["format"], &idx["shape"], &idx["held_back"]), (&json!("idx"), &json!([28, 28, 1]), &json!(false)));
    assert_eq!(idx["classes"].as_array().unwrap().len(), 10);
    let wrong = place.fail(&["data", "info", "idx", "--set", "sise=3"]);
    assert!(wrong.contains("Did you mean `size`?"), "{wrong}");
}

#[test]
fn a_part_of_the_training_set_is_trained_on() {
    let place = Place::new();
    let said = place.succeed(&["data", "info", "digits", "--set", "take=300"]).stdout;
    assert!(said.contains("train    300 samples, taken at random from 3823\n"), "{said}");
    let train = |run: &str, take: &str| {
        let what = ["train", "--json", "--run", run, "--model", "mlp:8", "--epochs", "1", "--set", take];
        place.succeed(&what).json().remove(0)["n_train"].clone()
    };
    assert_eq!((train("some", "data.take=300"), train("all", "data.take=0")), (json!(300), json!(3823)));
    let job = fs::read_to_string(place.path("some/job.toml")).unwrap();
    assert!(job.contains("take = 300"), "{job}");
    place.succeed(&["resume", "some", "--epochs", "2"]);
    for arguments in
        [["train", "--set", "data.take=4000"].as_slice(), &["data", "info", "digits", "--set", "take=4000"]]
    {
        let message = place.fail(arguments);
        assert!(message.contains("`take` is 4000 and the training set has 3823 samples"), "{message}");
    }
}

#[test]
fn each_kind_of_set_is_learnt() {
    let place = Place::new();
    let table = samples::csv(&place, "table.csv", 200, 2);
    let pictures = samples::pictures(&place, "pictures", 20);
    for (path, extra) in [(table, ["--set", "batch=8"]), (pictures, ["--set", "data.size=8"])] {
        let arguments = ["train", "--data", text(&path), "--model", "mlp:8", "--epochs", "10", "--json"];
        let events = place.succeed(&[arguments.as_slice(), &extra].concat()).json();
        let last = events.iter().rfind(|event| event["event"] == "epoch").unwrap();
        assert_eq!(last["test_accuracy"], 1.0, "{}", path.display());
    }
}

#[test]
fn a_set_that_is_not_here_says_how_to_get_it() {
    let place = Place::new();
    for arguments in [["train", "--data", "mnist"].as_slice(), &["data", "info", "mnist"]] {
        let message = place.fail(arguments);
        assert!(message.contains("`nettorrent data fetch mnist`") && message.contains("--data PATH"), "{message}");
    }
}

/// Answers every request with bytes that are not those of the file, and counts them.
fn serve_fakes() -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("its own address"));
    let thread = thread::spawn(move || {
        // One file is asked for; after that the fetch gives up.
        let (mut stream, _) = listener.accept().expect("a request");
        let lines = BufReader::new(&stream).lines();
        let request: Vec<String> = lines.map(|line| line.expect("text")).take_while(|line| !line.is_empty()).collect();
        assert!(request[0].starts_with("GET /sets/t10k-images-idx3-ubyte.gz "), "{request:?}");
        // As many bytes as the real file has, so that only its hash tells them apart.
        let body = vec![b'x'; 1_648_877];
        let head = format!("HTTP/1.1 200 x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).expect("a reader");
    });
    (address, thread)
}

#[test]
fn a_mirror_with_other_files_is_found_out() {
    let place = Place::new();
    let (address, thread) = serve_fakes();
    let message = place.fail(&["data", "fetch", "mnist", "--mirror", &format!("{address}/sets/")]);
    thread.join().expect("the right file was asked for");
    assert!(message.contains("could not fetch t10k-images-idx3-ubyte.gz of mnist from any address"), "{message}");
    let addresses: Vec<&str> = message.lines().filter(|line| line.starts_with("  http")).collect();
    assert!(addresses.len() > 1 && addresses[0].contains("SHA-256 is"), "{message}");
    // The publishers' addresses were tried through the proxy that is not there, and so without leaving this machine.
    assert!(addresses[1..].iter().all(|line| !line.contains("SHA-256")), "{message}");
    assert!(message.contains("--mirror"), "{message}");
    assert!(!place.path("cache/datasets/mnist").exists() && place.path("cache/downloads/mnist").is_dir());
}
