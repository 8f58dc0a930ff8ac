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
    // More of them: `PEERS=300 cargo test -p nettorrent-net --test membership traffic -- --nocapture`.
    if let Some(n_peers) = std::env::var("PEERS").ok().and_then(|n| n.parse().ok()) {
        costs(n_peers);
    }
    let (small, large) = (costs(20), costs(80));
    let packets = large.0 - small.0;
    // Each tells each other five times within the deadline; what the failure detector asks does not grow.
    assert!((packets - 60.0 * 5.0 / DEADLINE.as_secs_f64()).abs() < 2.0, "{packets} packets a second more");
    let times = large.3 as f64 / small.3 as f64;
    assert!((8.0..24.0).contains(&times), "a proposal to four times as many who are four times as many: {times}");
    // The list of members is nearly all of it.
    let n_list_bytes = postcard_len(80);
    assert!(large.3 > 79 * n_list_bytes && large.3 < 3 * 79 * n_list_bytes, "{} bytes of {n_list_bytes}", large.3);
}

/// About how long a list of so many members is.
fn postcard_len(n_members: u32) -> usize {
    (0..n_members).map(|k| 1 + varint_len(member(k).id.0) + ADDRESS_LEN).sum()
}

fn varint_len(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(7).max(1)
}

/// An IPv4 address and its port.
const ADDRESS_LEN: usize = 8;
