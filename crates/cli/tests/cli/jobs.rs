//! The jobs and models that come with the source.

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Place, events, text};
use crate::samples;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let paths = fs::read_dir(folder).expect("the source tree").map(|entry| entry.expect("a readable folder").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// The shape of a sample and the number of classes of each data set that a job names; speech has no name.
const SHAPES: [(&str, &str); 7] = [
    ("name = \"cifar-10\"", "32,32,3"),
    ("name = \"digits\"", "8,8,1"),
    ("name = \"fashion-mnist\"", "28,28,1"),
    ("name = \"imagenette\"\nsize = 128", "128,128,3"),
    ("name = \"mnist\"", "28,28,1"),
    ("format = \"text\"\nlength = 256", "256"),
    ("format = \"wav\"\nframes = 64", "64,13"),
];

#[test]
fn the_models_of_all_jobs_fit_their_data() {
    let place = Place::new();
    for path in files("jobs") {
        let job = fs::read_to_string(&path).unwrap();
        let (_, shape) = SHAPES.iter().find(|(data, _)| job.contains(data)).expect("a known data set");
        let model = job.lines().find_map(|line| line.strip_prefix("model = \"")).expect("a model");
        let model = model.trim_end_matches('"');
        let described = place.succeed(&["model", "describe", model, "--input", shape, "--classes", "10", "--json"]);
        let layers = described.json().remove(0)["layers"].clone();
        let last = layers.as_array().unwrap().last().unwrap();
        let output = last["output"].as_array().unwrap();
        assert_eq!(output.last(), Some(&serde_json::json!(10)), "{}", path.display());
        assert_eq!(
            output.len(),
            if *shape == "256" { 2 } else { 1 },
            "{}: a class, or one at each position",
            path.display()
        );
    }
}

#[test]
fn all_jobs_are_read_and_say_what_they_need() {
    let place = Place::new();
    for path in files("jobs") {
        if fs::read_to_string(&path).unwrap().contains("name = \"digits\"") {
            let name = path.file_stem().unwrap().to_string_lossy();
            place.succeed(&["train", text(&path), "--epochs", "1", "--run", &name]);
            continue;
        }
        // The job itself is fine, so the answer is about its data, which are not here.
        let message = place.fail(&["train", text(&path)]);
        let answers = ["fetch it with `nettorrent data fetch", "no data set was given"];
        assert!(answers.iter().any(|answer| message.contains(answer)), "{}: {message}", path.display());
        assert!(!place.path("runs").exists(), "nothing was begun");
    }
}

#[test]
fn all_models_train() {
    let place = Place::new();
    let data = samples::idx_set(&place, "pictures", 28, 40, 20);
    for (i, path) in files("models").iter().enumerate() {
        let run = format!("run-{i}");
        let arguments = ["train", "--data", text(&data), "--model", text(path), "--run", &run, "--epochs", "2"];
        place.succeed(&[arguments.as_slice(), &["--set", "batch=10"]].concat());
        assert_eq!(events(&place.path(&run), "epoch").len(), 2, "{}", path.display());
    }
    // The jobs for such pictures take them too.
    for name in ["jobs/mnist-cnn.toml", "jobs/mnist-mlp.toml", "jobs/fashion-mnist.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        place.succeed(&["train", text(&path), "--data", text(&data), "--epochs", "1"]);
    }
}

#[test]
fn model_list_has_the_same_names_for_programs() {
    let place = Place::new();
    let text = place.succeed(&["model", "list"]).stdout;
    let names = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let told = place.succeed(&["model", "list", "--json"]).json();
    let told: Vec<Option<String>> = told.iter().map(|line| line["name"].as_str().map(str::to_owned)).collect();
    assert!(told.len() > 5);
    assert_eq!(told, text.lines().map(names).collect::<Vec<_>>());
}
