//! The one binary: parses, wires together, prints.

mod asked_swarm;
mod bar;
mod commands;
mod interrupt;
mod job_arguments;
mod measuring;
mod notice;
mod output;
mod panics;
mod progress;
mod resume_point;
mod secret_file;
mod size;
mod socket_address;
mod swarm;
mod ticket;
mod ticket_limits;
mod transport;
mod watching;

use std::process::ExitCode;

#[cfg(feature = "completions")]
use clap::CommandFactory;
use clap::{Parser, Subcommand};
use nettorrent_engine::kernel::{LineAligned, keep_memory};
use nettorrent_swarm::printable::printable;

use crate::output::complain;
use crate::panics::set_panic_hook;

#[global_allocator]
static ALLOCATOR: LineAligned = LineAligned;

/// Trains neural networks across ordinary machines on ordinary networks.
#[derive(Parser)]
#[command(
    name = "nettorrent",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Try it: `nettorrent train` learns the digits that come with the program, in seconds and without a network."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model: a job file, or without one the demonstration.
    Train(commands::train::TrainArguments),
    /// Resume a run from its latest checkpoint.
    Resume(commands::train::ResumeArguments),
    /// Start a swarm: prints a ticket with which others join.
    Start(commands::start::StartArguments),
    /// Join a swarm with its ticket.
    Join(commands::join::JoinArguments),
    /// Launch a swarm on several machines by ssh, follow it, and collect what it learnt.
    Launch(commands::launch::LaunchArguments),
    /// Show who trains in a swarm, how far each is, and whom it waits for.
    Status(commands::status::StatusArguments),
    /// Run a relay of your own, for peers that no straight way leads to (`start --relay`).
    Relay(commands::relay::RelayArguments),
    /// Show again with what others join the swarm of a run.
    Ticket(commands::ticket::TicketCommandArguments),
    /// List who belongs to a swarm; as its owner, remove members and replace its ticket.
    Members(commands::members::MembersArguments),
    /// Simulate a swarm of any size.
    Simulate(commands::simulate::SimulateArguments),
    /// Compare strategies, numbers of peers and links: from a question to a report.
    Study(commands::study::StudyArguments),
    /// Benchmark this machine and its links, predict each strategy's speed, and recommend one.
    Advise(commands::advise::AdviseArguments),
    /// Plan which peers hold which layers of a network, and say how fast that would be.
    Plan(commands::plan::PlanArguments),
    /// List how peers can exchange what they learnt.
    Strategies(commands::strategies::StrategiesArguments),
    /// Test a trained model.
    Eval(commands::eval::EvalArguments),
    /// Continue a text with a trained language model.
    Generate(commands::generate::GenerateArguments),
    /// Say what a trained model takes files for: pictures, recordings, rows of tables or texts.
    Predict(commands::predict::PredictArguments),
    /// Describe models, or write a new one's starting weights.
    #[command(subcommand)]
    Model(commands::model::ModelCommand),
    /// List, fetch and describe data sets.
    #[command(subcommand)]
    Data(commands::data::DataCommand),
    /// Show a run on a page, while it goes and afterwards.
    Dashboard(commands::dashboard::DashboardArguments),
    /// Measure how fast this machine trains a model.
    Bench(commands::bench::BenchArguments),
    /// Print a script that completes the program's words in a shell.
    #[cfg(feature = "completions")]
    #[command(hide = true)]
    Completions(commands::packaging::CompletionsArguments),
    /// Write the manual: a page about the program and one about each command.
    #[cfg(feature = "completions")]
    #[command(hide = true)]
    Man(commands::packaging::ManArguments),
    /// One process of a swarm on this machine; `train --peers` starts these.
    #[command(hide = true)]
    Peer,
}

fn main() -> ExitCode {
    keep_memory();
    set_panic_hook();
    let result = match Arguments::parse().command {
        Command::Train(arguments) => commands::train::train(&arguments),
        Command::Resume(arguments) => commands::train::resume(&arguments),
        Command::Start(arguments) => commands::start::start(&arguments),
        Command::Join(arguments) => commands::join::join(&arguments),
        Command::Launch(arguments) => commands::launch::launch(&arguments),
        Command::Status(arguments) => commands::status::status(&arguments),
        Command::Relay(arguments) => commands::relay::relay(&arguments),
        Command::Ticket(arguments) => commands::ticket::ticket(&arguments),
        Command::Members(arguments) => commands::members::members(&arguments),
        Command::Simulate(arguments) => commands::simulate::simulate(&arguments),
        Command::Study(arguments) => commands::study::study(&arguments),
        Command::Advise(arguments) => commands::advise::advise(&arguments),
        Command::Plan(arguments) => commands::plan::plan(&arguments),
        Command::Strategies(arguments) => commands::strategies::strategies(&arguments),
        Command::Eval(arguments) => commands::eval::eval(&arguments),
        Command::Generate(arguments) => commands::generate::generate(&arguments),
        Command::Predict(arguments) => commands::predict::predict(&arguments),
        Command::Model(command) => commands::model::model(&command),
        Command::Data(command) => commands::data::data(&command),
        Command::Dashboard(arguments) => commands::dashboard::dashboard(&arguments),
        Command::Bench(arguments) => commands::bench::bench(&arguments),
        #[cfg(feature = "completions")]
        Command::Completions(arguments) => Ok(commands::packaging::completions(&arguments, &Arguments::command())),
        #[cfg(feature = "completions")]
        Command::Man(arguments) => commands::packaging::man(&arguments, Arguments::command()),
        Command::Peer => commands::peer::peer(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("error: {}", explain(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes. Some errors tell their cause themselves; it is not told twice.
fn explain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    // Some tell what came from elsewhere.
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
