//! What a membership does with the packets of other members.

use std::time::Duration;

use nettorrent_swarm::view::PeerId;

use super::agreement::Roster;
use super::links::Report;
use super::message::{Malformed, Message, Packet};
use super::note::{Note, Why};
use super::work_state::WorkState;
use super::{Membership, Outbox, post};

impl Membership {
    pub(super) fn on_packet(
        &mut self,
        now: Duration,
        from: PeerId,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let packet = Packet::parse(from, self.me().id, bytes)?;
        if self.detector.is_excluded(from) {
            return Ok(());
        }
        let was_mute = self.agreement.hear(from);
        self.is_unsettled |= was_mute;
        if was_mute && let Some(member) = self.detector.live().get(&from) {
            out.notes.push(Note::Returned(member.clone()));
        }
        match packet {
            Packet::Detector(bytes) => {
                let result = self.detector.receive(from, bytes);
                self.absorb(now, Why::Told { by: from }, out);
                result
            }
            Packet::Message(message) => {
                self.on_message(now, from, message, out);
                Ok(())
            }
        }
    }

    fn on_message(&mut self, now: Duration, from: PeerId, message: Message, out: &mut Outbox) {
        let mut mail = Vec::new();
        // Reports come all the time, and mostly say what is known.
        self.is_unsettled |= !matches!(message, Message::Report(_) | Message::Ask { .. } | Message::Answer { .. });
        match message {
            Message::Propose { number, base, members } => {
                self.on_propose(now, from, Roster { number, base, members }, out);
            }
            Message::Acknowledge { number } => self.agreement.on_acknowledge(now, from, number, &mut mail),
            Message::Refuse { number, promised } => self.agreement.on_refuse(from, number, promised),
            Message::Commit { number } => {
                if let Some(proposer) = self.find(from).cloned() {
                    self.agreement.on_commit(&proposer, number, &mut mail);
                }
            }
            Message::Done { number } => self.agreement.on_done(from, number),
            Message::Report(report) => {
                if self.detector.live().contains_key(&from) {
                    self.on_report(from, report, out);
                    self.ask(now, from, out);
                }
            }
            Message::Suspected { generation, incarnation } => {
                // What is said about an earlier life does not concern us.
                if generation == self.me().generation {
                    self.detector.object(incarnation);
                    self.absorb(now, Why::Told { by: from }, out);
                }
            }
            Message::Leaving => self.on_leaving(now, from, out),
            Message::Ask { number } => self.probe(from, &Message::Answer { number }, out),
            Message::Answer { number } => {
                self.links.on_answer(now, from, number);
                self.ask(now, from, out);
            }
        }
        post(mail, out);
    }

    fn on_propose(&mut self, now: Duration, from: PeerId, roster: Roster, out: &mut Outbox) {
        let of = |peer| roster.members.iter().find(move |member| member.id == peer);
        let (Some(proposer), Some(me)) = (of(from).cloned(), of(self.me().id)) else { return };
        let (known_as, generation) = (me.generation, self.me().generation);
        if known_as > generation {
            self.detector.renew_beyond(known_as);
        } else if known_as < generation {
            // The proposer has not heard of our return. When it has, it will propose again.
        } else if self.agrees_to(&proposer, &roster.members) {
            let mut mail = Vec::new();
            // Whose turn it is does its part.
            self.routine.propose = None;
            self.agreement.on_propose(&proposer, roster, &mut mail);
            post(mail, out);
        }
        self.absorb(now, Why::Told { by: from }, out);
    }

    fn on_report(&mut self, from: PeerId, report: Report, out: &mut Outbox) {
        if report.unheard.contains(&self.me().id) {
            // It waits for this, or it never gets it.
            self.probe(from, &Message::Report(self.links.own().clone()), out);
        }
        if report.work == WorkState::Stuck && !self.links.is_stuck(from) {
            out.notes.push(Note::Stuck(from));
        }
        let view = if report.is_void { 0 } else { report.view };
        self.links.on_report(from, report);
        // Who cannot share a view with us has views of its own: to outdo each other in their numbers would keep both from training.
        if !self.links.is_broken(self.me().id, from) {
            self.is_unsettled |= self.agreement.on_status(from, view);
        }
    }

    /// Finds out how near a member is, if that is not known.
    fn ask(&mut self, now: Duration, peer: PeerId, out: &mut Outbox) {
        if self.detector.live().contains_key(&peer)
            && let Some(number) = self.links.question(now, peer)
        {
            self.probe(peer, &Message::Ask { number }, out);
        }
    }

    /// Says something to a member that lives, before all else.
    fn probe(&self, to: PeerId, message: &Message, out: &mut Outbox) {
        out.probes.extend(self.detector.live().get(&to).map(|member| (member.clone(), message.to_packet())));
    }

    fn on_leaving(&mut self, now: Duration, from: PeerId, out: &mut Outbox) {
        if self.lost.remove(from) {
            // Gossip was faster than the goodbye.
            out.notes.push(Note::Left(from));
        }
        self.electorate.miss(from, self.view.as_ref());
        self.give_up(now, from, Why::Left, out);
    }

    /// There is no link to a peer any more. What was on its way is gone, so nothing can be ended in a view that lists it.
    pub(super) fn on_unreachable(&mut self, peer: PeerId) {
        self.links.break_off(peer);
        if let Some(view) = self.view.as_ref().filter(|view| view.rank(peer).is_some()) {
            self.void = Some(view.number);
            self.is_unsettled |= self.agreement.on_status(self.me().id, 0);
        }
    }

    /// The link to a peer broke. Whether its process has ended shows when it is dialled again.
    pub(super) fn on_broken(&mut self, peer: PeerId, out: &mut Outbox) {
        self.on_unreachable(peer);
        if let Some(member) = self.find(peer).filter(|_| !self.electorate.is_gone(peer)) {
            out.probes.push((member.clone(), Message::Report(self.links.own().clone()).to_packet()));
        }
    }

    /// Nobody listens at a peer's address. That is no news of one who was never heard: a firewall may be between.
    pub(super) fn on_refused(&mut self, now: Duration, peer: PeerId, out: &mut Outbox) {
        if self.links.was_heard(peer) || !self.detector.live().contains_key(&peer) {
            self.electorate.miss(peer, self.view.as_ref());
            self.give_up(now, peer, Why::Ended, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_swarm::view::PeerId;

    use super::Message;
    use crate::membership::{Config, Input, Member, Membership, Outbox};

    #[test]
    fn only_the_present_life_agrees_to_a_proposal() {
        let member = |join_index, generation| Member {
            id: PeerId::new(join_index, 0),
            generation,
            address: "10.0.0.1:1".parse().unwrap(),
        };
        for (known_as, agrees, goes_on_as) in [(2, false, 3), (3, true, 3), (7, false, 8)] {
            let mut membership = Membership::new(member(1, 3), &Config::default(), 1);
            let mut out = Outbox::default();
            let members = vec![member(0, 0), member(1, known_as)];
            let bytes = Message::Propose { number: 1 << 12, base: 1 << 12, members }.to_packet();
            membership.handle(Duration::ZERO, Input::Packet { from: member(0, 0).id, bytes }, &mut out).unwrap();
            let agreement = (member(0, 0), Message::Acknowledge { number: 1 << 12 }.to_packet());
            assert_eq!(out.packets.contains(&agreement), agrees, "known as {known_as}");
            assert_eq!(membership.me().generation, goes_on_as, "known as {known_as}");
        }
    }
}
