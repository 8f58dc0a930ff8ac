//! What a node does about who belongs to the swarm: it lets newcomers in, passes on what the owner decides, and keeps out who is no
//! member any more.

use nettorrent_swarm::wire::Frame;
use nettorrent_swarm::{Peer, PeerId};

use super::Node;
use crate::charter::Amendment;
use crate::inbox::LinkId;
use crate::keys::PublicKey;
use crate::membership;
use crate::refusal::Refusal;
use crate::register::Adoption;
use crate::report::Report;
use crate::service::{Answer, Invitation, ListedMember, MemberList};
use crate::word::Word;

/// What people are told whose peer was removed.
const REMOVED: &str = "the swarm's owner has removed this peer for good; the others go on without it";

/// What people are told whose peer has missed a change of keys.
pub(super) const OUTDATED: &str = "the swarm has replaced its keys, and this peer was not among those that it kept: join it anew with its present ticket";

impl Node {
    /// There is a link with a peer: each tells the other what it may have missed.
    pub(super) fn greet(&mut self, peer: PeerId, report: &mut impl FnMut(Report<'_>, &dyn Peer)) {
        let identity = self.endpoint.identity();
        let Some(register) = identity.register() else { return };
        // What the owner has decided may have come while the two shook hands.
        if let Some(refusal) = register.objection(peer) {
            drop(register);
            return self.turn_out(peer, refusal, report);
        }
        let is_behind = register.of(peer).is_some_and(|pass| pass.head.rank() < register.charter().head.rank());
        if is_behind {
            self.tell(peer, &Word::Charter(Box::new(register.amendment().clone())));
        }
        if register.counts_uses() {
            self.tell(peer, &Word::Admitted(register.all_admitted()));
        }
    }

    /// A member tells something about who belongs to the swarm.
    pub(super) fn on_word(
        &mut self,
        (from, link): (PeerId, LinkId),
        frame: &Frame,
        report: &mut impl FnMut(Report<'_>, &dyn Peer),
    ) {
        let identity = self.endpoint.identity();
        let word = self.contacts.find(from, link).and_then(|link| link.read(frame).ok());
        let (Some(word), Some(mut register)) = (word, identity.register()) else {
            return self.contacts.cut(from);
        };
        match word {
            Word::Charter(amendment) => {
                drop(register);
                self.adopt(&amendment, report);
            }
            Word::Renewed(pass) => {
                if !register.on_renewed(from, &pass) {
                    drop(register);
                    self.turn_out(from, Refusal::NoMember, report);
                }
            }
            Word::Admitted(certificates) => register.on_admitted(certificates),
            Word::Removed(word) => {
                if register.is_removed(&word) {
                    self.failure.get_or_insert_with(|| REMOVED.to_owned());
                }
            }
        }
    }

    /// A call has come to nothing. If the reason is that this peer does not belong here any more, it ends.
    pub(super) fn on_refused(&mut self, refusal: Option<Refusal>) {
        let identity = self.endpoint.identity();
        let problem = match refusal {
            Some(Refusal::Removed(word)) => {
                identity.register().filter(|register| register.is_removed(&word)).map(|_| REMOVED)
            }
            Some(Refusal::Outdated) => Some(OUTDATED),
            _ => None,
        };
        if let Some(problem) = problem {
            self.failure.get_or_insert_with(|| problem.to_owned());
        }
    }

    /// Renews the own certificate in time, and parts from those whose certificate has expired.
    pub(super) fn check_certificates(&mut self, report: &mut impl FnMut(Report<'_>, &dyn Peer)) {
        let identity = self.endpoint.identity();
        let Some(mut register) = identity.register() else { return };
        let renewed = register.renew().then(|| Word::Renewed(Box::new(register.pass())));
        let linked: Vec<PeerId> = self.contacts.linked().collect();
        let objections: Vec<_> = linked.iter().filter_map(|peer| Some((*peer, register.objection(*peer)?))).collect();
        drop(register);
        renewed.iter().for_each(|word| linked.iter().for_each(|peer| self.tell(*peer, word)));
        objections.into_iter().for_each(|(peer, refusal)| self.turn_out(peer, refusal, report));
    }

    /// Puts what the owner has decided in force, and passes it on.
    fn adopt(&mut self, amendment: &Amendment, report: &mut impl FnMut(Report<'_>, &dyn Peer)) -> Adoption {
        let identity = self.endpoint.identity();
        let Some(mut register) = identity.register() else { return Adoption::Unsound };
        let adoption = register.adopt(amendment);
        let renewed = Word::Renewed(Box::new(register.pass()));
        drop(register);
        match adoption {
            Adoption::Adopted => {
                let text = "the swarm's owner has replaced its keys; earlier tickets let nobody in any more";
                report(Report::Keys(text.to_owned()), &*self.peer);
                let charter = Word::Charter(Box::new(amendment.clone()));
                for peer in self.contacts.linked().collect::<Vec<_>>() {
                    let objection = identity.register().and_then(|register| register.objection(peer));
                    if let Some(refusal) = objection {
                        self.turn_out(peer, refusal, report);
                    } else {
                        self.tell(peer, &charter);
                        self.tell(peer, &renewed);
                    }
                }
            }
            Adoption::Removed => {
                self.failure.get_or_insert_with(|| REMOVED.to_owned());
            }
            Adoption::Known | Adoption::Unsound => {}
        }
        adoption
    }

    /// Parts from a peer that is no member any more.
    fn turn_out(&mut self, peer: PeerId, refusal: Refusal, report: &mut impl FnMut(Report<'_>, &dyn Peer)) {
        let input = match refusal {
            Refusal::Removed(word) => {
                self.tell(peer, &Word::Removed(word));
                membership::Input::Excluded(peer)
            }
            _ => {
                report(Report::Refused(format!("{peer} was cut off: {refusal}")), &*self.peer);
                membership::Input::CutOff(peer)
            }
        };
        // What was just said to it is sent before its links end.
        self.contacts.cut(peer);
        self.on_members(input, report);
    }

    fn tell(&self, peer: PeerId, word: &Word) {
        if let Some(link) = self.contacts.link(peer) {
            link.say(word);
        }
    }

    /// Lets somebody in, and tells the others.
    pub(super) fn admit(&mut self, link: LinkId) -> Option<Answer> {
        let key = self.visitors.key(link)?;
        let (identity, members) = (self.endpoint.identity(), self.members());
        let admitted = identity.register()?.admit(&key, members.iter().map(|(peer, _)| *peer));
        Some(match admitted {
            Ok(admission) => {
                let word = Word::Admitted(vec![admission.certificate.clone()]);
                self.contacts.linked().collect::<Vec<_>>().iter().for_each(|peer| self.tell(*peer, &word));
                let package = self.settings.package.clone();
                Answer::Join(Box::new(Invitation { package, admission, members }))
            }
            Err(reason) => Answer::NotAdmitted(reason),
        })
    }

    /// Takes what the owner has decided from somebody who brings it.
    pub(super) fn amend(&mut self, amendment: &Amendment, report: &mut impl FnMut(Report<'_>, &dyn Peer)) -> Answer {
        let is_in_force = matches!(self.adopt(amendment, report), Adoption::Adopted);
        Answer::Amended { is_in_force }
    }

    /// Who belongs to the swarm.
    pub(super) fn list(&self) -> Option<Answer> {
        let identity = self.endpoint.identity();
        let register = identity.register()?;
        let listed = |member: &membership::Member| {
            let known = register.of(member.id).map(|pass| &pass.certificate);
            let certificate = if member.id == register.own().peer() { Some(register.own()) } else { known }?;
            let (key, since, expires): (PublicKey, _, _) =
                (*certificate.key(), certificate.since(), certificate.expires());
            Some(ListedMember { peer: member.id, key, address: member.address.clone(), since, expires })
        };
        let members = self.membership.members().filter_map(listed).collect();
        Some(Answer::Members(Box::new(MemberList {
            charter: register.charter().clone(),
            keys: register.keys(),
            members,
        })))
    }
}
