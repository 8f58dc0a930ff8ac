//! Packets that no honest peer would send.

use bytes::Bytes;
use foca::{Codec, Header, Message, PostcardCodec};
use nettorrent_engine::rng::Rng;
use nettorrent_net::membership::{Config, Input, MAX_MEMBERS, Member, Membership, Note, Outbox};

use crate::network::{DEADLINE, Event, Network, State, id, member, millis};

/// Packets that were really sent, to be spoilt.
fn real_packets(network: &mut Network) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for round in 0..40 {
        if round % 10 == 0 {
            network.hang(id(2), DEADLINE / 5);
            network.start(member(10 + round), vec![member(0)]);
        }
        network.run_for(millis(100));
        packets.extend(network.events.values().filter_map(|event| match event {
            Event::Packet { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        }));
    }
    packets
}

fn spoilt(packets: &[Vec<u8>], rng: &mut Rng) -> Bytes {
    let mut bytes = packets[rng.below(packets.len())].clone();
    if rng.below(3) == 0 {
        bytes = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
        bytes.first_mut().into_iter().for_each(|tag| *tag %= 2);
    }
    for _ in 0..rng.below(4) {
        if !bytes.is_empty() {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
    }
    bytes.into()
}

#[test]
fn hostile_bytes_do_no_harm() {
    let packets = real_packets(&mut Network::settled(4, DEADLINE, 3));
    let mut rng = Rng::new(11);
    let mut membership = Membership::new(member(0), &Config::default(), 5);
    let mut n_refused = 0;
    for round in 0..200_000 {
        let mut out = Outbox::default();
        let (now, from) = (millis(round), id(1 + rng.below(3) as u32));
        let input = Input::Packet { from, bytes: spoilt(&packets, &mut rng) };
        n_refused += usize::from(membership.handle(now, input, &mut out).is_err());
        if membership.wake_at().is_some_and(|at| at <= now) {
            membership.handle(now, Input::Wake, &mut out).unwrap();
        }
    }
    assert!(n_refused > 100_000, "{n_refused}");
    assert!(membership.n_remembered() < 2 * MAX_MEMBERS);
}

#[test]
fn a_swarm_survives_a_member_that_babbles() {
    for seed in 0..20 {
        let mut network = Network::settled(5, DEADLINE, seed);
        let packets = real_packets(&mut network);
        let mut rng = Rng::new(seed);
        for _ in 0..2_000 {
            let to = id(rng.below(4) as u32);
            let bytes = spoilt(&packets, &mut rng);
            // Most is refused; what is not must do no lasting harm.
            let _ = network.hand_in_whatever(to, Input::Packet { from: id(4), bytes });
            network.run_for(millis(rng.below(20) as u64));
        }
        network.kill(id(4), State::Vanished);
        // Members that never were are found out like those that died.
        network.converge(DEADLINE * 12, &format!("seed {seed}"));
    }
}

/// Says that a view of this number is held.
fn status(view: u32) -> Bytes {
    let (busy, none) = (0_u8, Vec::<u64>::new());
    let report = (view, false, busy, &none, &none, &none);
    postcard::to_extend(&report, vec![1, 5]).unwrap().into()
}

/// Gossip of one peer to another that a third is dead in its last life.
fn obituary(from: u32, to: &Member, of: u32) -> Bytes {
    let mut bytes = vec![0];
    let header = Header { src: member(from), src_incarnation: 0, dst: to.clone(), message: Message::Gossip };
    PostcardCodec.encode_header(&header, &mut bytes).unwrap();
    bytes.extend(1_u16.to_be_bytes());
    let last = Member { generation: u32::MAX, ..member(of) };
    PostcardCodec.encode_member(&foca::Member::down(last), &mut bytes).unwrap();
    bytes.into()
}

#[test]
fn one_packet_does_not_keep_the_members_from_changing() {
    let mut network = Network::settled(4, DEADLINE, 1);
    for to in 0..3 {
        network.hand_in(id(to), Input::Packet { from: id(3), bytes: status(u32::MAX) });
    }
    network.kill(id(3), State::Vanished);
    network.converge(DEADLINE * 4, "the attacker is gone");
    network.start(member(4), vec![member(0)]);
    network.converge(DEADLINE * 4, "somebody comes");
}

#[test]
fn one_packet_does_not_keep_a_member_out_for_ever() {
    let mut network = Network::settled(4, DEADLINE, 1);
    for to in 0..3 {
        let dst = network.nodes[&id(to)].membership.me().clone();
        network.hand_in(id(to), Input::Packet { from: id(3), bytes: obituary(3, &dst, 2) });
    }
    network.run_for(DEADLINE);
    network.converge(DEADLINE * 8, "who was said to be dead is there");
    assert!(network.nodes.values().all(|node| node.membership.members().all(|member| member.generation < 10)));
}

#[test]
fn who_uses_up_all_numbers_ends_the_swarm_with_a_word() {
    let mut network = Network::settled(2, DEADLINE, 1);
    for _ in 0..2000 {
        network.hand_in(id(0), Input::Packet { from: id(1), bytes: status(u32::MAX) });
    }
    network.run_for(DEADLINE);
    assert!(network.n_notes(|note| *note == Note::OutOfNumbers) > 0);
}
