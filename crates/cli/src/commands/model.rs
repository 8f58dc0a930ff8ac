//! `model`: what models there are, what they are made of, and starting weights for them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use nettorrent_engine::checkpoint::save_weights;
use nettorrent_engine::job::{build_network, model_spec};
use nettorrent_engine::model::zoo::{ZOO, ZooEntry};
use nettorrent_engine::model::{LayerSummary, ModelSpec, Network};
use nettorrent_engine::rng::Rng;
use serde::Serialize;

use crate::output::{print_line, print_text};

/// What to do with models.
#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models that have a name.
    List {
        /// Print lines of JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Show a model's layers, shapes and parameters.
    Describe {
        #[command(flatten)]
        model: ModelChoice,
        /// Print the description as TOML, to be changed and used as a model of your own.
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Write random starting weights in the safetensors format, in PyTorch's names and layouts.
    Init {
        #[command(flatten)]
        model: ModelChoice,
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Where the randomness comes from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Which model.
#[derive(Args)]
pub(crate) struct ModelChoice {
    /// A name from `nettorrent model list` (`mlp:512,512` sets widths) or a description file (TOML).
    model: String,
    /// The shape of a sample instead of the model's usual one, as in 32,32,3.
    #[arg(long, value_name = "SHAPE", value_delimiter = ',')]
    input: Option<Vec<usize>>,
    /// The number of classes instead of the model's usual one.
    #[arg(long)]
    classes: Option<usize>,
}

impl ModelChoice {
    fn open(&self) -> anyhow::Result<(ModelSpec, Network)> {
        let spec = model_spec(&self.model, self.input.as_deref(), self.classes)?;
        let network = build_network(&self.model, &spec)?;
        Ok((spec, network))
    }
}

#[derive(Serialize)]
struct Description {
    model: String,
    input: Vec<usize>,
    n_params: usize,
    n_multiplications: usize,
    layers: Vec<LayerSummary>,
}

/// Runs `model`.
pub(crate) fn model(command: &ModelCommand) -> anyhow::Result<ExitCode> {
    match command {
        ModelCommand::List { json } => {
            for ZooEntry { name, about, .. } in ZOO {
                match json {
                    true => print_line!("{}", serde_json::json!({ "name": name, "about": about })),
                    false => print_line!("{name:14} {about}"),
                }
            }
        }
        ModelCommand::Describe { model, toml, json } => {
            let (spec, network) = model.open()?;
            let layers = network.summary();
            let n_multiplications = layers.iter().map(|layer| layer.n_multiplications).sum();
            let (input, n_params) = (network.input().to_vec(), network.n_params());
            let described = Description { model: model.model.clone(), input, n_params, n_multiplications, layers };
            match (toml, json) {
                (true, _) => print_text(&readable_toml(&spec)?),
                (_, true) => print_line!("{}", serde_json::to_string(&described)?),
                _ => print_table(&described),
            }
        }
        ModelCommand::Init { model, output, seed } => {
            let (_, network) = model.open()?;
            save_weights(output, &network.layout(), &network.init(&mut Rng::stream(*seed, "init", 0)))?;
            print_line!(
                "{} parameters of {} in {}",
                HumanCount(network.n_params() as u64),
                model.model,
                output.display()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(described: &Description) {
    let show = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
    let width = described.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(4);
    print_line!("{:width$}  {:14}  {:>16}  {:>12}  {:>15}", "name", "layer", "output", "parameters", "multiplications");
    print_line!("{:width$}  {:14}  {:>16}", "", "input", show(&described.input));
    for layer in &described.layers {
        let LayerSummary { name, kind, output, n_params, n_multiplications } = layer;
        let count = |n: usize| if n == 0 { String::new() } else { HumanCount(n as u64).to_string() };
        let (params, multiplications) = (count(*n_params), count(*n_multiplications));
        print_line!("{name:width$}  {kind:14}  {:>16}  {params:>12}  {multiplications:>15}", show(output));
    }
    print_line!(
        "\n{} parameters; {} multiplications for a sample in the forward pass",
        HumanCount(described.n_params as u64),
        HumanCount(described.n_multiplications as u64)
    );
}

/// The description with a line for each layer.
fn readable_toml(spec: &ModelSpec) -> anyhow::Result<String> {
    let mut text = format!("input = {:?}\nlayers = [\n", spec.input);
    for layer in &spec.layers {
        let value = toml::Value::try_from(layer)?;
        text.push_str(&format!("  {value},\n"));
    }
    text.push_str("]\n");
    Ok(text)
}
