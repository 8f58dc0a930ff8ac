//! From a study to the runs that answer it, each with a name that stays the same.

use std::collections::{BTreeMap, BTreeSet};

use nettorrent_engine::job::{Job, JobError, model_spec};
use nettorrent_engine::nearest::nearest;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::strategies::find;
use toml::{Table, Value};

use crate::axis::{ALONE, AxisSpec, Choice, Effect, is_for_swarms};
use crate::results::{Axis, Facts, Host};
use crate::study::{Study, StudyError};

/// All runs of a study, in their order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job that all runs' arguments start from, as TOML.
    pub job: String,
    /// What is varied.
    pub axes: Vec<Axis>,
    /// The runs: the first trial of every setting, then the second.
    pub runs: Vec<RunSpec>,
}

/// A run that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// Its name, and that of its folder.
    pub id: String,
    /// Each axis and its value, as it is shown. What means nothing to one who trains alone is left out.
    pub setting: BTreeMap<String, String>,
    /// What is run.
    pub facts: Facts,
    /// Which trial, counted from 1.
    pub trial: u32,
    /// Where its randomness comes from.
    pub seed: u64,
    /// The job as it will be run.
    pub job: Job,
    /// The command of the program, such as `train`.
    pub command: &'static str,
    /// Its arguments, but for the job's file and the run's folder.
    pub arguments: Vec<String>,
    /// How many threads all its peers compute with; 0 for as many as the machine has.
    pub n_threads: usize,
    /// The machine of each peer, where they are not on this one.
    pub hosts: Vec<String>,
}

/// Names of folders may not be longer than 255 bytes; the trial comes after this.
const LONGEST_NAME: usize = 200;

/// The command that runs a swarm in the simulator.
const SIMULATE: &str = "simulate";

/// As many as `train` starts.
const MOST_PROCESSES: usize = 1024;

impl Plan {
    /// The runs of a study. Whatever cannot be run is refused here, before anything runs.
    pub fn new(study: &Study) -> Result<Self, StudyError> {
        let mut base = study.job.clone();
        let n_peers = take_peers(&mut base);
        let job = toml::to_string(&base).expect("what was read from TOML can be written as such");
        let mut runs = Vec::new();
        for trial in 1..=study.head.trials {
            let mut seen = BTreeSet::new();
            for choices in combinations(&study.axes) {
                let draft = Draft::new(&choices, n_peers);
                // Trained alone, settings that differ in what a swarm does are the same.
                if seen.insert(draft.setting.clone()) {
                    runs.push(draft.into_run(study, &job, trial)?);
                }
            }
        }
        let mut names = BTreeMap::new();
        for run in &runs {
            if let Some(other) = names.insert(&run.id, run) {
                let problem = format!("its folder would be that of {}; give them other labels", text(&other.setting));
                return Err(StudyError::Setting { setting: text(&run.setting), problem });
            }
        }
        let axes = axes(&study.axes, &runs);
        Ok(Self { job, axes, runs })
    }

    /// Has the peers of all runs be on these machines, one on each; the first of them have the smaller swarms.
    pub fn place(&mut self, hosts: &[String]) -> Result<(), StudyError> {
        for run in &mut self.runs {
            let n_peers = run.facts.n_peers;
            let refuse = |problem| StudyError::Setting { setting: text(&run.setting), problem };
            if run.command == SIMULATE {
                return Err(refuse("the simulator runs on this machine; leave out --hosts and --slurm".into()));
            }
            let own = hosts.get(..n_peers).ok_or_else(|| {
                let (n, them) = (hosts.len(), if hosts.len() == 1 { "there is" } else { "there are" });
                refuse(format!(
                    "it has {n_peers} peers, and {them} {n} to run on; name a host more than once for more peers on it"
                ))
            })?;
            run.hosts = own.to_vec();
        }
        Ok(())
    }

    /// The most peers that a run has.
    pub fn most_peers(&self) -> usize {
        self.runs.iter().map(|run| run.facts.n_peers).max().unwrap_or(0)
    }

    /// Keeps only runs with this value, given as `axis=value`.
    pub fn keep_only(&mut self, wanted: &str) -> Result<(), StudyError> {
        let wrong = |problem: String| StudyError::Setting { setting: wanted.to_owned(), problem };
        let (name, value) = wanted.split_once('=').ok_or_else(|| wrong("write it as axis=value".into()))?;
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let axis = self.axes.iter().find(|axis| axis.name == name);
        let axis = axis.ok_or_else(|| wrong(format!("there is no axis `{name}`; {}", choose(name, &names))))?;
        let values: Vec<&str> = axis.values.iter().map(String::as_str).collect();
        if !values.contains(&value) {
            return Err(wrong(format!("{name} has no `{value}`; {}", choose(value, &values))));
        }
        self.runs.retain(|run| run.setting.get(name).is_some_and(|own| own == value));
        Ok(())
    }
}

/// `there are a, b; did you mean a?`
fn choose(name: &str, known: &[&str]) -> String {
    let hint = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("there are {}{hint}", known.join(", "))
}

/// A setting for people: `peers = 4, strategy = gossip`.
pub fn text(setting: &BTreeMap<String, String>) -> String {
    setting.iter().map(|(axis, value)| format!("{axis} = {value}")).collect::<Vec<_>>().join(", ")
}

/// The number of peers is an argument of each run, so it is taken out of the job that they share.
fn take_peers(job: &mut Table) -> usize {
    let peers = job.get_mut("swarm").and_then(Value::as_table_mut).and_then(|swarm| swarm.remove("peers"));
    peers.and_then(|peers| peers.as_integer()).and_then(|peers| usize::try_from(peers).ok()).unwrap_or(0)
}

/// All combinations of values; the last axis varies fastest.
fn combinations(axes: &[AxisSpec]) -> Vec<Vec<(&str, &Choice)>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let mut longer = Vec::new();
        for start in &all {
            for choice in &axis.choices {
                let mut combination: Vec<(&str, &Choice)> = start.clone();
                combination.push((axis.name.as_str(), choice));
                longer.push(combination);
            }
        }
        all = longer;
    }
    all
}

/// The axes as they are shown, with only those values that a run has.
fn axes(specs: &[AxisSpec], runs: &[RunSpec]) -> Vec<Axis> {
    let shown = |spec: &AxisSpec| {
        let mut values = spec.shown();
        for value in runs.iter().filter_map(|run| run.setting.get(&spec.name)) {
            if !values.contains(value) {
                values.insert(0, value.clone());
            }
        }
        values.retain(|value| runs.iter().any(|run| run.setting.get(&spec.name) == Some(value)));
        Axis { name: spec.name.clone(), values }
    };
    specs.iter().map(shown).collect()
}

/// A setting on its way to being a run.
struct Draft {
    setting: BTreeMap<String, String>,
    fields: Vec<(String, Value)>,
    n_peers: usize,
    link: Option<LinkSpec>,
    folder: String,
}

impl Draft {
    fn new(choices: &[(&str, &Choice)], n_peers: usize) -> Self {
        let mut n_peers = n_peers.max(1);
        for (_, choice) in choices {
            if let Effect::Peers(n) = choice.effect {
                n_peers = n;
            }
        }
        if choices.iter().any(|(_, choice)| choice.effect == Effect::Alone) {
            n_peers = 1;
        }
        let mut draft =
            Self { setting: BTreeMap::new(), fields: Vec::new(), n_peers, link: None, folder: String::new() };
        for (axis, choice) in choices {
            draft.add(axis, choice);
        }
        draft
    }

    fn add(&mut self, axis: &str, choice: &Choice) {
        let is_alone = self.n_peers == 1;
        let shown = match axis {
            "peers" => self.n_peers.to_string(),
            "strategy" if is_alone => ALONE.to_owned(),
            _ if is_alone && is_for_swarms(axis) => return,
            _ => choice.shown.clone(),
        };
        let last_word = axis.rsplit('.').next().unwrap_or(axis);
        self.folder += &format!("{last_word}-{}_", plain(&shown));
        self.setting.insert(axis.to_owned(), shown);
        match &choice.effect {
            Effect::Link(link) => self.link = *link,
            // Options of a strategy mean nothing where there is none.
            Effect::Fields(_) if is_alone && is_for_swarms(axis) => {}
            Effect::Fields(fields) => self.fields.extend(fields.iter().cloned()),
            Effect::Alone | Effect::Peers(_) => {}
        }
    }

    fn into_run(self, study: &Study, base: &str, trial: u32) -> Result<RunSpec, StudyError> {
        let Self { setting, mut fields, n_peers, link, folder } = self;
        let refuse = |problem: String| StudyError::Setting { setting: text(&setting), problem };
        let given = fields.iter().rposition(|(name, _)| name == "seed").map(|k| fields.remove(k).1);
        let given = given.or_else(|| study.job.get("seed").cloned());
        let seed = seed(given.as_ref(), study.seed, trial).map_err(refuse)?;
        fields.push(("seed".to_owned(), Value::Integer(seed)));
        let mut settings: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let job = job_of(base, &mut settings, n_peers).map_err(|error| refuse(error.to_string()))?;
        check(&job, n_peers, study.head.host).map_err(refuse)?;
        let is_alone = n_peers == 1;
        let mut arguments: Vec<String> = settings.into_iter().flat_map(|text| ["--set".to_owned(), text]).collect();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        let (command, n_threads) = match study.head.host {
            Host::Processes => ("train", n_peers * job.threads),
            Host::Sim => (SIMULATE, job.threads),
        };
        if !is_alone || study.head.host == Host::Sim {
            add("--peers", n_peers.to_string());
        }
        if let Some(link) = link {
            add("--link", link.to_string());
        }
        if let (Some(milliseconds), Host::Sim) = (study.sample_ms, study.head.host) {
            add("--sample-ms", milliseconds.to_string());
        }
        let folder: String = folder.chars().take(LONGEST_NAME).collect();
        let facts = Facts {
            strategy: (!is_alone).then(|| job.swarm.strategy.clone()),
            n_peers,
            model: job.model.clone(),
            data: data_name(&job),
            batch: job.batch,
            link: link.map(|link| link.to_string()),
        };
        Ok(RunSpec {
            id: format!("{folder}trial-{trial}"),
            setting,
            facts,
            trial,
            seed: job.seed,
            job,
            command,
            arguments,
            n_threads,
            hosts: Vec::new(),
        })
    }
}

/// The job of a run. What the study's job says of the options of strategies that an axis names, one who trains alone cannot use.
fn job_of(base: &str, settings: &mut Vec<String>, n_peers: usize) -> Result<Job, JobError> {
    let job = Job::parse("the study's job", base, settings)?;
    let is_for_others = find(&job.swarm.strategy).is_ok_and(|strategy| (strategy.build)(&job.swarm.options).is_err());
    if n_peers > 1 || !is_for_others {
        return Ok(job);
    }
    settings.push("swarm.options={}".to_owned());
    Job::parse("the study's job", base, settings)
}

/// Whether a job can be run with so many peers there.
fn check(job: &Job, n_peers: usize, host: Host) -> Result<(), String> {
    if job.python().is_none() {
        model_spec(&job.model, None, None).map_err(|error| error.to_string())?;
    }
    if job.swarm.peers > 0 {
        return Err("the number of peers is the axis `peers`, not a field of the job".into());
    }
    if host == Host::Processes && n_peers > MOST_PROCESSES {
        return Err(format!("at most {MOST_PROCESSES} processes can be started; simulate more (host = \"sim\")"));
    }
    if n_peers > 1 {
        let strategy = find(&job.swarm.strategy).map_err(|error| error.to_string())?;
        (strategy.build)(&job.swarm.options).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The seed of an axis or of the job, or else the study's; each trial has the next one. As a number that TOML has.
fn seed(given: Option<&Value>, usual: u64, trial: u32) -> Result<i64, String> {
    let first = match given {
        Some(value) => value.as_integer().filter(|seed| *seed >= 0).ok_or("a seed is a whole number from 0 up")?,
        None => i64::try_from(usual).map_err(|_| format!("the seed {usual} is too large"))?,
    };
    first.checked_add(i64::from(trial) - 1).ok_or_else(|| format!("the seed {first} is too large"))
}

fn data_name(job: &Job) -> String {
    let path = job.data.path.as_ref().map(|path| path.display().to_string());
    path.or_else(|| job.data.name.clone()).unwrap_or_default()
}

/// Text that may be a part of a folder's name.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    text.chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Plan, text};
    use crate::study::{Form, Study};

    fn plan(text: &str) -> Result<Plan, String> {
        let study = Study::parse("study.toml", text, Path::new(""), Form::Full).unwrap();
        Plan::new(&study).map_err(|error| error.to_string())
    }

    const GRID: &str = r#"
        name = "grid"
        trials = 2
        seed = 7
        [job]
        batch = 16
        [matrix]
        peers = [1, 3]
        strategy = ["gossip", { name = "threshold", label = "one %", options = { density = 0.01 } }]
        link = ["100mbit/20ms"]
        "optimizer.lr" = [0.1, 0.2]
    "#;

    #[test]
    fn who_trains_alone_does_so_once_whatever_swarms_do() {
        let plan = plan(GRID).unwrap();
        let first: Vec<&str> = plan.runs.iter().filter(|run| run.trial == 1).map(|run| run.id.as_str()).collect();
        assert_eq!(
            first,
            [
                "peers-1_strategy-alone_lr-0.1_trial-1",
                "peers-1_strategy-alone_lr-0.2_trial-1",
                "link-100mbit-20ms_peers-3_strategy-gossip_lr-0.1_trial-1",
                "link-100mbit-20ms_peers-3_strategy-gossip_lr-0.2_trial-1",
                "link-100mbit-20ms_peers-3_strategy-one--_lr-0.1_trial-1",
                "link-100mbit-20ms_peers-3_strategy-one--_lr-0.2_trial-1",
            ]
        );
        assert_eq!(plan.runs.len(), 12);
        let (alone, last) = (&plan.runs[0], &plan.runs[11]);
        assert_eq!((alone.facts.strategy.as_deref(), alone.facts.n_peers, alone.seed), (None, 1, 7));
        assert_eq!(alone.arguments, ["--set", "optimizer.lr=0.1", "--set", "seed=7"]);
        assert_eq!((last.trial, last.seed, last.job.batch), (2, 8, 16));
        let expected = "--set swarm.strategy=\"threshold\" --set swarm.options={ density = 0.01 } --set optimizer.lr=0.2 \
                        --set seed=8 --peers 3 --link 100mbit/20ms";
        assert_eq!(last.arguments.join(" "), expected);
        assert_eq!(plan.axes[2].values, ["alone", "gossip", "one %"]);
    }

    #[test]
    fn peers_have_a_machine_each_if_there_are_enough() {
        let mut grid = plan(GRID).unwrap();
        let hosts = ["a", "b", "c", "d"].map(String::from);
        grid.place(&hosts).unwrap();
        assert_eq!(
            (&grid.runs[0].hosts[..], &grid.runs[11].hosts[..], grid.most_peers()),
            (&hosts[..1], &hosts[..3], 3)
        );
        let message = grid.place(&hosts[..2]).unwrap_err().to_string();
        assert!(message.contains("3 peers, and there are 2"), "{message}");
        let mut simulated = plan("name = \"a\"\nhost = \"sim\"").unwrap();
        assert!(simulated.place(&hosts).unwrap_err().to_string().contains("leave out --hosts"));
    }

    #[test]
    fn options_of_strategies_of_an_axis_are_kept_from_one_who_trains_alone() {
        let text =
            "name = \"a\"\njob.swarm.options = { density = 0.1 }\n[matrix]\npeers = [1, 2]\nstrategy = [\"threshold\"]";
        let plan = plan(text).unwrap();
        let alone = &plan.runs[0];
        assert_eq!(alone.arguments.join(" "), "--set seed=1 --set swarm.options={}");
        assert!(alone.job.swarm.options.is_empty());
    }

    #[test]
    fn the_simulator_is_told_how_many_even_if_it_is_one() {
        let plan = plan("name = \"a\"\nhost = \"sim\"\nsample_ms = 0.5\n[matrix]\npeers = [1]").unwrap();
        assert_eq!(plan.runs[0].command, "simulate");
        assert_eq!(plan.runs[0].arguments.join(" "), "--set seed=1 --peers 1 --sample-ms 0.5");
    }

    #[test]
    fn seeds_may_be_an_axis_and_each_trial_has_the_next() {
        let plan = plan("name = \"a\"\ntrials = 2\n[matrix]\nseed = [10, 20]").unwrap();
        let seeds: Vec<(u32, u64, u64)> = plan.runs.iter().map(|run| (run.trial, run.seed, run.job.seed)).collect();
        assert_eq!(seeds, [(1, 10, 10), (1, 20, 20), (2, 11, 11), (2, 21, 21)]);
        let plan = self::plan("name = \"a\"\n[job]\nseed = 5").unwrap();
        assert_eq!(plan.runs[0].seed, 5, "a job may have its own");
    }

    #[test]
    fn a_study_without_axes_is_one_run() {
        let plan = plan("name = \"a\"\n[job]\nswarm.peers = 4").unwrap();
        assert_eq!((plan.runs.len(), plan.runs[0].facts.n_peers), (1, 4));
        assert_eq!(plan.runs[0].id, "trial-1");
        assert!(!plan.job.contains("peers"), "{}", plan.job);
    }

    #[test]
    fn what_cannot_run_is_refused_with_its_setting() {
        for (matrix, answer) in [
            ("\"optimizer.lrr\" = [0.1]", "the setting optimizer.lrr = 0.1 cannot be run"),
            ("\"optimizer.lrr\" = [0.1]", "Did you mean `lr`?"),
            ("model = [\"mlp:32-16\"]", "as in `mlp:512,512`"),
            ("seed = [-1]", "a seed is a whole number from 0 up"),
            ("batch = [0]", "batch = 0: must be at least 1"),
            ("split = [\"clas\"]\npeers = [2]", "class"),
            ("tau = [0.1]\npeers = [2]\nstrategy = [\"gossip\"]", "there is no option `tau`"),
            ("\"swarm.peers\" = [3]\npeers = [2]", "the axis `peers`"),
            ("peers = [2000]", "at most 1024 processes"),
            (
                "peers = [2]\nstrategy = [{ name = \"gossip\", label = \"a b\" }, { name = \"gossip\", label = \"a/b\" }]",
                "labels",
            ),
        ] {
            let message = plan(&format!("name = \"a\"\n[matrix]\n{matrix}")).unwrap_err();
            assert!(message.contains(answer), "{matrix}: {message}");
        }
    }

    #[test]
    fn only_some_runs_can_be_wanted() {
        let mut plan = plan(GRID).unwrap();
        plan.keep_only("strategy=one %").unwrap();
        assert_eq!(plan.runs.len(), 4);
        assert!(plan.runs.iter().all(|run| text(&run.setting).contains("strategy = one %")));
        for (wanted, answer) in [("strategy", "axis=value"), ("peer=3", "`peers`?"), ("peers=4", "there are 1, 3")] {
            assert!(plan.keep_only(wanted).unwrap_err().to_string().contains(answer));
        }
    }
}
