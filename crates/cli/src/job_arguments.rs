//! The arguments that say which job: a file, or the demonstration, and what is to be different.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use nettorrent_engine::job::Job;

use nettorrent_session::open::data_spec;

pub(crate) use nettorrent_session::open::definite;

/// What is trained when nobody says what.
const DEMONSTRATION: &str = include_str!("../digits.toml");

/// Which job.
#[derive(Args)]
pub(crate) struct JobArguments {
    /// The job file; without one, the demonstration on the embedded digits.
    job: Option<PathBuf>,
    /// Set any field of the job, for example `--set optimizer.lr=0.1`; may be given several times.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    settings: Vec<String>,
    /// The data: a name (`nettorrent data list`) or a path.
    #[arg(long, value_name = "NAME|PATH")]
    data: Option<String>,
    /// The model: a name (`nettorrent model list`) or a description file.
    #[arg(long, value_name = "NAME|FILE")]
    model: Option<String>,
    /// Number of epochs.
    #[arg(long, value_parser = n_epochs)]
    epochs: Option<u64>,
    /// Number of compute threads; 0 for as many as the machine has.
    #[arg(long)]
    threads: Option<usize>,
    /// How peers exchange what they learnt (`nettorrent strategies` lists them).
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
}

impl JobArguments {
    /// Whether they name a strategy.
    pub(crate) fn names_strategy(&self) -> bool {
        self.strategy.is_some()
    }

    /// The number of threads that is asked for.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// What is to be different in a job that is there already.
    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = self.settings.clone();
        settings.extend(self.model.iter().map(|model| format!("model={model}")));
        settings.extend(self.epochs.map(|epochs| format!("epochs={epochs}")));
        settings.extend(self.threads.map(|threads| format!("threads={threads}")));
        settings.extend(self.strategy.iter().map(|name| format!("swarm.strategy={name}")));
        settings
    }

    /// The arguments that name the same job in another command, but for the strategy and its options.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.job.iter().map(|path| path.display().to_string()).collect();
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        let is_strategy =
            |setting: &&String| setting.starts_with("swarm.strategy") || setting.starts_with("swarm.options");
        self.settings.iter().filter(|setting| !is_strategy(setting)).for_each(|setting| add("--set", setting.clone()));
        self.data.iter().for_each(|data| add("--data", data.clone()));
        self.model.iter().for_each(|model| add("--model", model.clone()));
        self.epochs.iter().for_each(|epochs| add("--epochs", epochs.to_string()));
        self.threads.iter().for_each(|threads| add("--threads", threads.to_string()));
        words
    }

    /// The job with what the arguments say instead, and these settings after theirs. The number of threads becomes
    /// definite, because results depend on it.
    pub(crate) fn open(&self, settings: &[String]) -> anyhow::Result<Job> {
        let (name, text) = match &self.job {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                (path.display().to_string(), text)
            }
            None => ("the demonstration".to_owned(), DEMONSTRATION.to_owned()),
        };
        let mut all = self.settings.clone();
        if let Some(strategy) = &self.strategy {
            // The options of the file's own strategy would mean nothing to another.
            if *strategy != Job::parse(&name, &text, &[])?.swarm.strategy {
                all.insert(0, "swarm.options={}".to_owned());
            }
            all.push(format!("swarm.strategy={strategy}"));
        }
        all.extend(settings.iter().cloned());
        let mut job = Job::parse(&name, &text, &all)?;
        if let Some(argument) = &self.data {
            job.data = data_spec(argument, job.data)?;
        }
        if let Some(model) = &self.model {
            job.model.clone_from(model);
        }
        job.epochs = self.epochs.unwrap_or(job.epochs);
        job.threads = self.threads.unwrap_or(job.threads);
        Ok(definite(job)?)
    }
}

/// Reads a number of epochs.
pub(crate) fn n_epochs(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least 1 epoch".into()),
        Ok(epochs) => Ok(epochs),
        Err(_) => Err("must be a whole number from 1 up".into()),
    }
}
