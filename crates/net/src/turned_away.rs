//! Connections that were turned away: counted by where they came from, and told seldom.
//!
//! Anybody can make as many of them as it likes, and whatever is told ends up on a terminal and on a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::address::Address;
use crate::refusal::HandshakeError;

/// How often the same machine is told of.
const PAUSE: Duration = Duration::from_secs(10);
/// How many machines are counted apart; all others are counted together.
const MAX_HOSTS: usize = 32;

/// Connections that were turned away since this was told last.
#[derive(Debug)]
pub struct TurnedAway {
    /// How many.
    pub n: u64,
    /// Where the last of them came from.
    pub address: Address,
    /// Why that one was turned away.
    pub reason: HandshakeError,
    /// The machine that all of them came from; none if they are of several.
    host: Option<String>,
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, address, reason, host } = self;
        match host {
            _ if *n == 1 => write!(f, "{address} was not let in: {reason}"),
            Some(host) => write!(f, "{host}: {n} connections were not let in, the last one because: {reason}"),
            None => write!(f, "{n} more connections were not let in, the last one from {address}: {reason}"),
        }
    }
}

/// Counts them.
#[derive(Default)]
pub(crate) struct Refusals {
    table: Mutex<Table>,
    has_news: Notify,
}

impl Refusals {
    /// A connection was turned away.
    pub(crate) fn count(&self, address: Address, reason: HandshakeError) {
        self.table().count(Instant::now(), address, reason);
        self.has_news.notify_one();
    }

    /// What is to be told next; waits for it. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> TurnedAway {
        loop {
            let (due, next_at) = {
                let mut table = self.table();
                (table.take_due(Instant::now()), table.next_at())
            };
            match (due, next_at) {
                (Some(turned_away), _) => return turned_away,
                (None, None) => self.has_news.notified().await,
                (None, Some(at)) => tokio::select! {
                    biased;
                    () = self.has_news.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of each machine; those for which there is no room share an entry without a name.
#[derive(Default)]
struct Table {
    hosts: BTreeMap<Option<String>, Tally>,
}

#[derive(Default)]
struct Tally {
    told_at: Option<Instant>,
    waiting: Option<TurnedAway>,
}

impl Table {
    fn count(&mut self, now: Instant, address: Address, reason: HandshakeError) {
        let mut host = Some(host_of(&address));
        if !self.hosts.contains_key(&host) && self.hosts.len() >= MAX_HOSTS {
            self.hosts.retain(|_, tally| tally.waiting.is_some() || tally.due_at(now) > now);
            host = host.filter(|_| self.hosts.len() < MAX_HOSTS);
        }
        let tally = self.hosts.entry(host.clone()).or_default();
        let n = tally.waiting.as_ref().map_or(0, |waiting| waiting.n) + 1;
        tally.waiting = Some(TurnedAway { n, address, reason, host });
    }

    fn take_due(&mut self, now: Instant) -> Option<TurnedAway> {
        let tally = self.hosts.values_mut().find(|tally| tally.waiting.is_some() && tally.due_at(now) <= now)?;
        tally.told_at = Some(now);
        tally.waiting.take()
    }

    /// When the next is due of those who wait.
    fn next_at(&self) -> Option<Instant> {
        let waiting = self.hosts.values().filter(|tally| tally.waiting.is_some());
        waiting.filter_map(|tally| Some(tally.told_at? + PAUSE)).min()
    }
}

impl Tally {
    fn due_at(&self, now: Instant) -> Instant {
        self.told_at.map_or(now, |at| at + PAUSE)
    }
}

fn host_of(address: &Address) -> String {
    address.tcp().map_or_else(|| address.to_string(), |address| address.ip().to_canonical().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{MAX_HOSTS, PAUSE, Refusals};
    use crate::address::Address;
    use crate::refusal::HandshakeError;

    fn knock(refusals: &Refusals, host: u32, port: u16) {
        let [_, a, b, c] = host.to_be_bytes();
        refusals.count(Address::from(([10, a, b, c], port)), HandshakeError::NotNetTorrent);
    }

    #[tokio::test(start_paused = true)]
    async fn one_machine_is_told_of_at_once_and_then_by_the_number_every_ten_seconds() {
        let (refusals, began) = (Refusals::default(), Instant::now());
        knock(&refusals, 1, 7);
        let first = refusals.next().await.to_string();
        assert!(first.starts_with("10.0.0.1:7 was not let in: "), "{first}");
        (0..5000).for_each(|port| knock(&refusals, 1, port));
        // Another is told of meanwhile.
        knock(&refusals, 2, 8);
        let other = refusals.next().await;
        assert_eq!((other.n, other.address, began.elapsed()), (1, ([10, 0, 0, 2], 8).into(), Duration::ZERO));
        let rest = refusals.next().await;
        assert_eq!((rest.n, began.elapsed() >= PAUSE), (5000, true));
        assert!(rest.to_string().starts_with("10.0.0.1: 5000 connections were not let in"), "{rest}");
    }

    #[tokio::test(start_paused = true)]
    async fn many_machines_are_counted_together_and_forgotten_in_time() {
        let refusals = Refusals::default();
        (0..10_000).for_each(|host| knock(&refusals, host, 1));
        let mut told = Vec::new();
        while told.iter().sum::<u64>() < 10_000 {
            told.push(refusals.next().await.n);
        }
        assert_eq!(told.len(), MAX_HOSTS + 1);
        assert!(refusals.table().hosts.len() <= MAX_HOSTS + 1);
        tokio::time::advance(2 * PAUSE).await;
        knock(&refusals, 200_000, 1);
        assert_eq!(refusals.table().hosts.len(), 1);
        assert!(refusals.next().await.to_string().contains("was not let in"));
    }
}
