//! A run's events as TensorBoard reads them: scalars over training steps, in a file of its own.
//!
//! The file is a row of records, each a length, a check sum of the length, a message and a check sum of the message. Messages
//! are protocol buffers of which six fields are needed, so they are written here: the crates for it bring a compiler and
//! runtime of protocol buffers along, and the last of them that writes scalars is years old.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nettorrent_files::WriteError;

use crate::event::{Epoch, Event, Progress};
use crate::log::HistoryError;
use crate::peer_work::{Resources, Times};

/// Writes what happens in a run for TensorBoard.
///
/// All scalars lie over the step of training that they belong to, so that those of peers can be held against the losses, and a
/// run that was stopped goes on where it was.
pub struct TensorBoard {
    path: PathBuf,
    file: File,
    began_s: f64,
    step: u64,
}

impl TensorBoard {
    /// A new file in this folder, for what happens from `began` on.
    pub fn create(folder: &Path, began: SystemTime) -> Result<Self, HistoryError> {
        let began_s = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        // TensorBoard knows files by the word in the middle, and takes them in the order of their names.
        let name = format!("events.out.tfevents.{:010}.nettorrent.{}", began_s as u64, std::process::id());
        let path = folder.join(name);
        std::fs::create_dir_all(folder).map_err(WriteError::of(folder))?;
        let file = File::create(&path).map_err(WriteError::of(&path))?;
        let mut board = Self { path, file, began_s, step: 0 };
        board.write(0.0, |message| message.bytes(FILE_VERSION, b"brain.Event:2"))?;
        Ok(board)
    }

    /// Writes what an event says in numbers; many say nothing.
    pub fn add(&mut self, at_s: f64, event: &Event) -> Result<(), HistoryError> {
        match event {
            Event::Start(start) => self.begin_after(at_s, start.step),
            Event::Rollback(rollback) => self.begin_after(at_s, rollback.step),
            Event::Progress(progress) => {
                let Progress { step, loss, accuracy, lr, samples_per_s, .. } = *progress;
                self.step = step;
                self.scalars(at_s, &train_scalars(loss, accuracy, lr, samples_per_s))
            }
            Event::Epoch(epoch) => {
                let Epoch { step, train_loss, train_accuracy, test_loss, test_accuracy, lr, samples_per_s, .. } =
                    *epoch;
                self.step = step;
                let tests = test_scalars(test_loss, test_accuracy, &epoch.metrics);
                let train = train_scalars(train_loss, train_accuracy, lr, samples_per_s);
                self.scalars(at_s, &[&tests[..], &train].concat())
            }
            Event::Evaluation(evaluation) => {
                self.step = evaluation.step;
                self.scalars(at_s, &test_scalars(evaluation.test_loss, evaluation.test_accuracy, &evaluation.metrics))
            }
            Event::Resources(resources) => self.scalars(at_s, &resource_scalars(resources)),
            Event::Times(times) => {
                let Times { peer, elapsed_s, compute_s, wait_s, encode_s, decode_s, .. } = times;
                let parts = [("compute", compute_s), ("wait", wait_s), ("encode", encode_s), ("decode", decode_s)];
                let share = |seconds: f64| 100.0 * seconds / elapsed_s.max(1e-9);
                self.scalars(at_s, &parts.map(|(name, seconds)| (format!("{peer}/{name} %"), share(*seconds))))
            }
            Event::Replicas(_)
            | Event::Peer(_)
            | Event::PeerProgress(_)
            | Event::Note(_)
            | Event::Dropped(_)
            | Event::LeftOut(_)
            | Event::StateReceived(_)
            | Event::Joined(_)
            | Event::Loss(_)
            | Event::Differs(_)
            | Event::View(_)
            | Event::Checkpoint(_)
            | Event::CheckpointFailed(_)
            | Event::LogFailed(_)
            | Event::Stop(_) => Ok(()),
        }
    }

    /// From here on, what was said of later steps is void: they are trained again.
    fn begin_after(&mut self, at_s: f64, step: u64) -> Result<(), HistoryError> {
        self.step = step + 1;
        let mut session = Message::default();
        session.number(STATUS, SESSION_START);
        self.write(at_s, |message| message.bytes(SESSION, &session.0))?;
        self.step = step;
        Ok(())
    }

    fn scalars(&mut self, at_s: f64, scalars: &[(String, f64)]) -> Result<(), HistoryError> {
        let mut summary = Message::default();
        for (tag, value) in scalars {
            let mut scalar = Message::default();
            scalar.bytes(TAG, tag.as_bytes());
            scalar.fixed32(SIMPLE_VALUE, *value as f32);
            summary.bytes(VALUE, &scalar.0);
        }
        self.write(at_s, |message| message.bytes(SUMMARY, &summary.0))
    }

    /// Writes one message, and what it is about.
    fn write(&mut self, at_s: f64, what: impl FnOnce(&mut Message)) -> Result<(), HistoryError> {
        let mut message = Message::default();
        message.fixed64(WALL_TIME, self.began_s + at_s);
        message.number(STEP, self.step);
        what(&mut message);
        let length = (message.0.len() as u64).to_le_bytes();
        let (length_sum, sum) = (masked_crc(&length).to_le_bytes(), masked_crc(&message.0).to_le_bytes());
        let record = [&length[..], &length_sum, &message.0, &sum].concat();
        Ok(self.file.write_all(&record).map_err(WriteError::of(&self.path))?)
    }
}

fn test_scalars(loss: f64, accuracy: f64, metrics: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let own = metrics.iter().map(|(name, value)| (format!("test/{name}"), *value));
    let counted = ("test/accuracy".to_owned(), accuracy);
    [("test/loss".to_owned(), loss)].into_iter().chain(if_counted(counted)).chain(own).collect()
}

fn train_scalars(loss: f64, accuracy: f64, lr: f32, samples_per_s: f64) -> Vec<(String, f64)> {
    let rest = [("train/lr".to_owned(), f64::from(lr)), ("train/samples per s".to_owned(), samples_per_s)];
    let counted = ("train/accuracy".to_owned(), accuracy);
    [("train/loss".to_owned(), loss)].into_iter().chain(if_counted(counted)).chain(rest).collect()
}

/// An accuracy, where samples have classes.
fn if_counted(scalar: (String, f64)) -> Option<(String, f64)> {
    Some(scalar).filter(|(_, accuracy)| !accuracy.is_nan())
}

fn resource_scalars(resources: &Resources) -> [(String, f64); 7] {
    let Resources { peer, elapsed_s, cpu_percent, rss_bytes, .. } = *resources;
    let rate = |n_bytes: u64| n_bytes as f64 / elapsed_s.max(1e-9);
    [
        (format!("{peer}/cpu %"), cpu_percent),
        (format!("{peer}/memory bytes"), rss_bytes as f64),
        (format!("{peer}/sent bytes per s"), rate(resources.net_sent_bytes)),
        (format!("{peer}/received bytes per s"), rate(resources.net_received_bytes)),
        (format!("{peer}/payload sent bytes per s"), rate(resources.payload_sent_bytes)),
        (format!("{peer}/disk read bytes per s"), rate(resources.disk_read_bytes)),
        (format!("{peer}/disk written bytes per s"), rate(resources.disk_written_bytes)),
    ]
}

// Fields of TensorFlow's `Event`.
const WALL_TIME: u64 = 1;
const STEP: u64 = 2;
const FILE_VERSION: u64 = 3;
const SUMMARY: u64 = 5;
const SESSION: u64 = 7;
// Of its `Summary`, and of the values in it.
const VALUE: u64 = 1;
const TAG: u64 = 1;
const SIMPLE_VALUE: u64 = 2;
// Of its `SessionLog`.
const STATUS: u64 = 1;
const SESSION_START: u64 = 1;

/// A protocol buffer, field after field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn fixed32(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    /// Seven bits a byte, the lowest first; all but the last byte say that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The check sum of a record's parts: CRC-32C, turned so that a sum of data that hold sums is no special case.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Bit by bit: what is written in a second is a few hundred bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::measure::Measure;
    use std::collections::BTreeMap;
    use std::time::{Duration, SystemTime};

    use nettorrent_swarm::PeerId;

    use super::{TensorBoard, crc32c};
    use crate::event::{Epoch, Evaluation, Event, Progress, Start};
    use crate::peer_work::Times;

    #[derive(Debug, PartialEq)]
    enum Field<'a> {
        Number(u64),
        Double(f64),
        Bytes(&'a [u8]),
        Float(f32),
    }

    /// Takes a number of seven bits a byte off the front.
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(n);
        *bytes = rest;
        taken
    }

    /// Reads a protocol buffer by its rules, whoever has written it.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let n = varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, n))
                }
                5 => Field::Float(f32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap())),
                kind => panic!("there is no field of kind {kind}"),
            };
            fields.push((key >> 3, field));
        }
        fields
    }

    /// The messages of a file, all check sums checked: unmasked, so not by the way they were written.
    fn messages(mut file: &[u8]) -> Vec<&[u8]> {
        let check = |part: &[u8], sum: &[u8]| {
            let masked = u32::from_le_bytes(sum.try_into().unwrap()).wrapping_sub(0xa282_ead8);
            assert_eq!(masked.rotate_left(15), crc32c(part));
        };
        let mut messages = Vec::new();
        while !file.is_empty() {
            let length = take(&mut file, 8);
            check(length, take(&mut file, 4));
            let message = take(&mut file, u64::from_le_bytes(length.try_into().unwrap()) as usize);
            check(message, take(&mut file, 4));
            messages.push(message);
        }
        messages
    }

    /// Step, seconds since 1970, tag and value of every scalar.
    fn scalars(file: &[u8]) -> Vec<(u64, f64, String, f32)> {
        let mut scalars = Vec::new();
        for message in messages(file) {
            let fields_of_event = fields(message);
            let [(1, Field::Double(at)), (2, Field::Number(step)), (what, Field::Bytes(body))] = fields_of_event[..]
            else {
                panic!("{fields_of_event:?}")
            };
            let summary = if what == 5 { body } else { &[] };
            for (_, value) in fields(summary) {
                let Field::Bytes(value) = value else { panic!("{value:?}") };
                let value = fields(value);
                let [(1, Field::Bytes(tag)), (2, Field::Float(number))] = value[..] else { panic!("{value:?}") };
                scalars.push((step, at, String::from_utf8(tag.to_vec()).unwrap(), number));
            }
        }
        scalars
    }

    fn epoch(step: u64) -> Event {
        Event::Epoch(Epoch {
            epoch: 1,
            step,
            train_loss: 1.5,
            train_accuracy: 0.25,
            test_loss: 1.25,
            test_accuracy: 0.5,
            metrics: BTreeMap::new(),
            lr: 0.125,
            samples_per_s: 50.0,
            seconds: 2.0,
            test_seconds: 0.5,
            sent_bytes: 0,
            peers: Vec::new(),
        })
    }

    #[test]
    fn the_check_sum_is_the_one_that_is_published() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn what_is_written_can_be_read_by_the_rules_of_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut board = TensorBoard::create(folder.path(), began).unwrap();
        let start = Start {
            run: "runs/a".into(),
            model: "mlp".into(),
            n_params: 10,
            n_train: 100,
            n_test: 10,
            measure: Measure::default(),
            threads: 1,
            seed: 1,
            strategy: None,
            n_peers: None,
            link: None,
            epochs: 3,
            epoch: 1,
            step: 300,
            version: "0".into(),
        };
        let times = Times { elapsed_s: 2.0, wait_s: 0.5, ..Times::of(PeerId::new(3, 9)) };
        let progress = Progress {
            epoch: 2,
            step: 310,
            n_samples: 7,
            loss: 2.0,
            accuracy: 0.5,
            lr: 0.1,
            samples_per_s: 9.0,
            seconds: 1.0,
        };
        let (test_loss, test_accuracy, test_seconds, sent_bytes) = (1.75, 0.375, 0.5, 0);
        let metrics = [("mean error".to_owned(), 0.25)].into();
        let evaluation =
            Evaluation { epoch: 1.5, step: 350, test_loss, test_accuracy, metrics, test_seconds, sent_bytes };
        let [start, progress, times] = [Event::Start(start), Event::Progress(progress), Event::Times(times)];
        let events = [start, progress, times, epoch(400), Event::Evaluation(evaluation)];
        for (at_s, event) in events.iter().enumerate() {
            board.add(at_s as f64, event).unwrap();
        }
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents.0001000000."));
        let file = std::fs::read(path).unwrap();

        let all = messages(&file);
        assert_eq!(fields(all[0])[2], (3, Field::Bytes(b"brain.Event:2")));
        let Field::Bytes(session) = fields(all[1])[2].1 else { panic!("no session") };
        assert_eq!((&fields(all[1])[1], &fields(session)[0]), (&(2, Field::Number(301)), &(1, Field::Number(1))));
        let scalars = scalars(&file);
        for expected in [
            (310, 1_000_001.0, "train/loss".to_owned(), 2.0),
            // It is told between two events that know the step.
            (310, 1_000_002.0, "peer 3/wait %".to_owned(), 25.0),
            (400, 1_000_003.0, "test/accuracy".to_owned(), 0.5),
            (400, 1_000_003.0, "test/loss".to_owned(), 1.25),
            (400, 1_000_003.0, "train/loss".to_owned(), 1.5),
            (400, 1_000_003.0, "train/lr".to_owned(), 0.125),
            (400, 1_000_003.0, "train/samples per s".to_owned(), 50.0),
            (350, 1_000_004.0, "test/accuracy".to_owned(), 0.375),
            (350, 1_000_004.0, "test/loss".to_owned(), 1.75),
            (350, 1_000_004.0, "test/mean error".to_owned(), 0.25),
        ] {
            assert!(scalars.contains(&expected), "{expected:?} is not among {scalars:?}");
        }
        assert_eq!(scalars.len(), 4 + 4 + 6 + 3);
    }
}
