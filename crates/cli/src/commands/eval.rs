//! `eval`: how well a trained model does on its test samples, and which classes it confuses.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::data::Part;
use nettorrent_engine::evaluation::evaluate;
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::model::{Network, Workspace, best_class};
use serde::Serialize;

use nettorrent_session::open::{data_spec, n_threads, open_data};
use nettorrent_session::run_folder::RunFolder;

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

/// A trained model, ready to be used.
pub(crate) struct Trained {
    pub job: Job,
    pub network: Network,
    pub values: Vec<f32>,
    pub room: Workspace,
}

impl TrainedArguments {
    /// Loads the model.
    pub(crate) fn open(&self) -> anyhow::Result<Trained> {
        let room = Workspace::new(n_threads(self.threads))?;
        let mut trained = match (&self.run, &self.weights, &self.model) {
            (Some(run), _, _) => self.open_run(run, room)?,
            (None, Some(weights), Some(model)) => self.open_weights(weights, model, room)?,
            _ => bail!("say which model: the folder of a run, or --weights FILE --model NAME"),
        };
        if let Some(argument) = &self.data {
            trained.job.data = data_spec(argument, trained.job.data)?;
        }
        Ok(trained)
    }

    fn open_run(&self, run: &Path, room: Workspace) -> anyhow::Result<Trained> {
        let run = RunFolder::open(run)?;
        let (job, network) = (run.job(&self.settings)?, run.network()?);
        let checkpoint = run.choose(self.checkpoint.as_deref())?.with_context(|| {
            let shown = run.path().display();
            format!("the run {shown} has no checkpoint yet; train it first, with `nettorrent resume {shown}`")
        })?;
        let values = run.load_model(&checkpoint, &network.layout())?;
        Ok(Trained { job, network, values, room })
    }

    fn open_weights(&self, weights: &Path, model: &str, room: Workspace) -> anyhow::Result<Trained> {
        let mut job = Job::parse("the arguments", "", &self.settings)?;
        model.clone_into(&mut job.model);
        let argument = self.data.as_deref().context("say which data to use, with --data NAME or --data PATH")?;
        job.data = data_spec(argument, job.data)?;
        let test_set = open_data(&job, Part::Test)?;
        let spec = job.model_spec(test_set.shape(), test_set.classes().len())?;
        let network = build_network(model, &spec)?;
        let values = load_weights(weights, &network.layout())?;
        Ok(Trained { job, network, values, room })
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

/// What `eval` found.
#[derive(Serialize)]
struct Evaluation {
    model: String,
    n: usize,
    loss: f64,
    accuracy: f64,
    classes: Vec<String>,
    /// Rows are what samples are, columns what the model took them for.
    confusion: Vec<Vec<usize>>,
}

/// Runs `eval`.
pub(crate) fn eval(arguments: &EvalArguments) -> anyhow::Result<ExitCode> {
    let Trained { job, network, values, mut room } = arguments.trained.open()?;
    let test_set = open_data(&job, Part::Test)?;
    let n_classes = network.n_classes();
    let mut confusion = vec![vec![0; n_classes]; n_classes];
    let all = 0..test_set.len();
    let score = evaluate(&network, &values, test_set.as_ref(), all, job.batch, &mut room, |batch, logits, _| {
        for (row, &label) in logits.chunks_exact(n_classes).zip(&batch.labels) {
            confusion[label as usize][best_class(row)] += 1;
        }
        true
    })?;
    let classes = test_set.classes().to_vec();
    let (loss, accuracy) = (score.loss(), score.accuracy());
    let found = Evaluation { model: job.model, n: score.n, loss, accuracy, classes, confusion };
    if arguments.json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        print_tables(&found);
    }
    Ok(ExitCode::SUCCESS)
}

/// Beyond this many classes the whole table is no longer readable, and only the worst confusions are shown.
const MOST_COLUMNS: usize = 20;

fn print_tables(found: &Evaluation) {
    println!("{}: accuracy {:.2} %, loss {:.4}, {} samples", found.model, 100.0 * found.accuracy, found.loss, found.n);
    let width = found.classes.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    if found.classes.len() <= MOST_COLUMNS {
        println!("\nRows are what the samples are, columns what the model took them for.\n");
        let shorten = |name: &String| name.chars().take(6).collect::<String>();
        let head: Vec<String> = found.classes.iter().map(|name| format!("{:>6}", shorten(name))).collect();
        println!("{:width$} {}", "", head.join(" "));
        for (name, row) in found.classes.iter().zip(&found.confusion) {
            let cells = row.iter().take(found.classes.len());
            let cells: Vec<String> =
                cells.map(|n| if *n == 0 { format!("{:>6}", "·") } else { format!("{n:>6}") }).collect();
            println!("{name:>width$} {}", cells.join(" "));
        }
        return;
    }
    let mut worst: Vec<(usize, usize, usize)> = Vec::new();
    for (label, row) in found.confusion.iter().enumerate() {
        worst
            .extend(row.iter().enumerate().filter(|&(guess, n)| guess != label && *n > 0).map(|(g, n)| (*n, label, g)));
    }
    worst.sort_by(|a, b| b.cmp(a));
    println!("\nThe commonest confusions:");
    let name = |class: usize| found.classes.get(class).map_or("?", String::as_str);
    for (n, label, guess) in worst.iter().take(10) {
        println!("{n:>6}  {:>width$} taken for {}", name(*label), name(*guess));
    }
}
