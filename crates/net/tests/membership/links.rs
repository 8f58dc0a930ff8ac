//! Members that cannot reach each other: the others go on with one of them, and a newcomer disturbs nobody.

use nettorrent_engine::job::Quorum;
use nettorrent_net::membership::{Config, Note};
use nettorrent_swarm::view::PeerId;

use crate::network::{DEADLINE, Network, id, member};

/// The members of a peer's view.
fn view(network: &Network, peer: PeerId) -> Vec<PeerId> {
    network.nodes[&peer].membership.view().map_or_else(Vec::new, |view| view.members.to_vec())
}

/// Whether no two members of anybody's latest view are cut from each other.
fn all_others_agree_without(network: &Network, left_out: &[PeerId]) -> bool {
    let rest: Vec<_> = network.running().into_iter().filter(|peer| !left_out.contains(peer)).collect();
    rest.iter().all(|peer| view(network, *peer) == rest)
}

#[test]
fn of_two_who_cannot_reach_each_other_the_later_is_left_out() {
    for seed in 0..30 {
        let n_peers = 3 + seed as u32 % 4;
        let (a, b) = (id(seed as u32 % (n_peers - 1)), id(n_peers - 1));
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        match seed % 3 {
            0 => network.cut_link(a, b),
            1 => network.cut_one_way(a, b),
            _ => network.cut_one_way(b, a),
        }
        network.run_for(DEADLINE * 2);
        assert!(all_others_agree_without(&network, &[b]), "seed {seed}: {:?}", network.views);
        // So it stays, and those who are to know are told.
        let n_views = network.views.len();
        network.run_for(DEADLINE * 20);
        assert_eq!(network.views.len(), n_views, "seed {seed}: {:?}", network.views);
        let told = |note: &Note| matches!(note, Note::LeftOut { member, other } if (member.id, other.id) == (b, a));
        assert!(network.nodes[&b].notes.iter().any(|(_, note)| told(note)), "seed {seed}");
        network.mend();
        network.converge(DEADLINE * 3, &format!("they meet again, seed {seed}"));
    }
}

#[test]
fn as_many_as_possible_go_on() {
    for seed in 0..10 {
        let mut network = Network::settled(5, DEADLINE, seed);
        // The first two each lack three links; without them nobody lacks any.
        for (a, b) in [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)] {
            network.cut_link(id(a), id(b));
        }
        network.cut_link(id(0), id(1));
        network.run_for(DEADLINE * 3);
        for peer in [2, 3, 4] {
            assert_eq!(view(&network, id(peer)), [id(2), id(3), id(4)], "seed {seed}");
        }
        let mut network = Network::settled(5, DEADLINE, seed);
        // The proposer itself lacks the most links, and one member hears it.
        for peer in [1, 2, 3] {
            network.cut_link(id(0), id(peer));
        }
        network.run_for(DEADLINE * 3);
        assert!(all_others_agree_without(&network, &[id(0)]), "seed {seed}: {:?}", network.views);
        network.mend();
        network.converge(DEADLINE * 3, &format!("the first is back, seed {seed}"));
    }
}

#[test]
fn a_newcomer_that_a_member_cannot_reach_disturbs_nobody() {
    for seed in 0..30 {
        let n_peers = 2 + seed as u32 % 4;
        let (newcomer, introducer) = (member(9), member(0));
        let lacking = id(1 + seed as u32 % (n_peers - 1));
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        match seed % 3 {
            0 => network.cut_link(newcomer.id, lacking),
            1 => network.cut_one_way(newcomer.id, lacking),
            _ => network.cut_one_way(lacking, newcomer.id),
        }
        network.start(newcomer.clone(), vec![introducer]);
        network.run_for(DEADLINE * 20);
        assert_eq!(network.views.len(), 1, "seed {seed}: {:?}", network.views);
        let told = |note: &Note| matches!(note, Note::LeftOut { member, other } if (member.id, other.id) == (newcomer.id, lacking));
        assert!(network.nodes[&newcomer.id].notes.iter().any(|(_, note)| told(note)), "seed {seed}");
        assert!(network.nodes[&id(0)].notes.iter().any(|(_, note)| told(note)), "seed {seed}");
        network.mend();
        network.converge(DEADLINE * 2, &format!("it is taken in, seed {seed}"));
        assert_eq!(network.views.len(), 2, "seed {seed}: one view with it");
    }
}

#[test]
fn a_newcomer_that_is_refused_by_a_member_disturbs_nobody() {
    for seed in 0..10 {
        let mut network = Network::settled(3, DEADLINE, seed);
        let newcomer = member(9);
        network.cut_link(newcomer.id, id(1));
        network.start(newcomer.clone(), vec![member(0)]);
        // Between the two is a firewall that answers in the other's place.
        for _ in 0..100 {
            network.hand_in(id(1), nettorrent_net::membership::Input::Refused(newcomer.id));
            network.hand_in(newcomer.id, nettorrent_net::membership::Input::Refused(id(1)));
            network.run_for(DEADLINE / 10);
        }
        assert_eq!(network.views.len(), 1, "seed {seed}: {:?}", network.views);
        assert_eq!(network.nodes[&newcomer.id].membership.me().generation, 0, "seed {seed}");
    }
}

#[test]
fn a_link_that_breaks_and_is_made_anew_makes_one_view_of_the_same_members() {
    for seed in 0..20 {
        let n_peers = 2 + seed as u32 % 4;
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        let (a, b) = (id(seed as u32 % n_peers), id((seed as u32 + 1) % n_peers));
        network.break_link(a, b);
        network.hand_in(a, nettorrent_net::membership::Input::Broken(b));
        if seed % 2 == 0 {
            network.hand_in(b, nettorrent_net::membership::Input::Broken(a));
        }
        network.run_for(DEADLINE);
        assert_eq!(network.views.len(), 2, "seed {seed}: {:?}", network.views);
        assert_eq!(network.n_notes(|note| matches!(note, Note::Lost { .. })), 0, "seed {seed}");
        network.converge(DEADLINE, &format!("seed {seed}"));
    }
}

/// The one that was left out and those who went on without it propose to a third at the same moment. It agrees to both, so the view of
/// those who went on is in place everywhere but with it, and somebody has to propose once more.
#[test]
fn one_that_two_propose_to_at_the_same_time_keeps_nobody_waiting() {
    for seed in 0..30 {
        let config = Config { deadline: DEADLINE, wait_for: 5, quorum: Quorum::Majority };
        let mut network = Network::settled_with(config, seed);
        network.latency = DEADLINE / 50;
        network.hang(id(1), DEADLINE * (320 + seed as u32 % 20) / 100);
        network.run_for(DEADLINE * 3 / 10);
        network.cut_link(id(0), id(3));
        network.run_for(DEADLINE * 6 / 10);
        network.cut_link(id(0), id(4));
        network.run_for(DEADLINE * 21 / 10);
        network.mend();
        network.cut_link(id(0), id(4));
        network.run_for(DEADLINE * 3);
        let left_out = if view(&network, id(4)).contains(&id(1)) { id(0) } else { id(4) };
        assert!(all_others_agree_without(&network, &[left_out]), "seed {seed}: {:?}", network.views);
    }
}
