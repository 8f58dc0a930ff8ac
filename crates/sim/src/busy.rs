//! What a peer's time goes to besides waiting: computing, thinking, and what messages cost besides the time on their links.
//!
//! A peer takes one input after the other: what comes while it is busy waits. What it sends leaves when it is done with it. Where it has
//! no core to spare for that, computing stands still meanwhile.

use std::time::Duration;

use nettorrent_swarm::{Done, Input, What, Work};

use crate::compute::{Compute, Piece};
use crate::observer::Observer;
use crate::outcome::Fate;
use crate::queue::{Event, Nanos, nanos};
use crate::scenario::Scenario;
use crate::simulation::Simulation;

impl Simulation {
    /// A peer's works come one after the other.
    pub(crate) fn begin_work(&mut self, peer: usize, work: Work, compute: &mut Compute) {
        let host = &self.hosts[peer];
        let began = self.now.max(host.is_busy_until).max(host.is_occupied_until);
        let Scenario { sample_time, step_time, .. } = self.scenario;
        let fixed = if work.is_training() { nanos(step_time) as f64 } else { 0.0 };
        let lasts = (fixed + work.worth() * nanos(sample_time) as f64) * self.slowness(peer, began);
        let host = &mut self.hosts[peer];
        host.is_busy_until = began.saturating_add(lasts as Nanos);
        compute.begin(peer, began, lasts as Nanos, work, &mut self.queue);
    }

    /// Work of a peer is done, or a part of it.
    pub(crate) fn on_done(&mut self, work: u32, compute: &mut Compute, observer: &mut impl Observer) {
        let Some(peer) = compute.peer(work) else { return };
        if self.hosts[peer].fate != Fate::Live {
            return compute.forget(work);
        }
        let Some((piece, took)) = compute.next_piece(self.now, work, &mut self.queue) else { return };
        let (id, phase) = match piece {
            Piece::Done(done) => return self.handle(peer, Input::Done { done, took }, compute, observer),
            Piece::Batch(id, phase) => (id, phase),
        };
        let began = observer.clock();
        let (stepped, rest) = phase.end_batch();
        self.think_since(began, peer, compute, observer);
        let done = Done::Stepped { id, stepped };
        self.handle(peer, Input::Done { done, took }, compute, observer);
        // The next batch begins when its peer has heard of this one, unless nobody wants it.
        let Some(rest) = rest.filter(|_| self.hosts[peer].fate == Fate::Live) else { return };
        if rest.goes_on() {
            self.begin_work(peer, Work { id, what: What::Local(Box::new(rest)) }, compute);
        } else if let Some(taken) = rest.give_back() {
            let done = Done::StepTaken { id, taken: Box::new(taken) };
            self.handle(peer, Input::Done { done, took: Duration::ZERO }, compute, observer);
        }
    }

    /// A peer is busy for as long as it took since then, by the observer's clock if there is one.
    pub(crate) fn think_since(
        &mut self,
        began: Option<Duration>,
        peer: usize,
        compute: &mut Compute,
        observer: &mut impl Observer,
    ) {
        let thought = observer.clock().zip(began).map_or(Duration::ZERO, |(ended, began)| ended.saturating_sub(began));
        self.occupy(peer, nanos(thought) as f64, compute);
    }

    /// How many times longer than others a peer takes for whatever it does, at a time.
    fn slowness(&self, peer: usize, at: Nanos) -> f64 {
        self.hosts[peer].slowness * self.scenario.slowness_at(peer, Duration::from_nanos(at))
    }

    /// A peer sends or receives so many bytes.
    pub(crate) fn handle_bytes(&mut self, peer: usize, n_bytes: usize, compute: &mut Compute) {
        let lasts = self.scenario.handling.nanos_for(n_bytes);
        self.occupy(peer, lasts, compute);
    }

    /// A peer is busy for so long, after all that it is busy with already.
    fn occupy(&mut self, peer: usize, nanoseconds: f64, compute: &mut Compute) {
        if nanoseconds <= 0.0 {
            return;
        }
        let slowness = self.slowness(peer, self.now);
        let (host, lasts) = (&mut self.hosts[peer], (nanoseconds * slowness) as Nanos);
        host.is_occupied_until = self.now.max(host.is_occupied_until).saturating_add(lasts);
        if self.scenario.handling.shares_cores {
            compute.hold_up(peer, self.now, lasts);
            if host.is_busy_until > self.now {
                host.is_busy_until = host.is_busy_until.saturating_add(lasts);
            }
        }
    }

    /// Whether an event has to wait because its peer is busy; then it does.
    pub(crate) fn has_to_wait(&mut self, event: Event, compute: &mut Compute) -> bool {
        let Some(peer) = self.addressee(event, compute) else { return false };
        let host = &mut self.hosts[peer];
        if host.is_occupied_until <= self.now && host.waiting.is_empty() {
            return false;
        }
        if host.waiting.is_empty() {
            self.queue.push(host.is_occupied_until, Event::Ready(peer as u32));
        }
        host.waiting.push_back(event);
        true
    }

    /// A peer that was busy goes on with what has come meanwhile, until it is busy again.
    pub(crate) fn on_ready(&mut self, peer: usize, compute: &mut Compute, observer: &mut impl Observer) {
        let host = &mut self.hosts[peer];
        if host.hung_since.is_some() {
            let since = std::mem::take(&mut host.backlog);
            host.backlog = host.waiting.drain(..).chain(since).collect();
            return;
        }
        while self.hosts[peer].is_occupied_until <= self.now
            && let Some(event) = self.hosts[peer].waiting.pop_front()
        {
            self.take_now(event, compute, observer);
        }
        let host = &self.hosts[peer];
        if !host.waiting.is_empty() {
            self.queue.push(host.is_occupied_until, Event::Ready(peer as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use nettorrent_engine::job::Job;
    use nettorrent_swarm::Setup;
    use nettorrent_swarm::record::{Event, Record};

    use crate::{Handling, Observer, Scenario, Simulation, Toy};

    /// Sees how long rounds take. Each look at its clock finds it later by so much.
    #[derive(Default)]
    struct Watch {
        tick: Duration,
        now: Duration,
        n_rounds: u32,
        compute_s: f64,
        wait_s: f64,
    }

    impl Observer for Watch {
        fn record(&mut self, record: Record) {
            if let Event::Round { compute_s, wait_s, .. } = record.event {
                self.n_rounds += 1;
                self.compute_s += compute_s;
                self.wait_s += wait_s;
            }
        }

        fn clock(&mut self) -> Option<Duration> {
            self.now += self.tick;
            (self.tick > Duration::ZERO).then_some(self.now)
        }
    }

    /// How long a peer computes and waits in a round, in milliseconds.
    fn round(n_peers: usize, scenario: Scenario, tick: Duration) -> (f64, f64) {
        let job = Job { epochs: 2, batch: 4, threads: 1, ..Job::default() };
        let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(1))).unwrap());
        let mut watch = Watch { tick, ..Watch::default() };
        let outcome = Simulation::new(setup, n_peers, scenario).unwrap().run_with(&mut watch).unwrap();
        assert!(outcome.peers.iter().all(|peer| peer.is_finished) && outcome.refusals.is_empty());
        let n = f64::from(watch.n_rounds);
        (1e3 * watch.compute_s / n, 1e3 * watch.wait_s / n)
    }

    fn scenario(handling: Handling) -> Scenario {
        Scenario { link: "0s".parse().unwrap(), handling, ..Scenario::lan() }
    }

    #[test]
    fn a_batch_takes_its_fixed_time_and_its_samples() {
        let fixed = Scenario { step_time: Duration::from_millis(3), ..scenario(Handling::default()) };
        let ((plain, _), (with, _)) =
            (round(1, scenario(Handling::default()), Duration::ZERO), round(1, fixed, Duration::ZERO));
        assert!((plain - 4.0).abs() < 1e-6 && (with - 7.0).abs() < 1e-6, "{plain} {with}");
    }

    #[test]
    fn messages_take_their_senders_and_receivers_time() {
        let none = round(2, scenario(Handling::default()), Duration::ZERO);
        assert!(none.1 < 0.5, "nothing is waited for: {none:?}");
        let frame_time = Duration::from_millis(1);
        let some = round(2, scenario(Handling { frame_time, ..Handling::default() }), Duration::ZERO);
        // Two halves of the vector go there and back: two messages out and two in, one after the other. A round is told of when the last
        // one is there.
        assert!((some.0 - none.0).abs() < 1e-6 && (3.0..6.0).contains(&(some.1 - none.1)), "{none:?} {some:?}");
        let bytes = Handling { bytes_per_second: Some(10_000), ..Handling::default() };
        let slow = round(2, scenario(bytes), Duration::ZERO);
        // At least to send 44 numbers of four bytes takes so long.
        assert!((17.6..80.0).contains(&(slow.1 - none.1)), "{none:?} {slow:?}");
    }

    #[test]
    fn thinking_takes_the_time_of_the_observers_clock() {
        let none = round(2, scenario(Handling::default()), Duration::ZERO);
        let some = round(2, scenario(Handling::default()), Duration::from_millis(1));
        assert!(some.1 > none.1 + 2.0, "{none:?} {some:?}");
    }

    #[test]
    fn on_the_same_cores_messages_hold_up_computing() {
        // Peers that train asynchronously are told of others' batches while they compute.
        let job = |shares_cores| {
            let handling = Handling { frame_time: Duration::from_micros(500), shares_cores, ..Handling::default() };
            let swarm = nettorrent_engine::job::SwarmSpec { strategy: "threshold".into(), ..Default::default() };
            let job = Job { epochs: 2, batch: 16, threads: 1, swarm, ..Job::default() };
            let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(1))).unwrap());
            let mut watch = Watch::default();
            Simulation::new(setup, 4, scenario(handling)).unwrap().run_with(&mut watch).unwrap();
            watch.compute_s
        };
        assert!(job(true) > 1.01 * job(false), "{} {}", job(true), job(false));
    }
}
