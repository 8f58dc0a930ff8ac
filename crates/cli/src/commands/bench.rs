//! `bench`: how fast this machine trains a model, and where the time goes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use nettorrent_engine::data::Batch;
use nettorrent_engine::job::{build_network, model_spec};
use nettorrent_engine::kernel::peak_multiplications;
use nettorrent_engine::model::{Network, Phase, Workspace, n_values};
use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
use nettorrent_engine::rng::Rng;
use serde::Serialize;

use crate::step_time::timed;
use nettorrent_session::memory::peak_rss_bytes;
use nettorrent_session::open::n_threads;

/// Arguments of `bench`.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// A name from `nettorrent model list`, or a description file.
    model: String,
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
struct Measurement {
    model: String,
    parameters: usize,
    batch: usize,
    threads: usize,
    steps: u64,
    samples_per_s: f64,
    gflop_per_s: f64,
    peak_rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<LayerTime>,
}

#[derive(Serialize)]
struct LayerTime {
    name: String,
    kind: &'static str,
    phase: &'static str,
    ms_per_step: f64,
    gflop_per_s: f64,
}

/// Runs `bench`.
pub(crate) fn bench(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let spec = model_spec(&arguments.model, None, None)?;
    let network = build_network(&arguments.model, &spec)?;
    let mut steps = Steps::new(&network, arguments)?;
    let duration = Duration::try_from_secs_f64(arguments.seconds).context("--seconds must be a time")?;
    let (n_steps, seconds) = timed(duration, || {
        steps.step();
        Ok::<(), Infallible>(())
    })?;
    let samples_per_s = (n_steps as usize * arguments.batch.max(1)) as f64 / seconds;
    let measured = Measurement {
        model: arguments.model.clone(),
        parameters: network.n_params(),
        batch: arguments.batch.max(1),
        threads: steps.room.n_threads(),
        steps: n_steps,
        samples_per_s,
        gflop_per_s: samples_per_s * flop_per_sample(&network) / 1e9,
        peak_rss_bytes: peak_rss_bytes(),
        layers: if arguments.layers { steps.profile(duration) } else { Vec::new() },
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&measured)?);
    } else {
        print_text(&measured);
    }
    Ok(ExitCode::SUCCESS)
}

/// Operations for a sample: each multiplication has its addition, and the way down has two products for the way up's one,
/// but for the first layer with weights, below which nobody wants a gradient.
fn flop_per_sample(network: &Network) -> f64 {
    let layers = network.summary();
    let multiplications = layers.iter().map(|layer| layer.n_multiplications).filter(|&n| n > 0);
    let first = multiplications.clone().next().unwrap_or(0);
    2.0 * (3 * multiplications.sum::<usize>() - first) as f64
}

/// Training steps on one random batch.
struct Steps<'a> {
    network: &'a Network,
    batch: Batch,
    values: Vec<f32>,
    gradient: Vec<f32>,
    optimizer: Optimizer,
    room: Workspace,
    n_done: u64,
}

impl<'a> Steps<'a> {
    fn new(network: &'a Network, arguments: &BenchArguments) -> anyhow::Result<Self> {
        let mut rng = Rng::new(1);
        let n = arguments.batch.max(1);
        let batch = Batch {
            inputs: (0..n * n_values(network.input())).map(|_| rng.normal()).collect(),
            labels: (0..n).map(|_| rng.below(network.n_classes()) as u32).collect(),
        };
        let spec = OptimizerSpec { momentum: 0.5, ..OptimizerSpec::default() };
        Ok(Self {
            network,
            batch,
            values: network.init(&mut rng),
            gradient: vec![0.0; network.n_values()],
            optimizer: Optimizer::new(spec, network.n_params()),
            room: Workspace::new(n_threads(arguments.threads))?,
            n_done: 0,
        })
    }

    fn step(&mut self) {
        self.network.gradient(&self.values, &self.batch, self.n_done, &mut self.gradient, &mut self.room);
        self.optimizer.step(0.01, &mut self.values, &self.gradient, &self.room);
        self.n_done += 1;
    }

    fn profile(&mut self, duration: Duration) -> Vec<LayerTime> {
        let clock = Arc::new(Mutex::new((Instant::now(), BTreeMap::new())));
        let shared = clock.clone();
        self.room.probe = Some(Box::new(move |step, phase| {
            let (last, times) = &mut *shared.lock().expect("only one thread probes");
            let now = Instant::now();
            *times.entry((step, phase)).or_insert(Duration::ZERO) += now - *last;
            *last = now;
        }));
        let (started, mut n_steps) = (Instant::now(), 0.0);
        while n_steps == 0.0 || started.elapsed() < duration {
            clock.lock().expect("only one thread probes").0 = Instant::now();
            self.step();
            n_steps += 1.0;
        }
        self.room.probe = None;
        let layers = self.network.summary();
        let share = self.batch.len().div_ceil(self.room.n_threads());
        let (_, times) = &*clock.lock().expect("only one thread probes");
        let line = |(&(step, phase), time): (&(usize, Phase), &Duration)| {
            let layer = &layers[step];
            let seconds = time.as_secs_f64() / n_steps;
            let flop = if phase == Phase::Statistics { 0 } else { 2 * share * layer.n_multiplications };
            LayerTime {
                name: layer.name.clone(),
                kind: layer.kind,
                phase: phase_name(phase),
                ms_per_step: seconds * 1e3,
                gflop_per_s: flop as f64 / seconds / 1e9,
            }
        };
        times.iter().map(line).filter(|line| line.ms_per_step > 1e-3).collect()
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::InputGradient => "input gradient",
        Phase::WeightGradient => "weight gradient",
        Phase::Statistics => "statistics",
    }
}

fn print_text(measured: &Measurement) {
    let Measurement { model, parameters, batch, threads, samples_per_s, gflop_per_s, .. } = measured;
    println!(
        "{model}: {} samples/s, {gflop_per_s:.0} GFLOP/s ({} parameters, batch {batch}, threads {threads}, peak memory {})",
        HumanCount(*samples_per_s as u64),
        HumanCount(*parameters as u64),
        measured.peak_rss_bytes.map_or_else(|| "unknown".into(), |bytes| HumanBytes(bytes).to_string())
    );
    if measured.layers.is_empty() {
        return;
    }
    let peak = peak_gflop_per_s();
    println!("This core's peak, measured on sums in registers: {peak:.0} GFLOP/s.\n");
    let width = measured.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(4);
    println!("{:width$}  {:14}  {:15}  {:>9}  {:>8}  {:>7}", "name", "layer", "part", "ms/step", "GFLOP/s", "of peak");
    for LayerTime { name, kind, phase, ms_per_step, gflop_per_s } in &measured.layers {
        let speed = if *gflop_per_s > 0.0 {
            format!("{gflop_per_s:>8.0}  {:>5.0} %", 100.0 * gflop_per_s / peak)
        } else {
            String::new()
        };
        println!("{name:width$}  {kind:14}  {phase:15}  {ms_per_step:>9.3}  {speed}");
    }
}

/// What one core can do at most: multiplications with additions that touch no memory.
fn peak_gflop_per_s() -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..5 {
        let started = Instant::now();
        let n = peak_multiplications(1_000_000);
        best = best.max(2.0 * n as f64 / started.elapsed().as_secs_f64() / 1e9);
    }
    best
}
