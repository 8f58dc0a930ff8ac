//! What is to happen in a world: drawn from a seed.

use std::fmt;
use std::time::Duration;

use nettorrent_engine::rng::Rng;

use crate::disk::Health;
use crate::network::Host;
use crate::training::{DEADLINE, Parallelism};

/// What happens to a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From what it was drawn.
    pub seed: u64,
    /// What they train, and how they share it.
    pub parallelism: Parallelism,
    /// How many there are at the beginning.
    pub n_peers: u64,
    /// What happens and when, in order.
    pub actions: Vec<(Duration, Action)>,
    /// Those of whom, for a fault that never ends, one cannot be expected to finish.
    pub spoilt: Vec<Vec<Host>>,
}

/// The share of worlds in which a disk has a fault, and of those who are killed that come back.
const WITH_DISK_FAULT: f32 = 0.4;
const RESTARTED: f32 = 0.5;
/// The share of worlds in which somebody answers and sends nothing.
const WITH_MUTE: f32 = 0.2;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process ends without a word.
    Kill(Host),
    /// One is told to leave.
    Leave(Host),
    /// One stands still, or goes on.
    Suspend(Host, bool),
    /// What it computes with gets stuck, or goes on.
    Stick(Host, bool),
    /// One answers and trains, and sends nothing of that, or does so again.
    Mute(Host, bool),
    /// Nothing gets from the one to the other, or does again.
    Cut(Host, Host, bool),
    /// Connections between two are reset.
    Reset(Host, Host),
    /// Another process joins.
    Join(Host),
    /// One that was killed is started again, in its old folder and with another number.
    Restart(Host, Host),
    /// A disk stalls, is full, fails, or is sound again.
    Disk(Host, Health),
}

/// All are there by then: the first ones wait for each other, for ever if need be.
const CALM: Duration = Duration::from_millis(300);

impl Action {
    /// The fault that it begins, in a word; nothing if it ends one.
    pub fn fault(self) -> Option<&'static str> {
        match self {
            Self::Kill(_) => Some("kill"),
            Self::Leave(_) => Some("leave"),
            Self::Suspend(_, true) => Some("suspend"),
            Self::Stick(_, true) => Some("stick"),
            Self::Mute(_, true) => Some("mute"),
            Self::Cut(_, _, true) => Some("one-way cut"),
            Self::Reset(..) => Some("reset"),
            Self::Join(_) => Some("join"),
            Self::Restart(..) => Some("restart"),
            Self::Disk(_, Health::Stalled) => Some("stalled disk"),
            Self::Disk(_, Health::Full) => Some("full disk"),
            Self::Disk(_, Health::Failing) => Some("failing disk"),
            Self::Disk(_, Health::Sound)
            | Self::Suspend(_, false)
            | Self::Stick(_, false)
            | Self::Mute(_, false)
            | Self::Cut(_, _, false) => None,
        }
    }
}

/// Within this all begins to happen.
const FAULTY: Duration = Duration::from_secs(8);
const MAX_FAULTS: usize = 5;
/// The share of faults that never end.
const ENDLESS: f32 = 0.1;

/// The kinds of faults that can be drawn.
const KINDS: [Kind; 9] = [
    Kind::Kill,
    Kind::Leave,
    Kind::Suspend,
    Kind::Stick,
    Kind::CutPair,
    Kind::CutOneWay,
    Kind::Isolate,
    Kind::Reset,
    Kind::Join,
];

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kill,
    Leave,
    Suspend,
    Stick,
    CutPair,
    CutOneWay,
    Isolate,
    Reset,
    Join,
}

impl Plan {
    /// What follows from a seed. Consecutive seeds go through all strategies.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "plan", 0);
        let parallelism = Parallelism::of(seed);
        // With four slots, one or two stand by.
        let n_peers = if parallelism.stages.is_some() { 4 + rng.below(3) } else { 2 + rng.below(4) } as u64;
        let mut plan = Self { seed, parallelism, n_peers, actions: Vec::new(), spoilt: Vec::new() };
        let mut hosts: Vec<Host> = (0..n_peers).collect();
        for _ in 0..rng.below(MAX_FAULTS + 1) {
            plan.add_fault(&mut rng, &mut hosts);
        }
        plan.add_disk_faults(&mut Rng::stream(seed, "disks", 0), &mut hosts);
        plan.add_mute(&mut Rng::stream(seed, "mute", 0), &hosts);
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }

    fn add_fault(&mut self, rng: &mut Rng, hosts: &mut Vec<Host>) {
        let at = CALM + FAULTY.mul_f32(rng.uniform());
        // From blinks to what lasts long after everybody has noticed.
        let until = at + DEADLINE.mul_f32(rng.range(0.05, 2.0).powi(2));
        let (a, others) = two(rng, hosts);
        let both = |a: Host, b: Host, is_cut: bool| [Action::Cut(a, b, is_cut), Action::Cut(b, a, is_cut)];
        let is_endless = rng.uniform() < ENDLESS;
        let (actions, spoilt) = (&mut self.actions, &mut self.spoilt);
        let mut lasting = |begin: Vec<Action>, end: Vec<Action>, whom: &[Host]| {
            actions.extend(begin.into_iter().map(|action| (at, action)));
            match is_endless && !end.is_empty() {
                true => spoilt.push(whom.to_vec()),
                false => actions.extend(end.into_iter().map(|action| (until, action))),
            }
        };
        match KINDS[rng.below(KINDS.len())] {
            Kind::Kill => lasting(vec![Action::Kill(a)], vec![], &[]),
            Kind::Leave => lasting(vec![Action::Leave(a)], vec![], &[]),
            Kind::Suspend => lasting(vec![Action::Suspend(a, true)], vec![Action::Suspend(a, false)], &[a]),
            Kind::Stick => lasting(vec![Action::Stick(a, true)], vec![Action::Stick(a, false)], &[a]),
            Kind::CutPair => {
                lasting(both(a, others[0], true).to_vec(), both(a, others[0], false).to_vec(), &[a, others[0]]);
            }
            Kind::CutOneWay => {
                lasting(vec![Action::Cut(a, others[0], true)], vec![Action::Cut(a, others[0], false)], &[a, others[0]]);
            }
            Kind::Isolate => {
                let all = |is_cut| others.iter().flat_map(|&b| both(a, b, is_cut)).collect();
                lasting(all(true), all(false), &[a]);
            }
            Kind::Reset => lasting(vec![Action::Reset(a, others[0])], vec![], &[]),
            Kind::Join => {
                let host = hosts.len() as Host;
                hosts.push(host);
                lasting(vec![Action::Join(host)], vec![], &[]);
            }
        }
    }

    /// Disks have faults of their own, and who was killed may come back to what is on its disk.
    fn add_disk_faults(&mut self, rng: &mut Rng, hosts: &mut Vec<Host>) {
        let killed = self.actions.iter().filter_map(|(at, action)| match action {
            Action::Kill(host) => Some((*at, *host)),
            _ => None,
        });
        let killed: Vec<(Duration, Host)> = killed.collect();
        for (at, host) in killed {
            if rng.uniform() < RESTARTED {
                let number = hosts.len() as Host;
                hosts.push(number);
                self.actions.push((at + DEADLINE.mul_f32(rng.range(0.05, 3.0)), Action::Restart(host, number)));
            }
        }
        while rng.uniform() < WITH_DISK_FAULT {
            let host = hosts[rng.below(hosts.len())];
            let at = CALM + FAULTY.mul_f32(rng.range(0.0, 1.5));
            let health = [Health::Stalled, Health::Full, Health::Failing][rng.below(3)];
            self.actions.push((at, Action::Disk(host, health)));
            if rng.uniform() < ENDLESS {
                self.spoilt.push(vec![host]);
            } else {
                let until = at + DEADLINE.mul_f32(rng.range(0.05, 2.5).powi(2));
                self.actions.push((until, Action::Disk(host, Health::Sound)));
            }
        }
    }

    /// Somebody may train and answer, and send nothing.
    fn add_mute(&mut self, rng: &mut Rng, hosts: &[Host]) {
        if rng.uniform() >= WITH_MUTE {
            return;
        }
        let host = hosts[rng.below(hosts.len())];
        let at = CALM + FAULTY.mul_f32(rng.uniform());
        self.actions.push((at, Action::Mute(host, true)));
        match rng.uniform() < ENDLESS {
            true => self.spoilt.push(vec![host]),
            false => {
                let until = at + DEADLINE.mul_f32(rng.range(0.05, 3.0).powi(2));
                self.actions.push((until, Action::Mute(host, false)));
            }
        }
    }

    /// Whether this one's disk ever has a fault.
    pub fn has_disk_fault(&self, host: Host) -> bool {
        let is_fault =
            |action: &Action| matches!(action, Action::Disk(of, health) if *of == host && *health != Health::Sound);
        self.actions.iter().any(|(_, action)| is_fault(action))
    }
}

/// One of them, and all others in any order.
fn two(rng: &mut Rng, hosts: &[Host]) -> (Host, Vec<Host>) {
    let mut order = hosts.to_vec();
    rng.shuffle(&mut order);
    (order[0], order[1..].to_vec())
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parallelism { strategy, stages } = self.parallelism;
        writeln!(out, "seed {}: {} peers, {strategy} {}", self.seed, self.n_peers, stages.unwrap_or_default())?;
        for (at, action) in &self.actions {
            writeln!(out, "  {:7.3} s: {action:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
