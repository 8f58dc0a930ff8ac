//! `launch`: the peers of a swarm on several machines, by one command.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_history::{Event, Line};
use nettorrent_launch::{Launch, News, Outcome, Package, ProgramSource, Shell, read_hosts};
use nettorrent_session::event_log::{EventLog, Fate};
use nettorrent_session::live_log::Topology;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_swarm::printable::printable;

use crate::interrupt::{self, Interrupt};
use crate::job_arguments::JobArguments;
use crate::notice::Notice;
use crate::swarm::progress_view::{ProgressView, Shown};
use crate::watching::WatchingArguments;

/// Arguments of `launch`.
#[derive(Args)]
#[command(after_help = "\
A line of the hosts' file names a host as ssh takes it, and what is special about it: `user@lab-3 data=/data/mnist threads=8`. There are \
program=PATH, data=NAME|PATH, address=ADDRESS:PORT (where the others reach it), listen=ADDRESS:PORT and threads=N. Data do not travel: \
they have a name, or are at the job's path, on every host. Each peer's run is in ~/nettorrent/RUN/peer-K at its host.")]
pub(crate) struct LaunchArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Start a peer by ssh on each host that this file names, one a line; the first starts the swarm.
    #[arg(long, value_name = "FILE")]
    ssh: PathBuf,
    /// The command that reaches a host; it is given the host and a command line [default: ssh -T -oBatchMode=yes …].
    #[arg(long, value_name = "COMMAND", value_parser = Shell::new)]
    ssh_command: Option<Shell>,
    /// Copy this program to the hosts even where another of the same version is.
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
    watching: WatchingArguments,
}

/// Runs `launch`.
pub(crate) fn launch(arguments: &LaunchArguments) -> anyhow::Result<ExitCode> {
    let hosts = read_hosts(&arguments.ssh)?;
    let mut job = arguments.job.open(&[])?;
    // Every host has its own number of cores.
    job.threads = arguments.job.threads().unwrap_or(0);
    let package = Package::new(&job)?;
    let shell = arguments.ssh_command.clone().unwrap_or_default();
    let program = ProgramSource::of_this_process(env!("CARGO_PKG_VERSION"), arguments.copy)?;
    if arguments.dry_run {
        let name = arguments.run.as_deref().map_or("MODEL-TIME".into(), file_name);
        print!("{}", Launch { hosts, package, shell, program, name }.dry_run());
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = Interrupt::listen()?;
    let notice = Notice { json: arguments.json };
    let run = RunFolder::create(arguments.run.as_deref(), &job, None)?;
    let events = run.open_events(false)?;
    arguments.watching.start(&run)?;
    let launch = Launch { hosts, package, shell, program, name: file_name(run.path()) };
    notice.say(&format!("Launching {} peers; the run is in {}", launch.hosts.len(), run.path().display()));
    let mut mirror = Mirror { run: &run, events, view: None, json: arguments.json };
    let outcome = launch.run(&run, &interrupt.flag(), |news| mirror.on_news(&news));
    mirror.finish();
    conclude(outcome?, &run, &interrupt, &notice)
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn conclude(outcome: Outcome, run: &RunFolder, interrupt: &Interrupt, notice: &Notice) -> anyhow::Result<ExitCode> {
    let Outcome { finished, failed, collected } = outcome;
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

/// Writes down here, and shows, what happens there.
struct Mirror<'a> {
    run: &'a RunFolder,
    events: EventLog,
    view: Option<ProgressView>,
    json: bool,
}

impl Mirror<'_> {
    fn on_news(&mut self, news: &News<'_>) {
        match news {
            News::Ready(_) => {}
            News::Ticket(ticket) => {
                let kept = ticket.parse().context("no ticket").and_then(|ticket| Ok(self.run.write_ticket(&ticket)?));
                kept.unwrap_or_else(|error| self.tell(&format!("the ticket is not kept: {error}")));
            }
            News::Event(line) => self.on_event((*line).clone()),
            // It comes from another machine.
            News::Said { host, text } => self.tell(&format!("{host}: {}", printable(text))),
            News::Ended { host, status } if !status.success() => self.tell(&format!("{host}: ended with {status}")),
            News::Ended { .. } => {}
        }
    }

    fn on_event(&mut self, mut line: Line) {
        if let Event::Start(start) = &mut line.event {
            start.run = self.run.path().to_owned();
            let shown = Shown { epochs: start.epochs, n_train: start.n_train, measure: start.measure };
            self.view = Some(ProgressView::new(&shown, Topology::OneOfMany, self.json));
        }
        self.events.write_at(Duration::from_secs_f64(line.at_s.max(0.0)), line.event.clone());
        self.view.iter_mut().for_each(|view| view.show(&line, Fate::Written));
    }

    fn tell(&self, text: &str) {
        match &self.view {
            Some(view) => view.tell(text),
            None => Notice { json: self.json }.tell(text),
        }
    }

    fn finish(&mut self) {
        self.view.iter_mut().for_each(ProgressView::finish);
    }
}
