//! The reference of the book, made from the code: it is compared with what is there, or written with `UPDATE_DOCS=1`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nettorrent_engine::job::Job;
use serde_json::Value;
use syn::{Attribute, Expr, Fields, File, Item, Lit, Meta};

const MADE: &str = "<!-- Made from the code: change it there, then run `UPDATE_DOCS=1 cargo test -p nettorrent --test structure`. -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a page with what it should be, or writes it.
fn check(page: &str, content: &str) {
    let path = root().join("docs/src/reference").join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a page");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == content, "{page} is stale; run: UPDATE_DOCS=1 cargo test -p nettorrent --test structure");
}

fn source(path: &str) -> File {
    let text = fs::read_to_string(root().join("crates").join(path)).expect("a source file");
    syn::parse_file(&text).expect("Rust")
}

/// The doc comment of something, in one line.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(line) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// The fields of a struct, each with what is said of it.
fn fields(file: &File, name: &str) -> Vec<(String, String)> {
    let fields = file.items.iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(&item.fields),
        _ => None,
    });
    let Some(Fields::Named(fields)) = fields else { panic!("there is no struct {name}") };
    let name = |field: &syn::Field| field.ident.as_ref().expect("a name").to_string();
    fields.named.iter().map(|field| (name(field), doc(&field.attrs))).collect()
}

/// The variants of an enum: the name, what is said of it, and the struct that it holds, if it does.
fn variants(file: &File, name: &str) -> Vec<(String, String, Option<String>)> {
    let found = file.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == name => Some(&item.variants),
        _ => None,
    });
    let held = |fields: &Fields| match fields.iter().next().map(|field| &field.ty) {
        Some(syn::Type::Path(path)) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    };
    let variants = found.unwrap_or_else(|| panic!("there is no enum {name}")).iter();
    variants.map(|variant| (kebab(&variant.ident.to_string()), doc(&variant.attrs), held(&variant.fields))).collect()
}

/// `MaxPool` as it is written in files: `max-pool`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(character.to_lowercase());
    }
    kebab
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('[', "\\[").replace(']', "\\]")
}

fn table_of_fields(page: &mut String, fields: &[(String, String)]) {
    writeln!(page, "| field | meaning |\n|---|---|").expect("room");
    for (name, meaning) in fields {
        writeln!(page, "| `{name}` | {} |", cell(meaning)).expect("room");
    }
}

fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nettorrent")).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The names of the commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_reference_of_commands_is_what_the_program_says() {
    let mut page = format!("# Commands\n\n{MADE}\n");
    for name in listed(&run(&["--help"])) {
        let help = run(&[&name, "--help"]);
        write!(page, "## {name}\n\n```text\n{}\n```\n\n", help.trim_end()).expect("room");
        for inner in listed(&help) {
            let help = run(&[&name, &inner, "--help"]);
            write!(page, "### {name} {inner}\n\n```text\n{}\n```\n\n", help.trim_end()).expect("room");
        }
    }
    check("commands.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_reference_of_jobs_has_every_field() {
    let mut page = format!(
        "# The job file\n\n{MADE}\nA job is a TOML file; every field has a default, and `--set FIELD=VALUE` sets any of them from \
         outside. An unknown field is an error.\n\n"
    );
    let sections = [
        ("", "engine/src/job.rs", "Job"),
        ("data", "engine/src/data/spec.rs", "DataSpec"),
        ("optimizer", "engine/src/optimizer/spec.rs", "OptimizerSpec"),
        ("schedule", "engine/src/schedule.rs", "ScheduleSpec"),
        ("checkpoint", "engine/src/job.rs", "CheckpointSpec"),
        ("evaluate", "engine/src/job/evaluate.rs", "EvaluateSpec"),
        ("swarm", "engine/src/job/swarm.rs", "SwarmSpec"),
        ("pipeline", "engine/src/job/pipeline.rs", "PipelineSpec"),
        ("pipeline.stages", "engine/src/job/pipeline.rs", "StageSpec"),
    ];
    let defaults = toml::Value::try_from(Job::default()).expect("a job is TOML");
    for (section, path, name) in sections {
        match section {
            "" => write!(page, "## Fields of the job\n\n").expect("room"),
            "pipeline.stages" => write!(page, "## \\[\\[pipeline.stages\\]\\]\n\n").expect("room"),
            _ => write!(page, "## \\[{section}\\]\n\n").expect("room"),
        }
        writeln!(page, "| field | default | meaning |\n|---|---|---|").expect("room");
        let values = if section.is_empty() { Some(&defaults) } else { defaults.get(section) };
        for (field, meaning) in fields(&source(path), name) {
            let default = values.and_then(|values| values.get(&field)).filter(|value| !value.is_table());
            let default = default.map_or(String::new(), |default| format!("`{default}`"));
            writeln!(page, "| `{field}` | {default} | {} |", cell(&meaning)).expect("room");
        }
        page.push('\n');
    }
    for (title, path, name) in [
        ("optimizer.kind", "engine/src/optimizer/spec.rs", "OptimizerKind"),
        ("schedule.kind", "engine/src/schedule.rs", "ScheduleKind"),
        ("order", "engine/src/data/batches.rs", "Order"),
    ] {
        write!(page, "## Values of {title}\n\n| value | meaning |\n|---|---|\n").expect("room");
        for (value, meaning, _) in variants(&source(path), name) {
            writeln!(page, "| `{value}` | {} |", cell(&meaning)).expect("room");
        }
        page.push('\n');
    }
    page.push_str(
        "What `swarm.options` may hold depends on the strategy: see [strategy options](strategy-options.md).\n",
    );
    check("job.md", &page);
}

#[test]
fn the_reference_of_layers_has_every_layer() {
    let mut file = source("engine/src/model/description.rs");
    file.items.extend(source("engine/src/model/layer_options.rs").items);
    file.items.extend(source("engine/src/model/sequence_options.rs").items);
    let mut page = format!(
        "# Layers\n\n{MADE}\nA model is an `input` shape and a list of `layers`; see [your model](../guides/your-model.md). A layer \
         without options is its name, `\"relu\"`; one with options a table, `{{ dense = {{ out = 10 }} }}`.\n\n"
    );
    for (layer, meaning, options) in variants(&file, "LayerSpec") {
        write!(page, "## {layer}\n\n{meaning}\n\n").expect("room");
        if let Some(options) = options.filter(|options| options.ends_with("Spec")) {
            table_of_fields(&mut page, &fields(&file, &options));
            page.push('\n');
        }
    }
    check("layers.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_reference_of_events_has_every_event() {
    let mut file = source("history/src/event.rs");
    file.items.extend(source("history/src/peer_work.rs").items);
    let mut page = format!(
        "# Events\n\n{MADE}\nA run's `events.jsonl` has one JSON object a line, with `at_s` (seconds since training began; simulated \
         ones where the run is simulated), `event` (the name below) and the event's own fields. `--json` prints the same lines. \
         Fields that have no value are left out.\n\n"
    );
    for (event, meaning, held) in variants(&file, "Event") {
        write!(page, "## {event}\n\n{meaning}\n\n").expect("room");
        table_of_fields(&mut page, &fields(&file, &held.expect("every event holds a struct")));
        page.push('\n');
    }
    check("events.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_reference_of_strategies_has_every_option() {
    let all: Vec<Value> = serde_json::from_str(&run(&["strategies", "--json"])).expect("JSON");
    let mut page = format!(
        "# Strategy options\n\n{MADE}\nThey are set in `[swarm.options]`, or with `--set swarm.options.NAME=VALUE`.\n\n"
    );
    for strategy in all {
        let name = strategy["name"].as_str().expect("a name");
        write!(page, "## {name}\n\n{}\n\n", strategy["about"].as_str().expect("a description")).expect("room");
        write!(page, "Cost: {}.\n\n", strategy["cost"]["formula"].as_str().expect("a formula")).expect("room");
        writeln!(page, "| option | default | meaning |\n|---|---|---|").expect("room");
        for option in strategy["options"].as_array().expect("a list") {
            let [name, about] = ["name", "about"].map(|key| option[key].as_str().expect("a text"));
            writeln!(page, "| `{name}` | `{}` | {} |", option["default"], cell(about)).expect("room");
        }
        page.push('\n');
    }
    check("strategy-options.md", &(page.trim_end().to_owned() + "\n"));
}
