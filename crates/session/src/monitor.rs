//! What this process takes of its machine: looked at once a second, on a thread that sleeps in between.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nettorrent_net::socket_count::{SocketBytes, SocketCount};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(1);

/// What this process took between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When the second look was.
    pub at: Instant,
    /// How long the first one was before it.
    pub elapsed: Duration,
    /// Time on processors, added up over all of them.
    pub cpu: Duration,
    /// Resident memory at the second look.
    pub rss_bytes: u64,
    /// What was read from disks.
    pub disk_read_bytes: u64,
    /// What was written to disks.
    pub disk_written_bytes: u64,
    /// What went through the endpoint's sockets.
    pub sockets: SocketBytes,
}

impl Sample {
    /// Of one processor, in percent: two that are busy all the time are 200.
    pub fn cpu_percent(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Looks at this process once a second until it is told to end.
pub struct Monitor {
    samples: Receiver<Sample>,
    /// Asks for a look now; that it is gone says that it is over.
    asks: Sender<()>,
    thread: JoinHandle<()>,
}

impl Monitor {
    /// Looks from now on. What has gone through the sockets before belongs to the first sample; without an endpoint there are
    /// none.
    pub fn start(sockets: Option<Arc<SocketCount>>) -> io::Result<Self> {
        let (sender, samples) = channel();
        let (asks, asked) = channel();
        let thread = std::thread::Builder::new().name("resources".into()).spawn(move || {
            let Some(mut observer) = Observer::new(sockets) else { return };
            loop {
                let due = (observer.last.at + INTERVAL).saturating_duration_since(Instant::now());
                let is_last = asked.recv_timeout(due) == Err(RecvTimeoutError::Disconnected);
                // Who does not want to know has gone, and ends us too.
                let _ = sender.send(observer.look());
                if is_last {
                    return;
                }
            }
        })?;
        Ok(Self { samples, asks, thread })
    }

    /// What was seen since the last call.
    pub fn news(&self) -> impl Iterator<Item = Sample> {
        self.samples.try_iter()
    }

    /// Looks now; what was seen since the last call.
    pub fn look(&self) -> Vec<Sample> {
        // Where the system does not tell, the thread has ended.
        let _ = self.asks.send(());
        self.samples.recv().into_iter().chain(self.samples.try_iter()).collect()
    }

    /// Looks for the last time; what was seen since the last call.
    pub fn finish(self) -> Vec<Sample> {
        let Self { samples, asks, thread } = self;
        drop(asks);
        let rest = samples.iter().collect();
        // A panic in there has been printed, and what it means is that there are no more samples.
        let _ = thread.join();
        rest
    }
}

/// Knows what had been taken by the last look.
struct Observer {
    system: System,
    pid: Pid,
    sockets: Option<Arc<SocketCount>>,
    last: Totals,
}

/// What has been taken since the process began.
#[derive(Clone, Copy)]
struct Totals {
    at: Instant,
    cpu: Duration,
    rss_bytes: u64,
    disk_read_bytes: u64,
    disk_written_bytes: u64,
    sockets: SocketBytes,
}

impl Observer {
    /// Begins to look; nothing, where the system does not tell.
    fn new(sockets: Option<Arc<SocketCount>>) -> Option<Self> {
        let pid = get_current_pid().ok()?;
        let nothing = Totals {
            at: Instant::now(),
            cpu: Duration::ZERO,
            rss_bytes: 0,
            disk_read_bytes: 0,
            disk_written_bytes: 0,
            sockets: SocketBytes::default(),
        };
        let mut observer = Self { system: System::new(), pid, sockets, last: nothing };
        observer.last = Totals { sockets: SocketBytes::default(), ..observer.totals() };
        Some(observer)
    }

    fn look(&mut self) -> Sample {
        let (before, now) = (self.last, self.totals());
        self.last = now;
        Sample {
            at: now.at,
            elapsed: now.at - before.at,
            cpu: now.cpu.saturating_sub(before.cpu),
            rss_bytes: now.rss_bytes,
            disk_read_bytes: now.disk_read_bytes.saturating_sub(before.disk_read_bytes),
            disk_written_bytes: now.disk_written_bytes.saturating_sub(before.disk_written_bytes),
            sockets: SocketBytes {
                sent: now.sockets.sent - before.sockets.sent,
                received: now.sockets.received - before.sockets.received,
                payload_sent: now.sockets.payload_sent - before.sockets.payload_sent,
                payload_received: now.sockets.payload_received - before.sockets.payload_received,
            },
        }
    }

    /// If the system does not tell this time, what it told last still holds.
    fn totals(&mut self) -> Totals {
        let kind = ProcessRefreshKind::nothing().with_cpu().with_memory().with_disk_usage().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.pid]), false, kind);
        let sockets = self.sockets.as_ref().map(|count| count.get()).unwrap_or_default();
        let now = Totals { at: Instant::now(), sockets, ..self.last };
        let Some(process) = self.system.process(self.pid) else { return now };
        let disk = process.disk_usage();
        Totals {
            cpu: Duration::from_millis(process.accumulated_cpu_time()),
            rss_bytes: process.memory(),
            disk_read_bytes: disk.total_read_bytes,
            disk_written_bytes: disk.total_written_bytes,
            ..now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Monitor, Observer};
    use nettorrent_net::socket_count::{SocketBytes, SocketCount};
    use std::sync::Arc;
    use std::time::Duration;

    fn bytes(sent: u64) -> SocketBytes {
        SocketBytes { sent, received: 2 * sent, payload_sent: sent / 2, payload_received: sent }
    }

    #[test]
    fn samples_add_up_to_all_that_went_through_the_sockets() {
        let sockets = Arc::new(SocketCount::default());
        sockets.add(bytes(10));
        let mut observer = Observer::new(Some(sockets.clone())).expect("this system tells");
        assert_eq!(observer.look().sockets, bytes(10));
        sockets.add(bytes(4));
        sockets.add(bytes(2));
        assert_eq!(observer.look().sockets, bytes(6));
        assert_eq!(observer.look().sockets, bytes(0));
    }

    #[test]
    fn what_is_computed_and_held_is_seen() {
        let mut observer = Observer::new(None).expect("this system tells");
        let began = observer.last.at;
        // Until the system has counted some of it: its clock ticks a hundred times in a second.
        let mut sample = observer.look();
        while sample.cpu == Duration::ZERO {
            std::hint::black_box((0..100_000_u64).fold(0, |sum, k| sum ^ k));
            sample = observer.look();
        }
        assert!(sample.cpu_percent() > 0.0 && sample.rss_bytes > 100_000, "{sample:?}");
        assert!(sample.at > began && sample.at - sample.elapsed >= began);
    }

    #[test]
    fn who_cannot_wait_for_the_next_sample_asks_for_one() {
        let sockets = Arc::new(SocketCount::default());
        let monitor = Monitor::start(Some(sockets.clone())).unwrap();
        sockets.add(bytes(6));
        let first: u64 = monitor.look().iter().map(|sample| sample.sockets.sent).sum();
        sockets.add(bytes(2));
        let rest: u64 = monitor.finish().iter().map(|sample| sample.sockets.sent).sum();
        assert_eq!((first, rest), (6, 2));
    }

    #[test]
    fn what_remains_at_the_end_is_told() {
        let sockets = Arc::new(SocketCount::default());
        let monitor = Monitor::start(Some(sockets.clone())).expect("a thread");
        sockets.add(bytes(8));
        let sent: u64 = monitor.finish().iter().map(|sample| sample.sockets.sent).sum();
        assert_eq!(sent, 8);
    }
}
