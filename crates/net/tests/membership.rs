//! Memberships over a simulated network: whatever happens to links and peers, all who live end with the same view.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::rng::Rng;
use nettorrent_net::membership::{
    Config, Input, MAX_MEMBERS, MAX_PACKET_LEN, Malformed, Member, Membership, Note, Outbox,
};
use nettorrent_swarm::view::{PeerId, View};

/// Peers and the links between them, in simulated time. Every link delivers in order or, when it breaks, not at all.
struct Network {
    config: Config,
    rng: Rng,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    n_events: u64,
    nodes: BTreeMap<PeerId, Node>,
    links: BTreeMap<(PeerId, PeerId), Link>,
    /// Packets take up to this long.
    latency: Duration,
    /// The members of all views that were ever in place.
    views: BTreeMap<u32, View>,
}

struct Node {
    membership: Membership,
    state: State,
    introducers: Vec<PeerId>,
    /// The part of the network that it can reach.
    island: usize,
    /// What waits for it while it hangs.
    unread: Vec<Event>,
    wake_at: Option<Duration>,
    notes: Vec<(Duration, Note)>,
    n_views: usize,
    n_bytes: usize,
    largest_outbox: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

enum Event {
    Packet { from: PeerId, to: PeerId, bytes: Bytes, n_breaks: u64 },
    Unreachable { at: PeerId, peer: PeerId },
    Wake(PeerId),
    Resume(PeerId),
}

fn id(seat: u32) -> PeerId {
    PeerId::new(seat, u64::from(seat) * 0x9e37_79b9)
}

fn member(seat: u32) -> Member {
    let [_, a, b, c] = seat.to_be_bytes();
    Member { id: id(seat), generation: 0, address: ([10, a, b, c], 7000).into() }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Network {
    fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            n_events: 0,
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            latency: millis(5),
            views: BTreeMap::new(),
        }
    }

    /// A network of this many peers that have agreed on their first view.
    fn settled(n_peers: u32, deadline: Duration, seed: u64) -> Self {
        let mut network = Self::new(Config { deadline, wait_for: n_peers as usize }, seed);
        network.start(member(0), Vec::new());
        for seat in 1..n_peers {
            network.start(member(seat), vec![member(0)]);
        }
        network.converge(deadline * 2, &format!("{n_peers} peers start, seed {seed}"));
        // Gossip about the beginning dies down.
        network.run_for(deadline * 2);
        network
    }

    fn start(&mut self, me: Member, introducers: Vec<Member>) {
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
            largest_outbox: 0,
        };
        self.nodes.insert(id, node);
        self.hand_in(id, Input::Join(introducers));
    }

    fn kill(&mut self, peer: PeerId, state: State) {
        self.node(peer).state = state;
        self.node(peer).unread.clear();
        if state != State::Killed {
            return;
        }
        for at in self.running() {
            if self.links.contains_key(&(at, peer)) && self.can_reach(at, peer) {
                let delay = self.delay();
                self.plan(delay, Event::Unreachable { at, peer });
            }
        }
    }

    fn hang(&mut self, peer: PeerId, length: Duration) {
        self.node(peer).state = State::Hanging;
        self.plan(length, Event::Resume(peer));
    }

    fn leave(&mut self, peer: PeerId) {
        self.hand_in(peer, Input::Leave);
        self.node(peer).state = State::Left;
    }

    /// What is on its way between two peers is lost. They can connect again at once.
    fn break_link(&mut self, a: PeerId, b: PeerId) {
        for ends in [(a, b), (b, a)] {
            self.links.entry(ends).or_default().n_breaks += 1;
        }
    }

    fn cut_link(&mut self, a: PeerId, b: PeerId) {
        for ends in [(a, b), (b, a)] {
            self.links.entry(ends).or_default().is_cut = true;
        }
    }

    /// Everybody can reach everybody again.
    fn mend(&mut self) {
        self.nodes.values_mut().for_each(|node| node.island = 0);
        self.links.values_mut().for_each(|link| link.is_cut = false);
    }

    /// A peer that remembers nothing takes the place of one that had the same name, sometimes at another address.
    fn restart(&mut self, peer: PeerId, introducer: PeerId) {
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.break_link(peer, other);
        }
        // Nobody remembers its views of itself alone, so their numbers may come again.
        self.views.retain(|_, view| *view.members != [peer]);
        let mut reborn = member(peer.seat());
        reborn.address.set_port(6999 + self.rng.below(3) as u16);
        self.start(reborn, vec![member(introducer.seat())]);
    }

    /// Ends those whom nobody can find any more, because all who knew both them and the others are gone.
    fn end_the_unknown(&mut self) {
        let running = self.running();
        let knows = |a: &PeerId, b: &PeerId| {
            let met = self.nodes[a].notes.iter().rev().find_map(|(_, note)| match note {
                Note::Joined(member) | Note::Returned(member) if member.id == *b => Some(true),
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

    fn node(&mut self, peer: PeerId) -> &mut Node {
        self.nodes.get_mut(&peer).expect("it was started")
    }

    fn running(&self) -> Vec<PeerId> {
        self.nodes.iter().filter(|(_, node)| node.state == State::Running).map(|(id, _)| *id).collect()
    }

    fn can_reach(&self, a: PeerId, b: PeerId) -> bool {
        self.nodes[&a].island == self.nodes[&b].island && !self.links.get(&(a, b)).is_some_and(|link| link.is_cut)
    }

    fn can_arrive(&self, from: PeerId, to: PeerId, n_breaks: u64) -> bool {
        self.can_reach(from, to) && self.links[&(from, to)].n_breaks == n_breaks
    }

    fn delay(&mut self) -> Duration {
        self.latency.mul_f32(self.rng.range(0.02, 1.0))
    }

    fn plan(&mut self, delay: Duration, event: Event) {
        self.n_events += 1;
        self.events.insert((self.now + delay, self.n_events), event);
    }

    fn send(&mut self, from: PeerId, to: PeerId, bytes: Bytes) {
        let arrival = self.now + self.delay();
        let link = self.links.entry((from, to)).or_default();
        link.last_arrival = arrival.max(link.last_arrival + Duration::from_nanos(1));
        let (delay, n_breaks) = (link.last_arrival - self.now, link.n_breaks);
        self.plan(delay, Event::Packet { from, to, bytes, n_breaks });
    }

    fn hand_in(&mut self, peer: PeerId, input: Input) {
        assert_eq!(self.hand_in_whatever(peer, input), Ok(()), "honest packets are well-formed");
    }

    fn hand_in_whatever(&mut self, peer: PeerId, input: Input) -> Result<(), Malformed> {
        let mut out = Outbox::default();
        let now = self.now;
        let node = self.node(peer);
        let former = node.membership.view().map_or(0, |view| view.number);
        let result = node.membership.handle(now, input, &mut out);
        node.notes.extend(out.notes.into_iter().map(|note| (now, note)));
        node.largest_outbox = node.largest_outbox.max(out.packets.len());
        node.n_bytes += out.packets.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
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
        for (to, bytes) in out.packets {
            assert_ne!(to.id, peer, "a peer sends to itself");
            assert!(bytes.len() <= MAX_PACKET_LEN);
            self.send(peer, to.id, bytes);
        }
        result
    }

    fn deliver(&mut self, event: Event) {
        let (Event::Packet { to: at, .. } | Event::Unreachable { at, .. } | Event::Wake(at) | Event::Resume(at)) =
            event;
        if !self.nodes.contains_key(&at) {
            return;
        }
        if let Event::Wake(_) = event {
            self.node(at).wake_at = None;
        }
        match (self.nodes[&at].state, event) {
            (State::Hanging, Event::Resume(_)) => self.resume(at),
            (State::Hanging, event) => self.node(at).unread.push(event),
            (_, Event::Packet { from, n_breaks, .. }) if !self.can_arrive(from, at, n_breaks) => {}
            (State::Killed, Event::Packet { from, .. }) => {
                let delay = self.delay();
                self.plan(delay, Event::Unreachable { at: from, peer: at });
            }
            (State::Running, Event::Packet { from, bytes, .. }) => self.hand_in(at, Input::Packet { from, bytes }),
            // It may have started anew since.
            (State::Running, Event::Unreachable { peer, .. }) if self.nodes[&peer].state == State::Killed => {
                self.hand_in(at, Input::Unreachable(peer));
            }
            (State::Running, Event::Wake(_)) => self.hand_in(at, Input::Wake),
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

    fn run_until(&mut self, end: Duration) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = self.now.max(entry.key().0);
            let event = entry.remove();
            self.deliver(event);
        }
        self.now = end;
    }

    fn run_for(&mut self, length: Duration) {
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
    fn converge(&mut self, limit: Duration, what: &str) -> Duration {
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
    fn losses(&self, peer: PeerId, after: Duration) -> Vec<Duration> {
        let lost = |note: &Note| matches!(note, Note::Lost { peer: lost, .. } if *lost == peer);
        let first =
            |node: &Node| node.notes.iter().find(|(at, note)| *at >= after && lost(note)).map(|(at, _)| *at - after);
        self.nodes.values().filter_map(first).collect()
    }

    fn n_notes(&self, wanted: impl Fn(&Note) -> bool) -> usize {
        self.nodes.values().flat_map(|node| &node.notes).filter(|(_, note)| wanted(note)).count()
    }
}

const DEADLINE: Duration = Duration::from_secs(5);

#[test]
fn the_first_view_waits_for_its_members() {
    let mut network = Network::new(Config { deadline: DEADLINE, wait_for: 3 }, 1);
    network.start(member(0), Vec::new());
    network.start(member(1), vec![member(0)]);
    network.run_for(DEADLINE * 10);
    assert!(network.views.is_empty());
    network.start(member(2), vec![member(1)]);
    network.converge(millis(500), "the third came");
    // From then on every change makes a view.
    network.start(member(3), vec![member(2)]);
    network.converge(millis(500), "a late joiner");
    network.leave(id(1));
    network.run_for(millis(100));
    network.leave(id(2));
    network.converge(millis(500), "two left, and two of three are enough to go on");
    assert_eq!(network.views.len(), 3, "what happens at the same time makes one view");
}

#[test]
fn who_waits_for_introduction_makes_no_view_of_its_own() {
    let mut network = Network::new(Config { deadline: DEADLINE, wait_for: 1 }, 1);
    network.start(member(5), vec![member(0)]);
    network.run_for(DEADLINE * 3);
    assert!(network.views.is_empty());
    network.start(member(0), Vec::new());
    network.converge(DEADLINE, "its introducer came late");
}

#[test]
fn the_silent_are_given_up_within_the_deadline() {
    for (n_peers, n_seeds) in [(2, 100), (4, 100), (10, 40), (50, 12)] {
        let (mut detections, mut agreements) = (Vec::new(), Vec::new());
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            let delay = network.delay() * 200;
            network.run_for(delay);
            let silent = id(network.rng.below(n_peers as usize) as u32);
            let begin = network.now;
            network.kill(silent, State::Vanished);
            let agreement = network.converge(DEADLINE * 2, &format!("{n_peers} peers, seed {seed}"));
            // Some learn of the next view before they hear why.
            network.run_until(begin + DEADLINE);
            let losses = network.losses(silent, begin);
            assert_eq!(losses.len(), n_peers as usize - 1, "{n_peers} peers, seed {seed}");
            let last = losses.into_iter().max().unwrap();
            assert!(last <= DEADLINE, "{n_peers} peers, seed {seed}: {last:?}");
            detections.push(last);
            agreements.push(agreement);
        }
        let mean = |times: &[Duration]| times.iter().sum::<Duration>() / times.len() as u32;
        println!(
            "{n_peers} peers, one silent: given up by all after {:.2?} (at most {:.2?}), next view after {:.2?} (at most {:.2?})",
            mean(&detections),
            detections.iter().max().unwrap(),
            mean(&agreements),
            agreements.iter().max().unwrap()
        );
    }
}

#[test]
fn the_killed_are_given_up_at_once() {
    for (n_peers, n_seeds) in [(2, 20), (4, 20), (10, 20), (50, 5)] {
        let mut slowest = Duration::ZERO;
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            // The proposer is killed as well, together with the next.
            network.kill(id(0), State::Killed);
            if n_peers > 2 {
                network.kill(id(1), State::Killed);
            }
            slowest = slowest.max(network.converge(DEADLINE / 5, &format!("{n_peers} peers, seed {seed}")));
            assert_eq!(network.views.len(), 2, "two losses at a time make one view, seed {seed}");
        }
        println!("{n_peers} peers, killed: next view after at most {slowest:.2?}");
    }
}

#[test]
fn any_deadline_will_do() {
    for (deadline, latency) in
        [(millis(500), millis(3)), (millis(2_000), millis(10)), (Duration::from_secs(180), millis(300))]
    {
        for seed in 0..10 {
            let mut network = Network::new(Config { deadline, wait_for: 6 }, seed);
            network.latency = latency;
            (0..6).for_each(|seat| network.start(member(seat), if seat == 0 { vec![] } else { vec![member(0)] }));
            network.converge(deadline, &format!("{deadline:?}, seed {seed}"));
            network.run_for(deadline);
            let begin = network.now;
            network.kill(id(3), State::Vanished);
            network.converge(deadline * 2, &format!("{deadline:?}, seed {seed}"));
            assert!(network.losses(id(3), begin).into_iter().all(|time| time <= deadline), "{deadline:?}, seed {seed}");
        }
    }
}

#[test]
fn pauses_of_a_third_of_the_deadline_are_forgiven() {
    for deadline in [millis(500), DEADLINE] {
        for seed in 0..18 {
            let n_peers = 2 + seed as u32 % 9;
            let mut network = Network::settled(n_peers, deadline, seed);
            network.latency = deadline / 200;
            for _ in 0..100 {
                let running = network.running();
                if !running.is_empty() {
                    let sleeper = running[network.rng.below(running.len())];
                    let length = (deadline / 3).mul_f32(network.rng.uniform().sqrt());
                    network.hang(sleeper, length);
                }
                let pause = deadline.mul_f32(network.rng.uniform() * 0.5);
                network.run_for(pause);
            }
            let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
            assert_eq!((lost, network.views.len()), (0, 1), "{deadline:?}, {n_peers} peers, seed {seed}");
        }
    }
}

#[test]
fn slow_links_are_no_silence() {
    for seed in 0..5 {
        let mut network = Network::settled(6, DEADLINE, seed);
        // A question and its answer take up to four times as long as foca is told to wait for them.
        network.latency = DEADLINE * 2 / 25;
        network.run_for(DEADLINE * 40);
        let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
        assert_eq!((lost, network.views.len()), (0, 1), "seed {seed}");
    }
}

#[test]
fn short_cuts_are_forgiven() {
    for seed in 0..60 {
        let n_peers = 2 + seed as u32 % 9;
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        for _ in 0..10 {
            let peer = id(network.rng.below(n_peers as usize) as u32);
            network.node(peer).island = 1;
            network.run_for(DEADLINE / 3);
            network.mend();
            let pause = DEADLINE.mul_f32(0.5 + network.rng.uniform());
            network.run_for(pause);
        }
        let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
        assert_eq!((lost, network.views.len()), (0, 1), "{n_peers} peers, seed {seed}");
    }
}

#[test]
fn who_hangs_too_long_comes_back() {
    for seed in 0..30 {
        let n_peers = 2 + seed as u32 % 7;
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        let sleeper = id(network.rng.below(n_peers as usize) as u32);
        let length = DEADLINE * (2 + 30 * (seed as u32 % 2));
        network.hang(sleeper, length);
        network.converge(DEADLINE * 2, &format!("one hangs, seed {seed}"));
        network.run_until(network.now + length);
        network.converge(DEADLINE, &format!("it is back, seed {seed}"));
        assert_eq!(network.nodes[&sleeper].membership.view().unwrap().len(), n_peers as usize);
    }
}

#[test]
fn who_comes_back_to_nobody_finds_out() {
    for seed in 0..10 {
        let mut network = Network::settled(4, DEADLINE, seed);
        network.hang(id(2), DEADLINE * 3);
        network.run_for(DEADLINE * 2);
        for seat in [0, 1, 3] {
            network.kill(id(seat), State::Vanished);
        }
        network.run_for(DEADLINE);
        network.converge(DEADLINE * 2, &format!("seed {seed}"));
        assert!(network.nodes[&id(2)].membership.me().generation > 0, "seed {seed}: it was told that it was given up");
    }
}

#[test]
fn a_goodbye_needs_no_deadline() {
    for seed in 0..20 {
        let mut network = Network::settled(5, DEADLINE, seed);
        network.leave(id(seed as u32 % 5));
        network.converge(DEADLINE / 10, &format!("seed {seed}"));
        assert_eq!(network.n_notes(|note| matches!(note, Note::Left(_))), 4, "seed {seed}");
        assert_eq!(network.views.len(), 2, "seed {seed}");
        // And the last one stays alone.
        for peer in network.running().into_iter().skip(1) {
            network.leave(peer);
        }
        network.converge(DEADLINE / 10, &format!("the last, seed {seed}"));
        network.run_for(DEADLINE * 30);
        assert_eq!(network.views.len(), 3, "nobody looks for those who left, seed {seed}");
    }
}

#[test]
fn islands_go_on_alone_and_merge_when_they_meet() {
    for (n_peers, n_seeds) in [(2, 10), (3, 10), (10, 10), (50, 3)] {
        let mut slowest = Duration::ZERO;
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            let n_islands = 2 + seed as usize % 2;
            for peer in network.running() {
                let island = network.rng.below(n_islands);
                network.node(peer).island = island;
            }
            network.converge(DEADLINE * 3, &format!("islands of {n_peers}, seed {seed}"));
            network.run_for(DEADLINE * (10 * (seed as u32 % 4)));
            network.mend();
            let highest = *network.views.keys().last().unwrap();
            // The lonely look for others more often.
            let limit = if n_peers <= 3 { DEADLINE * 2 } else { DEADLINE * 4 };
            let time = network.converge(limit, &format!("{n_peers} meet again, seed {seed}"));
            slowest = slowest.max(time);
            assert!(network.nodes[&id(0)].membership.view().unwrap().number >= highest, "seed {seed}");
        }
        println!("{n_peers} peers, cut and healed: one view after at most {slowest:.2?}");
    }
}

#[test]
fn a_member_that_forgot_everything_gets_a_new_view() {
    for seed in 0..20 {
        let mut network = Network::settled(4, DEADLINE, seed);
        let victim = seed as u32 % 4;
        // It starts again before anybody notices, under the same name and in the same generation.
        network.restart(id(victim), id((victim + 1) % 4));
        network.run_for(DEADLINE * 2);
        network.converge(DEADLINE, &format!("seed {seed}"));
        assert!(network.views.len() >= 2, "seed {seed}: the others must know that a member has lost its memory");
        // If it says that this is another life, the others need not find out.
        let n_views = network.views.len();
        let me = network.nodes[&id(victim)].membership.me().clone();
        let reborn = Member { generation: me.generation + 1, ..me };
        network.start(reborn, vec![member((victim + 1) % 4)]);
        network.run_for(DEADLINE / 5);
        network.converge(Duration::ZERO, &format!("in a later generation, seed {seed}"));
        assert!(network.views.len() > n_views, "seed {seed}");
        // It is killed and starts again in a generation that is long past.
        for node in network.nodes.values_mut() {
            node.notes.clear();
        }
        network.hang(id(victim), DEADLINE * 2);
        network.run_for(DEADLINE * 4);
        network.hang(id(victim), DEADLINE * 2);
        network.run_for(DEADLINE * 4);
        assert!(network.nodes[&id(victim)].membership.me().generation >= 2, "seed {seed}");
        network.restart(id(victim), id((victim + 1) % 4));
        network.run_for(DEADLINE);
        network.converge(DEADLINE * 2, &format!("from an earlier generation, seed {seed}"));
    }
}

#[test]
fn two_who_take_each_other_for_dead_find_out() {
    for seed in 0..10 {
        let mut network = Network::settled(6, DEADLINE, seed);
        let (a, b) = (id(seed as u32 % 5), id(5));
        // What they say to others about each other is lost.
        (network.node(a).island, network.node(b).island) = (1, 2);
        network.hand_in(a, Input::Unreachable(b));
        network.hand_in(b, Input::Unreachable(a));
        network.run_for(DEADLINE / 5);
        network.mend();
        network.run_for(DEADLINE * 3 / 2);
        for peer in network.running() {
            let n_known = network.nodes[&peer].membership.members().count();
            assert_eq!(n_known, 6, "seed {seed}: {peer:?}");
        }
        network.converge(DEADLINE, &format!("seed {seed}"));
    }
}

#[test]
fn two_who_cannot_talk_to_each_other_do_not_stop_the_others() {
    for seed in 0..10 {
        let mut network = Network::settled(5, DEADLINE, seed);
        let (a, b) = (id(0), id(1 + seed as u32 % 4));
        network.cut_link(a, b);
        network.run_for(DEADLINE);
        let newcomer = member(9);
        network.start(newcomer.clone(), vec![member(0)]);
        network.run_for(DEADLINE * 6);
        let view = network.nodes[&newcomer.id].membership.view().cloned();
        assert!(view.is_some_and(|view| view.len() >= 5), "seed {seed}");
        network.mend();
        network.converge(DEADLINE * 4, &format!("seed {seed}"));
        // They may still be busy forgetting that.
        network.run_for(DEADLINE * 4);
        network.converge(DEADLINE, &format!("seed {seed}, later"));
    }
}

/// Anything that can happen to peers and links, in random order.
fn disturb(network: &mut Network, n_started: &mut u32) {
    let running = network.running();
    let any = |network: &mut Network| running[network.rng.below(running.len())];
    match network.rng.below(11) {
        0 | 1 if *n_started < 16 => {
            let introducers = (0..2).map(|_| any(network)).map(|peer| member(peer.seat())).collect();
            // Newcomers may take any place in the order.
            network.start(member((*n_started * 37 + 50) % 101), introducers);
            *n_started += 1;
        }
        2 if running.len() > 2 => {
            let victim = any(network);
            network.kill(victim, State::Killed);
        }
        3 if running.len() > 2 => {
            let victim = any(network);
            network.kill(victim, State::Vanished);
        }
        4 if running.len() > 2 => {
            let victim = any(network);
            network.leave(victim);
        }
        5 if running.len() > 1 => {
            let length = network.config.deadline.mul_f32(network.rng.range(0.1, 3.0));
            let victim = any(network);
            network.hang(victim, length);
        }
        6 => {
            let peer = any(network);
            let island = network.rng.below(2);
            network.node(peer).island = island;
        }
        7 => network.mend(),
        8 => {
            let (a, b) = (any(network), any(network));
            network.cut_link(a, b);
        }
        9 => {
            let is_gone = |node: &Node| matches!(node.state, State::Killed | State::Left);
            let gone: Vec<_> = network.nodes.iter().filter(|(_, node)| is_gone(node)).map(|(id, _)| *id).collect();
            if !gone.is_empty() {
                let peer = gone[network.rng.below(gone.len())];
                let introducer = any(network);
                network.restart(peer, introducer);
            }
        }
        _ => {
            let (a, b) = (any(network), any(network));
            network.break_link(a, b);
        }
    }
}

#[test]
fn all_who_live_agree_whatever_happens() {
    let mut slowest = Duration::ZERO;
    for seed in 0..300 {
        let n_peers = 2 + seed as u32 % 6;
        let mut network = Network::new(Config { deadline: DEADLINE, wait_for: n_peers as usize }, seed);
        network.latency = [millis(1), millis(20), millis(80)][seed as usize % 3];
        for seat in 0..n_peers {
            network.start(member(seat), if seat == 0 { vec![] } else { vec![member(0)] });
        }
        let mut n_started = n_peers;
        if seed % 2 == 0 {
            network.run_for(DEADLINE);
        }
        // Without the first of them nobody could be introduced.
        network.run_for(millis(300));
        for _ in 0..network.rng.below(40) {
            disturb(&mut network, &mut n_started);
            let scale = if network.rng.below(2) == 0 { 0.02 } else { 1.0 };
            let pause = DEADLINE.mul_f32(network.rng.uniform() * scale);
            network.run_for(pause);
        }
        network.mend();
        // Those who hang come back first.
        while network.nodes.values().any(|node| node.state == State::Hanging) {
            network.run_for(DEADLINE / 10);
        }
        network.end_the_unknown();
        // Those who never had a view go on waiting for enough members.
        let running = network.running();
        if running.len() < n_peers as usize && running.iter().all(|peer| network.nodes[peer].n_views == 0) {
            continue;
        }
        slowest = slowest.max(network.converge(DEADLINE * 12, &format!("seed {seed}")));
        // And so it stays.
        network.run_for(DEADLINE * 4);
        network.converge(DEADLINE, &format!("seed {seed}, later"));
        for peer in network.running() {
            let membership = &network.nodes[&peer].membership;
            let known: Vec<_> = membership.members().map(|member| member.id).collect();
            assert_eq!(known, network.running(), "seed {seed}: what {peer:?} knows");
        }
        let n_views = network.views.len();
        network.run_for(DEADLINE * 10);
        assert_eq!(network.views.len(), n_views, "seed {seed}: views without a reason");
    }
    println!("after anything: one view after at most {slowest:.2?}");
}

#[test]
fn nothing_grows() {
    let mut network = Network::settled(4, millis(1000), 1);
    let mut largest = 0;
    for seat in 4..400 {
        network.start(member(seat), vec![member(0)]);
        network.run_for(millis(500));
        let end = if seat % 2 == 0 { State::Killed } else { State::Vanished };
        network.kill(id(seat), end);
        network.run_for(millis(500));
        network.nodes.retain(|_, node| node.state == State::Running || node.n_views == 0);
        largest = largest.max(network.nodes[&id(0)].membership.n_remembered());
    }
    // A death is remembered for 20 deadlines, so some 20 of the 396 are.
    assert!(largest < 100, "{largest} things are remembered");
    network.run_for(millis(60_000));
    network.converge(millis(1), "all is quiet");
    for seat in 0..4 {
        let node = &network.nodes[&id(seat)];
        assert!(node.membership.n_remembered() < 20, "{} things are remembered", node.membership.n_remembered());
        assert!(node.largest_outbox < 300, "{} packets at a time", node.largest_outbox);
    }
}

#[test]
fn at_rest_little_is_said() {
    for n_peers in [2, 4, 10, 50] {
        let mut network = Network::settled(n_peers, DEADLINE, 1);
        network.run_for(DEADLINE * 10);
        network.nodes.values_mut().for_each(|node| node.n_bytes = 0);
        let n_views = network.views.len();
        network.run_for(Duration::from_secs(100));
        let n_bytes = network.nodes.values().map(|node| node.n_bytes).max().unwrap() / 100;
        println!("{n_peers} peers at rest: at most {n_bytes} bytes a second sent by each");
        assert!(n_bytes < 1500, "{n_peers} peers: {n_bytes} bytes a second");
        assert_eq!(network.views.len(), n_views);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut network = Network::settled(6, DEADLINE, seed);
        let mut n_started = 6;
        for _ in 0..30 {
            disturb(&mut network, &mut n_started);
            network.run_for(millis(900));
        }
        (network.n_events, network.views, network.nodes.values().map(|node| node.n_bytes).collect::<Vec<_>>())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Packets that were really sent, to be spoilt.
fn real_packets(network: &mut Network) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for round in 0..40 {
        if round % 10 == 0 {
            network.hang(id(2), DEADLINE / 5);
            network.start(member(10 + round), vec![member(0)]);
        }
        network.run_for(millis(100));
        packets.extend(network.events.values().filter_map(|event| match event {
            Event::Packet { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        }));
    }
    packets
}

fn spoilt(packets: &[Vec<u8>], rng: &mut Rng) -> Bytes {
    let mut bytes = packets[rng.below(packets.len())].clone();
    if rng.below(3) == 0 {
        bytes = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
        bytes.first_mut().into_iter().for_each(|tag| *tag %= 2);
    }
    for _ in 0..rng.below(4) {
        if !bytes.is_empty() {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
    }
    bytes.into()
}

#[test]
fn hostile_bytes_do_no_harm() {
    let packets = real_packets(&mut Network::settled(4, DEADLINE, 3));
    let mut rng = Rng::new(11);
    let mut membership = Membership::new(member(0), &Config::default(), 5);
    let mut n_refused = 0;
    for round in 0..200_000 {
        let mut out = Outbox::default();
        let (now, from) = (millis(round), id(1 + rng.below(3) as u32));
        let input = Input::Packet { from, bytes: spoilt(&packets, &mut rng) };
        n_refused += usize::from(membership.handle(now, input, &mut out).is_err());
        if membership.wake_at().is_some_and(|at| at <= now) {
            membership.handle(now, Input::Wake, &mut out).unwrap();
        }
    }
    assert!(n_refused > 100_000, "{n_refused}");
    assert!(membership.n_remembered() < 2 * MAX_MEMBERS);
}

#[test]
fn a_swarm_survives_a_member_that_babbles() {
    for seed in 0..20 {
        let mut network = Network::settled(5, DEADLINE, seed);
        let packets = real_packets(&mut network);
        let mut rng = Rng::new(seed);
        for _ in 0..2_000 {
            let to = id(rng.below(4) as u32);
            let bytes = spoilt(&packets, &mut rng);
            // Most is refused; what is not must do no lasting harm.
            let _ = network.hand_in_whatever(to, Input::Packet { from: id(4), bytes });
            network.run_for(millis(rng.below(20) as u64));
        }
        network.kill(id(4), State::Vanished);
        // Members that never were are found out like those that died.
        network.converge(DEADLINE * 12, &format!("seed {seed}"));
    }
}
