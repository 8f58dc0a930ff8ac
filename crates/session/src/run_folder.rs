//! A run's folder: the job as it was run, the model's description, the events, and the checkpoints.

use std::path::{Path, PathBuf};
use std::{fs, io};

use nettorrent_engine::checkpoint::{self, CheckpointError, Progress};
use nettorrent_engine::data::TextCodec;
use nettorrent_engine::job::{Job, build_network, read_toml};
use nettorrent_engine::model::{Layout, ModelSpec, Network};
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_files::{write_file, write_private_file};
use nettorrent_net::keys::PublicKey;
use nettorrent_net::policy::OwnerKey;
use nettorrent_net::ticket::{Ticket, TicketError};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::date::Date;
use crate::error::SessionError;
use crate::event_log::EventLog;

const JOB_FILE: &str = "job.toml";
const MODEL_FILE: &str = "model.toml";
const TOKENIZER_FILE: &str = "tokenizer.json";
const EVENTS_FILE: &str = "events.jsonl";
/// Where runs are made unless another place is named.
const RUNS: &str = "runs";
const TICKET_FILE: &str = "ticket";
const OWNER_FILE: &str = "owner.key";
const CHECKPOINTS: &str = "checkpoints";
/// How the names of checkpoints end that are being removed, and of those that are being written.
const REMOVED: &str = ".removed";
const PARTIAL: &str = ".partial";

/// The folder of one run.
#[derive(Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// A new one: at this path, or under `runs/` with the model's name and the time.
    pub fn create(path: Option<&Path>, job: &Job, model: Option<&ModelSpec>) -> Result<Self, SessionError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => free_name(&job.model),
        };
        Self::check_free(Some(&path))?;
        let run = Self { path };
        let folder = run.path.join(CHECKPOINTS);
        fs::create_dir_all(folder).map_err(|error| {
            let shown = run.path.display();
            SessionError::Run(format!(
                "cannot make the run's folder {shown}: {error}; choose a place that can be written with --run"
            ))
        })?;
        if let Some(model) = model {
            write_file(&run.path.join(MODEL_FILE), as_toml(model).as_bytes())?;
        }
        run.write_job(job)?;
        Ok(run)
    }

    /// Refuses a path where a run is already, before anything is done that cannot be undone.
    pub fn check_free(path: Option<&Path>) -> Result<(), SessionError> {
        let Some(path) = path.filter(|path| path.join(JOB_FILE).exists()) else { return Ok(()) };
        let shown = path.display();
        Err(SessionError::Run(format!(
            "{shown} holds a run already; go on with it by `nettorrent resume {shown}`, or choose another --run"
        )))
    }

    /// Keeps how its texts become tokens.
    pub(crate) fn write_codec(&self, codec: &TextCodec) -> Result<(), SessionError> {
        Ok(write_file(&self.path.join(TOKENIZER_FILE), codec.to_json().as_bytes())?)
    }

    /// How its texts become tokens; none where it was not trained on text.
    pub fn codec(&self) -> Result<Option<TextCodec>, SessionError> {
        let path = self.path.join(TOKENIZER_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(TextCodec::from_json(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SessionError::file("cannot read", &path)(error)),
        }
    }

    /// One that exists.
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        if !path.join(JOB_FILE).is_file() {
            let shown = path.display();
            return Err(SessionError::Run(format!(
                "{shown} is no run: it has no {JOB_FILE}; runs are the folders that `nettorrent train` makes, under runs/"
            )));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to tell who wants to go on with a run that is done.
    pub fn is_done_text(&self, epoch: u64) -> String {
        let path = self.path.display();
        format!("The run has done its {epoch} epochs; train it further with `nettorrent resume {path} --epochs N`.")
    }

    /// The file of its events.
    pub fn events(&self) -> PathBuf {
        self.path.join(EVENTS_FILE)
    }

    /// Its job, with these fields set otherwise: any but the model, which is described in the run and to which its checkpoints belong.
    /// Only the file of a model of Python, which stays where it is, may have been moved.
    pub fn job(&self, settings: &[String]) -> Result<Job, SessionError> {
        let path = self.path.join(JOB_FILE);
        let own = Job::open(&path, &[])?;
        if settings.is_empty() {
            return Ok(own);
        }
        let job = Job::open(&path, settings)?;
        if job.model != own.model && (job.python().is_none() || own.python().is_none()) {
            let (shown, own, other) = (self.path.display(), own.model, job.model);
            return Err(SessionError::Run(format!(
                "{shown} is a run of the model `{own}`, which cannot become `{other}`: leave the model out to go on with the run, or \
                 begin a new one with `nettorrent train --model {other}`, perhaps with --weights FILE"
            )));
        }
        Ok(job)
    }

    /// Replaces the job, so that a run which is stopped again goes on with what it was told last.
    pub fn write_job(&self, job: &Job) -> Result<(), SessionError> {
        Ok(write_file(&self.path.join(JOB_FILE), as_toml(job).as_bytes())?)
    }

    /// Keeps the key that decides about the swarm of this run. A run that goes on later is another swarm, with another key.
    pub(crate) fn write_owner_key(&self, owner: &OwnerKey) -> Result<(), SessionError> {
        let text = Zeroizing::new(format!("{}\n", *owner.to_text()));
        Ok(write_private_file(&self.path.join(OWNER_FILE), text.as_bytes())?)
    }

    /// Keeps the present ticket of the swarm in which this run takes part.
    pub fn write_ticket(&self, ticket: &Ticket) -> Result<(), SessionError> {
        let text = Zeroizing::new(format!("{ticket}\n"));
        Ok(write_private_file(&self.path.join(TICKET_FILE), text.as_bytes())?)
    }

    /// The ticket of the swarm in which this run took part last; none if it never did.
    pub fn ticket(&self) -> Result<Option<Ticket>, SessionError> {
        let path = self.path.join(TICKET_FILE);
        let text = match fs::read_to_string(&path).map(Zeroizing::new) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SessionError::file("cannot read", &path)(error)),
        };
        let damaged = |why| SessionError::Run(format!("{} holds no ticket: {why}", path.display()));
        text.parse().map(Some).map_err(|why: TicketError| damaged(why))
    }

    /// The key that decides about the swarm that was started from this folder.
    pub fn owner_key(&self) -> Result<OwnerKey, SessionError> {
        let path = self.path.join(OWNER_FILE);
        let text = fs::read_to_string(&path).map(Zeroizing::new);
        let text = text.map_err(SessionError::file(
            "there is no owner's key to read, which only who started a swarm has,",
            &path,
        ))?;
        let damaged = || SessionError::Run(format!("{} is damaged: no owner's key is in it", path.display()));
        OwnerKey::from_text(&text).ok_or_else(damaged)
    }

    /// The key of this swarm's owner, if one of the runs in `runs/` has it.
    pub fn find_owner_key(owner: &PublicKey) -> Option<OwnerKey> {
        let runs = fs::read_dir(RUNS).ok()?.flatten();
        runs.filter_map(|run| Self { path: run.path() }.owner_key().ok()).find(|key| key.public() == *owner)
    }

    /// Its network, where it is one of ours.
    pub fn network(&self) -> Result<Network, SessionError> {
        let spec = self.model_spec()?;
        Ok(build_network(&self.path.join(MODEL_FILE).display().to_string(), &spec)?)
    }

    /// The description of its network; none where the model is not one of ours.
    pub fn described_model(&self) -> Result<Option<ModelSpec>, SessionError> {
        if self.job(&[])?.python().is_some() { Ok(None) } else { self.model_spec().map(Some) }
    }

    fn model_spec(&self) -> Result<ModelSpec, SessionError> {
        let path = self.path.join(MODEL_FILE);
        let text = fs::read_to_string(&path).map_err(SessionError::file("cannot read", &path))?;
        Ok(read_toml(&path.display().to_string(), &text)?)
    }

    /// The checkpoints that are whole, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>, SessionError> {
        // Numbers are padded, so that the order of names is the order of steps; what is half written or half removed has
        // another name.
        self.entries(|name| name.starts_with("step-"))
    }

    /// The checkpoint that is meant: a path, or the name of one in this run, or the newest; none in a run that was ended
    /// before its first.
    pub fn choose(&self, asked: Option<&Path>) -> Result<Option<PathBuf>, SessionError> {
        let Some(asked) = asked else { return Ok(self.checkpoints()?.pop()) };
        let inside = self.path.join(CHECKPOINTS).join(asked);
        Ok(Some(if !asked.exists() && inside.exists() { inside } else { asked.to_owned() }))
    }

    /// The newest checkpoint that is whole, and why those after it are not.
    pub fn newest_whole(&self) -> Result<(Option<PathBuf>, Vec<CheckpointError>), SessionError> {
        let mut damaged = Vec::new();
        for checkpoint in self.checkpoints()?.into_iter().rev() {
            match checkpoint::verify(&checkpoint) {
                Ok(()) => return Ok((Some(checkpoint), damaged)),
                Err(problem) => damaged.push(problem),
            }
        }
        match damaged.into_iter().next() {
            Some(source) => {
                let hint = format!("no checkpoint of the run is whole{}", self.new_run_text());
                Err(SessionError::Unreadable { hint, source })
            }
            None => Ok((None, Vec::new())),
        }
    }

    /// Saves a state.
    pub fn save(
        &self,
        layout: &Layout,
        values: &[f32],
        optimizer: &Optimizer,
        progress: &Progress,
    ) -> Result<PathBuf, SessionError> {
        let path = self.checkpoint_path(progress.step);
        if !path.exists() {
            let saved = checkpoint::save(&path, layout, values, optimizer, progress);
            // Peers that have lost each other may both be the first, and write to one folder.
            saved.or_else(|error| if path.exists() { Ok(()) } else { Err(error) })?;
        }
        Ok(path)
    }

    /// Makes way for a checkpoint: takes one of another state after as many steps aside, and returns where it is now. There is one if a
    /// state was saved before its epoch was over, if the run was on another course then, or if it is damaged.
    pub(crate) fn make_way(&self, progress: &Progress) -> Result<Option<PathBuf>, SessionError> {
        let path = self.checkpoint_path(progress.step);
        let version = |progress: &Progress| progress.swarm.as_ref().map(|place| place["version"].clone());
        let is_same = |there: &Progress| there.epoch == progress.epoch && version(there) == version(progress);
        if !path.exists() || checkpoint::progress(&path).is_ok_and(|there| is_same(&there)) {
            return Ok(None);
        }
        set_aside(&path).map(Some)
    }

    /// What to tell who wants to know what is left of a run: its newest checkpoint.
    pub(crate) fn newest_text(&self) -> String {
        match self.newest_whole() {
            Ok((Some(newest), _)) => {
                let (newest, path) = (newest.display(), self.path.display());
                format!("the newest checkpoint is {newest}; go on from it with `nettorrent resume {path}`")
            }
            Ok((None, _)) => "there is no checkpoint".to_owned(),
            Err(problem) => problem.to_string(),
        }
    }

    /// What to do where no checkpoint can be gone on from, to be put after that: begin again from the newest model that is whole, if one is.
    fn new_run_text(&self) -> String {
        let checkpoints = self.checkpoints().unwrap_or_default();
        let whole = checkpoints.into_iter().rev().find(|checkpoint| checkpoint::verify_model(checkpoint).is_ok());
        whole.map_or(String::new(), |checkpoint| {
            let (job, model) = (self.path.join(JOB_FILE), checkpoint.join(checkpoint::MODEL_FILE));
            let (job, model) = (job.display(), model.display());
            format!("; begin a new run from its model with `nettorrent train {job} --weights {model}`")
        })
    }

    /// Where the checkpoint after a step is.
    pub fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.path.join(CHECKPOINTS).join(checkpoint_name(step))
    }

    /// Removes what is older than the newest `keep`. Another process may do the same at the same time.
    pub(crate) fn remove_old(&self, keep: usize) -> Result<(), SessionError> {
        let all = self.checkpoints()?;
        for old in &all[..all.len().saturating_sub(keep)] {
            // Renamed first: if we are killed while it is removed, half a checkpoint must not look like a whole one.
            let name = old.file_name().unwrap_or_default().to_string_lossy();
            let removed = old.with_file_name(format!(".{name}{REMOVED}"));
            unless_gone(fs::rename(old, removed))
                .map_err(SessionError::file("cannot remove the old checkpoint", old))?;
        }
        self.remove(|name| name.ends_with(REMOVED))
    }

    fn remove(&self, is_meant: impl Fn(&str) -> bool) -> Result<(), SessionError> {
        for rest in self.entries(|name| name.starts_with('.') && is_meant(name))? {
            unless_gone(fs::remove_dir_all(&rest)).map_err(SessionError::file("cannot remove", &rest))?;
        }
        Ok(())
    }

    /// Opens the file of its events; from here on no other run of the program writes into this folder, and what one that was killed has
    /// left half written is removed.
    pub fn open_events(&self, tensorboard: bool) -> Result<EventLog, SessionError> {
        let events = EventLog::append(&self.events(), tensorboard.then(|| self.path.join("tensorboard")))?;
        self.remove(|name| name.ends_with(REMOVED) || name.ends_with(PARTIAL))?;
        Ok(events)
    }

    /// Reads a checkpoint of this run.
    pub fn load(
        &self,
        checkpoint: &Path,
        layout: &Layout,
        optimizer: &mut Optimizer,
    ) -> Result<(Vec<f32>, Progress), SessionError> {
        checkpoint::load(checkpoint, layout, optimizer).map_err(|source| self.unreadable(checkpoint, source))
    }

    /// Reads only the model of a checkpoint.
    pub(crate) fn load_model(&self, checkpoint: &Path, layout: &Layout) -> Result<Vec<f32>, SessionError> {
        let path = checkpoint.join(checkpoint::MODEL_FILE);
        checkpoint::load_weights(&path, layout).map_err(|source| self.unreadable(checkpoint, source))
    }

    /// Takes the checkpoints that are not in the past of this one out of the way: training goes on from it, and would
    /// otherwise meet states of another course, or the damaged ones that it was chosen instead of. Nothing is deleted.
    pub fn set_aside_after(&self, checkpoint: &Path, step: u64) -> Result<Vec<PathBuf>, SessionError> {
        let mut moved = Vec::new();
        for path in self.checkpoints()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if *name < *checkpoint_name(step) || is_same(&path, checkpoint) {
                continue;
            }
            moved.push(set_aside(&path)?);
        }
        Ok(moved)
    }

    pub(crate) fn unreadable(&self, checkpoint: &Path, source: CheckpointError) -> SessionError {
        let others = self.checkpoints().unwrap_or_default();
        let others: Vec<String> = others
            .iter()
            .filter(|other| !is_same(other, checkpoint))
            .map(|other| other.display().to_string())
            .collect();
        let hint = match others.as_slice() {
            [] => format!("cannot read the run's only checkpoint{}", self.new_run_text()),
            _ => format!("cannot read the checkpoint; others are there for --checkpoint: {}", others.join(", ")),
        };
        SessionError::Unreadable { hint, source }
    }

    /// What lies among the checkpoints and has such a name, sorted.
    fn entries(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, SessionError> {
        let folder = self.path.join(CHECKPOINTS);
        let entries = fs::read_dir(&folder).map_err(SessionError::file("cannot read", &folder))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if is_wanted(&path.file_name().unwrap_or_default().to_string_lossy()) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Gives a checkpoint another name, and returns that.
fn set_aside(path: &Path) -> Result<PathBuf, SessionError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let names = (1_u32..).map(|n| if n == 1 { format!("aside-{name}") } else { format!("aside-{name}-{n}") });
    let free = names.map(|name| path.with_file_name(name)).find(|path| !path.exists());
    let target = free.expect("there are names enough");
    fs::rename(path, &target).map_err(SessionError::file("cannot rename", path))?;
    Ok(target)
}

pub(crate) fn as_toml(value: &impl Serialize) -> String {
    toml::to_string(value).expect("jobs and models can be written as TOML")
}

/// It does not matter who removes what is to go.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Whether two paths, of which either may be relative, lead to the same place.
fn is_same(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).ok() == fs::canonicalize(other).ok()
}

fn checkpoint_name(step: u64) -> String {
    format!("step-{step:010}")
}

/// A name that is not taken: the model and the time, and a number if need be.
fn free_name(model: &str) -> PathBuf {
    let stem = Path::new(model).file_stem().unwrap_or_default().to_string_lossy().replace([':', ','], "-");
    let plain = format!("{stem}-{}", Date::now().stamp());
    let names = (1_u32..).map(|n| if n == 1 { plain.clone() } else { format!("{plain}-{n}") });
    let mut paths = names.map(|name| Path::new(RUNS).join(name));
    paths.find(|path| !path.exists()).expect("there are names enough")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nettorrent_engine::checkpoint::Progress;
    use nettorrent_engine::job::Job;
    use nettorrent_engine::model::Layout;
    use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
    use nettorrent_files::PartialFolder;

    use super::RunFolder;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn peers_that_have_lost_each_other_can_write_to_one_folder() {
        let place = tempfile::tempdir().unwrap();
        let run = RunFolder::create(Some(&place.path().join("run")), &Job::default(), None).unwrap();
        let layout = Layout::of_tensors([("weights", [3].as_slice())]);
        let optimizer = Optimizer::new(OptimizerSpec::default(), 3);
        let save = |step| {
            let progress = Progress { step, ..Progress::default() };
            run.save(&layout, &[1.0; 3], &optimizer, &progress).unwrap();
            run.remove_old(1).unwrap();
        };
        let checkpoints = run.path().join("checkpoints");
        // What another process is writing, and what one left that was killed.
        let other = PartialFolder::begin_own(&run.checkpoint_path(9)).unwrap();
        std::fs::create_dir(checkpoints.join(".step-0000000003.77.partial")).unwrap();
        (7..9).for_each(save);
        assert_eq!(names(&checkpoints).len(), 3, "{:?}", names(&checkpoints));
        std::fs::write(other.contents().join("model.safetensors"), b"a model").unwrap();
        other.finish().unwrap();
        save(9);
        assert_eq!(names(&checkpoints), [".step-0000000003.77.partial", "step-0000000009"]);
        drop(run.open_events(false).unwrap());
        assert_eq!(names(&checkpoints), ["step-0000000009"]);
    }
}
