//! The links to other peers: made when there is something to send, one for each direction of speech.
//!
//! A peer sends all it has to say to another over one link, the first it has, for as long as that link lives: so what it says
//! arrives in order. Two peers that call each other at the same time end with two links, each used by one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::PeerId;
use nettorrent_swarm::wire::Frame;
use tokio::sync::mpsc::UnboundedSender;

use crate::address::Address;
use crate::connection::Connection;
use crate::endpoint::{DialError, Endpoint};
use crate::inbox::{InboxSender, LinkId};
use crate::link::Link;
use crate::outflow::Outflow;
use crate::route::Route;

/// The links to other peers.
pub(crate) struct Contacts {
    contacts: BTreeMap<PeerId, Contact>,
    endpoint: Endpoint,
    dialled: UnboundedSender<Dialled>,
}

/// What came of calling a peer.
pub(crate) struct Dialled {
    pub(crate) peer: PeerId,
    result: Result<Connection, DialError>,
}

#[derive(Default)]
struct Contact {
    /// Links in the order in which they were made; the first is spoken over.
    links: Vec<Link>,
    /// What is to be said as soon as there is a link.
    waiting: Vec<Frame>,
    is_dialling: bool,
    /// How many bytes have arrived over its links, when that was looked at last.
    n_received: u64,
}

/// How long the last words may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Contacts {
    /// No links yet; what comes of calls goes to `dialled`.
    pub(crate) fn new(endpoint: Endpoint, dialled: UnboundedSender<Dialled>) -> Self {
        Self { contacts: BTreeMap::new(), endpoint, dialled }
    }

    /// Sends a frame, and calls the peer first if need be.
    pub(crate) fn send(&mut self, to: PeerId, address: Option<&Address>, frame: Frame) {
        let contact = self.contacts.entry(to).or_default();
        if let Some(link) = contact.links.first() {
            return link.send(frame);
        }
        let Some(address) = address else { return };
        contact.waiting.push(frame);
        if std::mem::replace(&mut contact.is_dialling, true) {
            return;
        }
        let (endpoint, dialled, address) = (self.endpoint.clone(), self.dialled.clone(), address.clone());
        tokio::spawn(async move {
            let result = endpoint.dial(&address, Some(to)).await;
            // If nobody listens, the node is gone.
            let _ = dialled.send(Dialled { peer: to, result });
        });
    }

    /// The link over which a peer is spoken to, if there is one.
    pub(crate) fn link(&self, peer: PeerId) -> Option<&Link> {
        self.contacts.get(&peer)?.links.first()
    }

    /// One of the links with a peer.
    pub(crate) fn find(&self, peer: PeerId, link: LinkId) -> Option<&Link> {
        self.contacts.get(&peer)?.links.iter().find(|candidate| candidate.id() == link)
    }

    /// A call has come through, or not.
    pub(crate) fn on_dialled(&mut self, dialled: Dialled, inbox: &InboxSender) -> Result<(), DialError> {
        let contact = self.contacts.entry(dialled.peer).or_default();
        contact.is_dialling = false;
        match dialled.result {
            Ok(connection) => {
                self.add(connection.start(inbox.clone()));
                Ok(())
            }
            // It has called us meanwhile, so it lives.
            Err(error) if !contact.links.is_empty() || error.is_crossed() => Ok(()),
            Err(error) => {
                contact.waiting.clear();
                Err(error)
            }
        }
    }

    /// A link is there, from us or from the other.
    pub(crate) fn add(&mut self, link: Link) {
        let contact = self.contacts.entry(link.peer()).or_default();
        contact.waiting.drain(..).for_each(|frame| link.send(frame));
        contact.links.push(link);
    }

    /// A link has ended; whether it was the one that this peer spoke over.
    pub(crate) fn on_closed(&mut self, peer: PeerId, link: LinkId) -> bool {
        let Some(contact) = self.contacts.get_mut(&peer) else { return false };
        let at = contact.links.iter().position(|candidate| candidate.id() == link);
        at.is_some_and(|at| {
            contact.links.remove(at);
            at == 0
        })
    }

    /// Whether there is a link with a peer.
    pub(crate) fn has_link(&self, peer: PeerId) -> bool {
        self.contacts.get(&peer).is_some_and(|contact| !contact.links.is_empty())
    }

    /// With whom there is a link.
    pub(crate) fn linked(&self) -> impl Iterator<Item = PeerId> {
        self.contacts.iter().filter(|(_, contact)| !contact.links.is_empty()).map(|(peer, _)| *peer)
    }

    /// With whom there is a link, and by which way the first one goes.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (PeerId, Route)> {
        self.contacts.iter().filter_map(|(peer, contact)| Some((*peer, contact.links.first()?.route())))
    }

    /// Whether there is a link with anybody.
    pub(crate) fn has_links(&self) -> bool {
        self.contacts.values().any(|contact| !contact.links.is_empty())
    }

    /// From whom bytes have arrived since this was called last.
    pub(crate) fn heard(&mut self) -> Vec<PeerId> {
        let has_grown = |contact: &mut Contact| {
            let n_received = contact.links.iter().map(|link| link.traffic().wire_received).sum();
            std::mem::replace(&mut contact.n_received, n_received) < n_received
        };
        self.contacts.iter_mut().filter_map(|(peer, contact)| has_grown(contact).then_some(*peer)).collect()
    }

    /// Whether something is on its way to or from anybody.
    pub(crate) fn are_busy(&self) -> bool {
        self.contacts.values().any(|contact| contact.links.iter().any(Link::is_busy))
    }

    /// What the links have let out, one by one.
    pub(crate) fn outflows(&self) -> impl Iterator<Item = (LinkId, Outflow)> {
        let links = self.contacts.values().flat_map(|contact| &contact.links);
        links.map(|link| (link.id(), link.outflow()))
    }

    /// Ends all links to a peer.
    pub(crate) fn cut(&mut self, peer: PeerId) {
        self.contacts.remove(&peer);
    }

    /// Ends all links, after what is queued has been sent.
    pub(crate) async fn close(&mut self) {
        let links: Vec<Link> =
            std::mem::take(&mut self.contacts).into_values().flat_map(|contact| contact.links).collect();
        links.iter().for_each(Link::close);
        // Who takes nothing any more is not waited for.
        let all_sent = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
            for link in &links {
                link.drained_to(0).await;
            }
        });
        let _ = all_sent.await;
    }
}
