//! What membership costs in bytes and packets, and how that grows with the swarm: the figures of `docs/src/scale.md`.

use std::time::Duration;

use super::network::{Network, id, member};

/// What `nettorrent` takes if a job says nothing else.
const DEADLINE: Duration = Duration::from_secs(15);

/// What all peers sent together.
fn sent(network: &Network) -> (usize, usize) {
    let nodes = || network.nodes.values();
    (nodes().map(|node| node.n_packets).sum(), nodes().map(|node| node.n_bytes).sum())
}

/// What the peers send until something is over: in all, and whoever sends most.
struct Sent {
    n_packets: usize,
    n_bytes: usize,
    most_bytes: usize,
}

fn sent_during(network: &mut Network, happens: impl FnOnce(&mut Network)) -> Sent {
    let bytes_before: Vec<_> = network.nodes.iter().map(|(peer, node)| (*peer, node.n_bytes)).collect();
    let before = sent(network);
    happens(network);
    let after = sent(network);
    let most_bytes =
        bytes_before.iter().filter_map(|(peer, before)| Some(network.nodes.get(peer)?.n_bytes - before)).max();
    Sent { n_packets: after.0 - before.0, n_bytes: after.1 - before.1, most_bytes: most_bytes.unwrap_or(0) }
}

/// Packets and bytes that a peer sends in a second while nothing happens; and all bytes of a view without one, and those of its proposer.
fn costs(n_peers: u32) -> (f64, f64, usize, usize) {
    let mut network = Network::settled(n_peers, DEADLINE, 1);
    // Full lists go round every four deadlines.
    let calm = DEADLINE * 8;
    let Sent { n_packets, n_bytes, .. } = sent_during(&mut network, |network| network.run_for(calm));
    let per_peer = |n: usize| n as f64 / f64::from(n_peers) / calm.as_secs_f64();
    let view = sent_during(&mut network, |network| {
        network.leave(id(n_peers - 1));
        network.converge(DEADLINE, "one leaves");
    });
    println!(
        "{n_peers} peers: {:.1} packets and {:.0} bytes a second from each; a view takes {} packets and {} bytes, its proposer {}",
        per_peer(n_packets),
        per_peer(n_bytes),
        view.n_packets,
        view.n_bytes,
        view.most_bytes
    );
    (per_peer(n_packets), per_peer(n_bytes), view.n_bytes, view.most_bytes)
}

#[test]
fn reports_grow_with_the_swarm_and_proposals_with_its_square() {
    // More of them: `PEERS=100 cargo test -p nettorrent-net --test membership traffic -- --nocapture`.
    if let Some(n_peers) = std::env::var("PEERS").ok().and_then(|n| n.parse().ok()) {
        costs(n_peers);
    }
    let (small, large) = (costs(20), costs(40));
    let packets = large.0 - small.0;
    // Each tells each other five times within the deadline; what the failure detector asks does not grow.
    assert!((packets - 20.0 * 5.0 / DEADLINE.as_secs_f64()).abs() < 1.0, "{packets} packets a second more");
    // The list of the 39 who stay, told to 38 of them, is nearly all that their proposer sends.
    let n_list_bytes = 38 * list_len(39);
    assert!((n_list_bytes..n_list_bytes * 5 / 4).contains(&large.3), "{} bytes, {n_list_bytes} of lists", large.3);
    let times = large.3 as f64 / small.3 as f64;
    assert!((3.5..4.5).contains(&times), "twice as many who are told of twice as many: {times}");
}

/// How long a list of so many members is.
fn list_len(n_members: u32) -> usize {
    (0..n_members).map(|k| 1 + varint_len(member(k).id.0) + ADDRESS_LEN).sum()
}

fn varint_len(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(7).max(1)
}

/// An IPv4 address and its port.
const ADDRESS_LEN: usize = 8;
