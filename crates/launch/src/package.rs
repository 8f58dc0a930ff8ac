//! What is sent to every host: the job, and the files it names.

use std::path::{Path, PathBuf};

use nettorrent_engine::job::Job;

use crate::error::LaunchError;

/// The longest file that is sent along; a command line has no room for more.
const MOST_BYTES: usize = 60_000;

/// A job and the files it names, under names that are the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Names and contents.
    pub(crate) files: Vec<(String, String)>,
    /// The data, if the job has a path to it and no name.
    pub(crate) data: Option<PathBuf>,
    /// The data's name, if it can be fetched by one.
    pub(crate) data_name: Option<String>,
    /// The model, where it is one of Python and joiners have to name it.
    pub(crate) python: Option<String>,
}

/// The job's file at a host.
pub(crate) const JOB_FILE: &str = "job.toml";

impl Package {
    /// Packs a job: a description of a model and a file of Python travel with it, data do not.
    pub fn new(job: &Job) -> Result<Self, LaunchError> {
        let mut job = job.clone();
        let data = job.data.path.clone().filter(|_| job.data.name.is_none());
        let named = match job.model.split_once(".py:") {
            Some((stem, function)) => Some((PathBuf::from(format!("{stem}.py")), format!(":{function}"))),
            None if job.model.to_lowercase().ends_with(".toml") => Some((PathBuf::from(&job.model), String::new())),
            None => None,
        };
        let mut files = Vec::new();
        if let Some((path, function)) = named {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Not the job's own name.
            let name = if name == JOB_FILE { "model.toml".to_owned() } else { name };
            files.push((name.clone(), read(&path)?));
            job.model = format!("{name}{function}");
        }
        // The digits are in the program.
        let data_name = job.data.name.clone().filter(|name| name != "digits" && job.data.path.is_none());
        let python = job.python().map(str::to_owned);
        files.insert(0, (JOB_FILE.to_owned(), toml::to_string(&job).expect("jobs can be written as TOML")));
        Ok(Self { files, data, data_name, python })
    }
}

fn read(path: &Path) -> Result<String, LaunchError> {
    let text = std::fs::read_to_string(path).map_err(LaunchError::file("read", path))?;
    if text.len() > MOST_BYTES {
        return Err(LaunchError::TooLong { path: path.to_owned(), n_bytes: text.len(), most: MOST_BYTES });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;

    use super::Package;

    #[test]
    fn files_that_the_job_names_travel_under_their_own_names() {
        let folder = tempfile::tempdir().unwrap();
        for (file, function, name) in [("net.py", ":build", "net.py:build"), ("job.toml", "", "model.toml")] {
            let path = folder.path().join(file);
            std::fs::write(&path, "what is in it").unwrap();
            let model = format!("{}{function}", path.display());
            let mut job = Job::parse("a job", "", &[]).unwrap();
            job.model = model;
            let package = Package::new(&job).unwrap();
            assert_eq!(package.files[1].1, "what is in it");
            assert!(package.files[0].1.contains(&format!("model = \"{name}\"")), "{}", package.files[0].1);
        }
    }
}
