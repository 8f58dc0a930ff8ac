//! Asking a swarm from outside: for what joiners and observers need to know.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use crate::address::Address;
use crate::discovery;
use crate::handshake::{Terms, shake};
use crate::inbox::{Event, Inbox, LinkEvent, inbox};
use crate::link::Link;
use crate::refusal::HandshakeError;
use crate::role::Role;
use crate::service::{Answer, Question, Unreadable};
use crate::ticket::{SwarmId, Ticket};
use crate::transport::Transport;
use crate::ways::ways;
use crate::wire::Wire;

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long one is waited for before the next is called on, too.
const STAGGER: Duration = Duration::from_millis(500);
/// How long the local network is searched.
const SEARCH: Duration = Duration::from_secs(3);
const INBOX_BYTES: usize = 8 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("{} cannot be reached: {source}", .address.brief())]
    Unreachable {
        /// Where.
        address: Address,
        /// What the system says.
        source: std::io::Error,
    },
    /// Somebody is there, but does not talk to us.
    #[error("{}: {source}", .address.brief())]
    Handshake {
        /// Where.
        address: Address,
        /// Why not.
        source: Box<HandshakeError>,
    },
    /// It does not answer.
    #[error("{} does not answer the question; is the peer there still running?", .address.brief())]
    Silent {
        /// Where.
        address: Address,
    },
    /// What it answers makes no sense.
    #[error("{}: {source}", .address.brief())]
    Unreadable {
        /// Where.
        address: Address,
        /// What is wrong.
        source: Unreadable,
    },
    /// Nobody at these addresses has answered.
    #[error(
        "no peer of this swarm has answered:\n  {}\nCheck that `nettorrent start` still runs there and that no firewall is \
         between; on the same local network, try --discover",
        lines(.0)
    )]
    Nobody(Vec<AskError>),
    /// Whoever is at these addresses does not know the ticket.
    #[error("the ticket is not of the swarm that is there, or was replaced; get its present ticket:\n  {}", lines(.0))]
    OtherSwarm(Vec<AskError>),
    /// The ticket names no address.
    #[error(
        "the ticket names no address and nobody was found; use a fresh ticket, or --discover on the same local network"
    )]
    NoAddress,
    /// The local network cannot be searched.
    #[error(transparent)]
    Discovery(#[from] discovery::DiscoveryError),
}

impl AskError {
    fn is_wrong_ticket(&self) -> bool {
        matches!(self, Self::Handshake { source, .. } if source.is_wrong_ticket())
    }
}

fn lines(problems: &[AskError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

/// An answer, and the address under which the peer sees us.
pub type Answered = (Answer, Address);

/// A visit to a peer: it may be asked several things.
pub struct Visit {
    address: Address,
    seen: Address,
    link: Link,
    inbox: Inbox,
}

impl Visit {
    /// Calls on the peer at an address.
    pub fn begin<'a>(transport: &'a dyn Transport, terms: &'a Terms, address: &'a Address) -> Beginning<'a> {
        // In a box, it is compiled here, once, and not again wherever somebody waits for it.
        Box::pin(Self::call(transport, terms, address))
    }

    async fn call(transport: &dyn Transport, terms: &Terms, address: &Address) -> Result<Self, AskError> {
        let mut problem = None;
        for transport in ways(transport, address) {
            match Self::call_by(transport, terms, address).await {
                Err(error) => problem = Some(error),
                done => return done,
            }
        }
        Err(problem.expect("there is always a way to try"))
    }

    async fn call_by(transport: &dyn Transport, terms: &Terms, address: &Address) -> Result<Self, AskError> {
        let unreachable = |source| AskError::Unreachable { address: address.clone(), source };
        let connecting = timeout(PATIENCE, transport.connect(address)).await;
        let stream = connecting.map_err(|_| unreachable(std::io::ErrorKind::TimedOut.into()))?.map_err(unreachable)?;
        let connection = shake(Wire::from(stream), Role::Dialler, terms, |_| Ok(())).await;
        let connection =
            connection.map_err(|source| AskError::Handshake { address: address.clone(), source: Box::new(source) })?;
        let seen = connection.hello().seen.clone();
        let (sender, inbox) = inbox(INBOX_BYTES);
        Ok(Self { address: address.clone(), seen, link: connection.start(sender), inbox })
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&mut self, question: &Question) -> Result<Answer, AskError> {
        let address = self.address.clone();
        self.link.say(question);
        match timeout(PATIENCE, self.inbox.next()).await {
            Ok(Some(LinkEvent { event: Event::Frame(frame), .. })) => {
                self.link.read(&frame).map_err(|source| AskError::Unreadable { address, source })
            }
            Ok(_) | Err(_) => Err(AskError::Silent { address }),
        }
    }

    /// Who is asked.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// Asks the peer at an address.
pub async fn ask(
    transport: &dyn Transport,
    terms: &Terms,
    address: &Address,
    question: &Question,
) -> Result<Answered, AskError> {
    let mut visit = Visit::begin(transport, terms, address).await?;
    Ok((visit.ask(question).await?, visit.seen))
}

/// Calls on the peers at several addresses: on the next one when the one before has failed or has not answered for a moment. So
/// machines that are gone cost little time, and questions are asked of one peer at a time.
struct Visits<'a> {
    transport: &'a dyn Transport,
    terms: &'a Terms,
    addresses: std::slice::Iter<'a, Address>,
    begun: Vec<Beginning<'a>>,
}

/// A visit on its way.
pub type Beginning<'a> = Pin<Box<dyn Future<Output = Result<Visit, AskError>> + Send + 'a>>;

impl Visits<'_> {
    /// The next one that has begun or failed; none when there are no more.
    async fn next(&mut self) -> Option<Result<Visit, AskError>> {
        loop {
            if self.begun.is_empty() {
                self.begin_another().then_some(())?;
            }
            match timeout(STAGGER, poll_fn(|context| first_of(&mut self.begun, context))).await {
                Ok(visit) => {
                    if visit.is_err() {
                        self.begin_another();
                    }
                    return Some(visit);
                }
                Err(_) => _ = self.begin_another(),
            }
        }
    }

    /// Whether there was one.
    fn begin_another(&mut self) -> bool {
        let Some(address) = self.addresses.next() else { return false };
        self.begun.push(Visit::begin(self.transport, self.terms, address));
        true
    }
}

/// The result of the first that is done, which is then one of them no more.
fn first_of<'a>(begun: &mut Vec<Beginning<'a>>, context: &mut Context<'_>) -> Poll<Result<Visit, AskError>> {
    for k in 0..begun.len() {
        if let Poll::Ready(visit) = begun[k].as_mut().poll(context) {
            drop(begun.remove(k));
            return Poll::Ready(visit);
        }
    }
    Poll::Pending
}

/// Asks the first of these that answers. Whatever one of them says, the next is asked: its process may be ending, its address may be
/// another's by now, and anybody in the local network can announce one.
pub async fn ask_any(
    transport: &dyn Transport,
    terms: &Terms,
    addresses: &[Address],
    question: &Question,
) -> Result<Answered, AskError> {
    let mut problems = Vec::new();
    let mut visits = Visits { transport, terms, addresses: addresses.iter(), begun: Vec::new() };
    while let Some(visit) = visits.next().await {
        let answered = match visit {
            Ok(mut visit) => visit.ask(question).await.map(|answer| (answer, visit.seen)),
            Err(problem) => Err(problem),
        };
        match answered {
            Ok(answered) => return Ok(answered),
            Err(problem) => problems.push(problem),
        }
    }
    Err(match &problems[..] {
        [] => AskError::NoAddress,
        all if all.iter().all(AskError::is_wrong_ticket) => AskError::OtherSwarm(problems),
        _ => AskError::Nobody(problems),
    })
}

/// Where peers of a ticket's swarm may be: what the ticket says and, if `discover`, what the local network says.
pub async fn find_addresses(ticket: &Ticket, discover: bool) -> Result<Vec<Address>, AskError> {
    let found = if discover { discovery::find(SwarmId::of_owner(&ticket.owner), SEARCH).await? } else { Vec::new() };
    Ok(with_found(ticket, found))
}

/// The ticket's addresses come first, for the others anybody can have announced.
fn with_found(ticket: &Ticket, found: Vec<SocketAddr>) -> Vec<Address> {
    let others = found.into_iter().map(Address::Tcp).filter(|address| !ticket.addresses.contains(address));
    ticket.addresses.iter().cloned().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use tokio::time::Instant;

    use super::{AskError, PATIENCE, STAGGER, Visits, with_found};
    use crate::address::Address;
    use crate::founder::Founder;
    use crate::handshake::Terms;
    use crate::hello::Purpose;
    use crate::transport::{ByteStream, Doing, Listener, Transport};

    /// Where nobody ever answers at even addresses, and odd ones are refused.
    #[derive(Debug)]
    struct Deserted;

    impl Transport for Deserted {
        fn listen<'a>(&'a self, _: &'a Address) -> Doing<'a, Box<dyn Listener>> {
            unreachable!("nobody listens here")
        }

        fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
            match to {
                Address::InProcess(n) if n % 2 == 1 => {
                    Box::pin(async { Err(Error::from(ErrorKind::ConnectionRefused)) })
                }
                _ => Box::pin(std::future::pending()),
            }
        }
    }

    #[test]
    fn addresses_of_the_ticket_are_tried_before_those_that_anybody_can_announce() {
        let address = |n: u16| ([192, 0, 2, 1], n).into();
        let ticket = Founder::within_process().ticket([9, 7].map(|n| Address::Tcp(address(n))).to_vec());
        assert_eq!(with_found(&ticket, Vec::new()), ticket.addresses);
        let all = with_found(&ticket, [1, 7, 8].map(address).to_vec());
        assert_eq!(all, [9, 7, 1, 8].map(|n| Address::Tcp(address(n))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_does_not_hold_up_those_after_it() {
        let addresses = [0, 2, 1, 3].map(Address::InProcess);
        let terms = Terms::new(Founder::within_process().visitor(7).unwrap(), Purpose::Observer);
        let mut visits = Visits { transport: &Deserted, terms: &terms, addresses: addresses.iter(), begun: Vec::new() };
        let (began, mut told) = (Instant::now(), Vec::new());
        while let Some(visit) = visits.next().await {
            let Err(AskError::Unreachable { address, .. }) = visit else { panic!("nobody is there") };
            told.push((address, began.elapsed()));
        }
        let expected = [(1, 2 * STAGGER), (3, 2 * STAGGER), (0, PATIENCE), (2, PATIENCE + STAGGER)];
        for ((address, at), (number, when)) in told.iter().zip(expected) {
            assert_eq!(*address, Address::InProcess(number));
            assert!(at.abs_diff(when).as_millis() < 10, "{address}: {at:?} and not {when:?}");
        }
        assert_eq!(told.len(), expected.len());
    }
}
