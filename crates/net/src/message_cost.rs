//! What a message costs the machine on its way from one peer to another: sealing, copies, system calls, threads that wake.
//!
//! Two threads, each with a runtime of its own as two processes would have, send frames there and back over loopback, through the same
//! links that peers use. Nothing else is on its way meanwhile, so that it does not matter whether the two share a core. Between two trips
//! both sleep for a while, as peers do that wait for each other: to wake takes longer than to be still awake.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_swarm::wire::{Frame, Kind};
use tokio::time::Instant;

use crate::address::Address;
use crate::endpoint::{Arrival, BindError, DialError, Endpoint, Settings};
use crate::founder::Founder;
use crate::handshake::Encryption;
use crate::hello::Purpose;
use crate::identity::{Identity, IdentityError};
use crate::inbox::{Event, Inbox, inbox};
use crate::link::Link;
use crate::policy::TicketLimits;
use crate::{Load, block_on};

/// What a message takes from one peer's memory to another's, the network's own time left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageCost {
    /// However short it is.
    pub frame: Duration,
    /// How many bytes of it go in a second besides.
    pub bytes_per_s: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MessageCostError {
    /// No identity can be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody can listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Nobody can be called.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No thread, or no runtime.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other end is gone.
    #[error("the link to this machine itself has ended")]
    Ended,
}

/// How long short and long frames are.
const FEW_BYTES: usize = 64;
const MANY_BYTES: usize = 256 << 10;
/// So many pairs of trips at least; the first ones do not count.
const LEAST_TRIPS: usize = 20;
const WARM_UP: usize = 10;
const INBOX_BYTES: usize = 64 << 20;
/// How long both sleep between trips.
const PAUSE: Duration = Duration::from_micros(300);

/// Measures for about so long.
pub fn measure_message_cost(encryption: Encryption, measure_for: Duration) -> Result<MessageCost, MessageCostError> {
    let founder = Founder::new(TicketLimits::default());
    let (here, there) = (founder.member(0)?, founder.member(1)?);
    let (told, address) = std::sync::mpsc::channel();
    let echo = thread::Builder::new().name("echo".into()).spawn(move || {
        block_on(LOAD, async move {
            let (endpoint, mut arrivals) = Endpoint::bind(settings(there, encryption)).await?;
            let _ = told.send(endpoint.local_address().clone());
            let Some(Arrival::Incoming(connection)) = arrivals.recv().await else {
                return Err(MessageCostError::Ended);
            };
            let (sender, mut inbox) = inbox(INBOX_BYTES);
            let link = connection.start(sender);
            while let Ok(frame) = next(&mut inbox).await {
                link.send(frame);
            }
            Ok(())
        })
    })?;
    let measured = match address.recv() {
        Ok(address) => block_on(LOAD, measure(settings(here, encryption), &address, measure_for))?,
        Err(_) => Err(MessageCostError::Ended),
    };
    // What went wrong at the other end is the cause of what went wrong here.
    if let (Err(_), Ok(Ok(Err(cause)))) = (&measured, echo.join()) {
        return Err(cause);
    }
    measured
}

const LOAD: Load = Load { n_processes: 2, n_bytes: 0 };

fn settings(identity: Identity, encryption: Encryption) -> Settings {
    let purpose = Purpose::Peer { generation: 0, job: [0; 32] };
    Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), encryption, ..Settings::new(identity, purpose) }
}

async fn measure(settings: Settings, address: &Address, lasts: Duration) -> Result<MessageCost, MessageCostError> {
    let (endpoint, _arrivals) = Endpoint::bind(settings).await?;
    let (sender, mut inbox) = inbox(INBOX_BYTES);
    let link = endpoint.dial(address, None).await?.start(sender);
    let (few, many) = (Bytes::from(vec![1; FEW_BYTES]), Bytes::from(vec![1; MANY_BYTES]));
    let (mut short, mut long) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while short.len() < WARM_UP + LEAST_TRIPS || began.elapsed() < lasts {
        short.push(trip(&link, &mut inbox, &few).await?);
        long.push(trip(&link, &mut inbox, &many).await?);
    }
    link.close();
    let (short, long) = (median(short.split_off(WARM_UP)), median(long.split_off(WARM_UP)));
    let on_bytes = long.saturating_sub(short).max(Duration::from_nanos(1));
    Ok(MessageCost { frame: short, bytes_per_s: (MANY_BYTES - FEW_BYTES) as f64 / on_bytes.as_secs_f64() })
}

/// Half of the time that a frame takes there and back.
async fn trip(link: &Link, inbox: &mut Inbox, body: &Bytes) -> Result<Duration, MessageCostError> {
    thread::sleep(PAUSE);
    let began = Instant::now();
    link.send(Frame::new(Kind::Strategy, body.clone()));
    next(inbox).await?;
    Ok(began.elapsed() / 2)
}

async fn next(inbox: &mut Inbox) -> Result<Frame, MessageCostError> {
    match inbox.next().await.map(|event| event.event) {
        Some(Event::Frame(frame)) => Ok(frame),
        _ => Err(MessageCostError::Ended),
    }
}

/// So that somebody else's turn on the processor in between does not count.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MessageCost, measure_message_cost};
    use crate::handshake::Encryption;

    #[test]
    fn frames_and_bytes_both_cost_something() {
        for encryption in [Encryption::On, Encryption::Off] {
            let MessageCost { frame, bytes_per_s } = measure_message_cost(encryption, Duration::ZERO).unwrap();
            assert!(frame > Duration::ZERO && bytes_per_s.is_finite() && bytes_per_s > 1e3, "{frame:?}, {bytes_per_s}");
        }
    }
}
