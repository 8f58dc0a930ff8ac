//! Who comes is waited for and taken in, and who says goodbye is not missed.

use nettorrent_net::membership::{Config, Input, Note};

use crate::network::{DEADLINE, Network, id, member, millis};

#[test]
fn the_first_view_waits_for_its_members() {
    let mut network = Network::new(Config { deadline: DEADLINE, wait_for: 3, ..Config::default() }, 1);
    network.start(member(0), Vec::new());
    network.start(member(1), vec![member(0)]);
    network.run_for(DEADLINE * 10);
    assert!(network.views.is_empty());
    network.start(member(2), vec![member(1)]);
    network.converge(millis(500), "the third came");
    // From then on every change makes a view.
    network.start(member(3), vec![member(2)]);
    network.converge(millis(500), "a late joiner");
    network.leave(id(1));
    network.run_for(millis(100));
    network.leave(id(2));
    network.converge(millis(500), "two left, and two of three are enough to go on");
    assert_eq!(network.views.len(), 3, "what happens at the same time makes one view");
    let joined = |(_, note): &(_, Note)| match note {
        Note::Joined { member, n_missing } => Some((member.id, *n_missing)),
        _ => None,
    };
    let notes: Vec<_> = network.nodes[&id(0)].notes.iter().filter_map(joined).collect();
    assert_eq!(notes, [(id(1), 1), (id(2), 0), (id(3), 0)], "who came, and how many more were waited for");
    let text = Note::Joined { member: member(1), n_missing: 1 }.to_string();
    assert!(text.ends_with(" joined; waiting for 1 more"), "{text}");
}

#[test]
fn who_waits_for_introduction_makes_no_view_of_its_own() {
    let mut network = Network::new(Config { deadline: DEADLINE, wait_for: 1, ..Config::default() }, 1);
    network.start(member(5), vec![member(0)]);
    network.run_for(DEADLINE * 3);
    assert!(network.views.is_empty());
    network.start(member(0), Vec::new());
    network.converge(DEADLINE, "its introducer came late");
}

#[test]
fn a_goodbye_needs_no_deadline() {
    for seed in 0..20 {
        let mut network = Network::settled(5, DEADLINE, seed);
        network.leave(id(seed as u32 % 5));
        network.converge(DEADLINE / 10, &format!("seed {seed}"));
        assert_eq!(network.n_notes(|note| matches!(note, Note::Left(_))), 4, "seed {seed}");
        assert_eq!(network.views.len(), 2, "seed {seed}");
        // And the last one stays alone.
        for peer in network.running().into_iter().skip(1) {
            network.leave(peer);
        }
        network.converge(DEADLINE / 10, &format!("the last, seed {seed}"));
        network.run_for(DEADLINE * 30);
        assert_eq!(network.views.len(), 3, "nobody looks for those who left, seed {seed}");
    }
}

#[test]
fn who_is_excluded_is_never_taken_in_again_however_long_it_goes_on_asking() {
    for seed in 0..20 {
        let mut network = Network::settled(4, DEADLINE, seed);
        // The others hear of it one after the other, and those who have not heard yet tell that it lives.
        for peer in [0, 1, 3] {
            network.hand_in(id(peer), Input::Excluded(id(2)));
            network.run_for(millis(50));
        }
        network.run_for(DEADLINE * 10);
        for peer in [0, 1, 3] {
            let membership = &network.nodes[&id(peer)].membership;
            let view = membership.view().expect("they go on");
            assert_eq!(*view.members, [0, 1, 3].map(id), "seed {seed}");
            assert!(membership.members().all(|member| member.id != id(2)), "seed {seed}");
        }
    }
}
