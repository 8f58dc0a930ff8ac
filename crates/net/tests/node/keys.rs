//! Who may take part: tickets let one ask, certificates let one in, and the owner keeps out whom it wants.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_net::address::Address;
use nettorrent_net::ask::ask_any;
use nettorrent_net::clock::Clock;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::members::{Members, MembersError};
use nettorrent_net::membership::{Member, Note, Why};
use nettorrent_net::node::Node;
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::report::{Command, Ending, Report};
use nettorrent_net::service::{Answer, Question};
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::{Secret, Ticket};
use nettorrent_net::trust_store::NotAdmitted;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::record::Event;
use nettorrent_swarm::{Peer, PeerId, Setup, State};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::node_settings;
use crate::toy::{Gate, Toy};

/// How long a test may take; it takes seconds.
const NEVER: Duration = Duration::from_secs(120);
const AS_PEER: Purpose = Purpose::Peer { generation: 0, job: [0; 32] };

/// What a node tells.
enum Told {
    View(Vec<PeerId>),
    Lost(PeerId, Why),
}

/// Nodes that train together over sockets.
struct Peers {
    encryption: Encryption,
    members: Vec<Member>,
    nodes: Vec<JoinHandle<Ending>>,
    commands: Vec<mpsc::Sender<Command>>,
    teller: mpsc::UnboundedSender<(usize, Told)>,
    told: mpsc::UnboundedReceiver<(usize, Told)>,
}

fn run(encryption: Encryption, test: impl AsyncFnOnce(Peers)) {
    let (teller, told) = mpsc::unbounded_channel();
    let peers = Peers { encryption, members: Vec::new(), nodes: Vec::new(), commands: Vec::new(), teller, told };
    let tasks = LocalSet::new();
    let run = tasks.run_until(async { tokio::time::timeout(NEVER, test(peers)).await });
    block_on(Load { n_processes: 1, n_bytes: 4 }, run).unwrap().expect("it comes to an end");
}

impl Peers {
    /// Starts a node with this identity, which is introduced to these.
    async fn start(&mut self, identity: Identity, introducers: Vec<Member>) {
        let at = self.members.len();
        let (listen, encryption) = ((Ipv4Addr::LOCALHOST, 0).into(), self.encryption);
        let settings = Settings { listen, encryption, ..Settings::new(identity, AS_PEER) };
        let bound = Endpoint::bind(settings).await.unwrap();
        let settings = node_settings(&bound.0, 1);
        let me = Member { id: bound.0.identity().peer, generation: 0, address: settings.address.clone() };
        let job = Job { epochs: 1_000_000, batch: 32, ..Job::default() };
        let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(Arc::new(Gate::default())))).unwrap());
        let peer = setup.peer(me.id, State::fresh(setup.training()));
        let mut node = Node::new(bound, setup, peer, settings).unwrap();
        let (command, commands) = mpsc::channel(1);
        let teller = self.teller.clone();
        self.nodes.push(spawn_local(async move {
            let mut report = |report: Report<'_>, _: &dyn Peer| {
                let told = match report {
                    Report::Record { record, .. } => match &record.event {
                        Event::View { members, .. } => Told::View(members.clone()),
                        _ => return,
                    },
                    Report::Note(Note::Lost { peer, why }) => Told::Lost(*peer, *why),
                    _ => return,
                };
                let _ = teller.send((at, told));
            };
            node.run(introducers, commands, mpsc::unbounded_channel().1, &mut report).await
        }));
        self.members.push(me);
        self.commands.push(command);
    }

    /// Asks a node to be let in with a ticket.
    async fn ask(&self, at: usize, ticket: &Ticket) -> Result<(Identity, Vec<Member>), NotAdmitted> {
        self.ask_at(self.members[at].address.clone(), ticket).await
    }

    async fn ask_at(&self, address: Address, ticket: &Ticket) -> Result<(Identity, Vec<Member>), NotAdmitted> {
        let (identity, encryption) = (Identity::visitor(ticket).unwrap(), self.encryption);
        let terms = Terms { encryption, ..Terms::new(identity.clone(), Purpose::Joiner { job: None }) };
        let address = [address];
        match ask_any(&Tcp, &terms, &address, &Question::Join).await.unwrap().0 {
            Answer::Join(invitation) => {
                let members = invitation.members.iter().cloned();
                let members = members.map(|(id, address)| Member { id, generation: 0, address }).collect();
                Ok((identity.admitted(&invitation.admission).unwrap(), members))
            }
            Answer::NotAdmitted(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a node that is let in with a ticket, and waits until it is a member among these.
    async fn join(&mut self, ticket: &Ticket, others: &[usize]) {
        let (identity, introducers) = self.ask(others[0], ticket).await.unwrap();
        self.start(identity, introducers).await;
        let all: Vec<usize> = others.iter().copied().chain([self.members.len() - 1]).collect();
        self.until_members(&all).await;
    }

    async fn until(&mut self, mut is_it: impl FnMut(usize, &Told) -> bool) {
        while let Some((at, told)) = self.told.recv().await {
            if is_it(at, &told) {
                return;
            }
        }
    }

    /// Waits until each of these holds a view of them all.
    async fn until_members(&mut self, nodes: &[usize]) {
        let members: Vec<PeerId> = nodes.iter().map(|at| self.members[*at].id).collect();
        let mut waiting: Vec<usize> = nodes.to_vec();
        self.until(|at, told| {
            if matches!(told, Told::View(view) if *view == members) {
                waiting.retain(|node| *node != at);
            }
            waiting.is_empty()
        })
        .await;
    }

    async fn members(&self, ticket: &Ticket) -> Result<Members, MembersError> {
        Members::ask(Arc::new(Tcp), ticket, self.encryption, false).await
    }

    fn ticket(&self, founder: &Founder) -> Ticket {
        founder.ticket(vec![self.members[0].address.clone()])
    }
}

fn numbers(members: &Members) -> Vec<u32> {
    members.members().iter().map(|member| member.peer.join_index()).collect()
}

#[test]
fn a_removed_member_ends_and_cannot_come_back_and_the_others_go_on() {
    run(Encryption::On, async |mut peers| {
        let founder = Founder::new(TicketLimits::default());
        peers.start(founder.member(0).unwrap(), Vec::new()).await;
        let ticket = peers.ticket(&founder);
        peers.join(&ticket, &[0]).await;
        peers.join(&ticket, &[0, 1]).await;
        let listed = peers.members(&ticket).await.unwrap();
        assert_eq!(numbers(&listed), [0, 1, 2]);
        let removed = listed.find("1").unwrap();
        assert_eq!(removed.peer, peers.members[1].id);
        let new = listed.amend(founder.owner(), &[removed.key], TicketLimits::default()).await.unwrap();
        let ending = (&mut peers.nodes[1]).await.unwrap();
        assert!(matches!(&ending, Ending::Failed(problem) if problem.contains("removed this peer")), "{ending:?}");
        peers.until_members(&[0, 2]).await;
        // Neither the old ticket nor the number helps.
        let problem = peers.members(&ticket).await.err().unwrap().to_string();
        assert!(problem.contains("no longer"), "{problem}");
        let listed = peers.members(&new).await.unwrap();
        assert_eq!(numbers(&listed), [0, 2]);
        assert!(matches!(listed.find("1"), Err(MembersError::NoSuchMember { .. })));
        // Whoever is let in now is recognised by all, so all have the new keys.
        peers.join(&new, &[0, 2]).await;
    });
}

#[test]
fn a_ticket_is_replaced_while_the_members_go_on() {
    [Encryption::On, Encryption::Off].into_iter().for_each(a_ticket_is_replaced);
}

fn a_ticket_is_replaced(encryption: Encryption) {
    run(encryption, async |mut peers| {
        let founder = Founder::new(TicketLimits::default());
        peers.start(founder.member(0).unwrap(), Vec::new()).await;
        let old = peers.ticket(&founder);
        peers.join(&old, &[0]).await;
        // Somebody was let in and is not there yet; it is kept, too.
        let (late, introducers) = peers.ask(1, &old).await.unwrap();
        let before = peers.members(&old).await.unwrap();
        let limits = TicketLimits { uses: Some(1), ends: None };
        let new = before.amend(founder.owner(), &[], limits).await.unwrap();
        let again = before.amend(founder.owner(), &[], limits).await;
        assert!(again.is_err(), "what was decided on an earlier list is not taken");
        peers.start(late, introducers).await;
        peers.until_members(&[0, 1, 2]).await;
        peers.join(&new, &[0, 1, 2]).await;
        for at in 0..4 {
            assert_eq!(peers.ask(at, &new).await.err(), Some(NotAdmitted::UsedUp { uses: 1 }), "node {at}");
        }
        let stranger = Founder::new(TicketLimits::default());
        let listed = peers.members(&new).await.unwrap();
        let forged = listed.amend(stranger.owner(), &[listed.members()[0].key], limits).await;
        assert!(matches!(forged, Err(MembersError::OtherOwner)));
        assert_eq!(numbers(&listed), [0, 1, 2, 3]);
    });
}

#[test]
fn who_does_not_renew_its_certificate_is_no_member_any_more() {
    run(Encryption::On, async |mut peers| {
        let now = Clock::System.now();
        let secret = Secret::random();
        let clocks = [0, 1].map(|_| Arc::new(AtomicU64::new(now)));
        let [one, other] = clocks.clone().map(|clock| Founder::from_secret(&secret).with_clock(Clock::Set(clock)));
        peers.start(one.member(0).unwrap(), Vec::new()).await;
        peers.start(other.member(1).unwrap(), vec![peers.members[0].clone()]).await;
        peers.until_members(&[0, 1]).await;
        // Time passes for both, and both renew in time.
        let ticket = peers.ticket(&one);
        for hours in 1..=30_u64 {
            clocks.iter().for_each(|clock| clock.store(now + hours * 3600, Ordering::Relaxed));
            while peers
                .members(&ticket)
                .await
                .unwrap()
                .members()
                .iter()
                .any(|each| each.expires < now + (hours + 11) * 3600)
            {
                tokio::task::yield_now().await;
            }
        }
        // Now it passes for one only.
        clocks[0].store(now + 80 * 3600, Ordering::Relaxed);
        let lost = peers.members[1].id;
        peers.until(|at, told| at == 0 && matches!(told, Told::Lost(peer, Why::CutOff) if *peer == lost)).await;
    });
}

/// Passes on one connection to an address, and writes down what both sides say.
async fn listener_in(to: Address) -> (Address, Arc<Mutex<Vec<u8>>>) {
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = between.local_addr().unwrap().into();
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let notes = heard.clone();
    spawn_local(async move {
        let (from_dialler, to_dialler) = between.accept().await.unwrap().0.into_split();
        let (from_peer, to_peer) = TcpStream::connect(to.tcp().unwrap()).await.unwrap().into_split();
        for (mut from, mut to) in [(from_dialler, to_peer), (from_peer, to_dialler)] {
            let notes = notes.clone();
            spawn_local(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(n_bytes @ 1..) = from.read(&mut bytes).await {
                    notes.lock().unwrap().extend(&bytes[..n_bytes]);
                    to.write_all(&bytes[..n_bytes]).await.unwrap();
                }
            });
        }
    });
    (address, heard)
}

#[test]
fn who_listens_in_on_a_link_without_encryption_hears_no_secret() {
    run(Encryption::Off, async |mut peers| {
        let founder = Founder::new(TicketLimits::default());
        peers.start(founder.member(0).unwrap(), Vec::new()).await;
        let ticket = peers.ticket(&founder);
        let (between, heard) = listener_in(peers.members[0].address.clone()).await;
        peers.ask_at(between, &ticket).await.unwrap();
        let heard = heard.lock().unwrap();
        let has = |bytes: &[u8]| heard.windows(bytes.len()).any(|window| window == bytes);
        // The newcomer was given the secret that it knows from its ticket, among others.
        assert!(has(b"NetTorr") && !has(&postcard::to_allocvec(&ticket.secret).unwrap()));
    });
}
