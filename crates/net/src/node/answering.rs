//! What a node answers those who ask.

use nettorrent_swarm::PeerId;
use nettorrent_swarm::wire::Frame;

use super::{Node, Tell};
use crate::address::Address;
use crate::inbox::LinkId;
use crate::service::{Answer, Awaited, PeerStatus, Question};

impl Node {
    pub(super) fn answer(&mut self, link: LinkId, frame: &Frame, report: Tell<'_>) {
        let Some(question) = self.visitors.question(self.now(), link, frame) else { return };
        let answer = match question {
            Question::Join => self.admit(link),
            Question::Status => Some(Answer::Status(self.status())),
            Question::Probe { n_bytes } => Some(Answer::Probe(self.visitors.probe(self.now(), link, n_bytes as usize))),
            Question::Members => self.list(),
            Question::Amend(policy_update) => Some(self.amend(&policy_update, report)),
        };
        answer.iter().for_each(|answer| self.visitors.answer(link, answer));
    }

    pub(super) fn members(&self) -> Vec<(PeerId, Address)> {
        self.membership.members().map(|member| (member.id, member.address.clone())).collect()
    }

    fn status(&self) -> PeerStatus {
        let (status, now) = (self.peer.status(), self.now());
        let awaited = |peer: &PeerId| Awaited { peer: *peer, address: self.membership.address_of(*peer).cloned() };
        PeerStatus {
            peer: self.endpoint.identity().peer,
            host: self.settings.host.clone(),
            phase: status.phase,
            epoch: status.epoch,
            epochs: self.setup.training().epochs,
            round: status.round,
            samples_per_s: self.meters.samples_per_s(now),
            step: self.peer.place().step + 1,
            waits_for: status.waits_for.iter().map(awaited).collect(),
            since_s: now.saturating_sub(status.began).as_secs_f64(),
            members: self.members(),
            routes: self.contacts.routes().collect(),
            n_missing: self.membership.n_missing() as u64,
        }
    }
}
