//! Simulated links: frames wait for the sender's uplink, travel, and wait for the receiver's downlink.
//!
//! A frame is a stream of packets: its first bit travels as soon as it has left, so a frame alone takes the time of the
//! slower of the two links and the delay once. Of one pair of peers, no frame overtakes another, whatever the jitter: hosts
//! promise that to strategies.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::rng::{Rng, mix};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::wire::Frame;
use slab::Slab;

use crate::membership::number;
use crate::queue::{Event, Nanos, Queue, nanos, short};
use crate::scenario::Scenario;

/// How many bytes of a frame get lost together.
const PACKET_LEN: usize = 1460;

/// A packet that is lost is sent again after a round trip, but not sooner than this.
const LEAST_RETRANSMISSION: Nanos = 1_000_000;

/// How often peers ask each other how near they are.
const N_QUESTIONS: u32 = 5;

/// All links, and what is on them.
pub(crate) struct Network {
    ends: Vec<End>,
    in_flight: Slab<InFlight>,
    seed: u64,
    spread: f64,
    jitter: Nanos,
    loss: f64,
    rng: Rng,
    /// Where frames may be late: when the last bit of the pair's last frame comes.
    last_bits: BTreeMap<(usize, usize), Nanos>,
}

/// A peer's links, and when they are free.
struct End {
    up: LinkSpec,
    down: LinkSpec,
    up_is_free: Nanos,
    down_is_free: Nanos,
    /// Where it is, if it is at a site, and its links there.
    site: Option<SiteEnd>,
}

/// A peer's link within its site, and when it is free.
struct SiteEnd {
    site: usize,
    link: LinkSpec,
    up_is_free: Nanos,
    down_is_free: Nanos,
}

/// A frame on its way.
pub(crate) struct InFlight {
    pub from: u32,
    pub to: u32,
    /// When its last bit leaves the sender.
    pub left: Nanos,
    /// When its last bit comes to the receiver's downlink.
    last_bit: Nanos,
    pub frame: Frame,
}

impl End {
    /// What it sends through to a peer near by or to another, and when that is free.
    fn uplink(&mut self, is_near: bool) -> (LinkSpec, &mut Nanos) {
        match &mut self.site {
            Some(site) if is_near => (site.link, &mut site.up_is_free),
            _ => (self.up, &mut self.up_is_free),
        }
    }

    /// What it receives through, and when that is free.
    fn downlink(&mut self, is_near: bool) -> (LinkSpec, &mut Nanos) {
        match &mut self.site {
            Some(site) if is_near => (site.link, &mut site.down_is_free),
            _ => (self.down, &mut self.down_is_free),
        }
    }
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            ends: Vec::new(),
            in_flight: Slab::new(),
            seed: scenario.seed,
            spread: scenario.spread,
            jitter: nanos(scenario.jitter),
            loss: scenario.loss,
            rng: Rng::stream(scenario.seed, "network", 0),
            last_bits: BTreeMap::new(),
        }
    }

    /// One more peer, with these links, and perhaps one within its site.
    pub(crate) fn add(&mut self, (up, down): (LinkSpec, LinkSpec), site: Option<(usize, LinkSpec)>) {
        let site = site.map(|(site, link)| SiteEnd { site, link, up_is_free: 0, down_is_free: 0 });
        self.ends.push(End { up, down, up_is_free: 0, down_is_free: 0, site });
    }

    /// The link within a site that both are at, if they are at one.
    fn site_link(&self, from: usize, to: usize) -> Option<LinkSpec> {
        let (from, to) = (self.ends[from].site.as_ref()?, self.ends[to].site.as_ref()?);
        (from.site == to.site).then_some(from.link)
    }

    /// How long a bit travels from one peer to another.
    pub(crate) fn delay(&self, from: usize, to: usize) -> Nanos {
        if let Some(link) = self.site_link(from, to) {
            return nanos(link.delay);
        }
        let delay = nanos((self.ends[from].up.delay + self.ends[to].down.delay) / 2);
        if self.spread == 0.0 {
            return delay;
        }
        let pair = (from.min(to) as u64) << 32 | from.max(to) as u64;
        let chance = mix(self.seed ^ mix(pair)) as f64 / u64::MAX as f64;
        (delay as f64 * (1.0 + self.spread * (2.0 * chance - 1.0))) as Nanos
    }

    /// How long it takes until each of the others has answered a peer.
    pub(crate) fn round_trips(&self, peer: usize, members: &[PeerId]) -> BTreeMap<PeerId, Duration> {
        let others = members.iter().filter(|&&member| number(member) != peer);
        others.map(|&other| (other, self.round_trip(peer, number(other)))).collect()
    }

    /// The shortest time of some, as peers find it out by asking.
    fn round_trip(&self, from: usize, to: usize) -> Duration {
        let way = Duration::from_nanos(2 * self.delay(from, to));
        if self.site_link(from, to).is_some() {
            return way;
        }
        let mut rng = Rng::stream(self.seed, "round trips", (from as u64) << 32 | to as u64);
        let late = (0..N_QUESTIONS).map(|_| rng.uniform() + rng.uniform()).fold(f32::INFINITY, f32::min);
        way + Duration::from_nanos((late * self.jitter as f32) as Nanos)
    }

    /// Hands a frame to its sender's uplink.
    pub(crate) fn send(&mut self, now: Nanos, from: usize, to: usize, frame: Frame, queue: &mut Queue) {
        let delay = self.delay(from, to);
        let n_bytes = frame.n_bytes();
        let is_near = self.site_link(from, to).is_some();
        let (up, is_free) = self.ends[from].uplink(is_near);
        let start = now.max(*is_free);
        let lasts = up.nanos_for(n_bytes);
        let left = start.saturating_add(lasts);
        *is_free = left;
        let mut first_bit = start + delay;
        if !is_near && (self.jitter > 0 || self.loss > 0.0) {
            first_bit += self.lateness(n_bytes, delay);
            let last = self.last_bits.entry((from, to)).or_default();
            first_bit = first_bit.max(*last);
            *last = first_bit.saturating_add(lasts);
        }
        let last_bit = first_bit.saturating_add(lasts);
        let has_limit = self.ends[to].downlink(is_near).0.bits_per_second.is_some();
        let frame = InFlight { from: from as u32, to: to as u32, left, last_bit, frame };
        let number = short(self.in_flight.insert(frame));
        match has_limit {
            true => queue.push(first_bit, Event::Arrive(number)),
            false => queue.push(last_bit, Event::Deliver(number)),
        }
    }

    /// By how much a frame is late.
    fn lateness(&mut self, n_bytes: usize, delay: Nanos) -> Nanos {
        let mut late = if self.jitter > 0 { (self.rng.uniform() * self.jitter as f32) as Nanos } else { 0 };
        if self.loss > 0.0 {
            let n_packets = n_bytes.div_ceil(PACKET_LEN) as f64;
            let mut chance = 1.0 - (1.0 - self.loss).powf(n_packets);
            // What is sent again may get lost again.
            while f64::from(self.rng.uniform()) < chance {
                late += (2 * delay).max(LEAST_RETRANSMISSION);
                chance = self.loss;
            }
        }
        late
    }

    /// A frame's first bit is there: it waits for the receiver's downlink.
    pub(crate) fn arrive(&mut self, now: Nanos, number: u32, queue: &mut Queue) {
        let Some(InFlight { from, to, last_bit, frame, .. }) = self.in_flight.get(number as usize) else { return };
        let is_near = self.site_link(*from as usize, *to as usize).is_some();
        let (down, is_free) = self.ends[*to as usize].downlink(is_near);
        *is_free = now.max(*is_free).saturating_add(down.nanos_for(frame.n_bytes()));
        queue.push((*last_bit).max(*is_free), Event::Deliver(number));
    }

    /// A frame that is still on its way.
    pub(crate) fn peek(&self, number: u32) -> Option<&InFlight> {
        self.in_flight.get(number as usize)
    }

    /// Takes a frame off the network.
    pub(crate) fn take(&mut self, number: u32) -> Option<InFlight> {
        self.in_flight.try_remove(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Network;
    use crate::queue::{Event, Nanos, Queue};
    use crate::scenario::{Scenario, Site};
    use bytes::Bytes;
    use nettorrent_engine::rng::Rng;
    use nettorrent_swarm::wire::{Frame, HEAD_LEN, Kind};

    /// Sends frames of these lengths and returns when each is delivered, with its number.
    fn run(scenario: &Scenario, n_peers: usize, frames: &[(Nanos, usize, usize, usize)]) -> Vec<(Nanos, u64)> {
        let (mut network, mut queue) = (Network::new(scenario), Queue::default());
        (0..n_peers).for_each(|peer| network.add(scenario.links_of(peer), scenario.site_of(peer)));
        for (k, &(at, from, to, n_bytes)) in frames.iter().enumerate() {
            let body = Bytes::from(vec![0; n_bytes - HEAD_LEN]);
            network.send(at, from, to, Frame::in_round(Kind::Strategy, 0, 0, k as u64, body), &mut queue);
        }
        let mut delivered = Vec::new();
        while let Some((at, event)) = queue.pop() {
            match event {
                Event::Arrive(number) => network.arrive(at, number, &mut queue),
                Event::Deliver(number) => delivered.push((at, network.take(number).unwrap().frame.head.part)),
                _ => unreachable!("networks know no other events"),
            }
        }
        delivered
    }

    fn scenario(link: &str) -> Scenario {
        Scenario { link: link.parse().unwrap(), ..Scenario::lan() }
    }

    #[test]
    fn a_frame_takes_the_links_time_once_and_the_delay() {
        // 1000 bytes at 8 kbit/s are a second.
        assert_eq!(run(&scenario("8kbit/10ms"), 2, &[(5, 0, 1, 1000)]), [(1_010_000_005, 0)]);
    }

    #[test]
    fn frames_queue_at_both_ends() {
        let second: Nanos = 1_000_000_000;
        // Two to different receivers share the sender's uplink; two from different senders share the receiver's downlink.
        let sent = run(&scenario("8kbit"), 3, &[(0, 0, 1, 1000), (0, 0, 2, 1000)]);
        assert_eq!(sent, [(second, 0), (2 * second, 1)]);
        let received = run(&scenario("8kbit"), 3, &[(0, 0, 2, 1000), (0, 1, 2, 1000)]);
        assert_eq!(received, [(second, 0), (2 * second, 1)]);
    }

    #[test]
    fn within_a_site_frames_take_its_links() {
        let second: Nanos = 1_000_000_000;
        let site = Site { peers: 2, count: 2, link: "8kbit/1ms".parse().unwrap() };
        let scenario = Scenario { sites: vec![site], ..scenario("4kbit/10ms") };
        let near = run(&scenario, 4, &[(0, 0, 1, 1000), (0, 2, 3, 1000)]);
        assert_eq!(near, [(second + 1_000_000, 0), (second + 1_000_000, 1)]);
        // What goes to another site leaves beside that.
        let both = run(&scenario, 4, &[(0, 0, 1, 1000), (0, 0, 2, 1000)]);
        assert_eq!(both, [(second + 1_000_000, 0), (2 * second + 10_000_000, 1)]);
    }

    #[test]
    fn order_is_kept_whatever_the_jitter() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let jitter = std::time::Duration::from_millis(50);
            let scenario = Scenario { seed, jitter, loss: 0.2, spread: 0.5, ..scenario("10mbit/5ms") };
            let mut at = 0;
            let frames: Vec<_> = (0..200)
                .map(|_| {
                    at += rng.below(1_000_000) as Nanos;
                    let from = rng.below(4);
                    (at, from, (from + 1 + rng.below(3)) % 4, HEAD_LEN + rng.below(5000))
                })
                .collect();
            let mut delivered = run(&scenario, 4, &frames);
            assert_eq!(delivered, run(&scenario, 4, &frames), "seed {seed}: not the same twice");
            delivered.sort_by_key(|&(at, _)| at);
            for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
                let of_pair = |k: &u64| (frames[*k as usize].1, frames[*k as usize].2) == (from, to);
                let order: Vec<u64> = delivered.iter().map(|&(_, k)| k).filter(of_pair).collect();
                assert!(order.is_sorted(), "seed {seed}: {from} to {to}: {order:?}");
            }
            assert_eq!(delivered.len(), frames.len(), "seed {seed}: frames are late, never lost");
        }
    }
}
