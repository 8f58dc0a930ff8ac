//! `data`: which data sets there are, how to get them, and what is in them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::{HumanBytes, ProgressBar};
use nettorrent_engine::data::info::info;
use nettorrent_engine::job::Job;
use nettorrent_fetch::{Cache, FetchError, FetchOptions, Progress, catalog, fetch, find};

use crate::bar::bar;
use crate::interrupt::{self, Interrupt};
use crate::output::{print_line, print_text, say_line};
use nettorrent_session::open::{data_path, data_spec};

/// What to do with data sets.
#[derive(Subcommand)]
pub(crate) enum DataCommand {
    /// List the data sets that can be fetched by name.
    List {
        /// Print lines of JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Download a data set from its publisher into the cache (NETTORRENT_CACHE moves it).
    Fetch {
        /// The name of the data set.
        name: String,
        /// Try this address first: files are expected under URL/FILENAME.
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        /// Fetch it again although it is here.
        #[arg(long)]
        force: bool,
    },
    /// Say what is in a data set: format, shape, samples, classes.
    Info(InfoArguments),
}

/// Arguments of `data info`.
#[derive(Args)]
pub(crate) struct InfoArguments {
    /// A path, or the name of a data set.
    data: String,
    /// Set a field of the data's description, for example `--set format=csv`.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    settings: Vec<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs `data`.
pub(crate) fn data(command: &DataCommand) -> anyhow::Result<ExitCode> {
    match command {
        DataCommand::List { json } => list(*json),
        DataCommand::Fetch { name, mirror, force } => fetch_by_name(name, mirror.clone(), *force),
        DataCommand::Info(arguments) => describe(arguments),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let cache = Cache::from_environment()?;
    let about = "handwritten digits, 8x8; part of the program";
    if json {
        print_line!("{}", serde_json::json!({ "name": "digits", "about": about, "n_bytes": 0, "here": true }));
    } else {
        print_line!("{:15} {:>10}  {:10}  about", "name", "download", "here");
        print_line!("{:15} {:>10}  {:10}  {about}", "digits", "-", "always");
    }
    for entry in catalog() {
        let path = cache.cached(entry.name);
        if json {
            print_line!(
                "{}",
                serde_json::json!({ "name": entry.name, "about": entry.about, "licence": entry.licence,
                    "n_bytes": entry.n_bytes(), "here": path.is_some(), "path": path })
            );
            continue;
        }
        let here = if path.is_some() { "yes" } else { "no" };
        print_line!("{:15} {:>10}  {here:10}  {}", entry.name, HumanBytes(entry.n_bytes()).to_string(), entry.about);
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch_by_name(name: &str, mirror: Option<String>, force: bool) -> anyhow::Result<ExitCode> {
    let entry = find(name)?;
    let cache = Cache::from_environment()?;
    let interrupt = Interrupt::listen()?;
    let options = FetchOptions { mirror, force, stop: interrupt.flag(), ..FetchOptions::default() };
    say_line(&format!("{}: {}. Licence: {}", entry.name, entry.about, entry.licence));
    let bar = bar(0, "{msg} {bar:24.cyan/dim} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left", false);
    let result = fetch(entry, &cache, &options, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    match result {
        Ok(path) => {
            say_line(&format!("{} is in {}", entry.name, path.display()));
            Ok(ExitCode::SUCCESS)
        }
        Err(FetchError::Stopped) => {
            say_line(&format!(
                "Stopped; what was downloaded is kept. Go on with: nettorrent data fetch {}",
                entry.name
            ));
            Ok(ExitCode::from(interrupt::EXIT_CODE))
        }
        Err(error) => Err(error.into()),
    }
}

fn show(bar: &ProgressBar, progress: Progress<'_>) {
    match progress {
        Progress::Waiting => bar.set_message("waiting for another process that fetches the same"),
        Progress::Connecting { file, url, n_bytes_done } => {
            let from = if n_bytes_done > 0 { format!(", from byte {n_bytes_done} on") } else { String::new() };
            bar.suspend(|| say_line(&format!("{file} from {url}{from}")));
            bar.set_message(file.to_owned());
            bar.reset();
        }
        Progress::Downloading { n_bytes_done, n_bytes_total, .. } => {
            bar.set_length(n_bytes_total);
            bar.set_position(n_bytes_done);
        }
        Progress::Failed { url, why } => bar.suspend(|| say_line(&format!("{url}: {why}"))),
        Progress::Checking { file } => bar.set_message(format!("checking {file}")),
        Progress::Unpacking { file, n_files_done } => {
            bar.set_message(format!("unpacking {file}: {n_files_done} files"));
        }
        Progress::Installing => bar.set_message("writing to the disk"),
    }
}

fn describe(arguments: &InfoArguments) -> anyhow::Result<ExitCode> {
    let settings: Vec<String> = arguments.settings.iter().map(|setting| format!("data.{setting}")).collect();
    let job = Job::parse("the arguments", "", &settings)?;
    let spec = data_spec(&arguments.data, job.data)?;
    let path: Option<PathBuf> = data_path(&spec)?;
    let found = info(&spec, path.as_deref(), job.seed)?;
    if arguments.json {
        print_line!("{}", serde_json::to_string(&found)?);
    } else {
        print_text(&found.to_string());
    }
    Ok(ExitCode::SUCCESS)
}
