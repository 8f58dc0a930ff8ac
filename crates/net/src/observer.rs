//! A swarm seen from outside, by its ticket: how far each peer is, and how fast it can be reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use serde::Serialize;

use crate::address::Address;
use crate::ask::{AskError, ask, ask_any, find_addresses};
use crate::handshake::{Encryption, Terms};
use crate::hello::Purpose;
use crate::identity::{Identity, IdentityError};
use crate::measure_link::{LinkSpeed, measure_link};
use crate::service::{Answer, PeerStatus, Question};
use crate::ticket::Ticket;
use crate::transport::Transport;

/// Asks the peers of a swarm without being one.
pub struct Observer {
    transport: Arc<dyn Transport>,
    terms: Terms,
    /// The peer that answered first, and whom it knows.
    first: PeerStatus,
}

/// Why a swarm cannot be seen.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// Keys cannot be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody of the swarm can be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The peer that was asked speaks another protocol.
    #[error("the peer that was asked did not understand; is it of another version?")]
    OtherVersion,
    /// Of no link is it known how fast it is.
    #[error("no link could be measured: {0}")]
    NoLink(String),
}

/// What was found out about the link to one peer.
#[derive(Debug, Serialize)]
pub struct SurveyedLink {
    /// Which peer.
    pub peer: PeerId,
    /// Where it is.
    pub address: Address,
    /// How fast the link is; none if it could not be measured.
    pub speed: Option<LinkSpeed>,
    /// Why it could not.
    pub problem: Option<String>,
}

impl Observer {
    /// Asks whoever of the swarm answers first; with `discover`, on the local network too.
    pub async fn connect(
        transport: Arc<dyn Transport>,
        ticket: &Ticket,
        encryption: Encryption,
        discover: bool,
    ) -> Result<Self, ObserveError> {
        let terms = Terms { encryption, ..Terms::new(Identity::visitor(ticket)?, Purpose::Observer) };
        let addresses = find_addresses(ticket, discover).await?;
        let (answer, _) = ask_any(&*transport, &terms, &addresses, &Question::Status).await?;
        let Answer::Status(first) = answer else { return Err(ObserveError::OtherVersion) };
        Ok(Self { transport, terms, first })
    }

    /// How far each peer is, or why it does not say so.
    pub async fn status(self) -> BTreeMap<PeerId, Result<PeerStatus, String>> {
        let mut peers = BTreeMap::new();
        for (peer, address) in self.first.members.iter().filter(|(peer, _)| *peer != self.first.peer) {
            let terms = Terms { expected: Some(*peer), ..self.terms.clone() };
            let status = match ask(&*self.transport, &terms, address, &Question::Status).await {
                Ok((Answer::Status(status), _)) => Ok(status),
                Ok(_) => Err("it did not understand".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            peers.insert(*peer, status);
        }
        peers.insert(self.first.peer, Ok(self.first));
        peers
    }

    /// Measures the links to all peers, one after the other, so that they do not disturb each other.
    pub async fn links(self) -> Vec<SurveyedLink> {
        let mut links = Vec::new();
        for (peer, address) in self.first.members {
            let measured = measure_link(&*self.transport, &self.terms, &address).await;
            let problem = measured.as_ref().err().map(ToString::to_string);
            links.push(SurveyedLink { peer, address, speed: measured.ok(), problem });
        }
        links.sort_by_key(|link| link.peer);
        links
    }
}

/// The worst of all: the slowest rate, and half of the longest way there and back.
pub fn worst_link(links: &[SurveyedLink]) -> Result<LinkSpec, ObserveError> {
    let speeds = || links.iter().filter_map(|link| link.speed);
    let rate = speeds().map(|speed| speed.bytes_per_s).fold(f64::INFINITY, f64::min);
    if !rate.is_finite() {
        let problems: Vec<&str> = links.iter().filter_map(|link| link.problem.as_deref()).collect();
        return Err(ObserveError::NoLink(problems.join("; ")));
    }
    let round_trip = speeds().map(|speed| speed.round_trip_s).fold(0.0, f64::max);
    // Microseconds are more exact than such a measurement.
    let delay = Duration::from_micros((5e5 * round_trip) as u64);
    Ok(LinkSpec { bits_per_second: Some(((8.0 * rate) as u64).max(1)), delay })
}

#[cfg(test)]
mod tests {
    use super::{SurveyedLink, worst_link};
    use crate::measure_link::LinkSpeed;
    use nettorrent_swarm::PeerId;

    fn link(speed: Option<(f64, f64)>) -> SurveyedLink {
        let speed = speed.map(|(round_trip_s, bytes_per_s)| LinkSpeed { round_trip_s, bytes_per_s });
        let problem = speed.is_none().then(|| "it is gone".to_owned());
        SurveyedLink { peer: PeerId::new(0, 1), address: "127.0.0.1:1".parse().expect("an address"), speed, problem }
    }

    #[test]
    fn worst_link_has_the_slowest_rate_and_the_longest_delay() {
        let all = [link(Some((0.04, 1e6))), link(None), link(Some((0.01, 125e3)))];
        assert_eq!(worst_link(&all).expect("a link").to_string(), "1mbit/20ms");
        assert!(worst_link(&all[1..2]).expect_err("nothing was measured").to_string().contains("it is gone"));
    }
}
