//! Finding a swarm's peers in the local network without a ticket's addresses, for those who ask for it (mDNS).
//!
//! Only the swarm's public name is announced. Whoever answers must still prove in the handshake that it holds the secret.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use mdns_sd::{ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::addresses::is_usable;
use crate::ticket::{SwarmId, random_bytes};

const SERVICE: &str = "_nettorrent._tcp.local.";
const SWARM_PROPERTY: &str = "swarm";
// Once somebody has answered, others who live will have answered soon.
const GRACE: Duration = Duration::from_millis(500);

/// Why the local network cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The system does not let us.
    #[error("peers cannot be looked for in the local network ({0}): use a ticket with addresses instead")]
    Mdns(#[from] mdns_sd::Error),
    /// A search was cut off, as the program ends.
    #[error("the search in the local network was cut off: try again")]
    CutOff,
}

/// As long as it lives, others in the local network find us.
pub struct Announcement {
    daemon: ServiceDaemon,
    name: String,
}

/// Says in the local network that a peer of this swarm listens at this port.
pub fn announce(swarm: SwarmId, port: u16) -> Result<Announcement, DiscoveryError> {
    let service = description(swarm, port)?;
    let daemon = ServiceDaemon::new()?;
    let name = service.get_fullname().to_owned();
    daemon.register(service)?;
    Ok(Announcement { daemon, name })
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // The daemon works these off in order, on a thread of its own; nobody has to wait for it.
        let _ = self.daemon.unregister(&self.name);
        let _ = self.daemon.shutdown();
    }
}

/// Where peers of this swarm listen, IPv4 first; waits up to `timeout` for somebody to answer.
pub async fn find(swarm: SwarmId, timeout: Duration) -> Result<Vec<SocketAddr>, DiscoveryError> {
    let daemon = ServiceDaemon::new()?;
    let events = daemon.browse(SERVICE)?;
    let next = move |deadline| events.recv_deadline(deadline).ok();
    let found = tokio::task::spawn_blocking(move || collect(next, swarm, timeout)).await;
    let _ = daemon.shutdown();
    found.map_err(|_| DiscoveryError::CutOff)
}

/// What we announce. Each process has a name of its own, so that several on one machine do not contradict each other.
fn description(swarm: SwarmId, port: u16) -> Result<ServiceInfo, mdns_sd::Error> {
    let own = HEXLOWER.encode(&random_bytes::<8>());
    let host = format!("nettorrent-{own}.local.");
    let properties = [(SWARM_PROPERTY, swarm.to_hex())];
    Ok(ServiceInfo::new(SERVICE, &own, &host, "", port, &properties[..])?.enable_addr_auto())
}

/// The addresses of this swarm in what `next` hears until the moment that it is given.
fn collect(
    mut next: impl FnMut(Instant) -> Option<ServiceEvent>,
    swarm: SwarmId,
    timeout: Duration,
) -> Vec<SocketAddr> {
    let mut deadline = Instant::now() + timeout;
    let mut found = BTreeSet::new();
    while let Some(event) = next(deadline) {
        let ServiceEvent::ServiceResolved(service) = event else { continue };
        let addresses = addresses_of(&service, swarm);
        if found.is_empty() && !addresses.is_empty() {
            deadline = deadline.min(Instant::now() + GRACE);
        }
        found.extend(addresses);
    }
    // The order of addresses has IPv4 before IPv6.
    found.into_iter().collect()
}

/// The usable addresses of a service, if it is of this swarm. Anybody can announce anything, so everything is checked.
fn addresses_of(service: &ResolvedService, swarm: SwarmId) -> Vec<SocketAddr> {
    if service.get_property_val_str(SWARM_PROPERTY) != Some(swarm.to_hex().as_str()) {
        return Vec::new();
    }
    let ips = service.get_addresses().iter().map(mdns_sd::ScopedIp::to_ip_addr);
    ips.filter(|ip| is_usable(*ip)).map(|ip| SocketAddr::new(ip, service.get_port())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SERVICE, addresses_of, collect, description};
    use crate::ticket::SwarmId;
    use mdns_sd::{ResolvedService, ServiceEvent, ServiceInfo};

    const SWARM: SwarmId = SwarmId([7; 16]);

    fn service(properties: &[(&str, String)], addresses: &str) -> ResolvedService {
        ServiceInfo::new(SERVICE, "x", "x.local.", addresses, 4000, properties).unwrap().as_resolved_service()
    }

    #[test]
    fn what_is_announced_is_found_by_the_same_swarm_only() {
        let service = service(&[("swarm", SWARM.to_hex())], "192.0.2.7,127.0.0.1,fe80::1,2001:db8::1");
        let mut found = addresses_of(&service, SWARM);
        found.sort_unstable();
        assert_eq!(found, ["192.0.2.7:4000".parse().unwrap(), "[2001:db8::1]:4000".parse().unwrap()]);
        assert_eq!(addresses_of(&service, SwarmId([8; 16])), []);
    }

    #[test]
    fn announcements_that_make_no_sense_hide_no_others() {
        let ours = || ("swarm", SWARM.to_hex());
        let announced = [
            service(&[], "192.0.2.1"),
            service(&[("swarm", "?".repeat(200))], "192.0.2.2"),
            service(&[ours()], ""),
            service(&[ours()], "127.0.0.1,fe80::1"),
            // Who lies well is found out in the handshake.
            service(&[ours()], "192.0.2.66"),
            service(&[ours()], "192.0.2.66,192.0.2.7"),
        ];
        let resolved = announced.into_iter().map(|service| ServiceEvent::ServiceResolved(Box::new(service)));
        let mut events = resolved.chain([ServiceEvent::SearchStopped(SERVICE.to_owned())]);
        let found = collect(|_| events.next(), SWARM, Duration::ZERO);
        assert_eq!(found, ["192.0.2.7:4000".parse().unwrap(), "192.0.2.66:4000".parse().unwrap()]);
    }

    #[test]
    fn processes_announce_themselves_under_names_of_their_own() {
        let (one, other) = (description(SWARM, 1).unwrap(), description(SWARM, 1).unwrap());
        assert_ne!(one.get_fullname(), other.get_fullname());
        assert!(one.get_fullname().ends_with("._nettorrent._tcp.local."));
        assert_eq!(one.get_property_val_str("swarm"), Some(SWARM.to_hex().as_str()));
    }
}
