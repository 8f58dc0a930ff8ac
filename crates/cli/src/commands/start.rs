//! `start`: begins a swarm that peers on other machines join with a ticket.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use nettorrent_engine::checkpoint::load_weights;
use nettorrent_net::{Load, block_on};
use nettorrent_session::checkpoint_writer::save_values;
use nettorrent_session::needs::{MachineLimits, Needs, check_own};
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::{Invited, Options, Session, SessionError, StartState, Training};

use crate::job_arguments::{JobArguments, definite};
use crate::measuring::MeasuringArguments;
use crate::notice::Notice;
use crate::output::say_line;
use crate::resume_point::resume_point;
use crate::secret_file::read_secret;
use crate::swarm::network::{NetworkArguments, print_ticket, take_part, train};
use crate::ticket_limits::TicketLimitArguments;

/// Arguments of `start`.
#[derive(Args)]
pub(crate) struct StartArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Begin when this many peers are there, this one counted.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4096))]
    wait_for: u64,
    /// Start from these weights (safetensors) instead of random ones.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Resume a run from its latest checkpoint, with the peers that join now; its job is taken, not another. If the run's swarm still
    /// trains, join it instead.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["job", "weights", "run"])]
    resume: Option<PathBuf>,
    /// The folder for this run [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// A file with a secret of at least 32 letters from which the swarm's keys are made, for peers that are all given the same: with it,
    /// `nettorrent ticket --secret-file` makes the ticket anywhere. Whoever has it is the swarm's owner.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    ticket: TicketLimitArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    measuring: MeasuringArguments,
}

/// Runs `start`.
pub(crate) fn start(arguments: &StartArguments) -> anyhow::Result<ExitCode> {
    let StartArguments { network, measuring, .. } = arguments;
    let options = network.options(arguments.wait_for as usize, None, measuring)?;
    let secret = arguments.secret_file.as_deref().map(read_secret).transpose()?;
    let options = Options { ticket: arguments.ticket.limits(), secret, ..options };
    // Said before anything is made.
    options.open_folder()?;
    let (run, training, start) = match &arguments.resume {
        Some(path) => {
            let run = RunFolder::open(path)?;
            if let Some(invited) = block_on(Load { n_processes: 1, n_bytes: 0 }, Invited::again(&run, &options))?? {
                return rejoin(arguments, invited, &run, options);
            }
            resumed(arguments, run)?
        }
        None => fresh(arguments)?,
    };
    let (wait_for, json) = (options.wait_for, network.json);
    block_on(Load { n_processes: 1, n_bytes: training.n_bytes() }, async {
        let (session, ticket) = Session::start(training, start, run.clone(), options).await?;
        measuring.watch(&run)?;
        if json {
            print_ticket(&ticket, &session);
        } else {
            say_line(&format!("Others join with:\n\n  nettorrent join {ticket}\n"));
            let waiting = if wait_for == 1 { String::new() } else { format!(" Waiting for {} more.", wait_for - 1) };
            let limits = arguments.ticket.text();
            say_line(&format!("The ticket lets in whoever has it{limits}.{waiting}"));
            say_line("Where others use the machine, put it into a file and say: nettorrent join --ticket-file FILE");
        }
        train(session, json).await
    })?
}

/// The swarm of the run that is to be resumed still trains: takes part in it.
fn rejoin(arguments: &StartArguments, invited: Invited, run: &RunFolder, options: Options) -> anyhow::Result<ExitCode> {
    let StartArguments { job, network, measuring, .. } = arguments;
    let notice = Notice { json: network.json };
    notice.say(&format!("The swarm of this run still trains (members: {}): joining it", invited.n_members()));
    let settings = job.settings();
    if !settings.is_empty() {
        notice.tell("It trains by its own job: of what is set here only --threads is taken");
    }
    let training = Training::of_run(invited.package(), &run.job(&settings)?)?;
    Needs::of(&training)?.check(&MachineLimits::available(run.path()))?;
    take_part(invited, training, run, options, (measuring, network.json))
}

fn fresh(arguments: &StartArguments) -> anyhow::Result<(RunFolder, Arc<Training>, StartState)> {
    let n_peers = arguments.wait_for as usize;
    let training = Training::from_job(arguments.job.open(&[])?, n_peers)?;
    training.check(n_peers)?;
    check_share(&training)?;
    let values = arguments.weights.as_deref().map(|path| load_weights(path, training.task.layout())).transpose()?;
    let run = training.create_run(arguments.run.as_deref())?;
    let start = match values {
        Some(values) => {
            // The seed alone would not bring these back.
            save_values(&run, &training, &values)?;
            StartState::from_values(&training, values)
        }
        None => StartState::fresh(&training),
    };
    Ok((run, Arc::new(training), start))
}

/// Refuses a network that this machine cannot hold; of one whose layers are shared out it need not hold all.
fn check_share(training: &Training) -> Result<(), SessionError> {
    if training.pipelines.is_some() { Ok(()) } else { check_own(training, 1) }
}

fn resumed(arguments: &StartArguments, run: RunFolder) -> anyhow::Result<(RunFolder, Arc<Training>, StartState)> {
    let job = definite(run.job(&arguments.job.settings())?)?;
    let training = Training::with_model(job, run.described_model()?, arguments.wait_for as usize)?;
    training.check(arguments.wait_for as usize)?;
    let start = match resume_point(&run, None, &Notice { json: arguments.network.json })? {
        Some(checkpoint) => StartState::from_checkpoint(&run, &checkpoint, &training)?,
        None => StartState::fresh(&training),
    };
    let epoch = start.place().ledger.epoch;
    if epoch >= training.job.epochs {
        bail!("the run has done its {epoch} epochs; train it further with --epochs N");
    }
    run.write_job(&training.job)?;
    Ok((run, Arc::new(training), start))
}
