//! What peers say to each other: every message of every strategy, and the state that goes to those who are behind.
//!
//! Peers train a toy. One of them is hostile: the input says when it sends something in between, to whom, and what is changed about
//! the frame that was under way.

use std::sync::{Arc, OnceLock};

use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_sim::{Rehearsal, Toy};
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::wire::{Frame, Head, Kind, MAX_BODY_LEN};
use nettorrent_swarm::{Input, PeerId, Setup};
use toml::Table;

use crate::target::Target;

/// Forged messages of a strategy; the first byte says of which.
pub(super) const MESSAGES: Target = Target {
    name: "messages",
    about: "what peers of every strategy say to each other",
    seeds: || (0..setups().len() as u8).map(|strategy| vec![strategy, 3, 4, 9, 1, 0, 0, 7, 4, 2, 8, 1, 5, 9]).collect(),
    words: &[],
    read: |input| rehearse(input, &[Kind::Strategy]),
    most_bytes: 8 << 20,
    times_input: 1 << 14,
    n_quick: 300,
};

/// Forged agreement, state, scores and speeds.
pub(super) const SNAPSHOTS: Target = Target {
    name: "snapshots",
    about: "the state that peers hand to each other, and how they agree on it",
    seeds: || (0..setups().len() as u8).map(|strategy| vec![strategy, 2, 1, 3, 0, 5, 1, 4, 4, 2, 8, 1, 5, 9]).collect(),
    words: &[],
    read: |input| rehearse(input, &[Kind::Agreement, Kind::Snapshot, Kind::Tested, Kind::Pace]),
    most_bytes: 8 << 20,
    times_input: 1 << 14,
    n_quick: 300,
};

const N_PEERS: usize = 3;
const ENEMY: usize = 1;

/// Every strategy as it is, and with every rule of aggregation that it can follow.
fn setups() -> &'static [Arc<Setup>] {
    static SETUPS: OnceLock<Vec<Arc<Setup>>> = OnceLock::new();
    SETUPS.get_or_init(|| {
        let rules = [None, Some("clipped-mean"), Some("median"), Some("krum")];
        let of_strategy = |name: &'static str| {
            rules.into_iter().filter_map(move |rule| {
                let rule = rule.map(|rule| ("aggregation".to_owned(), rule.into()));
                let options = Table::from_iter(rule);
                let swarm = SwarmSpec { strategy: name.to_owned(), options, ..SwarmSpec::default() };
                let job = Job { epochs: 1, batch: 24, swarm, ..Job::default() };
                Setup::new(&job, Arc::new(Toy::new(7))).ok().map(Arc::new)
            })
        };
        STRATEGIES.iter().flat_map(|spec| of_strategy(spec.name)).collect()
    })
}

/// What the input has to say, byte by byte; nothing at its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

fn rehearse(input: &[u8], kinds: &[Kind]) -> String {
    let mut script = Script(input);
    let setups = setups();
    let setup = &setups[usize::from(script.next().unwrap_or(0)) % setups.len()];
    let mut peers = Rehearsal::new(setup.clone(), N_PEERS).expect("a toy has a worker");
    let mut n_until = script.next().unwrap_or(u8::MAX);
    peers.run(|peers, to, input| {
        let Input::Frame { frame, .. } = input else { return };
        if n_until > 0 {
            n_until -= 1;
            return;
        }
        let Some(change) = script.next() else { return };
        if change == u8::MAX && peers.n_views() < 5 {
            // In a new view the enemy may say that it is the most advanced, and give its state to all.
            return peers.tell_view();
        }
        let to = if change & 1 == 0 { to } else { usize::from(change) % N_PEERS };
        let forged = forged(&mut script, frame, change >> 1, kinds);
        if to != ENEMY {
            peers.hand_over(to, Input::Frame { from: PeerId::new(ENEMY as u32, 0), frame: forged });
        }
        n_until = script.next().unwrap_or(u8::MAX) % 32;
    });
    if !peers.is_over() && !peers.gone[ENEMY] {
        peers.give_up(ENEMY);
        peers.run(|_, _, _| {});
    }
    assert!(peers.is_over(), "whoever is honest comes to an end");
    for (peer, _) in peers.peers.iter().zip(&peers.gone).filter(|(_, gone)| !**gone) {
        assert!(peer.values().iter().all(|value| value.is_finite()), "numbers that are none were let in");
    }
    let refused = peers.refused.iter().take(2).map(|(_, malformed)| malformed.to_string());
    format!("{} {}", setup.training().swarm.strategy, refused.collect::<Vec<_>>().join(", "))
}

/// A frame with something wrong about it.
fn forged(script: &mut Script<'_>, honest: &Frame, change: u8, kinds: &[Kind]) -> Frame {
    let is_of_kind = kinds.contains(&honest.head.kind);
    let kind = if is_of_kind { honest.head.kind } else { kinds[usize::from(change) % kinds.len()] };
    let mut head = Head { kind, ..honest.head };
    let mut body = honest.body.to_vec();
    let mut number = || u64::from(script.next().unwrap_or(0));
    match change % 10 {
        0 => {}
        1 => {
            let at = (number() << 8 | number()) as usize % body.len().max(1);
            let bits = number() as u8;
            body.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
        }
        2 => body.truncate(number() as usize % (body.len() + 1)),
        3 => {
            let (n, byte) = (number(), number() as u8);
            body.extend(std::iter::repeat_n(byte, n as usize));
        }
        4 => head.part ^= 1 << (number() % 64),
        5 => head.part = (0..8).fold(0, |part, _| part << 8 | number()),
        6 => head.round = head.round.wrapping_add(number() as u32 % 5).wrapping_sub(2),
        7 => head.view = head.view.wrapping_add(number() as u32 % 5).wrapping_sub(2),
        8 => body = (0..number()).map(|_| number_or_zero(script)).collect(),
        // Numbers that are none, and such as become none when they are added.
        _ => {
            let value = [f32::NAN, f32::INFINITY, f32::MAX, -f32::MAX, 1e30][number() as usize % 5].to_le_bytes();
            let at = number() as usize * 4 % body.len().max(1);
            body.iter_mut().skip(at).zip(value).for_each(|(byte, value)| *byte = value);
        }
    }
    body.truncate(MAX_BODY_LEN);
    Frame::in_round(head.kind, head.view, head.round, head.part, body.into())
}

fn number_or_zero(script: &mut Script<'_>) -> u8 {
    script.next().unwrap_or(0)
}
