//! What trained models say about files that are no part of their data.

use serde_json::Value;

use crate::program::Place;
use crate::samples;

/// Trains a model in the folder `run`.
fn train(place: &Place, arguments: &[&str]) {
    place.succeed(&[&["train", "--threads", "1", "--run", "run"], arguments].concat());
}

fn predict(place: &Place, arguments: &[&str]) -> Vec<Value> {
    place.succeed(&[&["predict", "run", "--json"], arguments].concat()).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// The probabilities of all guesses.
fn total(prediction: &Value) -> f64 {
    prediction["guesses"].as_array().expect("a list").iter().map(|guess| number(&guess["probability"])).sum()
}

#[test]
fn recordings_are_classified() {
    let place = Place::new();
    samples::recordings(&place, "tones");
    train(&place, &["--data", "tones", "--model", "mlp:16", "--epochs", "8"]);
    std::fs::copy(place.path("tones/3_4.wav"), place.path("new.wav")).unwrap();
    let found = predict(&place, &["new.wav", "tones/7_2.wav", "--top", "10"]);
    assert_eq!((found.len(), &found[0]["file"], &found[1]["file"]), (2, &"new.wav".into(), &"tones/7_2.wav".into()));
    assert_eq!((found[0]["logits"].as_array().unwrap().len(), found[0].get("line")), (10, None));
    assert!((total(&found[0]) - 1.0).abs() < 1e-6, "{}", found[0]);
    assert_eq!(found[0]["guesses"].as_array().unwrap().len(), 10);
    let shown = place.succeed(&["predict", "run", "new.wav", "--top", "1"]).stdout;
    assert!(shown.starts_with("new.wav: ") && shown.ends_with(" %)\n") && !shown.contains(','), "{shown}");
    let mut fast = std::fs::read(place.path("new.wav")).unwrap();
    fast[24..32].copy_from_slice(&[16_000_u32.to_le_bytes(), 32_000_u32.to_le_bytes()].concat());
    place.write("fast.wav", fast);
    place.write("table.csv", "1,2\n");
    assert!(place.fail(&["predict", "run", "fast.wav"]).contains("has 16000 samples per second"));
    assert!(place.fail(&["predict", "run", "table.csv"]).contains("table.csv: is no WAV file"));
    assert!(place.fail(&["predict", "run", "new.wav", "--invert"]).contains("does not consist of pictures"));
}

#[test]
fn rows_of_a_table_are_classified() {
    let place = Place::new();
    let row = |i: usize| format!("{},{},{}\n", i % 2, i % 7, ["low", "high"][i % 2]);
    place.write("table.csv", format!("size,noise,kind\n{}", (0..200).map(row).collect::<String>()));
    train(&place, &["--data", "table.csv", "--model", "mlp:8", "--epochs", "10", "--set", "optimizer.lr=0.1"]);
    place.write("new.csv", "noise,size\n3,1\n3,0\n");
    place.write("places.csv", "1,3,?\n");
    let found = predict(&place, &["new.csv", "places.csv"]);
    let best: Vec<&str> = found.iter().map(|row| row["guesses"][0]["class"].as_str().unwrap()).collect();
    assert_eq!(best, ["high", "low", "high"]);
    assert_eq!((&found[1]["line"], &found[2]["line"]), (&3.into(), &1.into()));
    assert_eq!(found[0]["logits"], found[2]["logits"], "by name as by place");
    assert!((total(&found[0]) - 1.0).abs() < 1e-6);
    let shown = place.succeed(&["predict", "run", "new.csv", "--top", "1"]).stdout;
    assert!(shown.starts_with("new.csv:2: high (") && shown.contains("\nnew.csv:3: low ("), "{shown}");
    let eval = place.succeed(&["eval", "run", "--json"]).json().remove(0);
    assert!(number(&eval["metrics"]["auc"]) > 0.99 && eval["metrics"].get("top5_accuracy").is_none(), "{eval}");
    place.write("new.csv", "size,nose\n3,1\n");
    assert!(place.fail(&["predict", "run", "new.csv"]).contains("new.csv: the column `noise` is missing"));
    place.write("new.csv", "");
    assert!(place.fail(&["predict", "run", "new.csv"]).contains("new.csv: is empty"));
    assert!(place.fail(&["predict", "run"]).contains("say which files"));
}

#[test]
fn numbers_are_predicted_in_the_units_of_the_data() {
    let place = Place::new();
    let row = |i: i32| format!("{},{},{}\n", i % 10, 1000 * (i % 10) + 5000, 7 - i % 10);
    place.write("table.csv", format!("x,price,rest\n{}", (0..300).map(row).collect::<String>()));
    place.write(
        "job.toml",
        "model = \"mlp:16\"\nepochs = 30\nbatch = 16\n[data]\npath = \"table.csv\"\nlabel = [\"price\", \"rest\"]\n\
         target = \"numbers\"\n[optimizer]\nlr = 0.05\n",
    );
    train(&place, &["job.toml"]);
    place.write("new.csv", "x\n2\n8\n");
    for (row, x) in predict(&place, &["new.csv", "--top", "1"]).iter().zip([2.0, 8.0]) {
        let guesses = row["guesses"].as_array().unwrap();
        assert_eq!((guesses.len(), &guesses[0]["number"], &guesses[1]["number"]), (2, &"price".into(), &"rest".into()));
        assert!((number(&guesses[0]["value"]) - (1000.0 * x + 5000.0)).abs() < 500.0, "{row}");
        assert!((number(&guesses[1]["value"]) - (7.0 - x)).abs() < 0.5, "{row}");
    }
    let shown = place.succeed(&["predict", "run", "new.csv"]).stdout;
    assert!(shown.starts_with("new.csv:2: price ") && shown.contains(", rest "), "{shown}");
}

#[test]
fn each_label_has_a_probability() {
    let place = Place::new();
    let row = |i: usize| format!("{},{},{},1,0\n", i % 2, i % 3, i % 2);
    place.write("table.csv", format!("x,y,is_odd,always,never\n{}", (0..200).map(row).collect::<String>()));
    place.write(
        "job.toml",
        "model = \"mlp:8\"\nepochs = 10\nbatch = 16\n[data]\npath = \"table.csv\"\n\
         label = [\"is_odd\", \"always\", \"never\"]\ntarget = \"labels\"\n[optimizer]\nlr = 0.2\n",
    );
    train(&place, &["job.toml"]);
    place.write("new.csv", "x,y\n0,1\n1,1\n");
    let found = predict(&place, &["new.csv"]);
    let of = |row: usize, label: &str| {
        let guesses = found[row]["guesses"].as_array().unwrap();
        assert_eq!(guesses.len(), 3);
        number(&guesses.iter().find(|guess| guess["label"] == label).unwrap()["probability"])
    };
    assert!(
        of(0, "is_odd") < 0.5 && of(1, "is_odd") > 0.5 && of(0, "always") > 0.9 && of(1, "never") < 0.1,
        "{found:?}"
    );
    assert_eq!(predict(&place, &["new.csv", "--top", "1"])[0]["guesses"].as_array().unwrap().len(), 1);
    let shown = place.succeed(&["eval", "run"]).stdout;
    assert!(shown.contains(", area under the ROC curve "), "of the label that is not always the same: {shown}");
}

#[test]
fn the_next_token_of_a_text_is_guessed() {
    let place = Place::new();
    place.write("abc.txt", "abc".repeat(400));
    place.write(
        "job.toml",
        "model = \"gpt:1x16x2\"\nepochs = 10\nbatch = 8\ndata = { path = \"abc.txt\", length = 8 }\n\
         optimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    train(&place, &["job.toml"]);
    place.write("long.txt", "abc".repeat(20) + "ab");
    place.write("short.txt", "a");
    let found = predict(&place, &["long.txt", "short.txt", "--top", "2"]);
    for (row, next) in found.iter().zip(["c", "b"]) {
        let guesses = row["guesses"].as_array().unwrap();
        assert_eq!((guesses.len(), row["logits"].as_array().unwrap().len()), (2, 3));
        assert_eq!(guesses[0]["token"], next, "{row}");
        assert!(guesses[0]["id"].is_u64() && number(&guesses[0]["probability"]) > 0.5, "{row}");
    }
    let shown = place.succeed(&["predict", "run", "long.txt"]).stdout;
    assert!(shown.starts_with("long.txt: \"c\" ("), "{shown}");
    for (text, answer) in [("", "is empty"), ("abx", "the character `x`")] {
        place.write("bad.txt", text);
        let error = place.fail(&["predict", "run", "bad.txt"]);
        assert!(error.contains("bad.txt: ") && error.contains(answer), "{error}");
    }
}
