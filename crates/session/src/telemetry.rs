//! What a peer tells the first member of its view about itself, once a second: the first member's folder then shows the whole swarm.

use std::time::Duration;

use nettorrent_history::{PeerProgress, Resources, Times};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::sketch::N_SUMS;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::peer_event::PeerEvent;

/// How often it is told.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most that one message holds; what does not fit is left to the next.
const MOST_EPOCHS: usize = 64;
const MOST_SAMPLES: usize = 16;
const MOST_REPLICAS: usize = 4;
const MOST_JOINS: usize = 4;
/// More donors than any state comes from.
const MOST_DONORS: usize = 64;
/// The most epochs that are kept apart for the messages to come.
const MOST_PENDING: usize = 1024;
/// More bytes, or more samples, than any peer has moved in the time that one message is about.
const MOST_COUNTED: u64 = 1 << 50;
/// More seconds than any message is about.
const MOST_SECONDS: f64 = 1e9;

/// A message: what a peer did since its last one.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Message {
    /// One for each epoch in which it trained.
    progress: Vec<PeerProgress>,
    resources: Vec<Resources>,
    /// What its replica looked like at the ends of epochs.
    replicas: Vec<Record>,
    /// How it came to the others: what it received, and how long that took.
    #[serde(default)]
    joins: Vec<Record>,
}

/// Gathers what is to be told.
pub(crate) struct Telemetry {
    pending: Message,
    sent: Instant,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        Self { pending: Message::default(), sent: Instant::now() }
    }

    /// Adds what the peer tells its own host, where others want to know it too.
    pub(crate) fn add(&mut self, event: &PeerEvent) {
        match event {
            PeerEvent::Progress(progress) => self.add_progress(progress),
            PeerEvent::Resources(resources) => self.pending.resources.push(*resources),
            PeerEvent::Record(record) if matches!(record.event, Event::Replica { .. }) => {
                self.pending.replicas.push(record.clone());
            }
            PeerEvent::Record(record)
                if matches!(record.event, Event::StateReceived { .. } | Event::Joined { .. })
                    && self.pending.joins.len() < MOST_JOINS =>
            {
                self.pending.joins.push(record.clone());
            }
            _ => {}
        }
    }

    fn add_progress(&mut self, progress: &PeerProgress) {
        let is_full = self.pending.progress.len() >= MOST_PENDING;
        match self.pending.progress.last_mut() {
            Some(sums) if is_full || sums.trained_in == progress.trained_in => add(sums, progress),
            _ => self.pending.progress.push(progress.clone()),
        }
    }

    /// What others know already, or nobody wants to know.
    pub(crate) fn forget(&mut self) {
        self.pending = Message::default();
    }

    /// The message, if it is time for one.
    pub(crate) fn due(&mut self) -> Option<Vec<u8>> {
        (self.sent.elapsed() >= INTERVAL).then(|| self.rest()).flatten()
    }

    /// The message now, if there is anything to tell.
    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        if self.pending == Message::default() {
            return None;
        }
        self.sent = Instant::now();
        let mut message = std::mem::take(&mut self.pending);
        self.pending.progress = split_off(&mut message.progress, MOST_EPOCHS);
        self.pending.resources = split_off(&mut message.resources, MOST_SAMPLES);
        self.pending.replicas = split_off(&mut message.replicas, MOST_REPLICAS);
        Some(serde_json::to_vec(&message).expect("telemetry is plain data"))
    }
}

/// What does not fit into one message.
fn split_off<T>(entries: &mut Vec<T>, most: usize) -> Vec<T> {
    entries.split_off(entries.len().min(most))
}

/// Adds what came later to what a peer did.
fn add(sums: &mut PeerProgress, later: &PeerProgress) {
    let mut times = std::mem::replace(&mut sums.times, Times::of(later.times.peer));
    times += &later.times;
    let lr = if later.n_samples > 0 { later.lr } else { sums.lr };
    *sums = PeerProgress {
        lr,
        n_samples: sums.n_samples + later.n_samples,
        loss_sum: sums.loss_sum + later.loss_sum,
        n_correct: sums.n_correct + later.n_correct,
        times,
        ..later.clone()
    };
}

/// What another peer tells about itself; nothing, if that is not what an honest peer sends.
pub(crate) fn read(from: PeerId, bytes: &[u8]) -> Option<Vec<PeerEvent>> {
    let Message { progress, resources, replicas, joins } = serde_json::from_slice(bytes).ok()?;
    let is_short = progress.len() <= MOST_EPOCHS
        && resources.len() <= MOST_SAMPLES
        && replicas.len() <= MOST_REPLICAS
        && joins.len() <= MOST_JOINS;
    let is_sound = progress.iter().all(|progress| progress.times.peer == from && is_possible(progress))
        && resources.iter().all(|resources| resources.peer == from && takes_are_possible(resources))
        && replicas.iter().all(|record| record.peer == from && is_replica(&record.event))
        && joins.iter().all(|record| record.peer == from && is_join(&record.event));
    (is_short && is_sound).then(|| {
        let progress = progress.into_iter().map(PeerEvent::Progress);
        let resources = resources.into_iter().map(PeerEvent::Resources);
        progress.chain(resources).chain(replicas.into_iter().chain(joins).map(PeerEvent::Record)).collect()
    })
}

fn is_possible(progress: &PeerProgress) -> bool {
    let Times { elapsed_s, compute_s, wait_s, encode_s, decode_s, send_s, sent_bytes, received_bytes, waits, .. } =
        &progress.times;
    let seconds = [elapsed_s, compute_s, wait_s, encode_s, decode_s, send_s];
    let mut all_seconds = seconds.into_iter().chain(waits.iter().map(|wait| &wait.seconds));
    let counts = [*sent_bytes, *received_bytes, progress.n_samples, progress.n_ahead, progress.n_correct];
    all_seconds.all(|seconds| (0.0..MOST_SECONDS).contains(seconds))
        && counts.into_iter().all(|count| count < MOST_COUNTED)
        && progress.n_correct <= progress.n_samples
        && progress.loss_sum.is_finite()
        && progress.lr.is_finite()
}

fn takes_are_possible(resources: &Resources) -> bool {
    let Resources { elapsed_s, cpu_percent, rss_bytes, .. } = *resources;
    let counts = [
        rss_bytes,
        resources.net_received_bytes,
        resources.net_sent_bytes,
        resources.payload_received_bytes,
        resources.payload_sent_bytes,
        resources.disk_read_bytes,
        resources.disk_written_bytes,
    ];
    [elapsed_s, cpu_percent].into_iter().all(|number| (0.0..MOST_SECONDS).contains(&number))
        && counts.into_iter().all(|count| count < MOST_COUNTED)
}

fn is_replica(event: &Event) -> bool {
    matches!(event, Event::Replica { sketch, .. } if sketch.len() == N_SUMS && sketch.iter().all(|sum| sum.is_finite()))
}

fn is_join(event: &Event) -> bool {
    let is_time = |seconds: &f64| (0.0..MOST_SECONDS).contains(seconds);
    match event {
        Event::StateReceived { n_bytes, seconds, donors } => {
            *n_bytes < MOST_COUNTED && is_time(seconds) && donors.len() <= MOST_DONORS
        }
        Event::Joined { admission_s, round_s } => is_time(admission_s) && is_time(round_s),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_history::{PeerProgress, Resources, Times, Wait};
    use nettorrent_swarm::record::{Event, Record};
    use nettorrent_swarm::{PeerId, Phase};

    use super::{Telemetry, read};
    use crate::peer_event::PeerEvent;

    const ME: PeerId = PeerId(7);

    fn progress(trained_in: u64, n_samples: u64) -> PeerProgress {
        let waits = vec![Wait { peer: PeerId(1), seconds: 0.25 }];
        let times = Times { elapsed_s: 0.5, compute_s: 0.125, sent_bytes: 100, waits, ..Times::of(ME) };
        PeerProgress {
            epoch: trained_in,
            n_tested: trained_in,
            step: 3,
            n_samples_all: 60,
            n_ahead: 5,
            trained_in,
            n_samples,
            loss_sum: 2.0 * n_samples as f64,
            n_correct: n_samples / 2,
            lr: 0.5,
            times,
            phase: Phase::Training,
            waits_for: Vec::new(),
        }
    }

    fn resources(peer: PeerId) -> Resources {
        Resources {
            peer,
            elapsed_s: 1.0,
            cpu_percent: 150.0,
            rss_bytes: 1 << 20,
            net_received_bytes: 1,
            net_sent_bytes: 2,
            payload_received_bytes: 3,
            payload_sent_bytes: 4,
            disk_read_bytes: 5,
            disk_written_bytes: 6,
        }
    }

    fn told(events: &[PeerEvent]) -> Vec<u8> {
        let mut telemetry = Telemetry::new();
        events.iter().for_each(|event| telemetry.add(event));
        telemetry.rest().expect("something to tell")
    }

    #[test]
    fn what_was_done_in_one_epoch_is_added_up() {
        let events = [(2, 10), (2, 0), (2, 20), (3, 30)].map(|(epoch, n)| PeerEvent::Progress(progress(epoch, n)));
        let read = read(ME, &told(&events)).expect("an honest message");
        let [PeerEvent::Progress(second), PeerEvent::Progress(third)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((second.trained_in, second.n_samples, second.loss_sum, second.n_correct), (2, 30, 60.0, 15));
        assert_eq!((second.times.elapsed_s, second.times.sent_bytes, second.times.waits.len()), (1.5, 300, 1));
        assert_eq!(second.times.waits[0].seconds, 0.75);
        assert_eq!((third.trained_in, third.n_samples, third.times.sent_bytes), (3, 30, 100));
    }

    #[test]
    fn a_message_is_due_once_a_second_and_only_if_there_is_something_to_tell() {
        let mut telemetry = Telemetry::new();
        assert_eq!(telemetry.rest(), None);
        telemetry.add(&PeerEvent::Resources(resources(ME)));
        telemetry.forget();
        assert_eq!(telemetry.rest(), None);
        telemetry.add(&PeerEvent::Resources(resources(ME)));
        assert!(telemetry.rest().is_some());
        telemetry.add(&PeerEvent::Resources(resources(ME)));
        assert_eq!(telemetry.due(), None);
    }

    #[test]
    fn what_does_not_fit_comes_with_the_next_message() {
        let mut telemetry = Telemetry::new();
        (0..40).for_each(|_| telemetry.add(&PeerEvent::Resources(resources(ME))));
        let mut n = Vec::new();
        while let Some(bytes) = telemetry.rest() {
            n.push(read(ME, &bytes).expect("an honest message").len());
        }
        assert_eq!(n, [16, 16, 8]);
    }

    #[test]
    fn what_no_honest_peer_sends_is_refused() {
        let replica = |sketch: Vec<f32>| {
            PeerEvent::Record(Record { peer: ME, at_s: 1.0, event: Event::Replica { epoch: 1, sketch } })
        };
        assert_eq!(read(ME, &told(&[replica(vec![0.5; 256])])).expect("an honest message").len(), 1);
        assert!(read(ME, &told(&[replica(vec![0.5; 255])])).is_none(), "a sketch of another length");
        assert!(read(ME, b"{").is_none());
        let join = |seconds: f64, n_bytes: u64, n_donors: usize| {
            let donors = vec![PeerId(1); n_donors];
            let received = Event::StateReceived { n_bytes, seconds, donors };
            let joined = Event::Joined { admission_s: 1.0, round_s: seconds };
            [received, joined].map(|event| PeerEvent::Record(Record { peer: ME, at_s: 1.0, event }))
        };
        assert_eq!(read(ME, &told(&join(2.0, 100, 4))).expect("an honest message").len(), 2);
        for strange in [join(-1.0, 100, 4), join(2.0, u64::MAX, 4), join(2.0, 100, 65)] {
            assert!(read(ME, &told(&strange)).is_none(), "{strange:?}");
        }
        assert!(read(ME, &told(&[PeerEvent::Resources(resources(PeerId(8)))])).is_none(), "it speaks for another");
        let endless = Resources { rss_bytes: u64::MAX, ..resources(ME) };
        assert!(read(ME, &told(&[PeerEvent::Resources(endless)])).is_none(), "sums of that would overflow");
        let before = PeerProgress { times: Times { wait_s: -1.0, ..progress(1, 1).times }, ..progress(1, 1) };
        assert!(read(ME, &told(&[PeerEvent::Progress(before)])).is_none());
    }
}
