//! What every strategy may see and do.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::scale as engine;

use super::optimizer_state::held_at;
use crate::effects::Outbox;
use crate::replica::core::{Core, Request};
use crate::view::PeerId;
use crate::wire::{Frame, Kind};

/// A strategy's window on its peer. Other peers are named by their rank in the view. What only those may do who exchange in
/// rounds, or only those who train asynchronously, is in [`super::RoundCtx`] and [`super::AsyncCtx`].
pub struct Ctx<'a> {
    pub(super) core: &'a mut Core,
    pub(super) out: &'a mut Outbox,
    /// Who takes part, by rank in the view, if not all do; this peer is one of them.
    group: Option<&'a [usize]>,
    /// What its messages are told from others by, if there are several groups.
    channel: u64,
}

/// Where in the number of a message's part its channel is: above all steps that an exchange may have.
const CHANNEL_AT: u32 = 46;
const MOST_CHANNEL: u64 = 3;

impl<'a> Ctx<'a> {
    pub(super) fn new(core: &'a mut Core, out: &'a mut Outbox) -> Self {
        Self { core, out, group: None, channel: 0 }
    }

    /// The same window where only these members take part, named by their ranks here: what is written for all peers then works among
    /// them. This peer has to be one of them. A strategy with several groups in a round gives each a channel of its own, up to 3.
    pub(crate) fn among<'b>(&'b mut self, group: &'b [usize], channel: u64) -> Ctx<'b> {
        debug_assert!(self.group.is_none() && group.contains(&self.core.rank) && channel <= MOST_CHANNEL);
        Ctx { core: &mut *self.core, out: &mut *self.out, group: Some(group), channel }
    }

    /// The channel on which a message came, and its part there.
    pub(crate) fn channel_of(part: u64) -> (u64, u64) {
        (part >> CHANNEL_AT & MOST_CHANNEL, part & !(MOST_CHANNEL << CHANNEL_AT))
    }

    /// Who is where: the ranks of each site in their order, and sites in the order of their first ranks.
    pub(crate) fn sites(&self) -> Arc<Vec<Vec<usize>>> {
        self.core.training.alike.members_of_sites(self.core.sites.clone(), self.n_peers())
    }

    /// How many peers take part.
    pub fn n_peers(&self) -> usize {
        self.group.map_or(self.core.view.len(), <[usize]>::len)
    }

    /// This peer's place among them.
    pub fn rank(&self) -> usize {
        let place = |group: &[usize]| group.iter().position(|&rank| rank == self.core.rank);
        self.group.map_or(self.core.rank, |group| place(group).expect("it is one of its group"))
    }

    /// A peer's name, by its rank among those who take part.
    fn member(&self, rank: usize) -> PeerId {
        self.core.view.members[self.group.map_or(rank, |group| group[rank])]
    }

    /// How many samples a member trains in this round, the same to all who ask; none if it has trained all that it had.
    pub fn n_samples(&self, rank: usize) -> usize {
        let Core { plan, .. } = &*self.core;
        let (Some(slot), Some(plan)) = (self.core.slot_of(self.member(rank)), plan) else { return 0 };
        plan.samples_of(slot, self.core.rounds_done(slot))
    }

    /// How many epochs this peer has done, and what part of the present one.
    pub fn epochs_done(&self) -> f64 {
        let round = self.core.slot_of(self.core.me).map_or(0, |slot| self.core.rounds_done(slot));
        self.core.epochs_done(round, 0.0)
    }

    /// How updates of several peers are scaled.
    pub fn scale(&self) -> engine::Scale {
        self.core.training.swarm.scale
    }

    /// The number of the round, the same for all.
    pub fn round(&self) -> u32 {
        self.core.place.version.round
    }

    /// The ranges in which the vector is handed over. Behind the parameters lies the optimizer's state, where it is averaged too.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.core.buckets
    }

    /// What this peer holds of a bucket now.
    pub fn held(&self, bucket: usize) -> Cow<'_, [f32]> {
        held_at(&self.core.values, &self.core.optimizer, &self.core.buckets[bucket])
    }

    /// What it held when the round began, where the peer takes steps by itself before the exchange.
    pub fn held_at_start(&self, bucket: usize) -> Cow<'_, [f32]> {
        match &self.core.round_start {
            Some((values, optimizer)) => held_at(values, optimizer, &self.core.buckets[bucket]),
            None => self.held(bucket),
        }
    }

    /// Who has a say in what becomes of this round where all count alike: those who have something to train in it, or all, if nobody
    /// has.
    pub(crate) fn voters(&self) -> Vec<usize> {
        let trainers: Vec<usize> = (0..self.n_peers()).filter(|&rank| self.n_samples(rank) > 0).collect();
        if trainers.is_empty() { (0..self.n_peers()).collect() } else { trainers }
    }

    /// How many of the parameters are trained; running statistics follow on them.
    pub fn n_params(&self) -> usize {
        self.core.training.task.n_params()
    }

    /// The parameters as this peer holds them: those that the round began with, or after its own steps if it takes any.
    pub fn values(&self) -> &[f32] {
        &self.core.values
    }

    /// The time, counted from the host's beginning.
    pub fn now(&self) -> Duration {
        self.core.now
    }

    /// A vector to write a part into: one that was used before, if there is any of this length.
    pub fn buffer(&mut self, len: usize) -> Vec<f32> {
        self.core.buffer(len)
    }

    /// Gives a vector back, to be written into again.
    pub fn give_back(&mut self, numbers: Vec<f32>) {
        self.core.spare.push(numbers);
    }

    /// Whether the epoch that is going on, or ends, is the last one.
    pub(crate) fn is_last_epoch(&self) -> bool {
        self.core.place.ledger.epoch + 1 >= self.core.n_epochs()
    }

    /// Says something to another member in this round.
    pub fn send(&mut self, to: usize, part: u64, body: Bytes) {
        let (to, round, channel) = (self.member(to), self.core.speaking_round(), self.channel << CHANNEL_AT);
        let Core { view, sent_bytes, .. } = &mut *self.core;
        *sent_bytes += body.len() as u64;
        let frame = Frame::in_round(Kind::Strategy, view.number, round, part | channel, body);
        self.out.frames.push((to, frame));
    }

    /// Where all randomness of the job comes from, the same for all peers.
    pub fn seed(&self) -> u64 {
        self.core.training.seed
    }

    /// Replaces the parameters, and the optimizer's state if it is averaged, outside of a round, when replicas are brought together.
    pub(crate) fn replace_values(&mut self, numbers: Vec<Vec<f32>>) {
        self.core.replace_values(numbers);
    }

    /// All replicas are together, as `sync` promises.
    pub fn synced(&mut self) {
        self.core.request = Some(Request::Synced);
    }
}
