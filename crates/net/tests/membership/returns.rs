//! Who was given up, cut off or restarted comes back, and all agree again.

use std::time::Duration;

use nettorrent_net::membership::{Input, Member};

use crate::network::{DEADLINE, Network, State, id, member};

#[test]
fn who_hangs_too_long_comes_back() {
    for seed in 0..30 {
        let n_peers = 2 + seed as u32 % 7;
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        let sleeper = id(network.rng.below(n_peers as usize) as u32);
        let length = DEADLINE * (2 + 30 * (seed as u32 % 2));
        network.hang(sleeper, length);
        network.converge(DEADLINE * 2, &format!("one hangs, seed {seed}"));
        network.run_until(network.now + length);
        network.converge(DEADLINE, &format!("it is back, seed {seed}"));
        assert_eq!(network.nodes[&sleeper].membership.view().unwrap().len(), n_peers as usize);
    }
}

#[test]
fn who_comes_back_to_nobody_finds_out() {
    for seed in 0..10 {
        let mut network = Network::settled(4, DEADLINE, seed);
        network.hang(id(2), DEADLINE * 3);
        network.run_for(DEADLINE * 2);
        for join_index in [0, 1, 3] {
            network.kill(id(join_index), State::Vanished);
        }
        network.run_for(DEADLINE);
        network.converge(DEADLINE * 2, &format!("seed {seed}"));
        assert!(network.nodes[&id(2)].membership.me().generation > 0, "seed {seed}: it was told that it was given up");
    }
}

#[test]
fn islands_go_on_alone_and_merge_when_they_meet() {
    for (n_peers, n_seeds) in [(2, 10), (3, 10), (10, 10), (50, 3)] {
        let mut slowest = Duration::ZERO;
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            let n_islands = 2 + seed as usize % 2;
            for peer in network.running() {
                let island = network.rng.below(n_islands);
                network.node(peer).island = island;
            }
            network.converge(DEADLINE * 3, &format!("islands of {n_peers}, seed {seed}"));
            network.run_for(DEADLINE * (10 * (seed as u32 % 4)));
            network.mend();
            let highest = *network.views.keys().last().unwrap();
            // The lonely look for others more often.
            let limit = if n_peers <= 3 { DEADLINE * 2 } else { DEADLINE * 4 };
            let time = network.converge(limit, &format!("{n_peers} meet again, seed {seed}"));
            slowest = slowest.max(time);
            assert!(network.nodes[&id(0)].membership.view().unwrap().number >= highest, "seed {seed}");
        }
        println!("{n_peers} peers, cut and healed: one view after at most {slowest:.2?}");
    }
}

#[test]
fn a_member_that_forgot_everything_gets_a_new_view() {
    for seed in 0..20 {
        let mut network = Network::settled(4, DEADLINE, seed);
        let victim = seed as u32 % 4;
        // It starts again before anybody notices, under the same name and in the same generation.
        network.restart(id(victim), id((victim + 1) % 4));
        network.run_for(DEADLINE * 2);
        network.converge(DEADLINE, &format!("seed {seed}"));
        assert!(network.views.len() >= 2, "seed {seed}: the others must know that a member has lost its memory");
        // If it says that this is another life, the others need not find out.
        let n_views = network.views.len();
        let me = network.nodes[&id(victim)].membership.me().clone();
        let reborn = Member { generation: me.generation + 1, ..me };
        network.start(reborn, vec![member((victim + 1) % 4)]);
        network.run_for(DEADLINE / 5);
        network.converge(Duration::ZERO, &format!("in a later generation, seed {seed}"));
        assert!(network.views.len() > n_views, "seed {seed}");
        // It is killed and starts again in a generation that is long past.
        for node in network.nodes.values_mut() {
            node.notes.clear();
        }
        network.hang(id(victim), DEADLINE * 2);
        network.run_for(DEADLINE * 4);
        network.hang(id(victim), DEADLINE * 2);
        network.run_for(DEADLINE * 4);
        assert!(network.nodes[&id(victim)].membership.me().generation >= 2, "seed {seed}");
        network.restart(id(victim), id((victim + 1) % 4));
        network.run_for(DEADLINE);
        network.converge(DEADLINE * 2, &format!("from an earlier generation, seed {seed}"));
    }
}

#[test]
fn two_who_take_each_other_for_dead_find_out() {
    for seed in 0..10 {
        let mut network = Network::settled(6, DEADLINE, seed);
        let (a, b) = (id(seed as u32 % 5), id(5));
        // What they say to others about each other is lost.
        (network.node(a).island, network.node(b).island) = (1, 2);
        network.hand_in(a, Input::Refused(b));
        network.hand_in(b, Input::Refused(a));
        network.run_for(DEADLINE / 5);
        network.mend();
        network.run_for(DEADLINE * 3 / 2);
        for peer in network.running() {
            let n_known = network.nodes[&peer].membership.members().count();
            assert_eq!(n_known, 6, "seed {seed}: {peer:?}");
        }
        network.converge(DEADLINE, &format!("seed {seed}"));
    }
}

#[test]
fn two_who_cannot_talk_to_each_other_do_not_stop_the_others() {
    for seed in 0..10 {
        let mut network = Network::settled(5, DEADLINE, seed);
        let (a, b) = (id(0), id(1 + seed as u32 % 4));
        network.cut_link(a, b);
        network.run_for(DEADLINE);
        let joiner = member(9);
        network.start(joiner.clone(), vec![member(0)]);
        network.run_for(DEADLINE * 6);
        let view = network.nodes[&joiner.id].membership.view().cloned();
        assert!(view.is_some_and(|view| view.len() >= 5), "seed {seed}");
        network.mend();
        network.converge(DEADLINE * 4, &format!("seed {seed}"));
        // They may still be busy forgetting that.
        network.run_for(DEADLINE * 4);
        network.converge(DEADLINE, &format!("seed {seed}, later"));
    }
}
