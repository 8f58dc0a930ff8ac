//! Whatever another peer sends: it is refused, and nothing breaks.

use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::rng::Rng;
use nettorrent_pipeline::PipelinePeer;
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, View};

use super::pipeline::Pipeline;

/// The labels of messages are numbers in mixed bases: subject and purpose, two slots, a piece.
fn label(rng: &mut Rng) -> u64 {
    let mut below = |n: u64| rng.next_u64() % n;
    let (subject, purpose, from, to, piece) = (below(17), below(4), below(6), below(6), below(3));
    ((((subject * 4) + purpose) << 20 | from) << 20 | to) << 17 | piece
}

fn body(rng: &mut Rng) -> Bytes {
    let len = [0, 1, 4, 7, 9, 16, 48, 96, 432][rng.next_u64() as usize % 9];
    let bytes = (0..len).map(|_| if rng.next_u64().is_multiple_of(3) { rng.next_u64() as u8 } else { 0 });
    bytes.collect::<Vec<u8>>().into()
}

/// What somebody says who has nothing: all its numbers are 0, and its lists are empty.
fn honest_claim() -> Frame {
    Frame::in_round(Kind::Layers, 1, 0, 0, vec![0; 9].into())
}

#[test]
fn made_up_messages_are_refused() {
    let grid = "pipeline.stages=[{layers=3,tensor_shards=2},{layers=2,batch_shards=2},{layers=1}]";
    let pipeline = Pipeline::new(&["model=mlp:12,9", grid, "batch=4"], (&[6], 3), 60);
    let setup = &pipeline.pipelines;
    let members: Vec<PeerId> = (0..5).map(|rank| PeerId::new(rank, 0)).collect();
    let mut n_refused = 0;
    for seed in 0..300 {
        let rng = &mut Rng::new(seed);
        let mut out = Outbox::default();
        let me = members[seed as usize % 5];
        let mut peer = PipelinePeer::new(me, setup.clone(), setup.fresh());
        let view = View::new(1, members.clone());
        peer.handle(Duration::ZERO, Input::View(view), &mut out).unwrap();
        if me == members[0] {
            for &from in &members[1..] {
                peer.handle(Duration::ZERO, Input::Frame { from, frame: honest_claim() }, &mut out).unwrap();
            }
        }
        for _ in 0..200 {
            let from = members[rng.next_u64() as usize % 5];
            let kind = [Kind::Layers, Kind::Layers, Kind::Layers, Kind::Strategy, Kind::Agreement]
                [rng.next_u64() as usize % 5];
            let frame = Frame::in_round(kind, 1, rng.next_u64() as u32 % 3, label(rng), body(rng));
            n_refused += usize::from(peer.handle(Duration::ZERO, Input::Frame { from, frame }, &mut out).is_err());
        }
        assert!(out.failure.is_none(), "{:?}", out.failure);
    }
    assert!(n_refused > 10_000, "{n_refused}");
}

/// The first of five peers, which hold a block each: the one of their own number. They have agreed, and it has begun.
fn first_of_five() -> (PipelinePeer, Vec<PeerId>) {
    let grid = "pipeline.stages=[{layers=3,tensor_shards=2},{layers=2,batch_shards=2},{layers=1}]";
    let pipeline = Pipeline::new(&["model=mlp:12,9", grid, "batch=4"], (&[6], 3), 60);
    let members: Vec<PeerId> = (0..5).map(|rank| PeerId::new(rank, 0)).collect();
    let mut peer = PipelinePeer::new(members[0], pipeline.pipelines.clone(), pipeline.pipelines.fresh());
    handle(&mut peer, Input::View(View::new(1, members.clone()))).unwrap();
    for &from in &members[1..] {
        handle(&mut peer, Input::Frame { from, frame: honest_claim() }).unwrap();
    }
    (peer, members)
}

fn handle(peer: &mut PipelinePeer, input: Input) -> Result<(), String> {
    peer.handle(Duration::ZERO, input, &mut Outbox::default()).map_err(|problem| problem.to_string())
}

/// Outputs of a block for the first one, for a batch that has long not begun.
fn outputs(block: usize, view: u32, body: &Bytes) -> Frame {
    let label = (((10 * 4) << 20 | block as u64) << 20) << 17;
    Frame::in_round(Kind::Layers, view, 1000, label, body.clone())
}

#[test]
fn who_sends_too_much_too_early_is_refused_and_nobody_else() {
    let (mut peer, members) = first_of_five();
    let (long, short) = (Bytes::from(vec![0; 4 << 20]), Bytes::from(vec![0; 4 << 10]));
    let mut send = |from: usize, body: &Bytes| {
        handle(&mut peer, Input::Frame { from: members[from], frame: outputs(from, 1, body) })
    };
    let n_kept = (0..1000).take_while(|_| send(2, &long).is_ok()).count();
    assert!((1..100).contains(&n_kept), "{n_kept}");
    assert!(send(2, &long).unwrap_err().contains("too far ahead"));
    assert_eq!(send(2, &short), Ok(()), "what was refused takes no room");
    assert_eq!(send(3, &long), Ok(()), "others are not to blame");
}

#[test]
fn who_speaks_for_a_block_that_it_does_not_hold_is_refused() {
    let (mut peer, members) = first_of_five();
    let mut send = |from: usize, block: usize| {
        handle(&mut peer, Input::Frame { from: members[from], frame: outputs(block, 1, &Bytes::new()) })
    };
    for from in 1..5 {
        // The first block is this peer's own: what it says to itself is kept without a limit.
        for block in (0..5).filter(|&block| block != from).chain([5, 1000]) {
            let said = send(from, block);
            assert!(said.is_err_and(|said| said.contains("does not hold")), "member {from} for block {block}");
        }
        assert_eq!(send(from, from), Ok(()), "member {from} for its own");
    }
}

#[test]
fn what_a_peer_sent_for_later_views_is_forgotten_when_its_link_ends() {
    let (mut peer, members) = first_of_five();
    let body = Bytes::from(vec![0; 1 << 20]);
    let fill = |peer: &mut PipelinePeer| {
        let input = || Input::Frame { from: members[2], frame: outputs(2, 7, &body) };
        (0..1000).take_while(|_| handle(peer, input()).is_ok()).count()
    };
    let n_kept = fill(&mut peer);
    assert!((1..1000).contains(&n_kept), "{n_kept}");
    handle(&mut peer, Input::LinkEnded(members[3])).unwrap();
    assert_eq!(fill(&mut peer), 0, "another's link has ended");
    handle(&mut peer, Input::LinkEnded(members[2])).unwrap();
    assert_eq!(fill(&mut peer), n_kept);
}
