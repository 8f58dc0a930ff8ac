//! `predict`: what a trained model sees in pictures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use nettorrent_engine::data::Tone;
use nettorrent_session::trained_model::{Classification, Guess};
use serde::Serialize;

use super::eval::TrainedArguments;

/// Arguments of `predict`.
#[derive(Args)]
#[command(
    override_usage = "nettorrent predict [OPTIONS] RUN IMAGE...\n       nettorrent predict --weights FILE --model NAME --data NAME IMAGE..."
)]
pub(crate) struct PredictArguments {
    /// The run's folder (unless --weights is given), and the pictures: JPEG or PNG.
    #[arg(required = true, value_name = "RUN IMAGE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    trained: UsedModel,
    /// How many guesses to show for each picture.
    #[arg(long, default_value_t = 3)]
    top: usize,
    /// Exchange light and dark first: for dark drawings on white paper, where the model learnt light ones on black.
    #[arg(long)]
    invert: bool,
    /// Print one JSON object a line instead of text.
    #[arg(long)]
    json: bool,
}

/// The same choices as for `eval`, but for the run's folder, which comes before the pictures.
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
    /// The data set that the model was trained on: it tells the classes and how pictures are prepared [default: the run's].
    #[arg(long, value_name = "NAME|PATH")]
    data: Option<String>,
}

#[derive(Serialize)]
struct Prediction<'a> {
    image: &'a PathBuf,
    #[serde(flatten)]
    classification: Classification<'a>,
}

/// Runs `predict`.
pub(crate) fn predict(arguments: &PredictArguments) -> anyhow::Result<ExitCode> {
    let (run, images) = match (&arguments.trained.weights, arguments.paths.split_first()) {
        (None, Some((run, images))) => (Some(run.clone()), images),
        _ => (None, arguments.paths.as_slice()),
    };
    if images.is_empty() {
        bail!("say which pictures: nettorrent predict RUN IMAGE...");
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
    for image in images {
        let mut classification = model.classify(image, tone)?;
        classification.guesses.truncate(arguments.top.max(1));
        if arguments.json {
            println!("{}", serde_json::to_string(&Prediction { image, classification })?);
        } else {
            let shown = |guess: &Guess<'_>| format!("{} ({:.1} %)", guess.class, 100.0 * guess.probability);
            let shown: Vec<String> = classification.guesses.iter().map(shown).collect();
            println!("{}: {}", image.display(), shown.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}
