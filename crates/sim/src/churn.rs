//! Peers that come, go, hang or are cut off, and what the others hear of it.

use nettorrent_swarm::link_spec::LinkSpec;

use crate::compute::Compute;
use crate::membership::number;
use crate::observer::Observer;
use crate::outcome::Fate;
use crate::queue::{Event, Nanos, nanos, short};
use crate::scenario::{Fault, Partition, What, When};
use crate::simulation::Simulation;

impl Simulation {
    /// Everything that the scenario says will happen at a time.
    pub(crate) fn schedule_churn(&mut self) {
        let deadline = nanos(self.scenario.deadline);
        for (k, Partition { from, until, .. }) in self.scenario.partitions.iter().enumerate() {
            let (from, until) = (nanos(*from), nanos(*until));
            self.queue.push(from, Event::Cut(k as u32));
            if until - from > deadline {
                self.queue.push(from + deadline, Event::Split(k as u32));
            }
            self.queue.push(until, Event::Heal(k as u32));
        }
        for (k, fault) in self.scenario.faults.iter().enumerate() {
            if let When::At(at) = fault.when {
                self.queue.push(nanos(at), Event::Fault(k as u32));
            }
        }
        for (k, join) in self.scenario.joins.iter().enumerate() {
            self.queue.push(nanos(join.at), Event::Join(k as u32));
        }
    }

    /// What happens to a peer after which round, the next one last.
    pub(crate) fn round_faults(&self, peer: usize) -> Vec<(u32, What)> {
        let of_peer = self.scenario.faults.iter().filter(|fault| fault.peer == peer);
        let mut faults: Vec<(u32, What)> = of_peer
            .filter_map(|fault| if let When::Round(round) = fault.when { Some((round, fault.what)) } else { None })
            .collect();
        faults.sort_by_key(|&(round, _)| std::cmp::Reverse(round));
        faults
    }

    pub(crate) fn on_fault(&mut self, fault: usize) {
        let Fault { peer, what, .. } = self.scenario.faults[fault];
        // Who has not come yet cannot go.
        if peer < self.hosts.len() {
            self.befall(peer, what);
        }
    }

    /// Something happens to a peer.
    pub(crate) fn befall(&mut self, peer: usize, what: What) {
        if self.hosts[peer].fate != Fate::Live {
            return;
        }
        match what {
            What::Kill => {
                self.set_fate(peer, Fate::Killed);
                self.hosts[peer].cut_off_at = self.now;
                self.expect_notice(peer);
            }
            What::Leave => self.remove(peer, Fate::Left),
            What::Hang(lasts) if self.hosts[peer].hung_since.is_none() => {
                self.hosts[peer].hung_since = Some(self.now);
                self.n_hung += 1;
                // Who is back at the moment when it would be given up is not.
                self.queue.push(self.now.saturating_add(nanos(lasts)), Event::Wake(peer as u32));
                self.expect_notice(peer);
            }
            What::Hang(_) => {}
        }
    }

    /// The others will notice that a peer is silent, unless they wait for ever.
    fn expect_notice(&mut self, peer: usize) {
        if let Some(noticed) = self.now.checked_add(nanos(self.scenario.deadline)) {
            self.queue.push(noticed, Event::Lost(peer as u32));
        }
    }

    /// A peer goes and says so: the others hear it from itself.
    pub(crate) fn remove(&mut self, peer: usize, fate: Fate) {
        self.set_fate(peer, fate);
        self.membership.lose(peer);
        self.tell_views(Some(peer));
    }

    /// The others have heard nothing of a peer for the deadline.
    pub(crate) fn lose(&mut self, peer: usize) {
        let deadline = nanos(self.scenario.deadline);
        let host = &self.hosts[peer];
        let is_silent = host.hung_since.is_some_and(|since| self.now - since >= deadline);
        if host.fate != Fate::Live || is_silent {
            self.membership.lose(peer);
            self.tell_views(None);
        }
    }

    /// A peer that hung goes on with what has gathered in the meantime. If it was given up, it is taken in again.
    pub(crate) fn wake(&mut self, peer: usize, compute: &mut Compute, observer: &mut impl Observer) {
        let host = &mut self.hosts[peer];
        if host.hung_since.take().is_none() {
            return;
        }
        self.n_hung -= 1;
        for event in std::mem::take(&mut self.hosts[peer].backlog) {
            self.take(event, compute, observer);
        }
        if self.hosts[peer].fate == Fate::Live {
            let side = self.side(peer, self.splits);
            self.membership.join(peer, side);
            self.tell_views(Some(peer));
        }
    }

    /// A joiner, at a site or elsewhere.
    pub(crate) fn join(&mut self, at: Option<(usize, LinkSpec)>) {
        let peer = self.hosts.len();
        self.add_host(1.0, at);
        let side = self.side(peer, self.splits);
        self.membership.join(peer, side);
        self.tell_views(Some(peer));
    }

    /// A peer goes of its own accord, and another comes in its place.
    pub(crate) fn replace(&mut self, peer: usize) {
        if let Some((_, what)) = self.scenario.stay(peer).filter(|_| self.is_live(peer)) {
            self.befall(peer, what);
            self.join(self.hosts[peer].site);
        }
    }

    /// On which side of these partitions a peer is.
    fn side(&self, peer: usize, partitions: u64) -> u64 {
        let has = |k: usize| partitions >> k & 1 == 1 && self.scenario.partitions[k].peers.contains(&peer);
        (0..self.scenario.partitions.len()).filter(|&k| has(k)).fold(0, |side, k| side | 1 << k)
    }

    /// Whether a frame is stopped by a partition: lost if the peers have noticed it, else for as long as it lasts.
    pub(crate) fn is_held_up(&mut self, frame: u32) -> bool {
        let Some(in_flight) = self.network.peek(frame) else { return false };
        let (from, to) = (in_flight.from as usize, in_flight.to as usize);
        let differ = |partitions: u64| self.side(from, partitions) != self.side(to, partitions);
        let (is_lost, is_cut) = (differ(self.splits), differ(self.cuts));
        match (is_lost, is_cut) {
            (true, _) => drop(self.network.take(frame)),
            (false, true) => self.waiting.push(frame),
            (false, false) => {}
        }
        is_lost || is_cut
    }

    /// Both sides of a partition give the other up.
    pub(crate) fn split(&mut self, partition: u32) {
        self.splits |= 1 << partition;
        for frame in std::mem::take(&mut self.waiting) {
            // Those that wait for another partition wait on.
            self.is_held_up(frame);
        }
        self.update_sides();
    }

    /// A partition is over.
    pub(crate) fn heal(&mut self, partition: u32, compute: &mut Compute, observer: &mut impl Observer) {
        self.cuts &= !(1 << partition);
        let was_noticed = self.splits >> partition & 1 == 1;
        self.splits &= !(1 << partition);
        // Before anything else that comes now, or it would be overtaken.
        for frame in std::mem::take(&mut self.waiting) {
            self.take(Event::Deliver(frame), compute, observer);
        }
        if was_noticed {
            self.update_sides();
        }
    }

    fn update_sides(&mut self) {
        let sides: Vec<u64> = (0..self.hosts.len()).map(|peer| self.side(peer, self.splits)).collect();
        self.membership.set_sides(|peer| sides[peer]);
        self.tell_views(None);
    }

    /// Tells the members of new views of them. What comes from the peer that it is about comes after its delay, else from
    /// the first member.
    pub(crate) fn tell_views(&mut self, about: Option<usize>) {
        if self.now < self.view_lasts_until {
            if !std::mem::replace(&mut self.has_news, true) {
                self.queue.push(self.view_lasts_until, Event::News);
            }
            return;
        }
        self.has_news = false;
        let news = self.membership.news();
        if !news.is_empty() {
            self.view_lasts_until = self.now.saturating_add(nanos(self.scenario.view_lasts));
        }
        for view in news {
            let live: Vec<usize> =
                view.members.iter().map(|&member| number(member)).filter(|&peer| self.is_live(peer)).collect();
            let Some(from) = about.or(live.first().copied()) else { continue };
            for peer in live {
                let delay: Nanos = if peer == from { 0 } else { self.network.delay(from, peer) };
                let told = short(self.views.insert((peer, view.clone())));
                self.queue.push(self.now + delay, Event::View(told));
            }
        }
    }

    fn is_live(&self, peer: usize) -> bool {
        self.hosts[peer].fate == Fate::Live
    }
}
