//! How long a message takes to a peer and back, and how fast bytes come from it.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::ask::{AskError, Visit};
use crate::handshake::Terms;
use crate::service::{Answer, Question};
use crate::transport::Transport;

/// How fast a link is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkSpeed {
    /// The shortest time to a peer and back.
    pub round_trip_s: f64,
    /// How many bytes come from it in a second.
    pub bytes_per_s: f64,
}

/// How often the way there and back is measured.
const N_TRIPS: usize = 5;
/// What is asked for first, and what then if that came too soon to be timed. The first also makes the link speed up.
const FEW_BYTES: u32 = 64 << 10;
const MANY_BYTES: u32 = 2 << 20;
/// What takes longer than this can be timed.
const LONG_ENOUGH: Duration = Duration::from_millis(100);
/// A peer gives bytes to one after the other.
const N_ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(250);

/// Measures the link to a peer.
pub(crate) async fn measure_link(
    transport: &dyn Transport,
    terms: &Terms,
    address: &Address,
) -> Result<LinkSpeed, AskError> {
    let mut visit = Visit::begin(transport, terms, address).await?;
    let mut round_trip = Duration::MAX;
    for _ in 0..N_TRIPS {
        round_trip = round_trip.min(fetch(&mut visit, 0).await?);
    }
    let (mut n_bytes, mut took) = (FEW_BYTES, fetch(&mut visit, FEW_BYTES).await?);
    if took < LONG_ENOUGH {
        (n_bytes, took) = (MANY_BYTES, fetch(&mut visit, MANY_BYTES).await?);
    }
    let on_the_way = took.saturating_sub(round_trip).max(Duration::from_micros(1));
    let bytes_per_s = f64::from(n_bytes) / on_the_way.as_secs_f64();
    Ok(LinkSpeed { round_trip_s: round_trip.as_secs_f64(), bytes_per_s })
}

/// How long it takes to get so many bytes; who is busy is asked again.
async fn fetch(visit: &mut Visit, n_bytes: u32) -> Result<Duration, AskError> {
    for _ in 0..N_ATTEMPTS {
        let began = Instant::now();
        match visit.ask(&Question::Probe { n_bytes }).await? {
            Answer::Probe(bytes) if bytes.len() == n_bytes as usize => return Ok(began.elapsed()),
            Answer::Probe(_) => sleep(PAUSE).await,
            _ => break,
        }
    }
    Err(AskError::Silent { address: visit.address().clone() })
}
