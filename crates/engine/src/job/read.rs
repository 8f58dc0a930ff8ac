//! TOML with helpful errors: the line, the column, the nearest name; and fields that are set from outside.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::nearest::nearest;

/// Why a text is not what it should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// In the text itself.
    #[error("{name}, line {line}, column {column}: {problem}{}", quoted(.snippet))]
    Text {
        /// The file.
        name: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong, and perhaps the nearest name.
        problem: String,
        /// The line itself.
        snippet: String,
    },
    /// In a field that was set from outside.
    #[error("--set {setting}: {problem}")]
    Setting {
        /// As it was given.
        setting: String,
        /// What is wrong.
        problem: String,
    },
}

fn quoted(line: &str) -> String {
    if line.trim().is_empty() { String::new() } else { format!("\n  {}", line.trim_end()) }
}

/// Reads a value from TOML; `name` is for messages.
pub fn read_toml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, ReadError> {
    toml::from_str(text).map_err(|error| text_error(name, text, &error))
}

/// Reads a value from TOML, after setting some fields.
pub(super) fn read_with<T: DeserializeOwned>(name: &str, text: &str, settings: &[String]) -> Result<T, ReadError> {
    // The text alone must be right first, so that what is wrong in it is told with its place.
    let plain: T = read_toml(name, text)?;
    if settings.is_empty() {
        return Ok(plain);
    }
    let mut table: Table = read_toml(name, text)?;
    forget_other_optimizer(&mut table, settings);
    let mut latest = plain;
    for setting in settings {
        set_field(&mut table, setting)?;
        let error = |e: toml::de::Error| ReadError::Setting { setting: setting.clone(), problem: helped(e.message()) };
        latest = Value::Table(table.clone()).try_into().map_err(error)?;
    }
    Ok(latest)
}

/// Where another kind of optimizer is set from outside, what the text says about its own kind goes, unless it is set again.
fn forget_other_optimizer(table: &mut Table, settings: &[String]) {
    let sets = |field: &str| settings.iter().any(|setting| setting.split('=').next().map(str::trim) == Some(field));
    if !sets("optimizer.kind") {
        return;
    }
    if let Some(optimizer) = table.get_mut("optimizer").and_then(Value::as_table_mut) {
        for field in OF_A_KIND.into_iter().filter(|field| !sets(&format!("optimizer.{field}"))) {
            optimizer.remove(field);
        }
    }
}

/// Sets a field, as `optimizer.lr=0.1` says it. Whether there is such a field is not looked after here.
pub fn set_field(table: &mut Table, setting: &str) -> Result<(), ReadError> {
    let error = |problem: String| ReadError::Setting { setting: setting.to_owned(), problem };
    let (path, value) =
        setting.split_once('=').ok_or_else(|| error("write it as field=value, for example optimizer.lr=0.1".into()))?;
    set(table, path.trim(), parse_value(value.trim())).map_err(error)
}

/// A TOML value; what is none is taken as text, so that `model=mlp` needs no quotes within quotes.
fn parse_value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            write_out(first, inner);
            let inner = inner.as_table_mut().ok_or_else(|| format!("`{first}` has no fields of its own"))?;
            set(inner, rest, value)
        }
    }
}

/// A word that is short for a table becomes that table, so that fields beside it can be set: `pipeline = "auto"`.
fn write_out(name: &str, value: &mut Value) {
    if name == "pipeline" && value.is_str() {
        *value = Value::Table(Table::from_iter([("stages".to_owned(), value.clone())]));
    }
}

fn text_error(name: &str, text: &str, error: &toml::de::Error) -> ReadError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let snippet = text.lines().nth(line - 1).unwrap_or_default().to_owned();
    ReadError::Text { name: name.to_owned(), line, column, problem: helped(error.message()), snippet }
}

/// What only some kinds of optimizers have.
const OF_A_KIND: [&str; 6] = ["alpha", "beta1", "beta2", "epsilon", "momentum", "nesterov"];

/// What fields were called before, and what they are called now.
const RENAMED: [(&str, &str); 5] = [
    ("columns", "tensor_shards"),
    ("groups", "stages"),
    ("layers", "pipeline"),
    ("mark_every", "snapshot_every"),
    ("rows", "batch_shards"),
];

/// Adds the nearest name to a message about an unknown one. Such messages quote the unknown name first and then all that
/// exist: "unknown field `lrr`, expected one of `lr`, `momentum`".
fn helped(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        _ if message.contains("Did you mean") => message.to_owned(),
        Some((unknown, known)) if message.starts_with("unknown") => {
            let renamed = RENAMED.iter().find(|(old, new)| old == unknown && known.contains(new));
            match (renamed, nearest(unknown, known)) {
                (Some((old, new)), _) => format!("unknown field `{old}`: it is called `{new}` now"),
                (None, Some(near)) => format!("{message}. Did you mean `{near}`?"),
                (None, None) => message.to_owned(),
            }
        }
        _ => in_words(message.trim_end()),
    }
}

/// What kinds of numbers are called in words.
const NUMBERS: [(&str, &str); 7] = [
    ("f32", "a number"),
    ("f64", "a number"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number from 0 up"),
    ("u8", "a whole number from 0 to 255"),
    ("usize", "a whole number from 0 up"),
];

/// Says in words which kind of number was expected: "invalid value: integer `-1`, expected usize".
fn in_words(message: &str) -> String {
    let Some((before, kind)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let words = NUMBERS.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, words)| *words);
    format!("{before}, expected {words}")
}

#[cfg(test)]
mod tests {
    use crate::job::{Augmentation, Job};
    use crate::model::ModelSpec;

    fn error(text: &str, settings: &[&str]) -> String {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("job.toml", text, &settings).unwrap_err().to_string()
    }

    #[test]
    fn fields_that_were_renamed_are_answered_with_the_new_name() {
        for (text, answer) in [
            ("[layers]\nin_flight = 2\n", "line 1, column 2: unknown field `layers`: it is called `pipeline` now"),
            ("[pipeline]\ngroups = \"auto\"\n", "`groups`: it is called `stages` now"),
            ("[pipeline]\nmark_every = 5\n", "`mark_every`: it is called `snapshot_every` now"),
            ("[pipeline]\nstages = [{ layers = 2, rows = 3 }]\n", "`rows`: it is called `batch_shards` now"),
            ("[pipeline]\nstages = [{ layers = 2, columns = 3 }]\n", "`columns`: it is called `tensor_shards` now"),
        ] {
            let message = error(text, &[]);
            assert!(message.contains(answer), "{text}\n{message}");
        }
        assert!(error("", &["layers.in_flight=2"]).contains("it is called `pipeline` now"));
    }

    #[test]
    fn wrong_fields_have_a_place_and_a_nearest_name() {
        let message = error("epochs = 3\n[optimizer]\nlr = 0.1\nmomentun = 0.9\n", &[]);
        assert!(message.starts_with("job.toml, line 4, column 1: unknown field `momentun`"), "{message}");
        assert!(message.contains("Did you mean `momentum`?"), "{message}");
        let message = error("[optimizer]\nkind = \"adamm\"\n", &[]);
        assert!(message.contains("line 2, column 8") && message.contains("Did you mean `adam`?"), "{message}");
        let message = error("epochs = \"many\"\n", &[]);
        assert!(message.contains("line 1, column 10") && message.contains("expected a whole number"), "{message}");
        assert!(error("epochs = \n", &[]).contains("line 1"), "syntax errors have a place too");
    }

    #[test]
    fn wrong_layers_have_a_place_too() {
        let text = "input = [4]\nlayers = [\n  \"relu\",\n  { dens = { out = 3 } },\n]\n";
        let message = super::read_toml::<ModelSpec>("net.toml", text).unwrap_err().to_string();
        assert!(message.contains("line 4") && message.contains("Did you mean `dense`?"), "{message}");
        let text = "input = [4]\nlayers = [\n  { dense = { ot = 3 } },\n]\n";
        let message = super::read_toml::<ModelSpec>("net.toml", text).unwrap_err().to_string();
        assert!(message.contains("line 3") && message.contains("Did you mean `out`?"), "{message}");
    }

    #[test]
    fn every_field_can_be_set() {
        let settings =
            ["optimizer.lr=0.5", "model=mlp:8", "data.name=mnist", "augment={crop-flip={padding=2,flip=true}}"];
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let job = Job::parse("job.toml", "epochs = 2", &settings).unwrap();
        assert_eq!((job.optimizer.lr, job.model.as_str(), job.epochs), (0.5, "mlp:8", 2));
        assert_eq!(job.augment, Augmentation::CropFlip { padding: 2, flip: true });
        assert_eq!(job.data.name.as_deref(), Some("mnist"));
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(error("", &["optimizer.lrr=0.1"]).starts_with("--set optimizer.lrr=0.1: unknown field `lrr`"));
        assert!(error("", &["epochs"]).contains("field=value"));
        assert!(error("", &["epochs.x=1"]).contains("unknown") || error("", &["epochs.x=1"]).contains("expected"));
        assert!(error("epochs = 2", &["epochs.x=1"]).contains("no fields of its own"));
        let message = error("", &["threads=-1"]);
        assert!(message.ends_with("expected a whole number from 0 up"), "{message}");
        let message = error("", &["optimizer.lr=fast"]);
        assert!(message.ends_with("expected a number"), "{message}");
        assert!(error("", &["batch=0"]).contains("batch = 0"));
        assert!(error("", &["optimizer.lr=nan"]).contains("optimizer.lr"));
        assert!(error("", &["optimizer.kind=adam", "optimizer.momentum=0.9"]).contains("beta1"));
    }

    #[test]
    fn another_optimizer_does_not_inherit_what_belongs_to_the_first() {
        let text = "[optimizer]\nkind = \"sgd\"\nlr = 0.3\nmomentum = 0.9\nnesterov = true";
        let read = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
            Job::parse("job.toml", text, &settings)
        };
        let adam = read(&["optimizer.kind=adamw"]).unwrap().optimizer;
        assert_eq!((adam.lr, adam.momentum, adam.nesterov), (0.3, 0.0, false));
        let own = read(&["optimizer.momentum=0.5", "optimizer.kind=rmsprop"]).unwrap().optimizer;
        assert_eq!(own.momentum, 0.5, "what is set is kept");
        assert!(read(&["optimizer.kind=adam", "optimizer.momentum=0.5"]).unwrap_err().to_string().contains("beta1"));
    }

    #[test]
    fn the_job_as_run_reads_back() {
        let job = Job::default();
        let text = toml::to_string(&job).unwrap();
        assert_eq!(Job::parse("job.toml", &text, &[]).unwrap(), job);
    }
}
