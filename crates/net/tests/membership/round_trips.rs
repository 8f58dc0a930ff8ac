//! How near the others are is known as soon as there is a view, and known anew when a link is.

use std::time::Duration;

use nettorrent_net::membership::{Config, Input};
use nettorrent_swarm::view::PeerId;

use crate::network::{DEADLINE, Network, id, member, millis};

const N_PEERS: u32 = 6;

/// How many milliseconds it takes at one peer until another has answered.
fn time(network: &Network, at: PeerId, peer: PeerId) -> Option<u128> {
    network.nodes[&at].membership.round_trips().get(&peer).map(Duration::as_millis)
}

/// Six who begin together, the last three far away.
fn begun(seed: u64) -> Network {
    let mut network =
        Network::new(Config { deadline: DEADLINE, wait_for: N_PEERS as usize, ..Config::default() }, seed);
    network.elsewhere = Some((3, millis(60)));
    network.start(member(0), Vec::new());
    for join_index in 1..N_PEERS {
        network.start(member(join_index), vec![member(0)]);
    }
    network.converge(DEADLINE * 2, &format!("seed {seed}"));
    network
}

#[test]
fn who_is_near_is_known_with_the_first_view_that_lists_it() {
    for seed in 0..20 {
        let mut network = begun(seed);
        network.start(member(N_PEERS), vec![member(0)]);
        network.converge(DEADLINE, &format!("one comes later, seed {seed}"));
        for (a, b) in (0..=N_PEERS).flat_map(|a| (0..=N_PEERS).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            let time = time(&network, id(a), id(b)).unwrap_or_else(|| panic!("{a} knows nothing of {b}, seed {seed}"));
            let is_far = (a < 3) != (b < 3);
            let range = if is_far { 120..=130 } else { 0..=10 };
            assert!(range.contains(&time), "from {a} to {b}: {time} ms, seed {seed}");
        }
    }
}

#[test]
fn a_link_that_is_there_anew_or_goes_another_way_is_measured_anew() {
    let mut network = begun(1);
    assert!(time(&network, id(0), id(4)) >= Some(120) && time(&network, id(1), id(3)) >= Some(120));
    // They are at one place now, and go on over other links, or straight and not by a relay.
    network.elsewhere = None;
    network.break_link(id(0), id(4));
    for (a, b) in [(0, 4), (4, 0)] {
        network.hand_in(id(a), Input::Broken(id(b)));
    }
    for (a, b) in [(1, 3), (3, 1)] {
        network.hand_in(id(a), Input::Rerouted(id(b)));
    }
    network.run_for(DEADLINE * 2);
    for (a, b) in [(0, 4), (4, 0), (1, 3), (3, 1)] {
        assert!(time(&network, id(a), id(b)).is_some_and(|time| time <= 10), "from {a} to {b}");
    }
    assert!(time(&network, id(0), id(5)) >= Some(120), "that link is the same");
    network.leave(id(4));
    network.run_for(DEADLINE);
    assert_eq!(time(&network, id(0), id(4)), None);
}
