//! A rehearsal: peers that hand over to each other at once, so that every message can be seen and forged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;
use nettorrent_swarm::strategy::Malformed;
use nettorrent_swarm::wire::Frame;
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, Setup, State, TimerToken, View};

use crate::membership::id;

/// Peers in one process, without time: inputs are handed over in the order in which they come about. Where a simulation would do,
/// here every frame can be seen and others put between before it arrives.
pub struct Rehearsal {
    setup: Arc<Setup>,
    /// The peers themselves.
    pub peers: Vec<Box<dyn Peer>>,
    /// Who is gone: given up, or cannot go on.
    pub gone: Vec<bool>,
    /// What will be handed over to whom, the next first.
    pub inputs: VecDeque<(usize, Input)>,
    timers: VecDeque<(usize, TimerToken)>,
    worker: Box<dyn Worker>,
    out: Outbox,
    n_views: u32,
    n_steps: u64,
    n_refused: u64,
    /// Whose frames were refused, and why.
    pub refused: Vec<(PeerId, Malformed)>,
    /// Which frames get lost: from whom, to whom. None, unless somebody says so.
    pub loses: fn(usize, usize, &Frame) -> bool,
}

/// More inputs than any of these runs needs; who goes round in circles reaches it.
const MOST_STEPS: u64 = 200_000;

impl Rehearsal {
    /// So many peers that begin anew, and have been told of each other.
    pub fn new(setup: Arc<Setup>, n_peers: usize) -> Result<Self, TrainError> {
        let peer = |k| setup.peer(id(k), State::fresh(setup.training()));
        let mut host = Self {
            peers: (0..n_peers).map(peer).collect(),
            gone: vec![false; n_peers],
            inputs: VecDeque::new(),
            timers: VecDeque::new(),
            worker: setup.training().task.clone().worker(1)?,
            out: Outbox::default(),
            n_views: 0,
            n_steps: 0,
            n_refused: 0,
            refused: Vec::new(),
            loses: |_, _, _| false,
            setup,
        };
        host.tell_view();
        Ok(host)
    }

    /// Tells those who are there of each other, in a new view.
    pub fn tell_view(&mut self) {
        self.n_views += 1;
        let here = || (0..self.peers.len()).filter(|&peer| !self.gone[peer]);
        let view = View::new(self.n_views, here().map(id).collect());
        let told: Vec<_> = here().map(|peer| (peer, Input::View(view.clone()))).collect();
        self.inputs.extend(told);
    }

    /// Everybody else goes on without a peer.
    pub fn give_up(&mut self, peer: usize) {
        self.gone[peer] = true;
        self.tell_view();
    }

    /// Whether all who are there are done.
    pub fn is_over(&self) -> bool {
        self.peers.iter().zip(&self.gone).all(|(peer, gone)| *gone || peer.is_finished())
    }

    /// How many views there have been.
    pub fn n_views(&self) -> u32 {
        self.n_views
    }

    /// How many inputs were refused.
    pub fn n_refused(&self) -> u64 {
        self.n_refused
    }

    /// What all peers share.
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// Hands over what is there until nothing is, and has `meddle` see what will be handed over next.
    pub fn run(&mut self, mut meddle: impl FnMut(&mut Self, usize, &Input)) {
        loop {
            while let Some((peer, input)) = self.inputs.pop_front() {
                meddle(self, peer, &input);
                self.hand_over(peer, input);
            }
            // Time passes only when all wait.
            let Some((peer, timer)) = self.timers.pop_front() else { return };
            self.inputs.push_back((peer, Input::Timer(timer)));
        }
    }

    /// Hands a peer an input now, before all that waits.
    ///
    /// # Panics
    /// If there were more inputs than any run needs.
    pub fn hand_over(&mut self, peer: usize, input: Input) {
        self.n_steps += 1;
        assert!(self.n_steps < MOST_STEPS, "they go round in circles");
        if self.gone[peer] {
            return;
        }
        let now = Duration::from_micros(self.n_steps);
        let from = if let Input::Frame { from, .. } = &input { Some(*from) } else { None };
        if let Err(malformed) = self.peers[peer].handle(now, input, &mut self.out) {
            self.n_refused += 1;
            self.refused.extend(from.map(|from| (from, malformed)));
        }
        self.refused.append(&mut self.out.refused);
        for (to, frame) in self.out.frames.drain(..) {
            if (self.loses)(peer, to.join_index() as usize, &frame) {
                continue;
            }
            self.inputs.push_back((to.join_index() as usize, Input::Frame { from: id(peer), frame }));
        }
        self.timers.extend(self.out.timers.drain(..).map(|(_, timer)| (peer, timer)));
        self.out.records.clear();
        for work in self.out.work.drain(..) {
            let inputs = &mut self.inputs;
            let mut done =
                |done| inputs.push_back((peer, Input::Done { done, took: Duration::from_micros(7 + peer as u64) }));
            work.run(self.worker.as_mut(), &mut done);
        }
        if self.out.failure.take().is_some() {
            // With numbers that are none, a peer stops; the others give it up.
            self.give_up(peer);
        }
    }
}
