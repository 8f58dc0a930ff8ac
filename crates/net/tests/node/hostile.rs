//! What those may do to a node who hold the swarm's ticket.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use foca::{Codec, Header, Message, PostcardCodec};
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::in_process::InProcess;
use nettorrent_net::inbox::{Event, Inbox, LinkEvent, inbox};
use nettorrent_net::link::Link;
use nettorrent_net::membership::Member;
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::report::{Command, Ending, Report};
use nettorrent_net::service::Question;
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{Input, Malformed, Outbox, Peer, PeerId, Phase, Place, Status, View};
use tokio::sync::mpsc;

use crate::{node_settings, setup};

/// How long a test waits for what should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A peer that does nothing but write down what it is handed.
struct Witness {
    view: View,
    place: Place,
    heard: Arc<Mutex<Vec<&'static str>>>,
}

impl Peer for Witness {
    fn handle(&mut self, _: Duration, input: Input, _: &mut Outbox) -> Result<(), Malformed> {
        match input {
            Input::Frame { .. } => self.heard.lock().unwrap().push("a frame"),
            Input::LinkEnded(_) => self.heard.lock().unwrap().push("the end of a link"),
            _ => {}
        }
        Ok(())
    }

    fn place(&self) -> &Place {
        &self.place
    }

    fn view(&self) -> &View {
        &self.view
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn status(&self) -> Status {
        Status { phase: Phase::Agreeing, epoch: 0, round: 0, waits_for: Vec::new(), began: Duration::ZERO }
    }
}

/// A node that waits for a second peer, and those who call on it.
struct Swarm {
    network: Arc<InProcess>,
    founder: Founder,
    endpoint: Endpoint,
    node: Node,
    heard: Arc<Mutex<Vec<&'static str>>>,
}

const AS_PEER: Purpose = Purpose::Peer { generation: 0, job: [0; 32] };

impl Swarm {
    async fn new(model: &str) -> Self {
        let (network, founder) = (Arc::new(InProcess::default()), Founder::new(TicketLimits::default()));
        let identity = founder.member(0).unwrap();
        let id = identity.peer;
        let (endpoint, arrivals) = Endpoint::bind(endpoint_settings(&network, identity, AS_PEER)).await.unwrap();
        let mut settings: NodeSettings = node_settings(&endpoint, 2);
        settings.package.model = model.to_owned();
        let heard = Arc::<Mutex<_>>::default();
        let witness = Witness { view: View::new(0, vec![id]), place: Place::default(), heard: heard.clone() };
        let node = Node::new((endpoint.clone(), arrivals), setup(), Box::new(witness), settings).unwrap();
        Self { network, founder, endpoint, node, heard }
    }

    /// Runs the node until a guest has done with it, and tells how it ended.
    async fn visited_by(self, purpose: Purpose, guest: impl AsyncFnOnce(&Guest)) -> Ending {
        let Self { network, founder, endpoint, mut node, heard } = self;
        let (commands, orders) = mpsc::channel(1);
        let mut report = |_: Report<'_>, _: &dyn Peer| {};
        let running = node.run(Vec::new(), orders, mpsc::unbounded_channel().1, &mut report);
        let visit = async {
            let identity = if purpose == AS_PEER { founder.member(1) } else { founder.visitor(1) }.unwrap();
            let settings = endpoint_settings(&network, identity, purpose);
            let (own, _) = Endpoint::bind(settings).await.unwrap();
            let connection = own.dial(endpoint.local_address(), None).await.unwrap();
            let (sender, inbox) = inbox(0);
            let link = connection.start(sender);
            guest(&Guest { own, link, inbox: inbox.into(), host: endpoint.clone(), heard }).await;
            // The node may have ended by itself.
            let _ = commands.send(Command::Leave).await;
        };
        let both = async { tokio::join!(running, visit).0 };
        tokio::time::timeout(PATIENCE, both).await.expect("the node does what it should")
    }
}

fn endpoint_settings(network: &Arc<InProcess>, identity: Identity, purpose: Purpose) -> Settings {
    Settings { transport: network.clone(), listen: Address::InProcess(0), ..Settings::new(identity, purpose) }
}

/// Somebody who has passed the handshake.
struct Guest {
    own: Endpoint,
    link: Link,
    inbox: tokio::sync::Mutex<Inbox>,
    host: Endpoint,
    heard: Arc<Mutex<Vec<&'static str>>>,
}

impl Guest {
    fn ask(&self, question: &Question, times: usize) {
        let body: Bytes = postcard::to_allocvec(question).unwrap().into();
        (0..times).for_each(|_| self.link.send(Frame::new(Kind::Service, body.clone())));
    }

    async fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn frames_for_later_views_are_kept_for_members_only() {
    let swarm = Swarm::new("").await;
    let heard = swarm.heard.clone();
    let ending = swarm.visited_by(AS_PEER, async |guest| {
        for view in [1, 4096, u32::MAX] {
            guest.link.send(Frame::in_round(Kind::Strategy, view, 0, 0, Bytes::from(vec![0; 1 << 20])));
        }
        guest.link.close();
        guest.wait_until(|guest| guest.heard.lock().unwrap().contains(&"the end of a link")).await;
    });
    assert_eq!(ending.await, Ending::Left);
    assert_eq!(*heard.lock().unwrap(), ["the end of a link"]);
}

#[tokio::test]
async fn a_peer_is_told_when_the_last_of_several_links_has_ended() {
    let swarm = Swarm::new("").await;
    let heard = swarm.heard.clone();
    let ending = swarm.visited_by(AS_PEER, async |guest| {
        let connection = guest.own.dial(guest.host.local_address(), None).await.unwrap();
        let (sender, _inbox) = inbox(0);
        let second = connection.start(sender);
        guest.link.close();
        guest.wait_until(|guest| guest.host.n_links() == 1).await;
        // The node takes things in the order in which they come: if it tells of the first link's end, it does so before this.
        second.send(Frame::in_round(Kind::Strategy, 0, 0, 0, Bytes::new()));
        second.close();
        guest.wait_until(|guest| guest.heard.lock().unwrap().contains(&"the end of a link")).await;
    });
    assert_eq!(ending.await, Ending::Left);
    assert_eq!(*heard.lock().unwrap(), ["a frame", "the end of a link"]);
}

#[tokio::test]
async fn a_visitor_that_reads_nothing_is_sent_away() {
    let swarm = Swarm::new(&"x".repeat(1 << 20)).await;
    let ending = swarm.visited_by(Purpose::Observer, async |guest| {
        guest.ask(&Question::Join, 24);
        guest.wait_until(|guest| guest.host.n_links() == 0).await;
    });
    assert_eq!(ending.await, Ending::Left);
}

#[tokio::test]
async fn a_visitor_that_asks_without_end_is_sent_away() {
    let swarm = Swarm::new("").await;
    let ending = swarm.visited_by(Purpose::Observer, async |guest| {
        guest.ask(&Question::Status, 1000);
        let mut n_answers = 0;
        while let Some(LinkEvent { event: Event::Frame(_), .. }) = guest.inbox.lock().await.next().await {
            n_answers += 1;
        }
        assert!((1..1000).contains(&n_answers), "{n_answers}");
    });
    assert_eq!(ending.await, Ending::Left);
}

#[tokio::test]
async fn a_node_whose_numbers_have_run_out_ends_with_an_error() {
    let swarm = Swarm::new("").await;
    let ending = swarm.visited_by(AS_PEER, async |guest| {
        let member = |id: PeerId, address: &Address| Member { id, generation: 0, address: address.clone() };
        let src = member(guest.own.identity().peer, guest.own.local_address());
        let dst = member(guest.host.identity().peer, guest.host.local_address());
        let mut announce = vec![0];
        let header = Header { src, src_incarnation: 0, dst, message: Message::Announce };
        PostcardCodec.encode_header(&header, &mut announce).unwrap();
        guest.link.send(Frame::new(Kind::Membership, announce.into()));
        let (busy, none) = (0_u8, Vec::<u64>::new());
        let report = (u32::MAX, false, busy, &none, &none, &none);
        let status: Bytes = postcard::to_extend(&report, vec![1, 5]).unwrap().into();
        (0..2000).for_each(|_| guest.link.send(Frame::new(Kind::Membership, status.clone())));
        while let Some(LinkEvent { event: Event::Frame(_), .. }) = guest.inbox.lock().await.next().await {}
    });
    let ending = ending.await;
    assert!(matches!(&ending, Ending::Failed(problem) if problem.contains("run out")), "{ending:?}");
}
