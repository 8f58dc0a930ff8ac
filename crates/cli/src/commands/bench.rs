//! `bench`: how fast this machine trains a model, and where the time goes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use nettorrent_advise::{LayerTime, ModelSpeed, Workload, peak_gflop_per_s};
use nettorrent_engine::job::{build_network, model_spec};
use nettorrent_session::memory::peak_rss_bytes;
use nettorrent_session::open::n_threads;
use serde::Serialize;

use crate::output::print_line;

/// Arguments of `bench`.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// A name from `nettorrent model list`, or a description file.
    model: String,
    /// The shape of a sample, for example `28,28,1`, or the tokens in it [default: the model's own].
    #[arg(long, value_delimiter = ',', value_name = "N,N,N")]
    input: Option<Vec<usize>>,
    /// How many classes it tells apart, or tokens it knows [default: the model's own].
    #[arg(long)]
    classes: Option<usize>,
    /// Samples in a batch.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// How many threads; 0 for as many as the machine has.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How long to measure.
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    seconds: f64,
    /// Also say where the time goes, layer by layer (first thread only).
    #[arg(long)]
    layers: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Measurement<'a> {
    model: &'a str,
    #[serde(flatten)]
    speed: ModelSpeed,
    peak_rss_bytes: Option<u64>,
}

/// Runs `bench`.
pub(crate) fn bench(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let BenchArguments { model, input, classes, batch, threads, seconds, layers, json } = arguments;
    let network = build_network(model, &model_spec(model, input.as_deref(), *classes)?)?;
    let duration = Duration::try_from_secs_f64(*seconds).context("--seconds must be a time")?;
    let workload = Workload { batch: *batch, n_threads: n_threads(*threads)?, duration, profiles_layers: *layers };
    let speed = ModelSpeed::measure(&network, workload)?;
    let measured = Measurement { model, speed, peak_rss_bytes: peak_rss_bytes() };
    if *json {
        print_line!("{}", serde_json::to_string(&measured)?);
    } else {
        print_text(&measured);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_text(Measurement { model, speed, peak_rss_bytes }: &Measurement<'_>) {
    let ModelSpeed { parameters, batch, threads, samples_per_s, gflop_per_s, layers, .. } = speed;
    print_line!(
        "{model}: {} samples/s, {gflop_per_s:.0} GFLOP/s ({} parameters, batch {batch}, threads {threads}, peak memory {})",
        HumanCount(*samples_per_s as u64),
        HumanCount(*parameters as u64),
        peak_rss_bytes.map_or_else(|| "unknown".into(), |bytes| HumanBytes(bytes).to_string())
    );
    if layers.is_empty() {
        return;
    }
    let peak = peak_gflop_per_s();
    print_line!("This core's peak, measured on sums in registers: {peak:.0} GFLOP/s.\n");
    let width = layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(4);
    print_line!(
        "{:width$}  {:14}  {:15}  {:>9}  {:>8}  {:>7}",
        "name",
        "layer",
        "part",
        "ms/step",
        "GFLOP/s",
        "of peak"
    );
    for LayerTime { name, kind, phase, ms_per_step, gflop_per_s } in layers {
        let speed = if *gflop_per_s > 0.0 {
            format!("{gflop_per_s:>8.0}  {:>5.0} %", 100.0 * gflop_per_s / peak)
        } else {
            String::new()
        };
        print_line!("{name:width$}  {kind:14}  {phase:15}  {ms_per_step:>9.3}  {speed}");
    }
}
