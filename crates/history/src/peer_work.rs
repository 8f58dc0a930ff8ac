//! What a peer did, where its time went, and what it took of its machine.

use std::ops::AddAssign;

use nettorrent_swarm::{PeerId, Phase};
use serde::{Deserialize, Serialize};

/// What a peer did since it last told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerProgress {
    /// The epoch that it is in, counted from 0.
    pub epoch: u64,
    /// Of how many epochs it knows the test: all that it did in them is told with this.
    pub n_tested: u64,
    /// Batches that a peer has trained one after the other.
    pub step: u64,
    /// Samples that all peers have trained since the beginning.
    pub n_samples_all: u64,
    /// This peer's samples of the local phase that goes on, which are not among those yet.
    pub n_ahead: u64,
    /// The epoch that the following is about, counted from 0.
    pub trained_in: u64,
    /// This peer's samples.
    pub n_samples: u64,
    /// Their losses, added up.
    pub loss_sum: f64,
    /// How many of them were classified correctly.
    pub n_correct: u64,
    /// The learning rate.
    pub lr: f32,
    /// Who, and where its time went.
    pub times: Times,
    /// What it does now.
    pub phase: Phase,
    /// For whom it waits now.
    pub waits_for: Vec<PeerId>,
}

/// What one peer did in an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerEpoch {
    /// Its training samples.
    pub n_samples: u64,
    /// Their mean loss, each when it was trained.
    pub loss: f64,
    /// Who, and where its time went.
    #[serde(flatten)]
    pub times: Times,
}

/// Where a peer's time went since it was told last: of `elapsed_s` it computed, worked on what it had computed and on what
/// others had sent, and waited for them; meanwhile its links wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Who.
    pub peer: PeerId,
    /// The time that this is about.
    pub elapsed_s: f64,
    /// How long it computed gradients.
    pub compute_s: f64,
    /// How long it waited for others.
    pub wait_s: f64,
    /// How long it worked on what it had computed itself.
    pub encode_s: f64,
    /// How long it worked on what others had sent.
    pub decode_s: f64,
    /// How long its links wrote, added up over all of them.
    pub send_s: f64,
    /// Bytes of bodies that it sent.
    pub sent_bytes: u64,
    /// Bytes of bodies that it received.
    pub received_bytes: u64,
    /// For whom it waited, as far as is known: a part of `wait_s`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
}

/// How long a peer was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The peer that others waited for.
    pub peer: PeerId,
    /// How long.
    pub seconds: f64,
}

/// What a peer's process took of its machine since it was told last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Who.
    pub peer: PeerId,
    /// The time that this is about.
    pub elapsed_s: f64,
    /// Of one processor, in percent: two that are busy all the time are 200.
    pub cpu_percent: f64,
    /// Resident memory now.
    pub rss_bytes: u64,
    /// What came from its sockets: with framing and encryption.
    pub net_received_bytes: u64,
    /// What went to its sockets.
    pub net_sent_bytes: u64,
    /// Of `net_received_bytes`, the payload of the exchange strategy.
    pub payload_received_bytes: u64,
    /// Of `net_sent_bytes`, the payload of the exchange strategy.
    pub payload_sent_bytes: u64,
    /// What was read from disks.
    pub disk_read_bytes: u64,
    /// What was written to disks.
    pub disk_written_bytes: u64,
}

impl Times {
    /// Nothing yet, of this peer.
    pub fn of(peer: PeerId) -> Self {
        Self {
            peer,
            elapsed_s: 0.0,
            compute_s: 0.0,
            wait_s: 0.0,
            encode_s: 0.0,
            decode_s: 0.0,
            send_s: 0.0,
            sent_bytes: 0,
            received_bytes: 0,
            waits: Vec::new(),
        }
    }
}

impl AddAssign<&Self> for Times {
    fn add_assign(&mut self, other: &Self) {
        self.elapsed_s += other.elapsed_s;
        self.compute_s += other.compute_s;
        self.wait_s += other.wait_s;
        self.encode_s += other.encode_s;
        self.decode_s += other.decode_s;
        self.send_s += other.send_s;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        for wait in &other.waits {
            match self.waits.iter_mut().find(|known| known.peer == wait.peer) {
                Some(known) => known.seconds += wait.seconds,
                None => self.waits.push(*wait),
            }
        }
    }
}
