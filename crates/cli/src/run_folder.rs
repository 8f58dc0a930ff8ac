//! A run's folder: the job as it was run, the model's description, the events, and the checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nettorrent_engine::checkpoint::{self, Progress};
use nettorrent_engine::job::{Job, build_network, read_toml};
use nettorrent_engine::model::{Layout, ModelSpec, Network};
use nettorrent_engine::optimizer::Optimizer;

use crate::date::Date;

const JOB_FILE: &str = "job.toml";
const MODEL_FILE: &str = "model.toml";
const EVENTS_FILE: &str = "events.jsonl";
const CHECKPOINTS: &str = "checkpoints";
/// How the names of checkpoints end that are being removed, and of those that are being written.
const REMOVED: &str = ".removed";
const PARTIAL: &str = ".partial";

/// The folder of one run.
#[derive(Clone)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// A new one: at this path, or under `runs/` with the model's name and the time.
    pub(crate) fn create(path: Option<&Path>, job: &Job, model: &ModelSpec) -> anyhow::Result<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => free_name(&job.model),
        };
        if path.join(JOB_FILE).exists() {
            let shown = path.display();
            bail!("{shown} holds a run already; go on with it by `nettorrent resume {shown}`, or choose another --run");
        }
        let run = Self { path };
        let create = || -> anyhow::Result<()> {
            fs::create_dir_all(run.path.join(CHECKPOINTS))?;
            checkpoint::write_file(&run.path.join(MODEL_FILE), toml::to_string(model)?.as_bytes())?;
            run.write_job(job)
        };
        create().with_context(|| format!("cannot make the run's folder {}", run.path.display()))?;
        Ok(run)
    }

    /// One that exists.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if !path.join(JOB_FILE).is_file() {
            let shown = path.display();
            bail!(
                "{shown} is no run: it has no {JOB_FILE}; runs are the folders that `nettorrent train` makes, under runs/"
            );
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What to tell who wants to go on with a run that is done.
    pub(crate) fn is_done_text(&self, epoch: u64) -> String {
        let path = self.path.display();
        format!("The run has done its {epoch} epochs; train it further with `nettorrent resume {path} --epochs N`.")
    }

    pub(crate) fn events(&self) -> PathBuf {
        self.path.join(EVENTS_FILE)
    }

    pub(crate) fn job(&self, settings: &[String]) -> anyhow::Result<Job> {
        Ok(Job::open(&self.path.join(JOB_FILE), settings)?)
    }

    /// Replaces the job, so that a run which is stopped again goes on with what it was told last.
    pub(crate) fn write_job(&self, job: &Job) -> anyhow::Result<()> {
        Ok(checkpoint::write_file(&self.path.join(JOB_FILE), toml::to_string(job)?.as_bytes())?)
    }

    pub(crate) fn network(&self) -> anyhow::Result<Network> {
        let spec = self.model_spec()?;
        Ok(build_network(&self.path.join(MODEL_FILE).display().to_string(), &spec)?)
    }

    pub(crate) fn model_spec(&self) -> anyhow::Result<ModelSpec> {
        let path = self.path.join(MODEL_FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(read_toml(&path.display().to_string(), &text)?)
    }

    /// The checkpoints that are whole, oldest first.
    pub(crate) fn checkpoints(&self) -> anyhow::Result<Vec<PathBuf>> {
        // Numbers are padded, so that the order of names is the order of steps; what is half written or half removed has
        // another name.
        self.entries(|name| name.starts_with("step-"))
    }

    /// The checkpoint that is meant: a path, or the name of one in this run, or the newest; none in a run that was ended
    /// before its first.
    pub(crate) fn choose(&self, asked: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        let Some(asked) = asked else { return Ok(self.checkpoints()?.pop()) };
        let inside = self.path.join(CHECKPOINTS).join(asked);
        Ok(Some(if !asked.exists() && inside.exists() { inside } else { asked.to_owned() }))
    }

    /// Saves a state and removes what is older than the newest `keep`.
    pub(crate) fn save(
        &self,
        layout: &Layout,
        values: &[f32],
        optimizer: &Optimizer,
        progress: &Progress,
        keep: usize,
    ) -> anyhow::Result<PathBuf> {
        let path = self.checkpoint_path(progress.step);
        if !path.exists() {
            checkpoint::save(&path, layout, values, optimizer, progress)?;
        }
        self.remove_old(keep)?;
        Ok(path)
    }

    /// Where the checkpoint after a step is.
    pub(crate) fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.path.join(CHECKPOINTS).join(checkpoint_name(step))
    }

    /// Removes what is older than the newest `keep`, and what was never whole.
    pub(crate) fn remove_old(&self, keep: usize) -> anyhow::Result<()> {
        let all = self.checkpoints()?;
        for old in &all[..all.len().saturating_sub(keep)] {
            // Renamed first: if we are killed while it is removed, half a checkpoint must not look like a whole one.
            let name = old.file_name().unwrap_or_default().to_string_lossy();
            let removed = old.with_file_name(format!(".{name}{REMOVED}"));
            fs::rename(old, removed).with_context(|| format!("cannot remove the old checkpoint {}", old.display()))?;
        }
        // These, and what a process that was killed has left.
        for rest in
            self.entries(|name| name.starts_with('.') && (name.ends_with(REMOVED) || name.ends_with(PARTIAL)))?
        {
            fs::remove_dir_all(&rest).with_context(|| format!("cannot remove {}", rest.display()))?;
        }
        Ok(())
    }

    /// Reads a checkpoint of this run.
    pub(crate) fn load(
        &self,
        checkpoint: &Path,
        layout: &Layout,
        optimizer: &mut Optimizer,
    ) -> anyhow::Result<(Vec<f32>, Progress)> {
        checkpoint::load(checkpoint, layout, optimizer).with_context(|| self.unreadable(checkpoint))
    }

    /// Reads only the model of a checkpoint.
    pub(crate) fn load_model(&self, checkpoint: &Path, layout: &Layout) -> anyhow::Result<Vec<f32>> {
        let path = checkpoint.join(checkpoint::MODEL_FILE);
        checkpoint::load_weights(&path, layout).with_context(|| self.unreadable(checkpoint))
    }

    /// Takes the checkpoints that are not in the past of this one out of the way: training goes on from it, and would
    /// otherwise meet states of another course, or the damaged ones that it was chosen instead of. Nothing is deleted.
    pub(crate) fn set_aside_after(&self, checkpoint: &Path, step: u64) -> anyhow::Result<Vec<PathBuf>> {
        let mut moved = Vec::new();
        for path in self.checkpoints()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if *name < *checkpoint_name(step) || is_same(&path, checkpoint) {
                continue;
            }
            let names = (1_u32..).map(|n| if n == 1 { format!("aside-{name}") } else { format!("aside-{name}-{n}") });
            let free = names.map(|name| path.with_file_name(name)).find(|path| !path.exists());
            let target = free.expect("there are names enough");
            fs::rename(&path, &target).with_context(|| format!("cannot rename {}", path.display()))?;
            moved.push(target);
        }
        Ok(moved)
    }

    fn unreadable(&self, checkpoint: &Path) -> String {
        let others = self.checkpoints().unwrap_or_default();
        let others: Vec<String> = others
            .iter()
            .filter(|other| !is_same(other, checkpoint))
            .map(|other| other.display().to_string())
            .collect();
        match others.as_slice() {
            [] => "cannot read the run's only checkpoint".to_owned(),
            _ => format!("cannot read the checkpoint; others are there for --checkpoint: {}", others.join(", ")),
        }
    }

    /// What lies among the checkpoints and has such a name, sorted.
    fn entries(&self, is_wanted: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
        let folder = self.path.join(CHECKPOINTS);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
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
    let mut paths = names.map(|name| Path::new("runs").join(name));
    paths.find(|path| !path.exists()).expect("there are names enough")
}
