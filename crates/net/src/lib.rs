//! The real host: peers over TCP and TLS, membership, snapshots, local experiments.
//!
//! ```text
//! Founder, Ticket ─── Identity ─┐
//!                               ├─ Endpoint ── dial, Arrival ── Connection ── start ── Link ── Inbox
//!                      Purpose ─┘               (handshake)                  (frames)
//! ```
//!
//! Whoever holds a certificate of the swarm is a member ([`policy`]); whoever holds its ticket may ask for one. An [`Endpoint`](endpoint::Endpoint) listens and dials; both ways lead to a
//! [`Connection`](connection::Connection), which has passed the [`handshake`]. Its owner notes down whose it is and starts
//! it: from then on frames go out by the [`Link`](link::Link), which never waits, and come in by an
//! [`Inbox`](inbox::Inbox) that all links share.
//!
//! On top of that a [`Node`](node::Node) does what a peer asks for, and [`membership`] decides who takes part.
//!
//! ```
//! use bytes::Bytes;
//! use nettorrent_net::policy::TicketLimits;
//! use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
//! use nettorrent_net::founder::Founder;
//! use nettorrent_net::hello::Purpose;
//! use nettorrent_net::identity::Identity;
//! use nettorrent_net::inbox::{Event, inbox};
//! use nettorrent_net::ticket::Ticket;
//! use nettorrent_swarm::wire::{Frame, Kind};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Somebody starts a swarm, and shows a ticket.
//! let founder = Founder::new(TicketLimits::default());
//! let purpose = Purpose::Peer { generation: 0, job: [7; 32] };
//! let (starter, mut arrivals) = Endpoint::bind(Settings::new(founder.member(0)?, purpose)).await?;
//! let ticket = founder.ticket(starter.addresses().to_vec()).to_string();
//!
//! // Somebody else comes with it.
//! let ticket: Ticket = ticket.parse()?;
//! let identity = Identity::visitor(&ticket)?;
//! let (joiner, _) = Endpoint::bind(Settings::new(identity, Purpose::Joiner { job: None })).await?;
//! let connection = joiner.dial(&ticket.addresses[0], None).await?;
//! let (sender, _inbox) = inbox(64 << 20);
//! let link = connection.start(sender);
//! link.send(Frame::new(Kind::Service, Bytes::from_static(b"May I join?")));
//!
//! // The first one lets it in, and hears its question.
//! let Some(Arrival::Incoming(connection)) = arrivals.recv().await else { panic!("nobody came") };
//! let (sender, mut inbox) = inbox(64 << 20);
//! let _link = connection.start(sender);
//! let Some(Event::Frame(frame)) = inbox.next().await.map(|event| event.event) else { panic!("no question came") };
//! assert_eq!(&frame.body[..], b"May I join?");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
pub mod addresses;
pub mod ask;
pub mod clock;
pub mod close_reason;
pub mod connection;
pub mod discovery;
pub mod emulated_speed;
pub mod endpoint;
pub mod fingerprint;
pub mod founder;
pub mod frames;
pub mod handshake;
pub mod hello;
pub mod identity;
pub mod in_process;
pub mod inbox;
pub mod key_address;
pub mod keys;
pub mod limits;
pub mod link;
pub mod machine;
pub mod measure_link;
pub mod members;
pub mod membership;
pub mod message_cost;
pub mod node;
pub mod observer;
pub mod outflow;
pub mod policy;
pub mod refusal;
pub mod report;
pub mod role;
pub mod route;
pub mod sealed_file;
pub mod service;
pub mod shaper;
pub mod shared_folder;
pub mod socket_count;
pub mod speed;
pub mod tcp;
pub mod ticket;
pub mod traffic;
pub mod transport;
pub mod trust_store;
pub mod turned_away;
pub mod wire;

mod certificate;
mod churn;
mod compute;
mod contacts;
mod cover;
mod dial_race;
mod idleness;
mod key_tls;
mod link_state;
mod link_task;
mod meters;
mod probes;
mod rate;
mod runtime;
mod sharing;
mod telemetry;
mod timers;
mod tls;
mod trust_message;
mod visitors;
mod ways;
mod work_watch;

pub use runtime::{Load, block_on};
