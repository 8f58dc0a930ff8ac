//! Who is too few to train on waits for the others, though not for ever.

use nettorrent_engine::job::Quorum;
use nettorrent_net::membership::{Config, Note};
use nettorrent_swarm::view::View;

use crate::network::{DEADLINE, Network, State, id};

fn settled(n_peers: u32, seed: u64) -> Network {
    Network::settled_with(Config { deadline: DEADLINE, wait_for: n_peers as usize, quorum: Quorum::Majority }, seed)
}

fn view(network: &Network, join_index: u32) -> View {
    network.nodes[&id(join_index)].membership.view().cloned().expect("it has a view")
}

#[test]
fn the_majority_goes_on_and_the_rest_waits_for_it() {
    for seed in 0..30 {
        let n_peers = 3 + seed as u32 % 4;
        let lone = seed as u32 % n_peers;
        let mut network = settled(n_peers, seed);
        let first = view(&network, lone);
        network.node(id(lone)).island = 1;
        network.run_for(DEADLINE * 3);
        for join_index in (0..n_peers).filter(|join_index| *join_index != lone) {
            let view = view(&network, join_index);
            assert_eq!((view.len(), view.base), (n_peers as usize - 1, view.number), "seed {seed}");
        }
        assert_eq!(view(&network, lone), first, "seed {seed}: it waits");
        let told =
            |note: &Note| *note == Note::TooFew { n_here: 1, n_members: n_peers as usize, patience: DEADLINE * 4 };
        assert!(network.nodes[&id(lone)].notes.iter().any(|(_, note)| told(note)), "seed {seed}");
        network.mend();
        network.converge(DEADLINE * 2, &format!("it is back, seed {seed}"));
        assert_eq!(view(&network, lone).base, view(&network, lone).number, "seed {seed}");
    }
}

#[test]
fn nobody_waits_for_ever() {
    for seed in 0..20 {
        let n_peers = 2 + seed as u32 % 3;
        let lone = seed as u32 % n_peers;
        let mut network = settled(n_peers, seed);
        let first = view(&network, lone);
        for join_index in (0..n_peers).filter(|join_index| *join_index != lone) {
            network.kill(id(join_index), State::Vanished);
        }
        network.run_for(DEADLINE * 4);
        assert_eq!(view(&network, lone), first, "seed {seed}: it waits");
        network.run_for(DEADLINE * 2);
        let alone = view(&network, lone);
        assert_eq!((alone.len(), alone.base), (1, first.number), "seed {seed}: it goes on, and says with what right");
        assert!(alone.weight().is_alone() && alone.weight() > first.weight(), "seed {seed}");
    }
}

#[test]
fn what_a_quorum_has_trained_outweighs_what_others_have_trained_alone() {
    for seed in 0..10 {
        let mut network = settled(5, seed);
        for join_index in [3, 4] {
            network.node(id(join_index)).island = 1;
        }
        network.run_for(DEADLINE * 8);
        let (most, rest) = (view(&network, 0), view(&network, 3));
        assert_eq!((most.len(), rest.len()), (3, 2), "seed {seed}: both have gone on");
        assert!(most.weight() > rest.weight(), "seed {seed}: {most:?} {rest:?}");
        network.mend();
        network.converge(DEADLINE * 3, &format!("seed {seed}"));
    }
}

#[test]
fn who_is_known_to_be_gone_is_not_waited_for() {
    for seed in 0..20 {
        let n_peers = 2 + seed as u32 % 5;
        let last = seed as u32 % n_peers;
        let mut network = settled(n_peers, seed);
        for join_index in (0..n_peers).filter(|join_index| *join_index != last) {
            if (seed + u64::from(join_index)).is_multiple_of(2) {
                network.kill(id(join_index), State::Killed);
            } else {
                network.leave(id(join_index));
            }
        }
        network.converge(DEADLINE / 5, &format!("seed {seed}"));
        let view = view(&network, last);
        assert_eq!(view.base, view.number, "seed {seed}");
    }
}

#[test]
fn any_part_goes_on_at_once_where_that_is_wanted() {
    let mut network = Network::settled(4, DEADLINE, 1);
    network.node(id(3)).island = 1;
    network.converge(DEADLINE * 2, "both parts go on");
    assert_eq!(view(&network, 3).base, view(&network, 3).number);
}
