//! Whom a membership would have in the next view, who is to propose it, and what is said to those who are left out.

use std::collections::BTreeSet;
use std::time::Duration;

use nettorrent_swarm::view::PeerId;

use super::clique::clique;
use super::member::Member;
use super::note::Note;
use super::{Membership, Outbox};

impl Membership {
    /// Who should make up the view: all who live, answer, get on with their work, and hear each other.
    pub(super) fn candidates(&self) -> Vec<&Member> {
        let takes_part = |member: &&Member| self.agreement.answers(member.id) && !self.links.is_stuck(member.id);
        let live = self.detector.live().values().filter(takes_part);
        clique(live, |member| self.agreement.is_member(member), &self.links)
    }

    /// Finds out whether those who could make up the next view are enough, and whether we propose it. Who is left out waits in any
    /// case.
    pub(super) fn reconsider(&mut self, now: Duration) {
        let candidates = self.candidates();
        let turn = self.turn(&candidates);
        let ids: BTreeSet<PeerId> = candidates.iter().map(|member| member.id).collect();
        let view = self.view.as_ref().filter(|_| ids.contains(&self.me().id));
        self.electorate.count(now, view, &ids);
        self.plan_proposal(now, turn);
    }

    /// Who of the candidates may propose their view, in order: those who share ours; if there are none, those who hold any; and only
    /// where nobody holds one, all. So a newcomer never proposes to those who are there, nor does a member that has lost its
    /// memory. A member that is still in an earlier view waits for others itself, so nobody waits for it.
    pub(super) fn proposers(&self, candidates: &[&Member]) -> Vec<PeerId> {
        let holders = || candidates.iter().filter(|candidate| self.links.holds_view(candidate.id));
        let shares_view = |holder: &&&Member| self.agreement.is_member(holder) && self.links.keeps_up(holder.id);
        let sharers = holders().filter(shares_view).map(|member| member.id);
        let holders = holders().map(|member| member.id);
        let all = candidates.iter().map(|member| member.id);
        [sharers.collect::<Vec<_>>(), holders.collect(), all.collect()]
            .into_iter()
            .find(|proposers| !proposers.is_empty())
            .unwrap_or_default()
    }

    /// Whether to agree to a view that this peer proposes. One who does not share ours may not part us from those who do.
    pub(super) fn agrees_to(&self, proposer: &Member, members: &[Member]) -> bool {
        let me = self.me().id;
        let candidates = self.candidates();
        let lists = |peer: PeerId| members.iter().any(|member| member.id == peer);
        self.agreement.is_member(proposer)
            || !candidates.iter().any(|candidate| candidate.id == me)
            || candidates.iter().filter(|candidate| self.agreement.is_member(candidate)).all(|member| lists(member.id))
    }

    /// Tells of those who have been left out for long for want of a link: who, and which link.
    pub(super) fn tell_left_out(&mut self, now: Duration, out: &mut Outbox) {
        let blocked = self.blocked();
        self.left_out.retain(|peer| blocked.iter().any(|(member, _)| member.id == peer));
        for (member, other) in blocked {
            if self.left_out.is_due(member.id, now, self.timing.deadline) {
                out.notes.push(Note::LeftOut { member, other });
            }
        }
    }

    /// Who cannot take part, and with whom it lacks a link. Who takes no part itself knows that only of itself.
    fn blocked(&self) -> Vec<(Member, Member)> {
        let me = self.me();
        let candidates = self.candidates();
        let is_chosen = |member: &Member| candidates.iter().any(|candidate| candidate.id == member.id);
        let lacks = |member: &Member, others: &[&Member]| {
            let other = others.iter().find(|other| self.links.is_cut(member.id, other.id))?;
            Some((member.clone(), (*other).clone()))
        };
        let live = self.detector.live().values();
        if !self.agreement.is_member(me) || !is_chosen(me) {
            let others: Vec<_> = live.filter(|member| member.id != me.id).collect();
            return lacks(me, &others).into_iter().collect();
        }
        live.filter(|member| !is_chosen(member)).filter_map(|member| lacks(member, &candidates)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foca::{Codec, Header, PostcardCodec};
    use nettorrent_swarm::view::PeerId;

    use crate::membership::links::Report;
    use crate::membership::message::{Message, detector_packet};
    use crate::membership::{Config, Input, Member, Membership, Outbox};

    fn member(join_index: u32) -> Member {
        Member { id: PeerId::new(join_index, 0), generation: 0, address: "10.0.0.1:1".parse().unwrap() }
    }

    fn hear(membership: &mut Membership, bytes: bytes::Bytes) {
        hear_at(Duration::ZERO, membership, 0, bytes);
    }

    fn hear_at(now: Duration, membership: &mut Membership, from: u32, bytes: bytes::Bytes) -> Outbox {
        let mut out = Outbox::default();
        membership.handle(now, Input::Packet { from: member(from).id, bytes }, &mut out).unwrap();
        out
    }

    /// What a failure detector asks member 1.
    fn ping(from: u32) -> bytes::Bytes {
        let mut ping = Vec::new();
        let message = foca::Message::Ping(1);
        let header = Header { src: member(from), src_incarnation: 0, dst: member(1), message };
        PostcardCodec.encode_header(&header, &mut ping).unwrap();
        detector_packet(&ping)
    }

    /// Member 1 in a view with member 0, and the view's number.
    fn in_view() -> (Membership, u32) {
        let mut membership = Membership::new(member(1), &Config::default(), 1);
        hear(&mut membership, ping(0));
        let number = 9 << 12;
        let members = vec![member(0), member(1)];
        hear(&mut membership, Message::Propose { number, base: number, members }.to_packet());
        hear(&mut membership, Message::Commit { number }.to_packet());
        assert_eq!(membership.view().map(|view| view.number), Some(number));
        (membership, number)
    }

    #[test]
    fn nobody_waits_for_a_member_that_is_still_in_an_earlier_view() {
        let (mut membership, number) = in_view();
        for (view, proposer) in [(number, 0), (number - 1, 1), (0, 1), (number + 1, 0)] {
            hear(&mut membership, Message::Report(Report { view, ..Report::default() }).to_packet());
            let chosen = membership.proposers(&membership.candidates());
            assert_eq!(chosen[0], member(proposer).id, "it holds view {view}");
        }
    }

    #[test]
    fn if_the_first_does_not_propose_a_newcomer_the_second_does() {
        let (mut membership, view) = in_view();
        let deadline = Config::default().deadline;
        let is_proposal = |(_, bytes): &(Member, bytes::Bytes)| bytes.starts_with(&[1, 0]);
        hear_at(Duration::ZERO, &mut membership, 2, ping(2));
        let [first, newcomer] = [(view, vec![member(2).id]), (0, vec![member(0).id, member(1).id])]
            .map(|(view, beyond)| Message::Report(Report { view, beyond, ..Report::default() }).to_packet());
        let mut proposed = None;
        for step in 0..500 {
            let now = deadline / 100 * step;
            let mut out = Outbox::default();
            membership.handle(now, Input::Wake, &mut out).unwrap();
            for (from, report) in [(0, &first), (2, &newcomer)] {
                out.packets.extend(hear_at(now, &mut membership, from, report.clone()).packets);
            }
            if out.packets.iter().any(is_proposal) {
                proposed.get_or_insert(now);
            }
        }
        let after = proposed.expect("it proposes");
        assert!(after >= deadline * 3 && after <= deadline * 4, "the first has its time, and no more: {after:?}");
    }
}
