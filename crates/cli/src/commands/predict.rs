//! `predict`: what a trained model says about files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use nettorrent_engine::data::Tone;
use nettorrent_session::prediction::{Guess, Prediction};
use serde::Serialize;

use super::eval::TrainedArguments;
use crate::output::print_line;

/// Arguments of `predict`.
#[derive(Args)]
#[command(
    override_usage = "nettorrent predict [OPTIONS] RUN FILE...\n       nettorrent predict --weights FILE --model NAME --data NAME FILE..."
)]
pub(crate) struct PredictArguments {
    /// The run's folder (unless --weights is given), and files of the kind that the model was trained on: pictures (JPEG or PNG), recordings
    /// (WAV), tables with a sample in each row (CSV, JSON lines or Parquet; with or without the columns to predict), or plain text, of which
    /// the next token is guessed.
    #[arg(required = true, value_name = "RUN FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    trained: UsedModel,
    /// How many classes, labels or tokens to show for each sample, the most probable first [default: 3, and all labels].
    #[arg(long)]
    top: Option<usize>,
    /// For pictures: exchange light and dark first, for dark drawings on white paper, where the model learnt light ones on black.
    #[arg(long)]
    invert: bool,
    /// Print one JSON object a line instead of text.
    #[arg(long)]
    json: bool,
}

/// The same choices as for `eval`, but for the run's folder, which comes before the files.
#[derive(Args)]
struct UsedModel {
    /// The checkpoint: its folder, or its name in the run [default: the newest].
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Weights in a safetensors file, from here or from PyTorch.
    #[arg(long, value_name = "FILE", requires = "model")]
    weights: Option<PathBuf>,
    /// The model that the weights belong to.
    #[arg(long, value_name = "NAME|FILE", requires = "weights")]
    model: Option<String>,
    /// The data set that the model was trained on: it tells the classes and how samples are prepared [default: the run's].
    #[arg(long, value_name = "NAME|PATH")]
    data: Option<String>,
}

/// So many guesses are shown of a sample; numbers at each pixel would fill the screen.
const MOST_SHOWN: usize = 100;

/// A prediction and where its sample is.
#[derive(Serialize)]
struct Told<'a> {
    file: &'a Path,
    #[serde(flatten)]
    prediction: &'a Prediction,
}

/// Runs `predict`.
pub(crate) fn predict(arguments: &PredictArguments) -> anyhow::Result<ExitCode> {
    let (run, files) = match (&arguments.trained.weights, arguments.paths.split_first()) {
        (None, Some((run, files))) => (Some(run.clone()), files),
        _ => (None, arguments.paths.as_slice()),
    };
    if files.is_empty() {
        bail!("say which files: nettorrent predict RUN FILE...");
    }
    let UsedModel { checkpoint, weights, model, data } = &arguments.trained;
    let trained = TrainedArguments {
        run,
        checkpoint: checkpoint.clone(),
        weights: weights.clone(),
        model: model.clone(),
        data: data.clone(),
        settings: Vec::new(),
        threads: 1,
    };
    let mut model = trained.open()?;
    let tone = if arguments.invert { Tone::Inverted } else { Tone::AsIs };
    for file in files {
        for prediction in &model.predict(file, tone, arguments.top)? {
            if arguments.json {
                print_line!("{}", serde_json::to_string(&Told { file, prediction })?);
            } else {
                let mut guesses: Vec<String> = prediction.guesses.iter().take(MOST_SHOWN).map(shown).collect();
                if let Some(n_more @ 1..) = prediction.guesses.len().checked_sub(MOST_SHOWN) {
                    guesses.push(format!("and {n_more} more, which --json tells"));
                }
                let line = prediction.line.map(|line| format!(":{line}")).unwrap_or_default();
                print_line!("{}{line}: {}", file.display(), guesses.join(", "));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(guess: &Guess) -> String {
    let percent = |probability: &f64| format!("({:.1} %)", 100.0 * probability);
    match guess {
        Guess::Share { class, share } => format!("{class} at {:.1} % of the positions", 100.0 * share),
        Guess::Class { class: name, probability } | Guess::Label { label: name, probability } => {
            format!("{name} {}", percent(probability))
        }
        Guess::Number { number, value } => format!("{number} {value}"),
        // In quotes, since it may be a space or the end of a line.
        Guess::Token { token, probability, .. } => format!("{token:?} {}", percent(probability)),
    }
}
