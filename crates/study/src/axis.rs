//! What is varied: an axis has a name and a list of values, and each value does something to a run.

use std::collections::BTreeSet;

use nettorrent_engine::job::Job;
use nettorrent_engine::nearest::nearest;
use nettorrent_swarm::link_spec::{LinkSpec, LinkSpecError};
use nettorrent_swarm::strategies::find;
use nettorrent_swarm::strategy::OptionError;
use toml::{Table, Value};

/// Something that is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisSpec {
    /// Its name.
    pub name: String,
    pub(crate) choices: Vec<Choice>,
}

/// One of an axis' values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// As it is shown, and asked for.
    pub shown: String,
    pub effect: Effect,
}

/// What a value does to a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// One process trains, and exchanges nothing.
    Alone,
    /// So many peers train.
    Peers(usize),
    /// Links are like this, or as fast as the machine.
    Link(Option<LinkSpec>),
    /// Fields of the job are set, one after the other.
    Fields(Vec<(String, Value)>),
}

/// Why an axis makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum AxisError {
    /// There is no such axis.
    #[error("there is no axis `{name}`{}; there are {}, and every field of a job", meant(.near.as_deref()), NAMES.join(", "))]
    Unknown {
        /// What was written.
        name: String,
        /// What may have been meant.
        near: Option<String>,
    },
    /// A value is not what this axis takes.
    #[error("{axis} = {value}: {problem}")]
    Value {
        /// The axis.
        axis: String,
        /// What was written.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// Two values look the same.
    #[error("{axis}: two values are shown as `{shown}`; give one of them a label")]
    Twice {
        /// The axis.
        axis: String,
        /// Both.
        shown: String,
    },
    /// A link that is none.
    #[error("link: {0}")]
    Link(#[from] LinkSpecError),
    /// A strategy or its options.
    #[error(transparent)]
    Strategy(#[from] OptionError),
}

fn meant(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// What one who trains alone is called where others have a strategy.
pub(crate) const ALONE: &str = "alone";
/// A link that is as fast as the machine.
const NO_LINK: &str = "none";

/// The axes that have names of their own, in the order in which they are gone through: the last varies fastest. Fields of the
/// job come after them.
const NAMES: [&str; 10] =
    ["task", "model", "data", "split", "link", "peers", "strategy", "aggregation", "tau", "density"];

/// Whether an axis means nothing to one who trains alone.
pub(crate) fn is_for_swarms(axis: &str) -> bool {
    matches!(axis, "split" | "link" | "peers" | "strategy" | "aggregation" | "tau" | "density" | "pipeline")
        || axis.starts_with("swarm.")
        || axis.starts_with("pipeline.")
}

/// The axes of a study's matrix, in their order. An empty list is no axis: that is how a quick form leaves one out.
pub(crate) fn read_matrix(matrix: &Table) -> Result<Vec<AxisSpec>, AxisError> {
    matrix.keys().try_for_each(|name| check_name(name))?;
    let fields = matrix.keys().map(String::as_str).filter(|name| !NAMES.contains(name));
    let mut axes = Vec::new();
    for name in NAMES.into_iter().chain(fields) {
        let Some(value) = matrix.get(name) else { continue };
        let Value::Array(values) = value else {
            return Err(wrong(name, value, "must be a list"));
        };
        let choices: Vec<Choice> = values.iter().map(|value| choice(name, value)).collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some(again) = choices.iter().find(|choice| !seen.insert(&choice.shown)) {
            return Err(AxisError::Twice { axis: name.to_owned(), shown: again.shown.clone() });
        }
        if !choices.is_empty() {
            axes.push(AxisSpec { name: name.to_owned(), choices });
        }
    }
    Ok(axes)
}

/// Fields of fields are looked at when a job is made of them; here it is only looked whether the first word is known.
fn check_name(name: &str) -> Result<(), AxisError> {
    let job = Table::try_from(Job::default()).expect("a job is a table");
    let fields = job.keys().map(String::as_str).filter(|field| !matches!(*field, "swarm" | "data"));
    let is_field = name.split_once('.').is_some_and(|(first, _)| job.contains_key(first) || first == "pipeline");
    // A job has no layers of its own unless it says so.
    let known: Vec<&str> = NAMES.into_iter().chain(fields).chain(["pipeline"]).collect();
    if is_field || known.contains(&name) {
        return Ok(());
    }
    Err(AxisError::Unknown { name: name.to_owned(), near: nearest(name, &known).map(str::to_owned) })
}

fn choice(axis: &str, value: &Value) -> Result<Choice, AxisError> {
    let field = |name: &str| Ok(Choice { shown: shown(value), effect: set(name, value.clone()) });
    match axis {
        "task" => task(value),
        "data" => field("data.name"),
        "split" => field("swarm.split"),
        "link" => link(value),
        "peers" => peers(value),
        "strategy" => strategy(value),
        "aggregation" | "density" | "tau" => field(&format!("swarm.options.{axis}")),
        _ => field(axis),
    }
}

fn set(field: &str, value: Value) -> Effect {
    Effect::Fields(vec![(field.to_owned(), value)])
}

/// Several fields of the job that belong together, such as a data set and its model.
fn task(value: &Value) -> Result<Choice, AxisError> {
    let Some(label) = value.get("label").and_then(Value::as_str) else {
        return Err(wrong("task", value, "must be a table of fields of the job, with a label"));
    };
    let mut fields = Vec::new();
    let table = value.as_table().into_iter().flatten();
    flatten("", table.filter(|(name, _)| *name != "label"), &mut fields);
    Ok(Choice { shown: label.to_owned(), effect: Effect::Fields(fields) })
}

fn flatten<'a>(prefix: &str, table: impl Iterator<Item = (&'a String, &'a Value)>, fields: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        match value {
            Value::Table(inner) => flatten(&format!("{prefix}{name}."), inner.iter(), fields),
            value => fields.push((format!("{prefix}{name}"), value.clone())),
        }
    }
}

fn link(value: &Value) -> Result<Choice, AxisError> {
    let text = value.as_str().ok_or_else(|| wrong("link", value, "must be text, for example \"100mbit/20ms\""))?;
    let shape = if text == NO_LINK { None } else { Some(text.parse()?) };
    Ok(Choice { shown: text.to_owned(), effect: Effect::Link(shape) })
}

fn peers(value: &Value) -> Result<Choice, AxisError> {
    let n = value.as_integer().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=100_000).contains(n));
    let n = n.ok_or_else(|| wrong("peers", value, "must be a whole number from 1 to 100000"))?;
    Ok(Choice { shown: n.to_string(), effect: if n == 1 { Effect::Alone } else { Effect::Peers(n) } })
}

/// A name, or a table with a name, a label and options.
fn strategy(value: &Value) -> Result<Choice, AxisError> {
    let (name, label, options) = match value {
        Value::String(name) => (name.as_str(), None, Table::new()),
        Value::Table(table) => {
            if let Some(unknown) = table.keys().find(|name| !matches!(name.as_str(), "name" | "label" | "options")) {
                let problem = format!("has no `{unknown}`; there are name, label and options");
                return Err(wrong("strategy", value, &problem));
            }
            let text = |field: &str| table.get(field).and_then(Value::as_str);
            let name = text("name").ok_or_else(|| wrong("strategy", value, "lacks its name"))?;
            let options = table.get("options").map_or(Some(Table::new()), |options| options.as_table().cloned());
            (name, text("label"), options.ok_or_else(|| wrong("strategy", value, "options must be a table"))?)
        }
        _ => return Err(wrong("strategy", value, "must be a name or a table")),
    };
    let shown = label.unwrap_or(name).to_owned();
    if name == ALONE {
        return Ok(Choice { shown, effect: Effect::Alone });
    }
    (find(name)?.build)(&options)?;
    let fields = vec![("swarm.strategy".into(), name.into()), ("swarm.options".into(), Value::Table(options))];
    Ok(Choice { shown, effect: Effect::Fields(fields) })
}

/// A value without the quotes that a file needs.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn wrong(axis: &str, value: &Value, problem: &str) -> AxisError {
    AxisError::Value { axis: axis.to_owned(), value: value.to_string(), problem: problem.to_owned() }
}

impl AxisSpec {
    /// Its values as they are shown.
    pub fn shown(&self) -> Vec<String> {
        self.choices.iter().map(|choice| choice.shown.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::{Effect, read_matrix};

    fn read(text: &str) -> Result<Vec<super::AxisSpec>, String> {
        read_matrix(&toml::from_str::<Table>(text).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn axes_come_in_one_order_whatever_the_files() {
        let axes = read("\"optimizer.lr\" = [0.1]\nstrategy = [\"gossip\"]\nbatch = [8]\nmodel = [\"mlp:8\"]").unwrap();
        let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!(names, ["model", "strategy", "batch", "optimizer.lr"]);
    }

    #[test]
    fn a_task_sets_all_its_fields() {
        let axes = read("task = [{ label = \"A\", model = \"mlp:8\", data.name = \"mnist\", \"batch\" = 3 }]").unwrap();
        let Effect::Fields(fields) = &axes[0].choices[0].effect else { panic!("fields") };
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(fields, ["batch=3", "data.name=\"mnist\"", "model=\"mlp:8\""]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, answer) in [
            ("peer = [1]", "did you mean `peers`?"),
            ("optimiser.lr = [1]", "no axis `optimiser`"),
            ("\"optimiser.lr\" = [1]", "no axis `optimiser.lr`"),
            ("peers = 3", "peers = 3: must be a list"),
            ("peers = [0]", "peers = 0: must be a whole number"),
            ("peers = [2, 2]", "two values are shown as `2`"),
            ("link = [\"100mbits\"]", "neither a rate nor a delay"),
            ("strategy = [\"treshold\"]", "did you mean `threshold`?"),
            ("strategy = [{ name = \"threshold\", options = { taw = 1 } }]", "did you mean `tau`?"),
            ("strategy = [{ name = \"threshold\", option = { tau = 1 } }]", "has no `option`"),
            ("strategy = [{ label = \"x\" }]", "lacks its name"),
            ("task = [\"mnist\"]", "with a label"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(answer), "{text}: {message}");
        }
    }
}
