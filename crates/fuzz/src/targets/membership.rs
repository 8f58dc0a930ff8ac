//! Packets about who takes part, one after the other, from several peers.

use std::time::Duration;

use bytes::Bytes;
use nettorrent_net::membership::{Config, Input, MAX_MEMBERS, MAX_PACKET_LEN, Member, Membership, Outbox};
use nettorrent_swarm::view::PeerId;

use crate::target::Target;

/// Packets: each after a byte that says from whom, one that says how long it is and one that says how much later it comes.
pub(super) const MEMBERSHIP: Target = Target {
    name: "membership",
    about: "packets about who takes part",
    seeds: || vec![talk(2), talk(3)],
    words: &[],
    read: |input| {
        let mut here = Membership::new(member(0), &Config::default(), 5);
        let mut now = Duration::ZERO;
        let (mut out, mut rest, mut answers) = (Outbox::default(), input, String::new());
        here.handle(now, Input::Join(Vec::new()), &mut out).expect("what the host says is sound");
        while let Some((&[from, len, later], more)) = rest.split_first_chunk() {
            let (packet, more) = more.split_at(usize::from(len).min(more.len()));
            rest = more;
            now += Duration::from_millis(40 * u64::from(later));
            let packet = Input::Packet { from: id(1 + u32::from(from) % 4), bytes: Bytes::copy_from_slice(packet) };
            match here.handle(now, packet, &mut out) {
                Err(error) if answers.len() < 80 => answers.push_str(&error.to_string()),
                _ => {}
            }
            if here.wake_at().is_some_and(|at| at <= now) {
                here.handle(now, Input::Wake, &mut out).expect("what the host says is sound");
            }
            let sent = out.packets.drain(..).chain(out.probes.drain(..));
            assert!(sent.map(|(_, packet)| packet.len()).all(|len| len <= MAX_PACKET_LEN), "too long to be read");
            assert!(here.n_remembered() < 2 * MAX_MEMBERS, "it remembers all that it is told");
            out.notes.clear();
        }
        format!("{answers} view of {}", "i".repeat(here.view().map_or(0, |view| view.members.len().min(6))))
    },
    most_bytes: 4 << 20,
    times_input: 4096,
    n_quick: 4_000,
};

fn id(join_index: u32) -> PeerId {
    PeerId::new(join_index, u64::from(join_index) * 0x9e37_79b9)
}

fn member(join_index: u32) -> Member {
    Member { id: id(join_index), generation: 0, address: ([10, 0, 0, join_index as u8], 7000).into() }
}

/// What the first of some peers hears when they find each other.
fn talk(n_peers: u32) -> Vec<u8> {
    let mut peers: Vec<Membership> = (0..n_peers)
        .map(|join_index| Membership::new(member(join_index), &Config::default(), u64::from(join_index)))
        .collect();
    let (mut now, mut heard) = (Duration::ZERO, Vec::new());
    let mut out = Outbox::default();
    let mut inputs: Vec<(usize, Input)> = (0..peers.len())
        .map(|join_index| (join_index, Input::Join(if join_index == 0 { Vec::new() } else { vec![member(0)] })))
        .collect();
    for _ in 0..12 {
        let mut next = Vec::new();
        for (to, input) in inputs {
            if let (0, Input::Packet { from, bytes }) = (to, &input)
                && let Ok(len) = u8::try_from(bytes.len())
            {
                heard.extend([(from.join_index() as u8).wrapping_sub(1), len, 5]);
                heard.extend(bytes);
            }
            // What it says to this does not matter here.
            let _ = peers[to].handle(now, input, &mut out);
            for (member, bytes) in out.packets.drain(..).chain(out.probes.drain(..)) {
                let join_index = member.id.join_index() as usize;
                if join_index < n_peers as usize {
                    next.push((join_index, Input::Packet { from: id(to as u32), bytes }));
                }
            }
        }
        now += Duration::from_millis(200);
        next.extend((0..peers.len()).map(|join_index| (join_index, Input::Wake)));
        inputs = next;
    }
    heard
}
