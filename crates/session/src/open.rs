//! From a job to what it names: the data, the network, the threads.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use nettorrent_engine::backends;
use nettorrent_engine::data::source::{self, DataSpec};
use nettorrent_engine::data::{Dataset, Split};
use nettorrent_engine::job::{Job, MOST_THREADS, check_threads};
use nettorrent_engine::nearest::nearest;
use nettorrent_fetch::{Cache, catalog, find};
use nettorrent_swarm::strategies;

use crate::error::SessionError;

/// One split of a job's data.
pub fn open_data(job: &Job, split: Split) -> Result<Box<dyn Dataset>, SessionError> {
    let path = data_path(&job.data)?;
    Ok(source::open(&job.data, path.as_deref(), split, job.seed)?)
}

/// Where a named set lies, if it was fetched; sets with a path and the embedded one need no looking.
pub fn data_path(spec: &DataSpec) -> Result<Option<PathBuf>, SessionError> {
    let Some(name) = spec.name.as_deref().filter(|name| *name != "digits" && spec.path.is_none()) else {
        return Ok(None);
    };
    let entry = find(name).map_err(|unknown| {
        SessionError::NoData(format!(
            "`digits` is part of the program; other names are those that can be fetched: {unknown}"
        ))
    })?;
    match Cache::from_environment()?.cached(entry.name) {
        Some(path) => Ok(Some(path)),
        None => Err(SessionError::NoData(format!(
            "the data set `{name}` is not on this machine; fetch it with `nettorrent data fetch {name}`, or say where it \
             is with --data PATH"
        ))),
    }
}

/// What `--data` means: a path if there is something, else a name.
pub fn data_spec(argument: &str, spec: DataSpec) -> Result<DataSpec, SessionError> {
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
    Err(SessionError::NoData(format!(
        "{argument} is neither a file or folder nor the name of a data set{hint}; `nettorrent data list` has the names"
    )))
}

/// As many threads as asked for, or as the machine has; more than anybody means are refused.
pub fn n_threads(asked: usize) -> Result<usize, SessionError> {
    check_threads(asked)?;
    Ok(match asked {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS),
        n => n,
    })
}

/// The same job with what depends on the machine and on the present folder written out, for it may be resumed elsewhere. Names in it
/// that nothing has are refused, whether this run will use them or not.
pub fn definite(mut job: Job) -> Result<Job, SessionError> {
    job.check()?;
    backends::find(&job.backend)?;
    strategies::check(&job.swarm.strategy, &job.swarm.options)?;
    job.threads = match job.threads {
        // Processes on one machine share its cores.
        0 => (n_threads(0)? / job.swarm.peers.max(1)).max(1),
        n => n,
    };
    if let Some((file, function)) = job.python().and_then(|model| model.rsplit_once(':')) {
        let path = std::path::absolute(file).map_err(SessionError::file("cannot find", Path::new(file)))?;
        job.model = format!("{}:{function}", path.display());
    }
    if let Some(path) = &mut job.data.path {
        *path = std::path::absolute(&*path).map_err(SessionError::file("cannot find", &*path))?;
    }
    Ok(job)
}
