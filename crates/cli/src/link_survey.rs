//! How fast the peers of a running swarm can be reached.

use std::time::Duration;

use anyhow::bail;
use nettorrent_net::address::Address;
use nettorrent_net::ask::{ask_any, find_addresses};
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::measure_link::{LinkSpeed, measure_link};
use nettorrent_net::service::{Answer, Question};
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use serde::Serialize;

/// What was found out about the way to one peer.
#[derive(Serialize)]
pub(crate) struct Surveyed {
    pub peer: PeerId,
    pub address: Address,
    /// How fast it is; none if it could not be measured.
    pub speed: Option<LinkSpeed>,
    /// Why it could not.
    pub problem: Option<String>,
}

/// Measures the links to all members, one after the other, so that they do not disturb each other.
pub(crate) fn survey(ticket: &Ticket, encryption: Encryption) -> anyhow::Result<Vec<Surveyed>> {
    let terms = Terms { encryption, ..Terms::new(Identity::newcomer(&ticket.secret)?, Purpose::Visitor) };
    block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        let addresses = find_addresses(ticket, false).await?;
        let (answer, _) = ask_any(&Tcp, &terms, &addresses, &Question::Status).await?;
        let Answer::Status(first) = answer else { bail!("the peer that was asked did not understand") };
        let mut all = Vec::new();
        for (peer, address) in first.members {
            let measured = measure_link(&Tcp, &terms, &address).await;
            let problem = measured.as_ref().err().map(ToString::to_string);
            all.push(Surveyed { peer, address, speed: measured.ok(), problem });
        }
        all.sort_by_key(|surveyed| surveyed.peer);
        Ok(all)
    })?
}

/// The worst of all: the slowest rate, and half of the longest way there and back.
pub(crate) fn worst(surveyed: &[Surveyed]) -> anyhow::Result<LinkSpec> {
    let speeds = || surveyed.iter().filter_map(|one| one.speed);
    let rate = speeds().map(|speed| speed.bytes_per_s).fold(f64::INFINITY, f64::min);
    if !rate.is_finite() {
        let problems: Vec<&str> = surveyed.iter().filter_map(|one| one.problem.as_deref()).collect();
        bail!("no link could be measured: {}", problems.join("; "));
    }
    let round_trip = speeds().map(|speed| speed.round_trip_s).fold(0.0, f64::max);
    // Microseconds are more exact than such a measurement.
    let delay = Duration::from_micros((5e5 * round_trip) as u64);
    Ok(LinkSpec { bits_per_second: Some(((8.0 * rate) as u64).max(1)), delay })
}

#[cfg(test)]
mod tests {
    use super::{Surveyed, worst};
    use nettorrent_net::measure_link::LinkSpeed;
    use nettorrent_swarm::PeerId;

    fn surveyed(speed: Option<(f64, f64)>) -> Surveyed {
        let speed = speed.map(|(round_trip_s, bytes_per_s)| LinkSpeed { round_trip_s, bytes_per_s });
        let problem = speed.is_none().then(|| "it is gone".to_owned());
        Surveyed { peer: PeerId::new(0, 1), address: "127.0.0.1:1".parse().expect("an address"), speed, problem }
    }

    #[test]
    fn the_worst_counts() {
        let all = [surveyed(Some((0.04, 1e6))), surveyed(None), surveyed(Some((0.01, 125e3)))];
        assert_eq!(worst(&all).expect("a link").to_string(), "1mbit/20ms");
        assert!(worst(&all[1..2]).expect_err("nothing was measured").to_string().contains("it is gone"));
    }
}
