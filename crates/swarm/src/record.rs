//! Records: what a peer tells about itself, as the one plain type that metrics travel as.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::view::PeerId;

/// Something that happened at a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// At whom.
    pub peer: PeerId,
    /// When, in seconds since the host's beginning.
    pub at_s: f64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// There is a new view, and its members agreed on whose parameters go on.
    View {
        /// Its number.
        view: u32,
        /// Who takes part.
        members: Vec<PeerId>,
        /// Whose parameters go on.
        donor: PeerId,
        /// Whether this peer was behind and took them over.
        was_behind: bool,
        /// The round that comes next.
        round: u32,
        /// At which site each member is; empty if all are at one, or where that does not matter.
        sites: Vec<u32>,
    },
    /// This peer had trained without a quorum, and takes over the state of those who had one.
    GivenUp {
        /// How many samples were trained in vain.
        n_samples: u64,
        /// Whose state goes on.
        donor: PeerId,
    },
    /// This peer was behind, and has got all of another's state.
    StateReceived {
        /// How much of it came over links.
        n_bytes: u64,
        /// How long that took.
        seconds: f64,
        /// From whom it came.
        donors: Vec<PeerId>,
    },
    /// A peer was asked for its state, and nothing of it has come for long.
    LateDonor {
        /// Who.
        who: PeerId,
        /// Who is asked instead.
        instead: PeerId,
    },
    /// A peer says that it has the same past as another, and has other parameters.
    Differs {
        /// Who. (The name `peer` is that of who tells.)
        who: PeerId,
        /// The other.
        from: PeerId,
        /// The epoch after which that showed, counted from 1; none if it showed in a state that was handed over.
        epoch: Option<u64>,
        /// Whether more than half of all who compared theirs have what the other has, or the other is the one whose state goes on.
        is_outvoted: bool,
    },
    /// This peer joined others who trained already, and has trained a round with them.
    Joined {
        /// How long it took since it began to look for the others until they had let it in and agreed on whose state goes on.
        admission_s: f64,
        /// How long it took until its first round with them counted.
        round_s: f64,
    },
    /// A member was lost, and training has gone on without it.
    Lost {
        /// Who.
        who: PeerId,
        /// Why it does not take part any more.
        cause: LossCause,
        /// The first view without it.
        view: u32,
        /// How long it took from the last sign of life that this peer had of it until that view was there. If it was stuck, the
        /// last message about training is the last sign of life.
        detection_s: f64,
        /// How long it took from there until a round counted again; none if the run ended before.
        recovery_s: Option<f64>,
    },
    /// A batch is trained, whether or not its round will count.
    Batch {
        /// The epoch it belongs to, counted from 0.
        epoch: u64,
        /// How many rounds were done before its own.
        round: u32,
        /// Its samples.
        n_samples: u64,
        /// Their mean loss.
        loss: f64,
        /// How many of them were classified correctly.
        n_correct: u64,
        /// The learning rate.
        lr: f32,
        /// How long the peer computed.
        compute_s: f64,
    },
    /// A round is done.
    Round {
        /// The epoch it belongs to, counted from 0.
        epoch: u64,
        /// Its number.
        round: u32,
        /// Samples that this peer trained in it.
        n_samples: u64,
        /// Samples that all peers have trained since the beginning.
        n_samples_all: u64,
        /// The mean loss of this peer's samples.
        loss: f64,
        /// How many of them were classified correctly.
        n_correct: u64,
        /// The learning rate.
        lr: f32,
        /// How long the peer computed.
        compute_s: f64,
        /// How long it waited for others after that.
        wait_s: f64,
        /// How long it worked on what it had computed itself: messages made of it, steps taken. Like the next two, a host
        /// that has a clock writes it down (see [`Spent`]); where thinking takes no time it is 0.
        encode_s: f64,
        /// How long it worked on what others had sent.
        decode_s: f64,
        /// How long its links had something to write, added up over all of them.
        send_s: f64,
        /// By how many batches it was ahead of the slowest peer whose batches it had heard of when it began.
        staleness: u32,
        /// Bytes of bodies that it sent.
        sent_bytes: u64,
        /// Bytes of bodies that it received.
        received_bytes: u64,
    },
    /// An epoch is done and its test too, over all peers.
    Epoch {
        /// Which, counted from 1.
        epoch: u64,
        /// The round it ended with.
        round: u32,
        /// Batches that a peer had trained one after the other by then, since the beginning.
        step: u64,
        /// How the training samples were classified while training: mean loss, share, and how many.
        train_loss: f64,
        /// See `train_loss`.
        train_accuracy: f64,
        /// See `train_loss`.
        n_train: u64,
        /// How the test samples are classified now.
        #[serde(deserialize_with = "number_or_none")]
        test_loss: f64,
        /// See `test_loss`.
        test_accuracy: f64,
        /// See `test_loss`.
        n_test: u64,
        /// The task's own metrics in that test, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metrics: BTreeMap<String, f64>,
        /// Whether a model that guesses would have done as well in the test.
        #[serde(default)]
        is_guessing: bool,
        /// How long this peer's own part of the test took.
        test_s: f64,
    },
    /// A test within an epoch is done, over all peers.
    Evaluation {
        /// How many epochs were done: 1.25 after a quarter of the second.
        epoch: f64,
        /// Batches that a peer had trained one after the other by then, since the beginning.
        step: u64,
        /// How the test samples were classified there.
        #[serde(deserialize_with = "number_or_none")]
        test_loss: f64,
        /// See `test_loss`.
        test_accuracy: f64,
        /// See `test_loss`.
        n_test: u64,
        /// The task's own metrics in that test, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metrics: BTreeMap<String, f64>,
        /// How long this peer's own part of the test took.
        test_s: f64,
    },
    /// An epoch's rounds are done, and replicas are about to be brought together.
    Replica {
        /// Which epoch, counted from 1.
        epoch: u64,
        /// What this peer's parameters look like from afar (see [`sketch`](crate::sketch::sketch)).
        sketch: Vec<f32>,
    },
    /// An epoch is over: everybody's work has come, and replicas are together.
    Synced {
        /// Which epoch, counted from 1.
        epoch: u64,
        /// How long this peer waited since the last of its rounds.
        wait_s: f64,
        /// Since then, as in a round.
        encode_s: f64,
        /// See `encode_s`.
        decode_s: f64,
        /// See `encode_s`.
        send_s: f64,
        /// See `encode_s`.
        sent_bytes: u64,
        /// See `encode_s`.
        received_bytes: u64,
    },
    /// Training had diverged, and the swarm goes back.
    RolledBack {
        /// What showed it.
        why: String,
        /// The step at which it showed.
        from_step: u64,
        /// Epochs done where it goes on.
        epoch: u64,
        /// Steps done where it goes on.
        step: u64,
        /// The share of the job's learning rate that is left.
        lr_factor: f32,
    },
    /// Samples without a finite loss or gradient were left out of a batch.
    LeftOut {
        /// Which.
        samples: Vec<usize>,
        /// The step that they were left out of.
        step: u64,
    },
    /// The strategy ends the run before its epochs are done.
    Ended {
        /// Why.
        reason: String,
    },
    /// All epochs are done.
    Finished {
        /// How many rounds that took.
        rounds: u32,
    },
}

/// Why a member is not in the next view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossCause {
    /// It answered nobody for too long.
    Silent,
    /// Its process ended.
    Ended,
    /// Its link broke; more was not known when the others went on without it.
    Disconnected,
    /// It said what no honest member says.
    CutOff,
    /// It and another member could not reach each other.
    Unreachable,
    /// It answered, but its computation stood still.
    Stuck,
    /// It said goodbye.
    Left,
    /// The swarm's owner removed it.
    Removed,
    /// Others know why.
    Told,
}

/// A number that may have become infinite or none, which JSON writes as `null`.
pub fn number_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// What a host with a clock has measured since a peer's last round: the peer itself has none.
///
/// The host adds up as it goes, and writes it into the record of each round, and of what comes after an epoch's last one, as soon
/// as the peer hands it out: so what the last input of a round took belongs to that round and not to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// On what the peer itself had computed.
    pub encode: Duration,
    /// On what others had sent.
    pub decode: Duration,
    /// By its links on writing, added up over all of them.
    pub send: Duration,
}

impl Spent {
    /// Writes what was spent into a round's record and begins anew; other records are left as they are.
    pub fn write_into(&mut self, record: &mut Record) {
        if let Event::Round { encode_s, decode_s, send_s, .. } | Event::Synced { encode_s, decode_s, send_s, .. } =
            &mut record.event
        {
            let Self { encode, decode, send } = std::mem::take(self);
            (*encode_s, *decode_s, *send_s) = (encode.as_secs_f64(), decode.as_secs_f64(), send.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, LossCause, Record, Spent};
    use crate::view::PeerId;
    use std::time::Duration;

    /// Processes of one machine tell each other records as JSON, in which who tells and what it tells are side by side.
    #[test]
    fn a_record_about_another_peer_can_be_read_again() {
        let (who, from) = (PeerId(2), PeerId(3));
        let lost = Event::Lost { who, cause: LossCause::CutOff, view: 3, detection_s: 0.5, recovery_s: None };
        for event in [
            Event::Differs { who, from, epoch: Some(2), is_outvoted: true },
            lost,
            Event::GivenUp { n_samples: 1, donor: who },
        ] {
            let record = Record { peer: PeerId(1), at_s: 0.0, event };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
        }
    }

    #[test]
    fn what_was_spent_goes_into_one_round_and_no_other_record() {
        let [encode, decode, send] = [1, 20, 300].map(Duration::from_millis);
        let mut spent = Spent { encode, decode, send };
        let record = |event| Record { peer: PeerId(1), at_s: 0.0, event };
        let mut end = record(Event::Finished { rounds: 1 });
        spent.write_into(&mut end);
        assert_eq!(end, record(Event::Finished { rounds: 1 }));
        let round = |encode_s, decode_s, send_s| {
            record(Event::Round {
                epoch: 0,
                round: 1,
                n_samples: 8,
                n_samples_all: 16,
                loss: 1.0,
                n_correct: 4,
                lr: 0.1,
                compute_s: 0.5,
                wait_s: 0.25,
                encode_s,
                decode_s,
                send_s,
                staleness: 0,
                sent_bytes: 0,
                received_bytes: 0,
            })
        };
        for expected in [round(0.001, 0.02, 0.3), round(0.0, 0.0, 0.0)] {
            let mut next = round(0.0, 0.0, 0.0);
            spent.write_into(&mut next);
            assert_eq!(next, expected);
        }
    }
}
