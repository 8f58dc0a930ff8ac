//! `completions` and `man`: what a package brings along beside the program, made from the definition of its arguments.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print_text;

/// Arguments of `completions`.
#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// For which shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args)]
pub(crate) struct ManArguments {
    /// The folder to write the pages to.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Runs `completions`.
pub(crate) fn completions(arguments: &CompletionsArguments, program: &Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut without_hidden(program), "nettorrent", &mut script);
    print_text(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Runs `man`.
pub(crate) fn man(arguments: &ManArguments, program: Command) -> anyhow::Result<ExitCode> {
    let folder = &arguments.output;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(program.disable_help_subcommand(true), folder))
        .with_context(|| format!("the manual cannot be written to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The program with only those commands that its help lists: scripts for most shells would offer the others too.
fn without_hidden(program: &Command) -> Command {
    let listed: Vec<Command> = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let mut shown = Command::new("nettorrent").version(env!("CARGO_PKG_VERSION")).subcommands(listed);
    if let Some(about) = program.get_about() {
        shown = shown.about(about.clone());
    }
    shown
}
