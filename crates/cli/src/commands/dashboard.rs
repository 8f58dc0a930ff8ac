//! `dashboard`: a page that shows a run, while it goes and afterwards.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use nettorrent_dashboard::{Server, Shows};

use crate::output::print_line;
use crate::socket_address::socket_address;
use crate::watching::{DEFAULT_ADDRESS, serve, url};
use nettorrent_session::run_folder::RunFolder;

/// Arguments of `dashboard`.
#[derive(Args)]
pub(crate) struct DashboardArguments {
    /// The run's folder.
    run: PathBuf,
    /// Where to serve it. Elsewhere than on this machine the page asks for a token, which is printed.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address, default_value = DEFAULT_ADDRESS)]
    address: SocketAddr,
    /// Print where it is as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `dashboard`.
pub(crate) fn dashboard(arguments: &DashboardArguments) -> anyhow::Result<ExitCode> {
    let run = RunFolder::open(&arguments.run)?;
    let server: Server = serve(&run, arguments.address, Shows::Page)?;
    if arguments.json {
        print_line!("{}", serde_json::json!({ "event": "dashboard", "url": url(&server) }));
    } else {
        print_line!("The run is shown at {}", url(&server));
        print_line!("Ctrl-C ends this; training goes on without it.");
    }
    server.wait()?;
    Ok(ExitCode::SUCCESS)
}
