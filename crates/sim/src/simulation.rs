//! The simulation: takes the next event, hands it to its peer, and does what the peer wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::record::Record;
use nettorrent_swarm::strategy::Malformed;
use nettorrent_swarm::wire::Kind;
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, Setup, State, TimerToken, View};
use slab::Slab;

use crate::attack::Conspiracy;
use crate::compute::Compute;
use crate::membership::{Membership, id, number};
use crate::network::{InFlight, Network};
use crate::observer::Observer;
use crate::outcome::{Failure, Fate, Outcome, PeerOutcome, Refusal, SimulationError, Stuck, Traffic};
use crate::queue::{Event, Nanos, Queue, nanos, short};
use crate::scenario::{Scenario, ScenarioError, What};

/// A swarm of peers in simulated time.
pub struct Simulation {
    pub(crate) setup: Arc<Setup>,
    pub(crate) scenario: Scenario,
    pub(crate) n_first: usize,
    n_threads: usize,
    /// What the first peer begins with, and the others.
    states: [State; 2],
    conspiracy: Option<Conspiracy>,
    pub(crate) now: Nanos,
    pub(crate) queue: Queue,
    pub(crate) network: Network,
    pub(crate) membership: Membership,
    pub(crate) hosts: Vec<Host>,
    pub(crate) n_hung: usize,
    /// Whoever lives and is not finished.
    pub(crate) n_unfinished: usize,
    /// When the last one was.
    finished_at: Nanos,
    pub(crate) timers: Slab<(usize, TimerToken)>,
    pub(crate) views: Slab<(usize, View)>,
    /// Until when the last view has to last, and whether somebody waits for that.
    pub(crate) view_lasts_until: Nanos,
    pub(crate) has_news: bool,
    /// The bits of the partitions that are there, and of those that the peers have noticed.
    pub(crate) cuts: u64,
    pub(crate) splits: u64,
    /// Frames that wait for a partition to heal, unless it is noticed before.
    pub(crate) waiting: Vec<u32>,
    /// Used again for every input, so that nothing is allocated.
    outbox: Outbox,
    failures: Vec<Failure>,
    refusals: Vec<Refusal>,
}

/// One peer's machine.
pub(crate) struct Host {
    pub peer: Box<dyn Peer>,
    pub fate: Fate,
    /// What had not left by then is lost.
    pub cut_off_at: Nanos,
    pub hung_since: Option<Nanos>,
    /// What it is to be told when it no longer hangs.
    pub backlog: Vec<Event>,
    /// What happens to it after which round, the next one last.
    pub round_faults: Vec<(u32, What)>,
    /// Where it is, and its link there.
    pub site: Option<(usize, LinkSpec)>,
    is_finished: bool,
    pub slowness: f64,
    /// Until when it computes.
    pub is_busy_until: Nanos,
    /// Until when it thinks and handles messages, and what has to wait for that.
    pub is_occupied_until: Nanos,
    pub waiting: VecDeque<Event>,
    traffic: Traffic,
}

impl Simulation {
    /// A swarm of so many peers that begin anew.
    pub fn new(setup: Arc<Setup>, n_peers: usize, scenario: Scenario) -> Result<Self, SimulationError> {
        let state = State::fresh(setup.training());
        Self::from_state(setup, state, n_peers, scenario)
    }

    /// A swarm of so many peers that go on from the same state.
    pub fn from_state(
        setup: Arc<Setup>,
        state: State,
        n_peers: usize,
        mut scenario: Scenario,
    ) -> Result<Self, SimulationError> {
        scenario.check(n_peers)?;
        if scenario.attack.is_some() && !setup.holds_whole() {
            return Err(ScenarioError::attack("it is for peers that hold the whole network").into());
        }
        if scenario.attack.is_some() && setup.training().swarm.warmup_epochs > 0 {
            return Err(ScenarioError::attack("it is for jobs without warm-up epochs").into());
        }
        scenario.joins.sort_by_key(|join| join.at);
        Ok(Self {
            network: Network::new(&scenario),
            conspiracy: scenario.attack.map(Conspiracy::new),
            setup,
            scenario,
            n_first: n_peers,
            n_threads: 1,
            states: [state.clone(), state],
            now: 0,
            queue: Queue::default(),
            membership: Membership::default(),
            hosts: Vec::with_capacity(n_peers),
            n_hung: 0,
            n_unfinished: 0,
            finished_at: 0,
            timers: Slab::new(),
            views: Slab::new(),
            view_lasts_until: 0,
            has_news: false,
            cuts: 0,
            splits: 0,
            waiting: Vec::new(),
            outbox: Outbox::default(),
            failures: Vec::new(),
            refusals: Vec::new(),
        })
    }

    /// Only the first peer has the state to go on from; the others begin anew, as those who join it do, and take it over.
    #[must_use]
    pub fn held_by_first(mut self) -> Self {
        self.states[1] = State::fresh(self.setup.training());
        self
    }

    /// Computes with this many threads, 0 for as many as the machine has. They change nothing but how long it takes.
    #[must_use]
    pub fn with_threads(self, n_threads: usize) -> Self {
        Self { n_threads, ..self }
    }

    /// Runs to the end and keeps all records.
    pub fn run(self) -> Result<Outcome, SimulationError> {
        let mut records: Vec<Record> = Vec::new();
        let outcome = self.run_with(&mut records)?;
        Ok(Outcome { records, ..outcome })
    }

    /// Runs to the end before the eyes of an observer, who gets the records, or until it has seen enough.
    pub fn run_with(mut self, observer: &mut impl Observer) -> Result<Outcome, SimulationError> {
        let mut compute = Compute::new(self.setup.training().task.clone(), self.n_threads)?;
        let limit = nanos(self.scenario.limit);
        self.begin();
        while let Some((at, event)) = self.queue.pop() {
            if at > limit {
                let Self { scenario, refusals, .. } = self;
                let peers = stuck(&self.hosts);
                return Err(SimulationError::TimeLimit { limit: scenario.limit, peers, refusals });
            }
            self.now = at;
            self.take(event, &mut compute, observer);
            if !observer.wants_more() {
                return Ok(self.outcome());
            }
            if self.n_unfinished == 0 && self.queue.is_quiet() {
                break;
            }
        }
        if self.n_unfinished > 0 {
            let peers = stuck(&self.hosts);
            return Err(SimulationError::Deadlock { at: self.time(), peers, refusals: self.refusals });
        }
        Ok(self.outcome())
    }

    /// Everything that is known before the first event.
    fn begin(&mut self) {
        // What the scenario has in store comes before what peers do at the same time.
        self.schedule_churn();
        let slowness = self.scenario.slowness(self.n_first);
        for (peer, slowness) in slowness.into_iter().enumerate() {
            let site = self.scenario.site_of(peer);
            self.add_host(slowness, site);
            self.membership.join(peer, 0);
        }
        self.view_lasts_until = nanos(self.scenario.view_lasts);
        for view in self.membership.news() {
            for &member in view.members.iter() {
                let told = short(self.views.insert((number(member), view.clone())));
                self.queue.push(0, Event::View(told));
            }
        }
    }

    /// One more machine with its peer.
    pub(crate) fn add_host(&mut self, slowness: f64, site: Option<(usize, LinkSpec)>) {
        let number = self.hosts.len();
        let links = self.scenario.links_of(number);
        self.network.add(links, site);
        self.n_unfinished += 1;
        let state = self.states[number.min(1)].clone();
        let mut peer = match &self.conspiracy {
            Some(conspiracy) if self.scenario.is_hostile(number, self.n_first) => {
                let strategy = conspiracy.strategy(self.setup.strategy());
                self.setup.peer_with_strategy(id(number), strategy, state)
            }
            _ => self.setup.peer(id(number), state),
        };
        if let Some((site, _)) = site.filter(|_| !self.scenario.finds_sites) {
            let told = peer.handle(self.time(), Input::Site(1 + site as u64), &mut self.outbox);
            told.expect("what the host says is not malformed");
        }
        if let Some((stay, _)) = self.scenario.stay(number) {
            self.queue.push(self.now.saturating_add(nanos(stay)), Event::Depart(number as u32));
        }
        let after = self.scenario.uplinks_known_after;
        match links.0.bits_per_second {
            Some(rate) if after.is_zero() => {
                let told = peer.handle(self.time(), Input::Uplink(rate as f64 / 8.0), &mut self.outbox);
                told.expect("what the host says is not malformed");
            }
            Some(_) if after < Duration::MAX => {
                self.queue.push(self.now.saturating_add(nanos(after)), Event::Uplink(number as u32));
            }
            _ => {}
        }
        self.hosts.push(Host {
            peer,
            fate: Fate::Live,
            cut_off_at: Nanos::MAX,
            hung_since: None,
            backlog: Vec::new(),
            round_faults: self.round_faults(number),
            site,
            is_finished: false,
            slowness,
            is_busy_until: 0,
            is_occupied_until: 0,
            waiting: VecDeque::new(),
            traffic: Traffic::default(),
        });
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Has an event happen.
    pub(crate) fn take(&mut self, event: Event, compute: &mut Compute, observer: &mut impl Observer) {
        if self.n_hung > 0
            && let Some(peer) = self.addressee(event, compute)
            && self.hosts[peer].hung_since.is_some()
        {
            return self.hosts[peer].backlog.push(event);
        }
        if !self.has_to_wait(event, compute) {
            self.take_now(event, compute, observer);
        }
    }

    /// Has an event happen to a peer that has time for it.
    pub(crate) fn take_now(&mut self, event: Event, compute: &mut Compute, observer: &mut impl Observer) {
        match event {
            Event::Arrive(frame) => self.network.arrive(self.now, frame, &mut self.queue),
            Event::Deliver(frame) => self.deliver(frame, compute, observer),
            Event::Done(work) => self.on_done(work, compute, observer),
            Event::Timer(timer) => {
                let Some((peer, token)) = self.timers.try_remove(timer as usize) else { return };
                self.handle(peer, Input::Timer(token), compute, observer);
            }
            Event::View(view) => {
                let Some((peer, view)) = self.views.try_remove(view as usize) else { return };
                if self.scenario.finds_sites {
                    let known = self.network.round_trips(peer, &view.members);
                    self.handle(peer, Input::RoundTrips(known), compute, observer);
                }
                self.handle(peer, Input::View(view), compute, observer);
            }
            Event::Uplink(peer) => {
                let (up, _) = self.scenario.links_of(peer as usize);
                let Some(rate) = up.bits_per_second else { return };
                self.handle(peer as usize, Input::Uplink(rate as f64 / 8.0), compute, observer);
            }
            Event::Written(peer) => {
                self.handle(peer as usize, Input::BlockWritten { is_written: true }, compute, observer);
            }
            Event::Ready(peer) => self.on_ready(peer as usize, compute, observer),
            Event::Wake(peer) => self.wake(peer as usize, compute, observer),
            Event::Heal(partition) => self.heal(partition, compute, observer),
            Event::Lost(peer) => self.lose(peer as usize),
            Event::Fault(fault) => self.on_fault(fault as usize),
            Event::Join(_) => self.join(None),
            Event::Depart(peer) => self.replace(peer as usize),
            Event::News => self.tell_views(None),
            Event::Cut(partition) => self.cuts |= 1 << partition,
            Event::Split(partition) => self.split(partition),
        }
    }

    /// Whom an event is for.
    pub(crate) fn addressee(&self, event: Event, compute: &Compute) -> Option<usize> {
        match event {
            Event::Deliver(frame) => self.network.peek(frame).map(|frame| frame.to as usize),
            Event::Done(work) => compute.peer(work),
            Event::Timer(timer) => self.timers.get(timer as usize).map(|(peer, _)| *peer),
            Event::View(view) => self.views.get(view as usize).map(|(peer, _)| *peer),
            Event::Uplink(peer) | Event::Written(peer) => Some(peer as usize),
            _ => None,
        }
    }

    /// A frame is there, if nothing came between.
    pub(crate) fn deliver(&mut self, number: u32, compute: &mut Compute, observer: &mut impl Observer) {
        if self.cuts != 0 && self.is_held_up(number) {
            return;
        }
        let Some(InFlight { from, to, left, frame, .. }) = self.network.take(number) else { return };
        let to = to as usize;
        if left > self.hosts[from as usize].cut_off_at || self.hosts[to].fate != Fate::Live {
            return;
        }
        let traffic = &mut self.hosts[to].traffic;
        traffic.frames_received += 1;
        traffic.bytes_received += frame.n_bytes() as u64;
        if matches!(frame.head.kind, Kind::Strategy | Kind::Layers) {
            traffic.payload_received += frame.body.len() as u64;
        }
        self.handle_bytes(to, frame.n_bytes(), compute);
        self.handle(to, Input::Frame { from: id(from as usize), frame }, compute, observer);
    }

    /// Hands a peer an input, and does what it wants.
    pub(crate) fn handle(&mut self, peer: usize, input: Input, compute: &mut Compute, observer: &mut impl Observer) {
        let host = &mut self.hosts[peer];
        if host.fate != Fate::Live {
            return;
        }
        let from = if let Input::Frame { from, .. } = &input { Some(*from) } else { None };
        let mut out = std::mem::take(&mut self.outbox);
        let began = observer.clock();
        if let Err(malformed) = host.peer.handle(Duration::from_nanos(self.now), input, &mut out) {
            self.refuse(peer, from, &malformed);
        }
        self.think_since(began, peer, compute, observer);
        for (from, malformed) in out.refused.drain(..) {
            self.refuse(peer, Some(from), &malformed);
        }
        for (to, frame) in out.frames.drain(..) {
            observer.frame(Duration::from_nanos(self.now), id(peer), to, &frame);
            let traffic = &mut self.hosts[peer].traffic;
            traffic.frames_sent += 1;
            traffic.bytes_sent += frame.n_bytes() as u64;
            if matches!(frame.head.kind, Kind::Strategy | Kind::Layers) {
                traffic.payload_sent += frame.body.len() as u64;
            }
            self.handle_bytes(peer, frame.n_bytes(), compute);
            let leaves = self.now.max(self.hosts[peer].is_occupied_until);
            self.network.send(leaves, peer, number(to), frame, &mut self.queue);
        }
        for (after, token) in out.timers.drain(..) {
            let timer = short(self.timers.insert((peer, token)));
            self.queue.push(self.now.saturating_add(nanos(after)), Event::Timer(timer));
        }
        for work in out.work.drain(..) {
            self.begin_work(peer, work, compute);
        }
        out.records.drain(..).for_each(|record| observer.record(record));
        for block in out.saved.drain(..) {
            let lasts = observer.saved(block);
            self.queue.push(self.now.saturating_add(nanos(lasts)), Event::Written(short(peer)));
        }
        let failure = out.failure.take();
        self.outbox = out;
        observer.handled(self.time(), id(peer), &*self.hosts[peer].peer);
        self.look_after(peer, failure);
    }

    /// What follows from how a peer is after an input.
    fn look_after(&mut self, peer: usize, failure: Option<String>) {
        let host = &mut self.hosts[peer];
        if !host.is_finished && host.peer.is_finished() {
            host.is_finished = true;
            self.n_unfinished -= 1;
            self.finished_at = self.now;
        }
        if let Some(problem) = failure {
            self.failures.push(Failure { peer: id(peer), at: Duration::from_nanos(self.now), problem });
            return self.remove(peer, Fate::Failed);
        }
        let round = host.peer.place().version.round;
        while let Some((_, what)) = self.hosts[peer].round_faults.pop_if(|(when, _)| *when <= round) {
            self.befall(peer, what);
        }
    }

    fn refuse(&mut self, peer: usize, from: Option<PeerId>, malformed: &Malformed) {
        let at = Duration::from_nanos(self.now);
        self.refusals.push(Refusal { peer: id(peer), from, at, problem: malformed.to_string() });
    }

    /// A peer is gone; whether the others know is another matter.
    pub(crate) fn set_fate(&mut self, peer: usize, fate: Fate) {
        let host = &mut self.hosts[peer];
        host.fate = fate;
        self.n_unfinished -= usize::from(!host.is_finished);
        self.n_hung -= usize::from(host.hung_since.take().is_some());
        host.backlog.clear();
        host.waiting.clear();
    }

    fn outcome(self) -> Outcome {
        let outcome = |(peer, host): (usize, Host)| PeerOutcome {
            id: id(peer),
            fate: host.fate,
            is_finished: host.is_finished,
            place: host.peer.place().clone(),
            values: host.peer.values(),
            blocks: host.peer.blocks(),
            traffic: host.traffic,
        };
        Outcome {
            records: Vec::new(),
            time: Duration::from_nanos(self.finished_at),
            n_events: self.queue.n_pushed(),
            peers: self.hosts.into_iter().enumerate().map(outcome).collect(),
            failures: self.failures,
            refusals: self.refusals,
        }
    }
}

/// Where those who live stand.
fn stuck(hosts: &[Host]) -> Vec<Stuck> {
    let live = hosts.iter().enumerate().filter(|(_, host)| host.fate == Fate::Live);
    live.map(|(peer, host)| Stuck { peer: id(peer), status: host.peer.status(), is_hung: host.hung_since.is_some() })
        .collect()
}
