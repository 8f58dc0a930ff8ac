//! From a job to what it names: the data, the network, the threads.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nettorrent_engine::data::source::{self, DataSpec};
use nettorrent_engine::data::{Dataset, Part};
use nettorrent_engine::job::Job;
use nettorrent_engine::nearest::nearest;
use nettorrent_fetch::{Cache, catalog, find};

/// One part of a job's data.
pub(crate) fn open_data(job: &Job, part: Part) -> anyhow::Result<Box<dyn Dataset>> {
    let path = data_path(&job.data)?;
    source::open(&job.data, path.as_deref(), part, job.seed).context("cannot open the data")
}

/// Where a named set lies, if it was fetched; sets with a path and the embedded one need no looking.
pub(crate) fn data_path(spec: &DataSpec) -> anyhow::Result<Option<PathBuf>> {
    let Some(name) = spec.name.as_deref().filter(|name| *name != "digits" && spec.path.is_none()) else {
        return Ok(None);
    };
    let entry =
        find(name).with_context(|| "`digits` is part of the program; other names are those that can be fetched")?;
    match Cache::from_environment()?.cached(entry.name) {
        Some(path) => Ok(Some(path)),
        None => bail!(
            "the data set `{name}` is not on this machine; fetch it with `nettorrent data fetch {name}`, or say where it \
             is with --data PATH"
        ),
    }
}

/// What `--data` means: a path if there is something, else a name.
pub(crate) fn data_spec(argument: &str, spec: DataSpec) -> anyhow::Result<DataSpec> {
    let path = Path::new(argument);
    if path.exists() {
        // The name stays unless it was the embedded set's, for it tells the classes and how to normalise.
        let name = spec.name.filter(|name| name != "digits");
        return Ok(DataSpec { name, path: Some(path.to_owned()), ..spec });
    }
    if argument == "digits" || catalog().iter().any(|entry| entry.name == argument) {
        return Ok(DataSpec { name: Some(argument.to_owned()), path: None, ..spec });
    }
    let names: Vec<&str> = ["digits"].into_iter().chain(catalog().iter().map(|entry| entry.name)).collect();
    let hint = nearest(argument, &names).map_or(String::new(), |near| format!("; did you mean {near}?"));
    bail!(
        "{argument} is neither a file or folder nor the name of a data set{hint}; `nettorrent data list` has the names"
    )
}

/// As many threads as asked for, or as the machine has.
pub(crate) fn n_threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        n => n,
    }
}
