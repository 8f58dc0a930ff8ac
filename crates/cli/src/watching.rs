//! Watching a run from elsewhere: its page in a browser, its numbers for Prometheus.

use std::net::SocketAddr;

use clap::Args;
use nettorrent_dashboard::{DashboardError, Server, Settings, Shows};
use nettorrent_net::addresses::reachable_addresses;

use nettorrent_session::run_folder::RunFolder;

use crate::output::complain;
use crate::socket_address::socket_address;

/// Where the page is, unless somebody wants it elsewhere.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7700";

/// Who watches.
#[derive(Args)]
#[command(next_help_heading = "Watching")]
pub(crate) struct WatchingArguments {
    /// Show the run on a page while it goes [default address: 127.0.0.1:7700].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address, num_args = 0..=1, default_missing_value = DEFAULT_ADDRESS)]
    dashboard: Option<SocketAddr>,
    /// Serve the run's numbers for Prometheus at this address.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
}

impl WatchingArguments {
    /// Begins to serve what is asked for, until the process ends; says where.
    pub(crate) fn start(&self, run: &RunFolder) -> Result<(), DashboardError> {
        // On standard error, since another program may be reading the events on standard output.
        if let Some(address) = self.dashboard {
            complain(&format!("The run is shown at {}", url(&serve(run, address, Shows::Page)?)));
        }
        if let Some(address) = self.metrics {
            complain(&format!("Prometheus finds the run's numbers at {}", url(&serve(run, address, Shows::Metrics)?)));
        }
        Ok(())
    }
}

/// Where to look, from other machines too if they may.
pub(crate) fn url(server: &Server) -> String {
    let address = reachable_addresses(server.address()).into_iter().next();
    server.url(address.unwrap_or(server.address()))
}

/// Serves a run.
pub(crate) fn serve(run: &RunFolder, address: SocketAddr, shows: Shows) -> Result<Server, DashboardError> {
    let name = run.path().display().to_string();
    Server::start(Settings { events: run.events(), name, address, shows })
}
