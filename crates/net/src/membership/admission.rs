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

    /// Finds out whether those who could make up the next view are enough. Who is left out waits in any case.
    pub(super) fn count_candidates(&mut self, now: Duration) {
        let candidates: BTreeSet<PeerId> = self.candidates().iter().map(|member| member.id).collect();
        let view = self.view.as_ref().filter(|_| candidates.contains(&self.me().id));
        self.electorate.count(now, view, &candidates);
    }

    /// Who of the candidates proposes their view: the first of those who share ours; if there is none, the first who holds any;
    /// and only where nobody holds one, whoever is first. So a newcomer never proposes to those who are there, nor does a
    /// member that has lost its memory.
    pub(super) fn proposer(&self, candidates: &[&Member]) -> Option<PeerId> {
        let mut holders = candidates.iter().filter(|candidate| self.links.holds_view(candidate.id));
        let sharer = holders.clone().find(|holder| self.agreement.is_member(holder));
        sharer.or_else(|| holders.next()).or(candidates.first()).map(|member| member.id)
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
            let other = others.iter().find(|other| self.links.is_broken(member.id, other.id))?;
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
