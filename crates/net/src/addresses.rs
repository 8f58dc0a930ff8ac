//! Under which addresses others can reach a listener on this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use if_addrs::IfOperStatus;

/// Addresses for a listener that is bound to `local`, best first.
pub fn reachable_addresses(local: SocketAddr) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let up = interfaces.iter().filter(|interface| {
        !matches!(interface.oper_status, IfOperStatus::Down | IfOperStatus::NotPresent | IfOperStatus::LowerLayerDown)
    });
    let addresses = sorted(up.map(if_addrs::Interface::ip).collect(), local.is_ipv4(), outward_address());
    addresses.into_iter().map(|ip| SocketAddr::new(ip, local.port())).collect()
}

/// The address from which this machine reaches the rest of the world. Nothing is sent to find out.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address that is reserved for documentation, so it belongs to nobody near.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// IPv4 before IPv6, and the way outward before bridges to containers and the like; loopback only if there is nothing else.
fn sorted(mut addresses: Vec<IpAddr>, only_ipv4: bool, outward: Option<IpAddr>) -> Vec<IpAddr> {
    addresses.retain(|ip| is_usable(*ip) && !(only_ipv4 && ip.is_ipv6()));
    addresses.sort_by_key(|ip| (ip.is_ipv6(), Some(*ip) != outward, *ip));
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    addresses
}

/// Whether others can make use of an address.
pub(crate) fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_unspecified() && !ip.is_link_local(),
        // An address of the local link means something only together with an interface, which differs between machines.
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unspecified() && !is_link_local(ip),
    }
}

fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::{reachable_addresses, sorted};
    use std::net::IpAddr;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn useful_addresses_come_first_and_useless_ones_not_at_all() {
        let found = ips(&[
            "127.0.0.1",
            "::1",
            "fe80::1",
            "2001:db8::1",
            "172.17.0.1",
            "192.168.1.5",
            "169.254.1.1",
            "10.0.0.1",
        ]);
        let outward = Some(ips(&["192.168.1.5"])[0]);
        let v4 = ["192.168.1.5", "10.0.0.1", "172.17.0.1"];
        assert_eq!(sorted(found.clone(), true, outward), ips(&v4));
        assert_eq!(sorted(found, false, outward), ips(&[&v4[..], &["2001:db8::1"]].concat()));
    }

    #[test]
    fn loopback_stands_in_when_there_is_nothing_else() {
        assert_eq!(sorted(ips(&["127.0.0.1", "::1", "fe80::1"]), false, None), ips(&["127.0.0.1"]));
    }

    #[test]
    fn a_listener_at_one_address_is_there_only() {
        let local = "127.0.0.1:4000".parse().unwrap();
        assert_eq!(reachable_addresses(local), [local]);
        assert!(reachable_addresses("0.0.0.0:7".parse().unwrap()).iter().all(|address| address.port() == 7));
    }
}
