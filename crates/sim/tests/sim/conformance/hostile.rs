//! A peer that sends nonsense costs the others nothing but itself: nobody panics, nobody loops, and without it they finish.

use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::rng::Rng;
use nettorrent_sim::Rehearsal;
use nettorrent_swarm::record::Event;
use nettorrent_swarm::wire::{Frame, Head, Kind, MAX_BODY_LEN};
use nettorrent_swarm::{Input, Outbox, PeerId};

use super::case;

pub(crate) fn id(peer: usize) -> PeerId {
    PeerId::new(peer as u32, 0)
}

/// A frame that the hostile peer might send, with something wrong about it.
fn forged(rng: &mut Rng, honest: &Frame, kinds: &[Kind]) -> Frame {
    let is_of_kind = kinds.contains(&honest.head.kind) && rng.below(2) == 0;
    let kind = if is_of_kind { honest.head.kind } else { kinds[rng.below(kinds.len())] };
    let mut head = Head { kind, ..honest.head };
    let mut body = honest.body.to_vec();
    match rng.below(9) {
        0 => {}
        1 => (0..1 + rng.below(4)).for_each(|_| flip(rng, &mut body)),
        2 => body.truncate(rng.below(body.len() + 1)),
        3 => body.extend((0..rng.below(40)).map(|_| rng.next_u64() as u8)),
        4 => head.part ^= 1 << rng.below(64),
        5 => head.part = rng.next_u64(),
        6 => head.round = head.round.wrapping_add(rng.below(5) as u32).wrapping_sub(2),
        7 => head.view = head.view.wrapping_add(rng.below(5) as u32).wrapping_sub(2),
        _ => body = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
    }
    if rng.below(3) == 0 {
        let step = rng.below(4) as u64;
        // Where most strategies have the step of their exchange.
        head.part = head.part & !(0xff_ffff << 24) | step << 24;
    }
    Frame::in_round(head.kind, head.view, head.round, head.part, body.into())
}

fn flip(rng: &mut Rng, body: &mut [u8]) {
    if !body.is_empty() {
        let at = rng.below(body.len());
        body[at] ^= 1 << rng.below(8);
    }
}

/// One run in which one peer also sends forged frames of these kinds, to whom it likes, when it likes.
fn attack(seed: u64, kinds: &[Kind]) -> u64 {
    let cases = case::all();
    let mut rng = Rng::stream(seed, "hostile", 0);
    let case = &cases[rng.below(cases.len())];
    println!("seed {seed}: {}", case.name());
    let n_peers = 2 + rng.below(3);
    let enemy = rng.below(n_peers);
    let often = 1 + rng.below(20);
    let mut host = Rehearsal::new(case.setup(2), n_peers).unwrap();
    host.run(|host, to, input| {
        if host.n_views() < 5 && rng.below(100) == 0 {
            // In a new view the enemy may say that it is the most advanced, and give its state to all.
            host.tell_view();
        }
        let Input::Frame { frame, .. } = input else { return };
        if rng.below(often) == 0 {
            let to = if rng.below(2) == 0 { to } else { rng.below(n_peers) };
            if to != enemy {
                let frame = forged(&mut rng, frame, kinds);
                host.hand_over(to, Input::Frame { from: id(enemy), frame });
            }
        }
    });
    if !host.is_over() && !host.gone[enemy] {
        host.give_up(enemy);
        host.run(|_, _, _| {});
    }
    for (peer, gone) in host.peers.iter().zip(&host.gone) {
        assert!(*gone || peer.is_finished(), "seed {seed}: {} is not finished: {:?}", case.name(), peer.status());
    }
    host.n_refused()
}

#[test]
fn nonsense_from_a_strategy_hurts_nobody_else() {
    let n_refused: u64 = (0..800).map(|seed| attack(seed, &[Kind::Strategy])).sum();
    assert!(n_refused > 10_000, "only {n_refused} frames were refused: these are no forgeries");
}

#[test]
fn nonsense_about_views_and_tests_hurts_nobody_else() {
    let of_hosts = [Kind::Hello, Kind::Membership, Kind::Service, Kind::Probe];
    let kinds = [&of_hosts[..], &[Kind::Agreement, Kind::Snapshot, Kind::Strategy, Kind::Tested, Kind::Pace]].concat();
    let n_refused: u64 = (0..800).map(|seed| attack(seed, &kinds)).sum();
    assert!(n_refused > 10_000, "only {n_refused} frames were refused: these are no forgeries");
}

#[test]
fn who_floods_a_peer_costs_the_others_no_frame() {
    for case in case::defaults() {
        let mut host = Rehearsal::new(case.setup(1), 3).unwrap();
        // The first peer hears of the view when the others have begun, so what they say has to be kept until then.
        let late = host.inputs.pop_front().unwrap();
        host.inputs.drain(..).collect::<Vec<_>>().into_iter().for_each(|(peer, input)| host.hand_over(peer, input));
        assert!(!host.inputs.is_empty());
        // The bodies are shared, so this costs the test nothing.
        for n_bytes in [MAX_BODY_LEN, 1 << 16, 1 << 10, 0] {
            let (body, before) = (Bytes::from(vec![0; n_bytes]), host.n_refused());
            for part in 0..1000 {
                let frame = Frame::in_round(Kind::Strategy, 1, 10, part, body.clone());
                host.hand_over(0, Input::Frame { from: id(2), frame });
                if host.n_refused() > before {
                    break;
                }
            }
            assert!(host.n_refused() > before, "{}: anybody can fill the memory", case.name());
        }
        let flood = host.n_refused();
        host.inputs.retain(|(_, input)| !matches!(input, Input::Frame { from, .. } if *from == id(2)));
        let honest = host.inputs.pop_front().unwrap();
        host.hand_over(honest.0, honest.1);
        assert_eq!(host.n_refused(), flood, "{}: an honest peer pays for another", case.name());
        host.inputs.push_back(late);
        host.run(|_, _, _| {});
        host.give_up(2);
        host.run(|_, _, _| {});
        assert!(host.is_over(), "{}", case.name());
    }
}

#[test]
fn what_a_peer_sent_for_later_views_is_forgotten_when_its_link_ends() {
    for case in case::defaults() {
        let mut host = Rehearsal::new(case.setup(1), 3).unwrap();
        let body = Bytes::from(vec![0; 1 << 20]);
        let fill = |host: &mut Rehearsal| {
            let before = host.n_refused();
            let is_kept = |host: &mut Rehearsal| {
                let frame = Frame::in_round(Kind::Strategy, 7, 0, 0, body.clone());
                host.hand_over(0, Input::Frame { from: id(2), frame });
                host.n_refused() == before
            };
            (0..1000).take_while(|_| is_kept(host)).count()
        };
        let n_kept = fill(&mut host);
        assert!((1..1000).contains(&n_kept), "{}: {n_kept}", case.name());
        host.hand_over(0, Input::LinkEnded(id(1)));
        assert_eq!(fill(&mut host), 0, "{}: another's link has ended", case.name());
        host.hand_over(0, Input::LinkEnded(id(2)));
        assert_eq!(fill(&mut host), n_kept, "{}", case.name());
    }
}

#[test]
fn what_a_member_says_of_losses_cannot_move_the_cursor() {
    let mut host = Rehearsal::new(case::defaults()[0].setup(2), 2).unwrap();
    while let Some((to, input)) = host.inputs.pop_front() {
        if matches!(&input, Input::Frame { frame, .. } if frame.head.kind == Kind::Strategy) {
            break;
        }
        host.hand_over(to, input);
    }
    // That training has diverged, and why.
    let frame = Frame::in_round(Kind::Pace, host.n_views(), 0, 2, Bytes::from_static(b"\x1b[2J"));
    let mut out = Outbox::default();
    host.peers[0].handle(Duration::from_secs(1), Input::Frame { from: id(1), frame }, &mut out).unwrap();
    let why = out.records.iter().find_map(|record| match &record.event {
        Event::RolledBack { why, .. } => Some(why.as_str()),
        _ => None,
    });
    assert!(why.is_some_and(|why| why.contains(r"\u{1b}[2J") && !why.contains('\u{1b}')), "{why:?}");
}
