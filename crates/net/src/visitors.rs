//! Those who come to ask: joiners who want to take part, and observers who want to know how things stand.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::PeerId;
use nettorrent_swarm::wire::Frame;

use crate::address::Address;
use crate::inbox::LinkId;
use crate::link::Link;
use crate::probes::Probes;
use crate::service::{Answer, Question, from_frame, to_frame};

/// Their links, and what they were given.
#[derive(Default)]
pub(crate) struct Visitors {
    links: BTreeMap<LinkId, Link>,
    probes: Probes,
    /// The highest join index that somebody was invited to take.
    last_join_index: u32,
}

impl Visitors {
    /// Somebody has come.
    pub(crate) fn add(&mut self, link: Link) {
        self.links.insert(link.id(), link);
    }

    /// Whether this is the link of one of them.
    pub(crate) fn has(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// Somebody has gone, or has to go.
    pub(crate) fn remove(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// What somebody asks; who says something else has to go.
    pub(crate) fn question(&mut self, link: LinkId, frame: &Frame) -> Option<Question> {
        let question = from_frame(frame).ok();
        if question.is_none() {
            self.remove(link);
        }
        question
    }

    /// Answers.
    pub(crate) fn answer(&self, link: LinkId, answer: &Answer) {
        if let Some(link) = self.links.get(&link) {
            link.send(to_frame(answer));
        }
    }

    /// A join index that nobody has taken or was invited to take: who has just been let in is not among the members yet.
    pub(crate) fn free_join_index(&mut self, members: &[(PeerId, Address)]) -> u32 {
        let highest = members.iter().map(|(peer, _)| peer.join_index()).max().unwrap_or(0);
        self.last_join_index = highest.max(self.last_join_index).saturating_add(1);
        self.last_join_index
    }

    /// As many bytes as somebody may have who asks for so many.
    pub(crate) fn probe(&mut self, now: Duration, link: LinkId, n_bytes: usize) -> Vec<u8> {
        let is_sent = |link| self.links.get(&link).is_none_or(|link| link.queued_bytes() == 0);
        vec![0; self.probes.admit(now, link, n_bytes, is_sent)]
    }
}

#[cfg(test)]
mod tests {
    use super::Visitors;
    use nettorrent_swarm::PeerId;

    #[test]
    fn nobody_is_invited_to_a_seat_that_is_taken_or_promised() {
        let mut visitors = Visitors::default();
        let members = |join_indices: &[u32]| -> Vec<_> {
            join_indices.iter().map(|&join_index| (PeerId::new(join_index, 1), "10.0.0.1:1".parse().unwrap())).collect()
        };
        assert_eq!(visitors.free_join_index(&members(&[])), 1);
        assert_eq!(visitors.free_join_index(&members(&[0])), 2);
        assert_eq!(visitors.free_join_index(&members(&[0, 7])), 8);
        assert_eq!(visitors.free_join_index(&members(&[0])), 9);
    }
}
