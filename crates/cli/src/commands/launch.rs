//! `launch`: the peers of a swarm on several machines, by one command.

mod cluster;
mod kubernetes;
mod mirror;
mod ray;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use nettorrent_engine::job::Job;
use nettorrent_launch::{
    Host, Launch, LaunchError, Manner, News, Outcome, Package, PeerSettings, ProgramSource, Ray, Scheduler,
    SharedFolder, SharedLaunch, Shell, Transcript, read_hosts,
};
use nettorrent_session::run_folder::RunFolder;
use nettorrent_swarm::printable::printable;

use crate::interrupt::{self, Interrupt};
use crate::job_arguments::JobArguments;
use crate::notice::Notice;
use crate::output::print_text;
use crate::watching::WatchingArguments;
use cluster::{MpiArguments, SlurmArguments, scheduler};
use kubernetes::{KubernetesArguments, apply};
use mirror::Mirror;
use ray::RayArguments;

/// What stands for the run's name where there is none yet.
const SOME_RUN: &str = "MODEL-TIME";

/// Arguments of `launch`.
#[derive(Args)]
#[command(group(ArgGroup::new("where").required(true).args(["ssh", "slurm", "mpi", "ray", "k8s"])), after_help = "\
A line of the hosts' file names a host as ssh takes it, and what is special about it: `user@lab-3 data=/data/mnist threads=8`. There are \
program=PATH, data=NAME|PATH, address=ADDRESS:PORT (where the others reach it), listen=ADDRESS:PORT and threads=N. Data do not travel: \
they have a name, or are at the job's path, on every machine. Each peer's run is in ~/nettorrent/RUN/peer-K at its host with --ssh and --ray, and in \
RUN/peers/attempt-N/peer-K with --slurm and --mpi, where the ticket lies in files that only you can read; with --k8s it is in the pod's /peer/run.")]
pub(crate) struct LaunchArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Start a peer by ssh on each host that this file names, one a line; the first starts the swarm.
    #[arg(long, value_name = "FILE")]
    ssh: Option<PathBuf>,
    /// The command that reaches a host; it is given the host and a command line [default: ssh -T -oBatchMode=yes …].
    #[arg(long, value_name = "COMMAND", value_parser = Shell::new, requires = "ssh")]
    ssh_command: Option<Shell>,
    /// The number of peers, with --mpi and --k8s.
    #[arg(long, value_name = "N", conflicts_with_all = ["ssh", "slurm", "ray"], value_parser = clap::value_parser!(u64).range(1..=4096))]
    peers: Option<u64>,
    /// The number of nodes, each with a peer, with --slurm and --ray [default with --ray: all that the cluster has].
    #[arg(long, value_name = "N", conflicts_with_all = ["ssh", "mpi", "k8s"], value_parser = clap::value_parser!(u64).range(1..=4096))]
    nodes: Option<u64>,
    /// The processors that each peer reserves, for a compute thread each, with --k8s and --ray [default: 1 with --k8s, all of a node with
    /// --ray].
    #[arg(long, value_name = "N", conflicts_with_all = ["ssh", "slurm", "mpi"], value_parser = clap::value_parser!(u64).range(1..=1024))]
    cpus: Option<u64>,
    /// Copy this program: to the hosts even where another of the same version is, or into the run's folder, for nodes that do not have it
    /// at the same path.
    #[arg(long)]
    copy: bool,
    /// The folder for this run [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print events as lines of JSON instead of a progress display.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    slurm: SlurmArguments,
    #[command(flatten)]
    mpi: MpiArguments,
    #[command(flatten)]
    ray: RayArguments,
    #[command(flatten)]
    k8s: KubernetesArguments,
    #[command(flatten)]
    watching: WatchingArguments,
}

/// Runs `launch`.
pub(crate) fn launch(arguments: &LaunchArguments) -> anyhow::Result<ExitCode> {
    let mut job = arguments.job.open(&[])?;
    // Every machine has its own number of cores.
    job.threads = arguments.job.threads().unwrap_or(0);
    if let Some((scheduler, n_peers)) = scheduler(&arguments.slurm, &arguments.mpi, (arguments.nodes, arguments.peers))?
    {
        return by_scheduler(arguments, &mut job, scheduler, n_peers);
    }
    if arguments.k8s.is_asked() {
        return by_kubernetes(arguments, &job);
    }
    if let Some(cluster) = arguments.ray.cluster(arguments.nodes, arguments.cpus) {
        return by_ray(arguments, &job, &cluster);
    }
    let hosts = arguments.ssh.as_deref().context("say where to launch, with --ssh FILE for example")?;
    by_ssh(arguments, &job, hosts)
}

fn by_ssh(arguments: &LaunchArguments, job: &Job, hosts: &Path) -> anyhow::Result<ExitCode> {
    let hosts = read_hosts(hosts)?;
    let package = Package::new(job)?;
    let shell = arguments.ssh_command.clone().unwrap_or_default();
    let program = ProgramSource::of_this_process(env!("CARGO_PKG_VERSION"), arguments.copy)?;
    let launch = |name| Launch { hosts: hosts.clone(), package, shell, program, name, manner: Manner::default() };
    if arguments.dry_run {
        let name = arguments.run.as_deref().map_or(SOME_RUN.into(), file_name);
        print_text(&launch(name).dry_run());
        return Ok(ExitCode::SUCCESS);
    }
    let peers = format!("{} peers", hosts.len());
    follow(arguments, job, &peers, |run, interrupt, tell| {
        launch(file_name(run.path())).run(run, &|| interrupt.is_set(), tell)
    })
}

fn by_ray(arguments: &LaunchArguments, job: &Job, cluster: &Ray) -> anyhow::Result<ExitCode> {
    let package = Package::new(job)?;
    let program = ProgramSource::of_this_process(env!("CARGO_PKG_VERSION"), arguments.copy)?;
    let launch = |name: String, mut hosts: Vec<Host>, shell| {
        if let Some(threads) = arguments.job.threads() {
            hosts.iter_mut().for_each(|host| host.threads = Some(threads));
        }
        Launch { hosts, package, shell, program, name, manner: Manner::default() }
    };
    if arguments.dry_run {
        let name = arguments.run.as_deref().map_or(SOME_RUN.into(), file_name);
        print_text(&cluster.dry_run(|hosts, shell| launch(name, hosts, shell)));
        return Ok(ExitCode::SUCCESS);
    }
    let peers = arguments.nodes.map_or("a peer on each node".to_owned(), |n| format!("{n} peers"));
    follow(arguments, job, &peers, |run, interrupt, tell| {
        let is_stopped = || interrupt.is_set();
        let Some(places) = cluster.reserve(&is_stopped)? else { return Ok(Outcome::default()) };
        launch(file_name(run.path()), places.hosts.clone(), places.shell.clone()).run(run, &is_stopped, tell)
    })
}

fn by_scheduler(
    arguments: &LaunchArguments,
    job: &mut Job,
    mut scheduler: Box<dyn Scheduler>,
    n_peers: usize,
) -> anyhow::Result<ExitCode> {
    // All share the files, so a path from here is good there.
    if let Some(path) = &mut job.data.path {
        *path = std::path::absolute(&*path)?;
    }
    let package = Package::new(job)?;
    let settings = PeerSettings { n_peers, threads: arguments.job.threads(), copies_program: arguments.copy };
    let plan = |run: &Path| SharedFolder::plan(&run.join("peers"), &package, &settings);
    if arguments.dry_run {
        let run = arguments.run.clone().unwrap_or_else(|| Path::new("runs").join(SOME_RUN));
        print_text(&SharedLaunch { folder: plan(&run)?, scheduler: &mut *scheduler }.dry_run()?);
        return Ok(ExitCode::SUCCESS);
    }
    follow(arguments, job, &format!("{n_peers} peers"), |run, interrupt, tell| {
        SharedLaunch { folder: plan(run.path())?, scheduler: &mut *scheduler }.run(run, &|| interrupt.is_set(), tell)
    })
}

fn by_kubernetes(arguments: &LaunchArguments, job: &Job) -> anyhow::Result<ExitCode> {
    let name = arguments.run.as_deref().unwrap_or(Path::new(&job.model));
    let swarm = arguments.k8s.swarm(
        &name.file_stem().unwrap_or_default().to_string_lossy(),
        arguments.peers,
        arguments.cpus,
    )?;
    let package = Package::new(job)?;
    if arguments.dry_run {
        print_text(&swarm.yaml(&package)?);
        return Ok(ExitCode::SUCCESS);
    }
    apply(&swarm, &package)
}

/// Launches peers, and shows and writes down here what they tell.
fn follow(
    arguments: &LaunchArguments,
    job: &Job,
    peers: &str,
    launch: impl FnOnce(&RunFolder, &Interrupt, &mut dyn FnMut(News<'_>)) -> Result<Outcome, LaunchError>,
) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let notice = Notice { json: arguments.json };
    let run = RunFolder::create(arguments.run.as_deref(), job, None)?;
    let mut mirror = Mirror::new(Transcript::new(&run)?, arguments.json);
    arguments.watching.start(&run)?;
    notice.say(&format!("Launching {peers}; the run is in {}", run.path().display()));
    let outcome = launch(&run, &interrupt, &mut |news| mirror.on_news(&news));
    mirror.finish();
    conclude(outcome?, &run, &interrupt, &notice)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn conclude(outcome: Outcome, run: &RunFolder, interrupt: &Interrupt, notice: &Notice) -> anyhow::Result<ExitCode> {
    let Outcome { finished, failed, collected, .. } = outcome;
    let path = run.path().display();
    let got = match &collected {
        Some(host) => format!("the newest checkpoint of {host} is in {path}"),
        None => "no host had a checkpoint to collect".to_owned(),
    };
    if interrupt.is_set() && finished.is_empty() {
        notice.tell(&format!("Stopped; {got}"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    let problems: Vec<String> = failed.iter().map(|(host, said)| format!("{host}: {}", printable(said))).collect();
    if finished.is_empty() {
        bail!("no peer finished; {got}\n{}", problems.join("\n"));
    }
    if collected.is_none() {
        bail!("{} of {} peers finished, and {got}", finished.len(), finished.len() + failed.len());
    }
    for problem in &problems {
        notice.tell(&format!("Did not finish: {problem}"));
    }
    notice.say(&format!("Finished: {} of {} peers; {got}", finished.len(), finished.len() + failed.len()));
    notice.say(&format!("Evaluate with: nettorrent eval {path}"));
    Ok(ExitCode::SUCCESS)
}
