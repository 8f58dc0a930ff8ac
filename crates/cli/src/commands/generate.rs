//! `generate`: a trained language model continues a text.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use nettorrent_session::generator::{Choice, Generator};
use nettorrent_session::run_folder::RunFolder;
use serde_json::json;

use crate::output::{print_line, print_text};

/// Arguments of `generate`.
#[derive(Args)]
pub(crate) struct GenerateArguments {
    /// The run's folder; or give --weights, --model and --data.
    run: Option<PathBuf>,
    /// The text to be continued.
    #[arg(long, short, default_value = "")]
    prompt: String,
    /// How many tokens to write at most.
    #[arg(long, short = 'n', default_value_t = 200)]
    tokens: usize,
    /// Above 1 for more surprising texts, below for more likely ones, 0 for always the likeliest token.
    #[arg(long, default_value_t = Choice::default().temperature)]
    temperature: f64,
    /// Draw from so many of the likeliest tokens only; 0 for all.
    #[arg(long, default_value_t = Choice::default().top_k)]
    top_k: usize,
    /// Draw from the likeliest tokens only that have this share of the probability together; 1 for all.
    #[arg(long, default_value_t = Choice::default().top_p)]
    top_p: f64,
    /// Where randomness comes from: the same seed gives the same text.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The checkpoint: its folder, or its name in the run [default: the newest].
    #[arg(long, value_name = "FOLDER", requires = "run")]
    checkpoint: Option<PathBuf>,
    /// Weights in a safetensors file, from here or from Hugging Face.
    #[arg(long, value_name = "FILE", conflicts_with = "run", requires_all = ["model", "data"])]
    weights: Option<PathBuf>,
    /// The model that the weights belong to.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "run")]
    model: Option<String>,
    /// Whose tokens they are: the data set that the model was trained on, or a tokenizer.json.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "run")]
    data: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs `generate`.
pub(crate) fn generate(arguments: &GenerateArguments) -> anyhow::Result<ExitCode> {
    let mut generator = match (&arguments.run, &arguments.weights, &arguments.model, &arguments.data) {
        (Some(run), ..) => Generator::from_run(&RunFolder::open(run)?, arguments.checkpoint.as_deref())?,
        (None, Some(weights), Some(model), Some(data)) => Generator::from_weights(weights, model, data)?,
        _ => bail!("say which model: the folder of a run, or --weights FILE --model NAME --data PATH"),
    };
    let GenerateArguments { temperature, top_k, top_p, .. } = *arguments;
    generator.begin(&arguments.prompt, Choice { temperature, top_k, top_p }, arguments.seed)?;
    let began = Instant::now();
    let mut tokens = Vec::new();
    // What has been shown of the text: a character may take several tokens.
    let mut shown = 0;
    if !arguments.json {
        print_text(&arguments.prompt);
    }
    while tokens.len() < arguments.tokens {
        let token = generator.next_token();
        if generator.is_end(token) {
            break;
        }
        tokens.push(token);
        let text = generator.text(&tokens);
        if !arguments.json && !text.ends_with('\u{fffd}') {
            print_text(text.get(shown..).unwrap_or_default());
            shown = text.len();
        }
    }
    let text = generator.text(&tokens);
    if arguments.json {
        let seconds = began.elapsed().as_secs_f64();
        let tokens_per_s = tokens.len() as f64 / seconds.max(1e-9);
        let told = json!({
            "prompt": arguments.prompt, "text": text, "tokens": tokens, "seconds": seconds, "tokens_per_s": tokens_per_s,
        });
        print_line!("{told}");
    } else {
        print_line!("{}", text.get(shown..).unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}
