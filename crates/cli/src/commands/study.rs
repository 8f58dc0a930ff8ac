//! `study`: from a question to runs, and from runs to a report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{HumanCount, ProgressBar};
use nettorrent_engine::job::set_field;
use nettorrent_launch::{ProgramSource, Shell, SlurmAllocation, read_hosts};
use nettorrent_study::{
    Cores, Form, Machine, Origin, Outcome, Plan, Progress, READY, RemoteHosts, Results, RunSpec, Runner, RunnerEnd,
    RunnerError, Study, StudyFolder, find, text,
};
use serde_json::json;

use crate::bar::bar;
use crate::interrupt::{self, Interrupt};
use crate::output::{complain, print_line, say_line};
use crate::progress::clock;
use nettorrent_session::date::Date;
use nettorrent_session::open::data_path;

/// Arguments of `study`.
#[derive(Args)]
pub(crate) struct StudyArguments {
    /// The study: a file, or the name of one that comes with the program; without it, those are listed.
    study: Option<String>,
    /// Its short form: two minutes, and data that come with the program.
    #[arg(long)]
    quick: bool,
    /// The folder for its runs and results [default: runs/study-NAME, with -quick, -hosts or -slurm behind it].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Make only the runs with this value, for example `--only strategy=gossip`; may be given several times.
    #[arg(long, value_name = "AXIS=VALUE")]
    only: Vec<String>,
    /// How often each setting is run, instead of as often as the study says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: Option<u32>,
    /// Set any field of the job that all runs share, for example `--set epochs=2`; may be given several times.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    settings: Vec<String>,
    /// Make several runs at the same time, each on processors of its own: one for each thread of each peer (Linux).
    #[arg(long)]
    side_by_side: bool,
    /// Have every peer on a machine of its own: this file names the hosts, one a line, as with `launch --ssh`. A swarm of N is on the
    /// first N.
    #[arg(long, value_name = "FILE", conflicts_with = "side_by_side")]
    hosts: Option<PathBuf>,
    /// The same on the nodes of the Slurm allocation in which this is run: a peer a node, or as many as its `--ntasks-per-node`.
    #[arg(long, conflicts_with_all = ["hosts", "side_by_side"])]
    slurm: bool,
    /// The command that reaches a host; it is given the host and a command line [default: ssh -T -oBatchMode=yes …].
    #[arg(long, value_name = "COMMAND", value_parser = Shell::new, requires = "hosts")]
    ssh_command: Option<Shell>,
    /// List the runs and make none.
    #[arg(long)]
    list: bool,
    /// Make the report again from the runs that are done in this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["study", "quick", "out", "only", "trials", "settings", "side_by_side", "hosts", "slurm", "list"])]
    report: Option<PathBuf>,
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs `study`.
pub(crate) fn study(arguments: &StudyArguments) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &arguments.report {
        report(&StudyFolder::results(folder)?, folder, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(name) = &arguments.study else { return list_studies(arguments.json) };
    let study = open(name, arguments)?;
    let mut all = Plan::new(&study)?;
    let hosts = hosts(arguments)?;
    if let Some(hosts) = &hosts {
        all.place(&hosts.names())?;
    }
    let mut plan = all.clone();
    arguments.only.iter().try_for_each(|wanted| plan.keep_only(wanted))?;
    if arguments.list {
        return list_runs(&plan, arguments.json);
    }
    check_data(&plan)?;
    let origin = Origin {
        command: shell_words::join(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        commit: env!("NETTORRENT_COMMIT").to_owned(),
        date: Date::now().text(),
        is_side_by_side: arguments.side_by_side,
        machines: hosts.as_ref().map_or(Ok(vec![Machine::here()]), |hosts| hosts.machines(all.most_peers()))?,
    };
    let path = arguments.out.clone().unwrap_or_else(|| default_folder(&study, arguments));
    let folder = StudyFolder::open(&path, &study, &all, &origin)?;
    let (program, interrupt) = (std::env::current_exe().context("cannot find this program")?, Interrupt::listen()?);
    let is_stopped = || interrupt.is_set();
    let cores = if arguments.side_by_side { Cores::divided().map_err(RunnerError::Cores)? } else { Cores::undivided() };
    let (hosts, timeout) = (hosts.as_ref(), study.timeout);
    let runner = Runner { program: &program, folder: &folder, hosts, timeout, cores, is_stopped: &is_stopped };
    let display = Display::new(&plan, arguments.json);
    display.say(&format!("{}: {} runs; all is in {}", study.head.name, plan.runs.len(), path.display()));
    let end = runner.run(&plan, &mut |progress| display.show(progress));
    display.bar.finish_and_clear();
    let end = end?;
    let results = folder.collect()?;
    report(&results, folder.path(), arguments.json)?;
    if end == RunnerEnd::Stopped {
        eprintln!("Stopped; what is done is kept. The same command goes on.");
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    let failed = results.runs.iter().filter(|run| run.measurement().is_none()).count();
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The study, as the arguments change it.
fn open(name: &str, arguments: &StudyArguments) -> anyhow::Result<Study> {
    let mut study = find(name, if arguments.quick { Form::Quick } else { Form::Full })?;
    study.head.trials = arguments.trials.unwrap_or(study.head.trials);
    arguments.settings.iter().try_for_each(|setting| set_field(&mut study.job, setting))?;
    Ok(study)
}

/// The machines on which peers are to be, if not on this one.
fn hosts(arguments: &StudyArguments) -> anyhow::Result<Option<RemoteHosts>> {
    let (hosts, shell) = match &arguments.hosts {
        Some(file) => (read_hosts(file)?, arguments.ssh_command.clone().unwrap_or_default()),
        None if arguments.slurm => {
            let SlurmAllocation { hosts, shell } = SlurmAllocation::of_this_process()?;
            (hosts, shell)
        }
        None => return Ok(None),
    };
    // Another build of the same version might be slower or faster.
    let program = ProgramSource::of_this_process(env!("CARGO_PKG_VERSION"), true)?;
    Ok(Some(RemoteHosts::new(hosts, shell, program)))
}

fn default_folder(study: &Study, arguments: &StudyArguments) -> PathBuf {
    let quick = if study.head.is_quick { "-quick" } else { "" };
    let place = match arguments {
        StudyArguments { hosts: Some(_), .. } => "-hosts",
        StudyArguments { slurm: true, .. } => "-slurm",
        _ => "",
    };
    Path::new("runs").join(format!("study-{}{quick}{place}", study.head.name))
}

/// Data that are not there are better missed now than after hours.
fn check_data(plan: &Plan) -> anyhow::Result<()> {
    for run in &plan.runs {
        data_path(&run.job.data)?;
        if let Some(path) = run.job.data.path.as_deref().filter(|path| !path.exists()) {
            bail!("there are no data at {}", path.display());
        }
    }
    Ok(())
}

fn list_studies(json: bool) -> anyhow::Result<ExitCode> {
    let mut list = Vec::new();
    for ready in READY {
        let study = ready.open(Form::Full)?;
        let n_runs = Plan::new(&study)?.runs.len();
        list.push((ready.name, study.head.about, n_runs));
    }
    if json {
        let list: Vec<_> =
            list.iter().map(|(name, about, n)| json!({ "name": name, "about": about, "n_runs": n })).collect();
        print_line!("{}", serde_json::to_string(&list)?);
        return Ok(ExitCode::SUCCESS);
    }
    print_line!("Studies that come with the program:\n");
    for (name, about, n_runs) in list {
        print_line!("{name} ({n_runs} runs)\n    {}\n", about.trim());
    }
    print_line!("Try one: nettorrent study averaging --quick");
    Ok(ExitCode::SUCCESS)
}

fn list_runs(plan: &Plan, json: bool) -> anyhow::Result<ExitCode> {
    for run in &plan.runs {
        let RunSpec { id, setting, trial, seed, command, arguments, .. } = run;
        if json {
            print_line!(
                "{}",
                json!({
                    "id": id, "setting": setting, "trial": trial, "seed": seed, "command": command,
                    "arguments": arguments,
                })
            );
        } else {
            print_line!("{}, trial {trial}", text(setting));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes what people read.
fn report(results: &Results, folder: &Path, json: bool) -> anyhow::Result<()> {
    nettorrent_study::report::write(results, folder)?;
    if let Some(unfit) = results.study.targets.unfit(results.measure()) {
        complain(&format!("note: {unfit}"));
    }
    if json {
        print_line!("{}", serde_json::to_string(results)?);
    } else {
        print_line!("\n{}", nettorrent_study::report::text_table(results));
        print_line!("The report: {}", folder.join("report.html").display());
    }
    Ok(())
}

/// A bar over all runs, and a line for each that is done.
struct Display {
    bar: ProgressBar,
    quiet: bool,
}

impl Display {
    fn new(plan: &Plan, quiet: bool) -> Self {
        Self { bar: bar(plan.runs.len() as u64, "{pos}/{len} {bar:24.cyan/dim} {msg}", quiet), quiet }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.bar.suspend(|| say_line(line));
        }
    }

    fn show(&self, progress: &Progress<'_>) {
        self.bar.set_position(progress.n_done as u64);
        let left = progress.left.map_or(String::new(), |left| format!("  {} left", clock(round_up(left))));
        let failed = if progress.n_failed > 0 { format!("  {} failed", progress.n_failed) } else { String::new() };
        let running = match progress.running.as_slice() {
            [] => String::new(),
            [run] => format!("{}, trial {}", text(&run.setting), run.trial),
            many => format!("{} runs go on", many.len()),
        };
        self.bar.set_message(format!("{running}{failed}{left}"));
        let Some(result) = progress.result else { return };
        let what = match &result.outcome {
            Outcome::Done(found) => format!(
                "{}  {:.1} s  {} samples/s",
                found.measure.value_text(found.final_value),
                found.total_s,
                HumanCount(found.samples_per_s as u64)
            ),
            Outcome::Failed(problem) => format!("failed: {problem}"),
        };
        let (n_done, n_runs) = (progress.n_done, progress.n_runs);
        self.say(&format!("{n_done}/{n_runs}  {}, trial {}: {what}", text(&result.setting), result.trial));
    }
}

/// `0:00 left` while something still goes on would be a lie.
fn round_up(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + 1)
}
