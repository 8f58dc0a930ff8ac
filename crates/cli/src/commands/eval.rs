//! `eval`: how well a trained model does on its test samples, and which classes it confuses.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_engine::measure::Measure;
use nettorrent_session::open::n_threads;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::trained_model::{ModelEvaluation, TrainedModel};

use crate::output::print_line;

/// Which trained model, and on which data.
#[derive(Args)]
pub(crate) struct TrainedArguments {
    /// The run's folder; or give --weights and --model.
    pub run: Option<PathBuf>,
    /// The checkpoint: its folder, or its name in the run [default: the newest].
    #[arg(long, value_name = "FOLDER", requires = "run")]
    pub checkpoint: Option<PathBuf>,
    /// Weights in a safetensors file, from here or from PyTorch.
    #[arg(long, value_name = "FILE", conflicts_with = "run", requires = "model")]
    pub weights: Option<PathBuf>,
    /// The model that the weights belong to.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "run")]
    pub model: Option<String>,
    /// The data: a name or a path [default: the run's].
    #[arg(long, value_name = "NAME|PATH")]
    pub data: Option<String>,
    /// Set any field of the job, for example `--set data.size=64`.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub settings: Vec<String>,
    /// How many threads; 0 for as many as the machine has.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

impl TrainedArguments {
    /// Loads the model.
    pub(crate) fn open(&self) -> anyhow::Result<TrainedModel> {
        let Self { run, checkpoint, weights, model, data, settings, threads } = self;
        let n_threads = n_threads(*threads)?;
        Ok(match (run, weights, model) {
            (Some(run), _, _) => {
                let run = RunFolder::open(run)?;
                TrainedModel::from_run(&run, checkpoint.as_deref(), settings, data.as_deref(), n_threads)?
            }
            (None, Some(weights), Some(model)) => {
                let data = data.as_deref().context("say which data to use, with --data NAME or --data PATH")?;
                TrainedModel::from_weights(weights, model, settings, data, n_threads)?
            }
            _ => bail!("say which model: the folder of a run, or --weights FILE --model NAME"),
        })
    }
}

/// Arguments of `eval`.
#[derive(Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    trained: TrainedArguments,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs `eval`.
pub(crate) fn eval(arguments: &EvalArguments) -> anyhow::Result<ExitCode> {
    let found = arguments.trained.open()?.evaluate()?;
    if arguments.json {
        print_line!("{}", serde_json::to_string(&found)?);
    } else {
        print_tables(&found);
    }
    Ok(ExitCode::SUCCESS)
}

/// All that was measured, in a line.
fn summary(found: &ModelEvaluation) -> String {
    let mut told = vec![format!("loss {:.4}", found.loss)];
    if found.measure != Measure::Loss {
        told.push(found.measure.value_text(found.measure.value(found.loss, found.accuracy.unwrap_or(f64::NAN))));
    }
    told.extend(found.metrics.iter().map(|(name, value)| metric_text(name, *value)));
    format!("{}: {}, {} samples", found.model, told.join(", "), found.n)
}

/// One of the further measures, in words; what Python measures has the name that it was given there.
fn metric_text(name: &str, value: f64) -> String {
    match name {
        "absolute_error" => format!("absolute error {value:.4}"),
        "accuracy" => format!("accuracy {:.2} %", 100.0 * value),
        "auc" => format!("area under the ROC curve {value:.4}"),
        "mean_iou" => format!("mean intersection over union {value:.4}"),
        "squared_error" => format!("squared error {value:.4}"),
        "top5_accuracy" => format!("top-5 accuracy {:.2} %", 100.0 * value),
        name => format!("{name} {value:.4}"),
    }
}

/// Beyond this many classes the whole table is no longer readable, and only the worst confusions are shown.
const MOST_COLUMNS: usize = 20;

fn print_tables(found: &ModelEvaluation) {
    print_line!("{}", summary(found));
    if found.confusion.is_empty() {
        return;
    }
    let width = found.classes.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    if found.classes.len() <= MOST_COLUMNS {
        print_line!("\nRows are what the samples are, columns what the model took them for.\n");
        let shorten = |name: &String| name.chars().take(6).collect::<String>();
        let head: Vec<String> = found.classes.iter().map(|name| format!("{:>6}", shorten(name))).collect();
        print_line!("{:width$} {}", "", head.join(" "));
        for (name, row) in found.classes.iter().zip(&found.confusion) {
            let cells = row.iter().take(found.classes.len());
            let cells: Vec<String> =
                cells.map(|n| if *n == 0 { format!("{:>6}", "·") } else { format!("{n:>6}") }).collect();
            print_line!("{name:>width$} {}", cells.join(" "));
        }
        return;
    }
    let mut worst: Vec<(usize, usize, usize)> = Vec::new();
    for (label, row) in found.confusion.iter().enumerate() {
        worst
            .extend(row.iter().enumerate().filter(|&(guess, n)| guess != label && *n > 0).map(|(g, n)| (*n, label, g)));
    }
    worst.sort_by(|a, b| b.cmp(a));
    print_line!("\nThe commonest confusions:");
    let name = |class: usize| found.classes.get(class).map_or("?", String::as_str);
    for (n, label, guess) in worst.iter().take(10) {
        print_line!("{n:>6}  {:>width$} taken for {}", name(*label), name(*guess));
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::measure::Measure;
    use nettorrent_session::trained_model::ModelEvaluation;

    use super::summary;

    fn found(measure: Measure, accuracy: f64, metrics: &[(&str, f64)]) -> String {
        summary(&ModelEvaluation {
            model: "net".to_owned(),
            n: 20,
            loss: 0.0,
            measure,
            accuracy: Some(accuracy),
            perplexity: None,
            metrics: metrics.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            classes: Vec::new(),
            confusion: Vec::new(),
        })
    }

    #[test]
    fn all_models_are_judged_in_one_format() {
        let digits = found(Measure::Accuracy, 0.9855, &[("top5_accuracy", 1.0)]);
        assert_eq!(digits, "net: loss 0.0000, accuracy 98.55 %, top-5 accuracy 100.00 %, 20 samples");
        let text = found(Measure::Perplexity { n_tokens: 8 }, 0.0, &[("accuracy", 0.25), ("top5_accuracy", 0.5)]);
        assert_eq!(text, "net: loss 0.0000, perplexity 1.000, accuracy 25.00 %, top-5 accuracy 50.00 %, 20 samples");
        let numbers = found(Measure::Loss, 0.0, &[("absolute_error", 0.5), ("r2", 0.75), ("sharpness", 2.0)]);
        assert_eq!(numbers, "net: loss 0.0000, absolute error 0.5000, r2 0.7500, sharpness 2.0000, 20 samples");
    }
}
