//! Anything in any order: all who live agree in the end, nothing grows, and the same seed gives the same run.

use std::time::Duration;

use nettorrent_engine::job::Quorum;
use nettorrent_net::membership::Config;

use crate::network::{DEADLINE, Network, Node, State, id, member, millis};

/// Anything that can happen to peers and links, in random order.
fn disturb(network: &mut Network, n_started: &mut u32) {
    let running = network.running();
    let any = |network: &mut Network| running[network.rng.below(running.len())];
    match network.rng.below(11) {
        0 | 1 if *n_started < 16 => {
            let introducers = (0..2).map(|_| any(network)).map(|peer| member(peer.join_index())).collect();
            // Joiners may take any place in the order.
            network.start(member((*n_started * 37 + 50) % 101), introducers);
            *n_started += 1;
        }
        2 if running.len() > 2 => {
            let victim = any(network);
            network.kill(victim, State::Killed);
        }
        3 if running.len() > 2 => {
            let victim = any(network);
            network.kill(victim, State::Vanished);
        }
        4 if running.len() > 2 => {
            let victim = any(network);
            network.leave(victim);
        }
        5 if running.len() > 1 => {
            let length = network.config.deadline.mul_f32(network.rng.range(0.1, 3.0));
            let victim = any(network);
            network.hang(victim, length);
        }
        6 => {
            let peer = any(network);
            let island = network.rng.below(2);
            network.node(peer).island = island;
        }
        7 => network.mend(),
        8 => {
            let (a, b) = (any(network), any(network));
            network.cut_link(a, b);
        }
        9 => {
            let is_gone = |node: &Node| matches!(node.state, State::Killed | State::Left);
            let gone: Vec<_> = network.nodes.iter().filter(|(_, node)| is_gone(node)).map(|(id, _)| *id).collect();
            if !gone.is_empty() {
                let peer = gone[network.rng.below(gone.len())];
                let introducer = any(network);
                network.restart(peer, introducer);
            }
        }
        _ => {
            let (a, b) = (any(network), any(network));
            network.break_link(a, b);
        }
    }
}

#[test]
fn all_who_live_agree_whatever_happens() {
    let mut slowest = Duration::ZERO;
    for seed in 0..300 {
        let n_peers = 2 + seed as u32 % 6;
        let quorum = [Quorum::Any, Quorum::Majority][seed as usize / 2 % 2];
        let mut network = Network::new(Config { deadline: DEADLINE, wait_for: n_peers as usize, quorum }, seed);
        network.latency = [millis(1), millis(20), millis(80)][seed as usize % 3];
        for join_index in 0..n_peers {
            network.start(member(join_index), if join_index == 0 { vec![] } else { vec![member(0)] });
        }
        let mut n_started = n_peers;
        if seed % 2 == 0 {
            network.run_for(DEADLINE);
        }
        // Without the first of them nobody could be introduced.
        network.run_for(millis(300));
        for _ in 0..network.rng.below(40) {
            disturb(&mut network, &mut n_started);
            let scale = if network.rng.below(2) == 0 { 0.02 } else { 1.0 };
            let pause = DEADLINE.mul_f32(network.rng.uniform() * scale);
            network.run_for(pause);
        }
        network.mend();
        // Those who hang come back first.
        while network.nodes.values().any(|node| node.state == State::Hanging) {
            network.run_for(DEADLINE / 10);
        }
        network.end_the_unknown();
        // Those who never had a view go on waiting for enough members.
        let running = network.running();
        if running.len() < n_peers as usize && running.iter().all(|peer| network.nodes[peer].n_views == 0) {
            continue;
        }
        slowest = slowest.max(network.converge(DEADLINE * 12, &format!("seed {seed}")));
        // And so it stays.
        network.run_for(DEADLINE * 4);
        network.converge(DEADLINE, &format!("seed {seed}, later"));
        for peer in network.running() {
            let membership = &network.nodes[&peer].membership;
            let known: Vec<_> = membership.members().map(|member| member.id).collect();
            assert_eq!(known, network.running(), "seed {seed}: what {peer:?} knows");
        }
        let n_views = network.views.len();
        network.run_for(DEADLINE * 10);
        assert_eq!(network.views.len(), n_views, "seed {seed}: views without a reason");
    }
    println!("after anything: one view after at most {slowest:.2?}");
}

#[test]
fn nothing_grows() {
    let mut network = Network::settled(4, millis(1000), 1);
    let mut largest = 0;
    for join_index in 4..400 {
        network.start(member(join_index), vec![member(0)]);
        network.run_for(millis(500));
        let end = if join_index % 2 == 0 { State::Killed } else { State::Vanished };
        network.kill(id(join_index), end);
        network.run_for(millis(500));
        network.nodes.retain(|_, node| node.state == State::Running || node.n_views == 0);
        largest = largest.max(network.nodes[&id(0)].membership.n_remembered());
    }
    // A death is remembered for 20 deadlines, so some 20 of the 396 are.
    assert!(largest < 100, "{largest} things are remembered");
    network.run_for(millis(60_000));
    network.converge(millis(1), "all is quiet");
    for join_index in 0..4 {
        let node = &network.nodes[&id(join_index)];
        assert!(node.membership.n_remembered() < 20, "{} things are remembered", node.membership.n_remembered());
        assert!(node.largest_outbox < 300, "{} packets at a time", node.largest_outbox);
    }
}

#[test]
fn at_rest_little_is_said() {
    for n_peers in [2, 4, 10, 50] {
        let mut network = Network::settled(n_peers, DEADLINE, 1);
        network.run_for(DEADLINE * 10);
        network.nodes.values_mut().for_each(|node| node.n_bytes = 0);
        let n_views = network.views.len();
        network.run_for(Duration::from_secs(100));
        let n_bytes = network.nodes.values().map(|node| node.n_bytes).max().unwrap() / 100;
        println!("{n_peers} peers at rest: at most {n_bytes} bytes a second sent by each");
        assert!(n_bytes < 1500, "{n_peers} peers: {n_bytes} bytes a second");
        assert_eq!(network.views.len(), n_views);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut network = Network::settled(6, DEADLINE, seed);
        let mut n_started = 6;
        for _ in 0..30 {
            disturb(&mut network, &mut n_started);
            network.run_for(millis(900));
        }
        (network.n_events, network.views, network.nodes.values().map(|node| node.n_bytes).collect::<Vec<_>>())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
