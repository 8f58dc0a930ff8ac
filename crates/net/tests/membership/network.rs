//! A network that is not there, in time that is counted: what the tests do to peers and links.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::job::Quorum;
use nettorrent_engine::rng::Rng;
use nettorrent_net::membership::{Config, Input, MAX_PACKET_LEN, Malformed, Member, Membership, Note, Outbox};
use nettorrent_swarm::view::{PeerId, View};

/// What most tests are run with.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// Peers and the links between them, in simulated time. Every link delivers in order or, when it breaks, not at all.
pub(crate) struct Network {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) now: Duration,
    pub(crate) events: BTreeMap<(Duration, u64), Event>,
    pub(crate) n_events: u64,
    pub(crate) nodes: BTreeMap<PeerId, Node>,
    links: BTreeMap<(PeerId, PeerId), Link>,
    /// Packets take up to this long.
    pub(crate) latency: Duration,
    /// Peers from this join index on are elsewhere, and what goes to the others or comes from them takes so much longer.
    pub(crate) elsewhere: Option<(u32, Duration)>,
    /// The members of all views that were ever in place.
    pub(crate) views: BTreeMap<u32, View>,
}

pub(crate) struct Node {
    pub(crate) membership: Membership,
    pub(crate) state: State,
    introducers: Vec<PeerId>,
    /// The part of the network that it can reach.
    pub(crate) island: usize,
    /// What waits for it while it hangs.
    unread: Vec<Event>,
    wake_at: Option<Duration>,
    pub(crate) notes: Vec<(Duration, Note)>,
    pub(crate) n_views: usize,
    pub(crate) n_bytes: usize,
    pub(crate) n_packets: usize,
    pub(crate) largest_outbox: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Hanging,
    /// Its process is gone, and its machine says so.
    Killed,
    /// Its machine is gone, and nobody says so.
    Vanished,
    Left,
}

#[derive(Default)]
struct Link {
    is_cut: bool,
    n_breaks: u64,
    last_arrival: Duration,
}

pub(crate) enum Event {
    Packet { from: PeerId, to: PeerId, bytes: Bytes, n_breaks: u64 },
    Refused { at: PeerId, peer: PeerId },
    Wake(PeerId),
    Resume(PeerId),
}

pub(crate) fn id(join_index: u32) -> PeerId {
    PeerId::new(join_index, u64::from(join_index) * 0x9e37_79b9)
}

pub(crate) fn member(join_index: u32) -> Member {
    let [_, a, b, c] = join_index.to_be_bytes();
    Member { id: id(join_index), generation: 0, address: ([10, a, b, c], 7000).into() }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Network {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            n_events: 0,
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            latency: millis(5),
            elsewhere: None,
            views: BTreeMap::new(),
        }
    }

    /// A network of this many peers that have agreed on their first view. Whoever is left of them goes on.
    pub(crate) fn settled(n_peers: u32, deadline: Duration, seed: u64) -> Self {
        Self::settled_with(Config { deadline, wait_for: n_peers as usize, quorum: Quorum::Any }, seed)
    }

    /// The same, of as many as the first view waits for.
    pub(crate) fn settled_with(config: Config, seed: u64) -> Self {
        let (n_peers, deadline) = (config.wait_for as u32, config.deadline);
        let mut network = Self::new(config, seed);
        network.start(member(0), Vec::new());
        for join_index in 1..n_peers {
            network.start(member(join_index), vec![member(0)]);
        }
        network.converge(deadline * 2, &format!("{n_peers} peers start, seed {seed}"));
        // Gossip about the beginning dies down.
        network.run_for(deadline * 2);
        network
    }

    pub(crate) fn start(&mut self, me: Member, introducers: Vec<Member>) {
        let id = me.id;
        let node = Node {
            membership: Membership::new(me, &self.config, self.rng.next_u64()),
            state: State::Running,
            introducers: introducers.iter().map(|member| member.id).collect(),
            island: 0,
            unread: Vec::new(),
            wake_at: None,
            notes: Vec::new(),
            n_views: 0,
            n_bytes: 0,
            n_packets: 0,
            largest_outbox: 0,
        };
        self.nodes.insert(id, node);
        self.hand_in(id, Input::Join(introducers));
    }

    pub(crate) fn kill(&mut self, peer: PeerId, state: State) {
        self.node(peer).state = state;
        self.node(peer).unread.clear();
        if state != State::Killed {
            return;
        }
        for at in self.running() {
            if self.links.contains_key(&(at, peer)) && self.can_reach(at, peer) {
                let delay = self.delay();
                self.plan(delay, Event::Refused { at, peer });
            }
        }
    }

    pub(crate) fn hang(&mut self, peer: PeerId, length: Duration) {
        self.node(peer).state = State::Hanging;
        self.plan(length, Event::Resume(peer));
    }

    pub(crate) fn leave(&mut self, peer: PeerId) {
        self.hand_in(peer, Input::Leave);
        self.node(peer).state = State::Left;
    }

    /// What is on its way between two peers is lost. They can connect again at once.
    pub(crate) fn break_link(&mut self, a: PeerId, b: PeerId) {
        for ends in [(a, b), (b, a)] {
            self.links.entry(ends).or_default().n_breaks += 1;
        }
    }

    pub(crate) fn cut_link(&mut self, a: PeerId, b: PeerId) {
        for ends in [(a, b), (b, a)] {
            self.links.entry(ends).or_default().is_cut = true;
        }
    }

    /// What one sends the other does not arrive.
    pub(crate) fn cut_one_way(&mut self, from: PeerId, to: PeerId) {
        self.links.entry((from, to)).or_default().is_cut = true;
    }

    /// Everybody can reach everybody again.
    pub(crate) fn mend(&mut self) {
        self.nodes.values_mut().for_each(|node| node.island = 0);
        self.links.values_mut().for_each(|link| link.is_cut = false);
    }

    /// A peer that remembers nothing takes the place of one that had the same name, sometimes at another address.
    pub(crate) fn restart(&mut self, peer: PeerId, introducer: PeerId) {
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.break_link(peer, other);
        }
        // Nobody remembers its views of itself alone, so their numbers may come again.
        self.views.retain(|_, view| *view.members != [peer]);
        let mut reborn = member(peer.join_index());
        let port = 6999 + self.rng.below(3) as u16;
        reborn.address = reborn.address.at_port_of(&([0, 0, 0, 0], port).into());
        self.start(reborn, vec![member(introducer.join_index())]);
    }

    /// Ends those whom nobody can find any more, because all who knew both them and the others are gone.
    pub(crate) fn end_the_unknown(&mut self) {
        let running = self.running();
        let knows = |a: &PeerId, b: &PeerId| {
            let met = self.nodes[a].notes.iter().rev().find_map(|(_, note)| match note {
                Note::Joined { member, .. } | Note::Returned(member) if member.id == *b => Some(true),
                // Nobody looks for those who said goodbye.
                Note::Left(peer) if peer == b => Some(false),
                _ => None,
            });
            met.unwrap_or_else(|| self.nodes[a].introducers.contains(b))
        };
        let mut found: Vec<PeerId> = Vec::new();
        for first in &running {
            let mut circle = vec![*first];
            while let Some(next) = running.iter().find(|peer| {
                !circle.contains(peer) && circle.iter().any(|other| knows(other, peer) || knows(peer, other))
            }) {
                circle.push(*next);
            }
            found = if circle.len() > found.len() { circle } else { found };
        }
        for peer in running.into_iter().filter(|peer| !found.contains(peer)) {
            self.kill(peer, State::Vanished);
        }
    }

    pub(crate) fn node(&mut self, peer: PeerId) -> &mut Node {
        self.nodes.get_mut(&peer).expect("it was started")
    }

    pub(crate) fn running(&self) -> Vec<PeerId> {
        self.nodes.iter().filter(|(_, node)| node.state == State::Running).map(|(id, _)| *id).collect()
    }

    fn can_reach(&self, a: PeerId, b: PeerId) -> bool {
        self.nodes[&a].island == self.nodes[&b].island && !self.links.get(&(a, b)).is_some_and(|link| link.is_cut)
    }

    fn can_arrive(&self, from: PeerId, to: PeerId, n_breaks: u64) -> bool {
        self.can_reach(from, to) && self.links[&(from, to)].n_breaks == n_breaks
    }

    pub(crate) fn delay(&mut self) -> Duration {
        self.latency.mul_f32(self.rng.range(0.02, 1.0))
    }

    fn distance(&self, from: PeerId, to: PeerId) -> Duration {
        let is_between = |first: u32| (from.join_index() < first) != (to.join_index() < first);
        self.elsewhere.filter(|(first, _)| is_between(*first)).map_or(Duration::ZERO, |(_, distance)| distance)
    }

    fn plan(&mut self, delay: Duration, event: Event) {
        self.n_events += 1;
        self.events.insert((self.now + delay, self.n_events), event);
    }

    fn send(&mut self, from: PeerId, to: PeerId, bytes: Bytes) {
        let arrival = self.now + self.delay() + self.distance(from, to);
        let link = self.links.entry((from, to)).or_default();
        link.last_arrival = arrival.max(link.last_arrival + Duration::from_nanos(1));
        let (delay, n_breaks) = (link.last_arrival - self.now, link.n_breaks);
        self.plan(delay, Event::Packet { from, to, bytes, n_breaks });
    }

    pub(crate) fn hand_in(&mut self, peer: PeerId, input: Input) {
        assert_eq!(self.hand_in_whatever(peer, input), Ok(()), "honest packets are well-formed");
    }

    pub(crate) fn hand_in_whatever(&mut self, peer: PeerId, input: Input) -> Result<(), Malformed> {
        let mut out = Outbox::default();
        let now = self.now;
        let node = self.node(peer);
        let former = node.membership.view().map_or(0, |view| view.number);
        let result = node.membership.handle(now, input, &mut out);
        node.notes.extend(out.notes.into_iter().map(|note| (now, note)));
        let packets: Vec<_> = out.packets.into_iter().chain(out.probes).collect();
        node.largest_outbox = node.largest_outbox.max(packets.len());
        node.n_packets += packets.len();
        node.n_bytes += packets.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let wish = node.membership.wake_at().filter(|at| node.wake_at.is_none_or(|planned| *at < planned));
        if let Some(at) = wish {
            node.wake_at = Some(at);
            self.plan(at.saturating_sub(now), Event::Wake(peer));
        }
        if let Some(view) = out.view {
            assert!(view.number > former, "{peer:?} goes back from view {former} to {}", view.number);
            assert!(view.rank(peer).is_some(), "{peer:?} is not in its own view");
            self.node(peer).n_views += 1;
            let known = self.views.entry(view.number).or_insert_with(|| view.clone());
            assert_eq!(*known, view, "two views have the same number");
        }
        for (to, bytes) in packets {
            assert_ne!(to.id, peer, "a peer sends to itself");
            assert!(bytes.len() <= MAX_PACKET_LEN);
            self.send(peer, to.id, bytes);
        }
        result
    }

    fn deliver(&mut self, event: Event) {
        let (Event::Packet { to: at, .. } | Event::Refused { at, .. } | Event::Wake(at) | Event::Resume(at)) = event;
        if !self.nodes.contains_key(&at) {
            return;
        }
        match (self.nodes[&at].state, event) {
            (State::Hanging, Event::Resume(_)) => self.resume(at),
            (State::Hanging, event) => self.node(at).unread.push(event),
            (_, Event::Packet { from, n_breaks, .. }) if !self.can_arrive(from, at, n_breaks) => {}
            (State::Killed, Event::Packet { from, .. }) => {
                let delay = self.delay();
                self.plan(delay, Event::Refused { at: from, peer: at });
            }
            (State::Running, Event::Packet { from, bytes, .. }) => self.hand_in(at, Input::Packet { from, bytes }),
            // It may have started anew since.
            (State::Running, Event::Refused { peer, .. }) if self.nodes[&peer].state == State::Killed => {
                self.hand_in(at, Input::Refused(peer));
            }
            // What was planned before something earlier was is of no use any more.
            (State::Running, Event::Wake(_)) if self.nodes[&at].wake_at.is_some_and(|planned| planned <= self.now) => {
                self.node(at).wake_at = None;
                self.hand_in(at, Input::Wake);
            }
            _ => {}
        }
    }

    /// A peer that wakes up finds its timers overdue and packets unread, in either order.
    fn resume(&mut self, peer: PeerId) {
        let node = self.node(peer);
        node.state = State::Running;
        let mut unread = std::mem::take(&mut node.unread);
        if self.rng.below(2) == 0 {
            unread.sort_by_key(|event| !matches!(event, Event::Wake(_)));
        }
        for event in unread {
            self.deliver(event);
        }
    }

    pub(crate) fn run_until(&mut self, end: Duration) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = self.now.max(entry.key().0);
            let event = entry.remove();
            self.deliver(event);
        }
        self.now = end;
    }

    pub(crate) fn run_for(&mut self, length: Duration) {
        self.run_until(self.now + length);
    }

    /// Whether all running peers hold the view of those that run on their island.
    fn has_converged(&self) -> bool {
        let running = self.running();
        running.iter().all(|peer| {
            let node = &self.nodes[peer];
            let neighbours = || running.iter().filter(|other| self.nodes[other].island == node.island);
            let view = node.membership.view();
            view.is_some_and(|view| view.members.iter().eq(neighbours()))
                && neighbours().all(|other| self.nodes[other].membership.view() == view)
        })
    }

    /// Runs until all is agreed on, and says how long that took.
    pub(crate) fn converge(&mut self, limit: Duration, what: &str) -> Duration {
        let begin = self.now;
        while !self.has_converged() {
            if self.now - begin > limit {
                for (id, node) in &self.nodes {
                    let members: Vec<_> =
                        node.membership.members().map(|member| (member.id, member.generation)).collect();
                    eprintln!("{id:?} {:?} {:?} knows {members:?}", node.state, node.membership.view());
                }
                panic!("no agreement after {limit:?}: {what}");
            }
            self.run_until(self.events.keys().next().map_or(begin + limit, |(at, _)| *at));
        }
        self.now - begin
    }

    /// When each of the others gave up this peer, after a moment.
    pub(crate) fn losses(&self, peer: PeerId, after: Duration) -> Vec<Duration> {
        let lost = |note: &Note| matches!(note, Note::Lost { peer: lost, .. } if *lost == peer);
        let first =
            |node: &Node| node.notes.iter().find(|(at, note)| *at >= after && lost(note)).map(|(at, _)| *at - after);
        self.nodes.values().filter_map(first).collect()
    }

    pub(crate) fn n_notes(&self, wanted: impl Fn(&Note) -> bool) -> usize {
        self.nodes.values().flat_map(|node| &node.notes).filter(|(_, note)| wanted(note)).count()
    }
}
