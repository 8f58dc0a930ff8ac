//! `relay`: a relay of one's own, for peers that no straight way leads to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Arguments of `relay`.
#[derive(Args)]
#[command(after_help = "\
A relay passes on what peers have encrypted, and tells each where it is seen from outside, so that two may find a straight way through \
their routers. It has to be where all peers reach it, with its port open for TCP and UDP, and it serves whoever reaches it.")]
pub(crate) struct RelayArguments {
    /// Where to listen, for TCP and UDP.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:3340")]
    listen: SocketAddr,
    /// Serve HTTPS instead of HTTP, with the certificates in this file (PEM). Peers accept those that browsers or their
    /// machines accept; SSL_CERT_FILE=FILE has one accept others.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of --certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Print where it is as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `relay`.
#[cfg(feature = "routers")]
pub(crate) fn relay(arguments: &RelayArguments) -> anyhow::Result<ExitCode> {
    use nettorrent_net::{Load, block_on};
    use nettorrent_routers::{Certificate, Relay};

    use crate::output::print_line;
    let files = arguments.certificate.clone().zip(arguments.key.clone());
    let certificate = files.map(|(chain, key)| Certificate { chain, key });
    block_on(Load { n_processes: 1, n_bytes: usize::MAX }, async {
        let mut relay = Relay::start(arguments.listen, certificate.as_ref()).await?;
        let (address, url) = (relay.address(), relay.url("HOST"));
        if arguments.json {
            print_line!("{}", serde_json::json!({ "event": "relay", "address": address, "url": url }));
        } else {
            print_line!("The relay listens at {address}, for TCP and UDP. Where peers reach this machine as HOST:");
            print_line!("\n  nettorrent start --relay {url}\n");
            print_line!("Ctrl-C ends it.");
        }
        Err(relay.ended().await.into())
    })?
}

/// See there.
#[cfg(not(feature = "routers"))]
pub(crate) fn relay(arguments: &RelayArguments) -> anyhow::Result<ExitCode> {
    // They are read where there is a relay to run.
    let RelayArguments { listen: _, certificate: _, key: _, json: _ } = arguments;
    anyhow::bail!(crate::transport::WITHOUT_ROUTERS)
}
