//! Those who come to ask: joiners who want to take part, and observers who want to know how things stand.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::wire::Frame;

use crate::connection::Connection;
use crate::inbox::{InboxSender, LinkId};
use crate::keys::PublicKey;
use crate::limits::Limits;
use crate::link::Link;
use crate::probes::Probes;
use crate::rate::{Allowance, Rate};
use crate::service::{Answer, MOST_PROBE_BYTES, Question};

/// How many there are at a time. Visits are short, so one more sends the oldest away.
const MAX_VISITORS: usize = 64;
/// How much may wait to be sent to one of them: some answers, and what it asked for to measure the link.
const MAX_QUEUED_BYTES: usize = (1 << 20) + MOST_PROBE_BYTES;
/// How often one of them may ask.
const QUESTIONS: Allowance = Allowance { at_once: 32, interval: Duration::from_millis(100) };

/// Their links.
#[derive(Default)]
pub(crate) struct Visitors {
    visitors: BTreeMap<LinkId, Visitor>,
    probes: Probes,
}

struct Visitor {
    link: Link,
    questions: Rate,
}

impl Visitors {
    /// Somebody has come.
    pub(crate) fn add(&mut self, mut connection: Connection, inbox: InboxSender) {
        if self.visitors.len() >= MAX_VISITORS {
            self.visitors.pop_first();
        }
        connection.limits = Limits { max_queued_bytes: MAX_QUEUED_BYTES, ..connection.limits };
        let link = connection.start(inbox);
        self.visitors.insert(link.id(), Visitor { link, questions: Rate::default() });
    }

    /// Whether this is the link of one of them.
    pub(crate) fn has(&self, link: LinkId) -> bool {
        self.visitors.contains_key(&link)
    }

    /// Somebody has gone, or has to go.
    pub(crate) fn remove(&mut self, link: LinkId) {
        self.visitors.remove(&link);
    }

    /// What somebody asks; who says something else, or asks too often, has to go.
    pub(crate) fn question(&mut self, now: Duration, link: LinkId, frame: &Frame) -> Option<Question> {
        let visitor = self.visitors.get_mut(&link)?;
        let question = visitor.link.read(frame).ok().filter(|_| visitor.questions.admits(now, QUESTIONS));
        if question.is_none() {
            self.remove(link);
        }
        question
    }

    /// Answers.
    pub(crate) fn answer(&self, link: LinkId, answer: &Answer) {
        if let Some(visitor) = self.visitors.get(&link) {
            visitor.link.say(answer);
        }
    }

    /// The key that one of them has proven to hold.
    pub(crate) fn key(&self, link: LinkId) -> Option<PublicKey> {
        Some(self.visitors.get(&link)?.link.hello().key)
    }

    /// As many bytes as somebody may have who asks for so many.
    pub(crate) fn probe(&mut self, now: Duration, link: LinkId, n_bytes: usize) -> Vec<u8> {
        let is_sent = |link| self.visitors.get(&link).is_none_or(|visitor| visitor.link.queued_bytes() == 0);
        vec![0; self.probes.admit(now, link, n_bytes, is_sent)]
    }
}
