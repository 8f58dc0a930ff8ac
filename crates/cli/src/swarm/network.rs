//! A peer that trains with others on other machines, with one terminal of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use nettorrent_history::{Event, Reason, Stop};
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::report::Command;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_net::{discovery, fingerprint};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use tokio::sync::mpsc;

use super::banner::{Banner, announce};
use super::checkpoint_writer::CheckpointWriter;
use super::member::{Keep, PeerProcess};
use super::messages::{EndingKind, PeerEvent};
use super::prepared_job::PreparedJob;
use super::progress_view::{ProgressView, Topology};
use super::start_state::Start;
use crate::events::EventLog;
use crate::interrupt::{self, Interrupt};
use crate::memory::peak_rss_bytes;
use crate::progress::{GUESSING, finished_text};
use crate::run_folder::RunFolder;

/// How a peer is on the network.
#[derive(Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArguments {
    /// Where to listen [default: all addresses, any free port].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The address at which others reach this machine, if it is not one of its own (behind a router that forwards).
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub address: Option<SocketAddr>,
    /// Let peers of this swarm on the same local network find this one, and look for them, by mDNS.
    #[arg(long)]
    pub discover: bool,
    /// Send as slowly as over this link, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    pub link: Option<LinkSpec>,
    /// Compute as slowly as a machine that trains so many samples a second, for experiments: `500`, or `500,50@30s` for one that
    /// turns slow after 30 seconds.
    #[arg(long, value_name = "SAMPLES/S")]
    pub speed: Option<EmulatedSpeed>,
    /// A directory for large payloads to peers that have the same one (each gives its own path to it): only names travel.
    #[arg(long, value_name = "PATH")]
    pub shared_dir: Option<PathBuf>,
    /// Do not encrypt. All peers of a swarm have to say so; the secret is still asked for.
    #[arg(long)]
    pub plain: bool,
    /// Print events as lines of JSON instead of a progress display.
    #[arg(long)]
    pub json: bool,
}

impl NetworkArguments {
    fn encryption(&self) -> Encryption {
        if self.plain { Encryption::Off } else { Encryption::On }
    }

    /// On what terms to speak to others.
    pub(crate) fn terms(&self, identity: Identity, purpose: Purpose) -> Terms {
        Terms { encryption: self.encryption(), ..Terms::new(identity, purpose) }
    }

    /// Opens the directory for large payloads, if there is to be one.
    pub(crate) fn open_folder(&self) -> anyhow::Result<Option<Arc<SharedFolder>>> {
        Ok(self.shared_dir.as_deref().map(SharedFolder::open).transpose()?)
    }

    /// Listens for peers of this job.
    pub(crate) async fn bind(
        &self,
        identity: Identity,
        prepared: &PreparedJob,
        folder: Option<Arc<SharedFolder>>,
    ) -> anyhow::Result<(Endpoint, mpsc::Receiver<Arrival>)> {
        let job = fingerprint::of_job(&prepared.package);
        let settings = Settings {
            listen: self.listen.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()),
            encryption: self.encryption(),
            shape: self.link,
            limits: prepared.limits(),
            folder,
            ..Settings::new(identity, Purpose::Peer { generation: 0, listen_port: 0, job })
        };
        Ok(Endpoint::bind(settings).await?)
    }

    /// Where others reach this peer, best first.
    pub(crate) fn addresses(&self, endpoint: &Endpoint) -> Vec<SocketAddr> {
        self.address.map_or_else(|| endpoint.addresses(), |address| vec![address])
    }
}

/// What a peer begins with.
pub(crate) struct Beginning<'a> {
    pub prepared: &'a PreparedJob,
    pub start: Start,
    pub run: RunFolder,
    pub events: EventLog,
    pub wait_for: usize,
    pub members: Vec<(PeerId, SocketAddr)>,
    pub measures: bool,
}

/// Trains with the others until all is done, or until Ctrl-C, which leaves them.
pub(crate) async fn train(
    beginning: Beginning<'_>,
    (endpoint, arrivals): (Endpoint, mpsc::Receiver<Arrival>),
    address: SocketAddr,
    arguments: &NetworkArguments,
) -> anyhow::Result<ExitCode> {
    let Beginning { prepared, start, run, events, wait_for, members, measures } = beginning;
    let (leave, commands) = mpsc::channel(1);
    Interrupt::listen_and(move || {
        // If it does not listen any more, it is ending anyway.
        let _ = leave.try_send(Command::Leave);
    })?;
    let _announcement = arguments
        .discover
        .then(|| discovery::announce(endpoint.identity().swarm(), endpoint.local_address().port()))
        .transpose()?;
    let mut progress_view = ProgressView::new(events, prepared, Topology::OneOfMany, start.place());
    announce(&Banner { prepared, run: &run, place: start.place(), link: None }, &mut progress_view)?;
    let mut place = (start.place().ledger.epoch, start.place().step);
    let path = run.path().to_owned();
    let process = PeerProcess {
        prepared,
        start,
        checkpoint_writer: CheckpointWriter::start(run, prepared)?,
        keep: Keep::Always,
        wait_for,
        address,
        introducers: members,
        measures,
        speed: arguments.speed.clone(),
    };
    let mut peak = None;
    let ending = process
        .run((endpoint, arrivals), commands, &mut |event| {
            if let PeerEvent::Ended { epoch, step, peak_rss_bytes, .. } = &event {
                (place, peak) = ((*epoch, *step), *peak_rss_bytes);
            }
            progress_view.on_event(&event)
        })
        .await;
    progress_view.finish()?;
    let ((epoch, step), seconds) = (place, progress_view.seconds());
    let failure = match &ending {
        Err(error) => Some(crate::explain(error)),
        Ok(EndingKind::Failed(problem)) => Some(problem.clone()),
        Ok(EndingKind::Finished | EndingKind::Left) => None,
    };
    let reason = match (&failure, &ending) {
        (Some(failure), _) => Reason::Failed(failure.clone()),
        (None, Ok(EndingKind::Finished)) => Reason::Finished,
        (None, _) => Reason::Interrupted,
    };
    let peak_rss_bytes = peak.or_else(peak_rss_bytes);
    let is_interrupted = reason == Reason::Interrupted;
    let is_guessing = reason == Reason::Finished && progress_view.is_guessing();
    progress_view.write(Event::Stop(Stop { reason, epoch, step, seconds, peak_rss_bytes, is_guessing }))?;
    if let Some(failure) = &failure {
        anyhow::bail!("{failure}");
    }
    if is_interrupted {
        let path = path.display();
        let others = if progress_view.is_alone() { "" } else { "; the others go on" };
        progress_view.tell(&format!(
            "Left at step {step}{others}. What was learnt so far is in {path}; begin again from it with: nettorrent start \
             --resume {path}"
        ));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    progress_view.say(&finished_text(progress_view.elapsed(), &path));
    if is_guessing {
        progress_view.tell(GUESSING);
    }
    Ok(ExitCode::SUCCESS)
}
