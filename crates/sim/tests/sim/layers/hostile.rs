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
                // An honest claim of who has nothing.
                let frame = Frame::in_round(Kind::Layers, 1, 0, 0, vec![0; 7].into());
                peer.handle(Duration::ZERO, Input::Frame { from, frame }, &mut out).unwrap();
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

#[test]
fn who_sends_too_much_too_early_is_refused_and_nobody_else() {
    let grid = "pipeline.stages=[{layers=3,tensor_shards=2},{layers=2,batch_shards=2},{layers=1}]";
    let pipeline = Pipeline::new(&["model=mlp:12,9", grid, "batch=4"], (&[6], 3), 60);
    let members: Vec<PeerId> = (0..5).map(|rank| PeerId::new(rank, 0)).collect();
    let mut peer = PipelinePeer::new(members[0], pipeline.pipelines.clone(), pipeline.pipelines.fresh());
    let mut handle = |input: Input| {
        peer.handle(Duration::ZERO, input, &mut Outbox::default()).map_err(|problem| problem.to_string())
    };
    handle(Input::View(View::new(1, members.clone()))).unwrap();
    for &from in &members[1..] {
        let frame = Frame::in_round(Kind::Layers, 1, 0, 0, vec![0; 7].into());
        handle(Input::Frame { from, frame }).unwrap();
    }
    // Outputs for a batch that has long not begun. Each member holds the slot of its own number.
    let (long, short) = (Bytes::from(vec![0; 4 << 20]), Bytes::from(vec![0; 4 << 10]));
    let mut send = |from: usize, body: &Bytes| {
        let label = (((10 * 4) << 20 | from as u64) << 20) << 17;
        let frame = Frame::in_round(Kind::Layers, 1, 1000, label, body.clone());
        handle(Input::Frame { from: members[from], frame })
    };
    let n_kept = (0..1000).take_while(|_| send(2, &long).is_ok()).count();
    assert!((1..100).contains(&n_kept), "{n_kept}");
    assert!(send(2, &long).unwrap_err().contains("too far ahead"));
    assert_eq!(send(2, &short), Ok(()), "what was refused takes no room");
    assert_eq!(send(3, &long), Ok(()), "others are not to blame");
}
