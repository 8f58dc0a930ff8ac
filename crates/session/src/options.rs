//! How a peer takes part.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::fingerprint;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::machine::Machine;
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::Secret;
use nettorrent_net::transport::Transport;
use nettorrent_swarm::check_site_name;
use nettorrent_swarm::link_spec::LinkSpec;
use tokio::sync::mpsc;

use crate::disk::Disk;
use crate::error::SessionError;
use crate::training::Training;

/// How a peer takes part.
#[derive(Clone)]
pub struct Options {
    /// Training begins when so many peers are there, this one counted.
    pub wait_for: usize,
    /// How long the ticket of a swarm that is started is good.
    pub ticket: TicketLimits,
    /// What the keys of a swarm that is started come of; else of the system's randomness. Whoever knows it has the ticket, and is the owner.
    pub secret: Option<Secret>,
    /// How peers reach each other.
    pub transport: Arc<dyn Transport>,
    /// Where to listen; by default at all addresses, at any free port.
    pub listen: Address,
    /// The address at which others reach this machine, if it is not one of its own.
    pub address: Option<Address>,
    /// Whether peers of the same local network find this one, and it them, by mDNS.
    pub discover: bool,
    /// Whether links are encrypted; all peers of a swarm have to say the same.
    pub encryption: Encryption,
    /// The name of the site at which this peer is: peers with the same one reach each other fast. One without any is with those who
    /// answer it soon.
    pub site: Option<String>,
    /// How slow the link is to be, for experiments.
    pub link: Option<LinkSpec>,
    /// What to compute on: this machine, as it is or slowed down, or a simulated one.
    pub machine: Machine,
    /// What to write checkpoints on.
    pub disk: Disk,
    /// A directory for large payloads to peers that have the same one.
    pub shared_dir: Option<PathBuf>,
    /// Whether to measure what this process takes of its machine and for whom it waits.
    pub measures: bool,
    /// Whether to write files for TensorBoard.
    pub tensorboard: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wait_for: 1,
            ticket: TicketLimits::default(),
            secret: None,
            transport: Arc::new(Tcp),
            listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
            address: None,
            discover: false,
            encryption: Encryption::On,
            site: None,
            link: None,
            machine: Machine::default(),
            disk: Disk::default(),
            shared_dir: None,
            measures: true,
            tensorboard: false,
        }
    }
}

impl Options {
    /// Opens the directory for large payloads, if there is to be one.
    pub fn open_folder(&self) -> Result<Option<Arc<SharedFolder>>, SessionError> {
        Ok(self.shared_dir.as_deref().map(SharedFolder::open).transpose()?)
    }

    /// Listens for peers of a training.
    pub(crate) async fn bind(
        &self,
        identity: Identity,
        training: &Training,
    ) -> Result<(Endpoint, mpsc::Receiver<Arrival>), SessionError> {
        self.site.as_deref().map_or(Ok(()), check_site_name).map_err(SessionError::Site)?;
        let job = fingerprint::of_job(&training.package);
        let settings = Settings {
            transport: self.transport.clone(),
            listen: self.listen.clone(),
            encryption: self.encryption,
            link: self.link,
            limits: training.limits(),
            folder: self.open_folder()?,
            ..Settings::new(identity, Purpose::Peer { generation: 0, job })
        };
        Ok(Endpoint::bind(settings).await?)
    }

    /// Where others reach a peer, best first.
    pub(crate) fn addresses(&self, endpoint: &Endpoint) -> Vec<Address> {
        let Some(address) = &self.address else { return endpoint.addresses().to_vec() };
        let mut addresses = vec![endpoint.local_address().known_as(address), address.clone()];
        addresses.dedup();
        addresses
    }
}
