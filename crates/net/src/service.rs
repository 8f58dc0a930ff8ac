//! Questions that joiners and observers ask a peer, and its answers.

use bytes::Bytes;
use nettorrent_swarm::printable::printable;
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{PeerId, Phase};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::address::Address;
use crate::keys::PublicKey;
use crate::policy::{Policy, PolicyUpdate};
use crate::route::Route;
use crate::trust_store::{Admission, NotAdmitted};

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// May I take part, and in what? Asked by who holds the ticket; it is about the key that was shown.
    Join,
    /// How is it going?
    Status,
    /// Some bytes, please: asked by who wants to know how fast the link is. At most `MOST_PROBE_BYTES` are given.
    Probe {
        /// How many.
        n_bytes: u32,
    },
    /// Who belongs to the swarm?
    Members,
    /// What the swarm's owner has decided: put it in force.
    Amend(Box<PolicyUpdate>),
}

/// The most that one probe is answered with: it fits into a frame.
pub(crate) const MOST_PROBE_BYTES: usize = 2 << 20;

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// What is needed to take part.
    Join(Box<Invitation>),
    /// The ticket does not let one in.
    NotAdmitted(NotAdmitted),
    /// How it is going.
    Status(PeerStatus),
    /// The bytes; none if others have just asked for some.
    Probe(Vec<u8>),
    /// Who belongs to the swarm.
    Members(Box<MemberList>),
    /// What has come of what the owner has decided.
    Amended {
        /// Whether it is in force. If not, it is not the owner's, or a later one is.
        is_in_force: bool,
    },
}

/// Who belongs to a swarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberList {
    /// What is in force.
    pub(crate) policy: Policy,
    /// The keys of all who belong to it, those among them who cannot be reached at the moment.
    pub(crate) keys: Vec<PublicKey>,
    /// Who is there.
    pub members: Vec<ListedMember>,
}

/// A member as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedMember {
    /// Its name.
    pub peer: PeerId,
    /// Its key.
    pub key: PublicKey,
    /// Where it is.
    pub address: Address,
    /// When it was let in, in seconds since 1970.
    pub since: u64,
    /// When its certificate expires unless it is renewed, in seconds since 1970.
    pub expires: u64,
}

/// What is needed to take part: the job travels, the data do not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invitation {
    /// What is trained.
    pub package: JobPackage,
    /// What makes the receiver a member: a certificate with its join index.
    pub admission: Admission,
    /// Who is there, and where.
    pub members: Vec<(PeerId, Address)>,
}

/// A job as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPackage {
    /// The job, as TOML.
    pub job: String,
    /// The model's description, as TOML.
    pub model: String,
    /// What the training and the test data are, so that everyone trains on the same.
    pub data: [[u8; 32]; 2],
}

/// How a peer is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Which peer.
    pub peer: PeerId,
    /// The machine that it runs on.
    #[serde(deserialize_with = "host")]
    pub host: String,
    /// What it is doing.
    pub phase: Phase,
    /// Epochs done, of how many.
    pub epoch: u64,
    /// See `epoch`.
    pub epochs: u64,
    /// Rounds done.
    pub round: u32,
    /// What it trains in a second, over the last rounds.
    pub samples_per_s: f64,
    /// The step that it is in, counted from 1; where a round has several, its first.
    pub step: u64,
    /// Whom it waits for.
    pub waits_for: Vec<Awaited>,
    /// For how long it has been at this.
    pub since_s: f64,
    /// Who is there, and where, as it knows.
    pub members: Vec<(PeerId, Address)>,
    /// By which way it is linked with those with whom it is.
    pub routes: Vec<(PeerId, Route)>,
    /// How many more members it waits for before training begins, if it was told for how many.
    pub n_missing: u64,
}

/// A machine's name is shown as its peer says it, but it cannot say everything.
fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name: String = printable(&String::deserialize(deserializer)?);
    Ok(name.chars().take(MAX_HOST_LEN).collect())
}

/// The longest name of a machine by DNS.
const MAX_HOST_LEN: usize = 253;

/// More names than this help nobody.
const MOST_NAMES: usize = 4;

impl PeerStatus {
    /// What a peer does and for how long; if it waits, for whom, where that is, and in which step.
    pub fn activity(&self) -> String {
        let doing: &str = match self.phase {
            // Before the first view nobody can say who is missing, but perhaps how many.
            Phase::Agreeing if self.waits_for.is_empty() => match self.n_missing {
                0 => "waits for members",
                1 => "waits for 1 more member",
                n => &format!("waits for {n} more members"),
            },
            Phase::Agreeing => "synchronizing state",
            Phase::Training => "computes",
            Phase::Exchanging => "exchanges",
            Phase::Syncing => "final sync",
            Phase::Testing => "tests",
            Phase::Finished => "has finished",
        };
        let Self { waits_for, since_s, step, .. } = self;
        if waits_for.is_empty() {
            return format!("{doing} ({since_s:.1} s)");
        }
        let name = |Awaited { peer, address }: &Awaited| match address {
            Some(address) => format!("{peer} ({})", address.brief()),
            None => peer.to_string(),
        };
        let mut names: Vec<String> = waits_for.iter().take(MOST_NAMES).map(name).collect();
        if waits_for.len() > MOST_NAMES {
            names.push(format!("{} more", waits_for.len() - MOST_NAMES));
        }
        format!("{doing}, waits {since_s:.1} s for {} in step {step}", names.join(", "))
    }
}

impl PeerStatus {
    /// With whom it is linked otherwise than by TCP, and how; nothing where there is nobody.
    pub fn detours(&self) -> String {
        let by = |wanted: Route| {
            let peers = self.routes.iter().filter(move |(_, route)| *route == wanted);
            let names: Vec<String> = peers.map(|(peer, _)| peer.to_string()).collect();
            (!names.is_empty()).then(|| format!("{wanted}: {}", names.join(", ")))
        };
        let detours: Vec<String> = [Route::Direct, Route::Relayed].into_iter().filter_map(by).collect();
        detours.join("; ")
    }
}

/// Somebody who is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Who.
    pub peer: PeerId,
    /// Where it is, if that is known.
    pub address: Option<Address>,
}

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is no message.
    #[error("a question or an answer cannot be read: {0}")]
    Senseless(#[from] postcard::Error),
    /// It does not come from the other end as it was sent.
    #[error("a question or an answer was changed on its way")]
    Covered,
}

/// Puts a question or an answer into a frame.
pub(crate) fn to_frame(message: &impl Serialize) -> Frame {
    let body: Bytes = postcard::to_allocvec(message).expect("plain values can be written").into();
    Frame::new(Kind::Service, body)
}

/// Reads a question or an answer; its sender is not trusted.
pub(crate) fn from_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    Ok(postcard::from_bytes(body)?)
}

#[cfg(test)]
mod tests {
    use super::{Awaited, PeerStatus, from_body, to_frame};
    use nettorrent_swarm::{PeerId, Phase};

    fn status(phase: Phase, waits_for: Vec<Awaited>) -> PeerStatus {
        PeerStatus {
            peer: PeerId::new(0, 7),
            host: "here".to_owned(),
            phase,
            epoch: 1,
            epochs: 6,
            round: 117,
            samples_per_s: 100.0,
            step: 118,
            waits_for,
            since_s: 3.21,
            members: Vec::new(),
            routes: Vec::new(),
            n_missing: 0,
        }
    }

    fn awaited(join_index: u32, address: Option<&str>) -> Awaited {
        Awaited { peer: PeerId::new(join_index, 9), address: address.map(|text| text.parse().expect("an address")) }
    }

    #[test]
    fn activity_says_for_whom_a_peer_waits_and_where_and_in_which_step() {
        assert_eq!(status(Phase::Training, Vec::new()).activity(), "computes (3.2 s)");
        assert_eq!(status(Phase::Agreeing, Vec::new()).activity(), "waits for members (3.2 s)");
        let waiting = |n_missing| PeerStatus { n_missing, ..status(Phase::Agreeing, Vec::new()) }.activity();
        assert_eq!([1, 3].map(waiting), ["waits for 1 more member (3.2 s)", "waits for 3 more members (3.2 s)"]);
        let first = vec![awaited(2, None)];
        let expected = "synchronizing state, waits 3.2 s for peer 2 in step 118";
        assert_eq!(status(Phase::Agreeing, first).activity(), expected);
        let two = vec![awaited(2, Some("10.0.0.7:4123")), awaited(3, None)];
        let expected = "exchanges, waits 3.2 s for peer 2 (10.0.0.7:4123), peer 3 in step 118";
        assert_eq!(status(Phase::Exchanging, two).activity(), expected);
        let many = (1..=10).map(|join_index| awaited(join_index, None)).collect();
        let expected = "tests, waits 3.2 s for peer 1, peer 2, peer 3, peer 4, 6 more in step 118";
        assert_eq!(status(Phase::Testing, many).activity(), expected);
    }

    #[test]
    fn a_machine_cannot_have_a_name_that_moves_the_cursor() {
        let hostile = format!("\u{1b}[2J{}", "x".repeat(10_000));
        let sent = to_frame(&PeerStatus { host: hostile, ..status(Phase::Training, Vec::new()) });
        let host = from_body::<PeerStatus>(&sent.body).expect("a status").host;
        assert!(host.starts_with(r"\u{1b}[2Jxxx") && host.len() < 300, "{host:?}");
    }

    #[test]
    fn status_as_json_says_whom_a_peer_waits_for() {
        let status = status(Phase::Exchanging, vec![awaited(2, Some("10.0.0.7:4123"))]);
        let json = serde_json::to_value(status).expect("plain data");
        assert_eq!(json["waits_for"][0]["address"], "10.0.0.7:4123");
        assert_eq!(json["waits_for"][0]["peer"], PeerId::new(2, 9).0);
        assert_eq!(
            (&json["step"], &json["since_s"], &json["phase"]),
            (&118.into(), &3.21.into(), &"exchanging".into())
        );
    }
}
