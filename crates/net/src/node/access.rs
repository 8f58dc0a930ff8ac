//! What a node does about who belongs to the swarm: it lets newcomers in, passes on what the owner decides, and keeps out who is no
//! member any more.

use nettorrent_swarm::PeerId;
use nettorrent_swarm::wire::Frame;

use super::{Node, Tell};
use crate::address::Address;
use crate::inbox::LinkId;
use crate::keys::PublicKey;
use crate::membership;
use crate::policy::PolicyUpdate;
use crate::refusal::Refusal;
use crate::report::Report;
use crate::service::{Answer, Invitation, ListedMember, MemberList};
use crate::ticket::MAX_ADDRESSES;
use crate::trust_message::TrustMessage;
use crate::trust_store::Adoption;

/// What people are told whose peer was removed.
const REMOVED: &str = "the swarm's owner has removed this peer for good; the others go on without it";

/// What people are told whose peer has missed a change of keys.
pub(super) const OUTDATED: &str = "the swarm has replaced its keys, and this peer was not among those that it kept: join it anew with its present ticket";

impl Node {
    /// There is a link with a peer: each tells the other what it may have missed.
    pub(super) fn greet(&mut self, peer: PeerId, report: Tell<'_>) {
        let identity = self.endpoint.identity();
        let Some(trust_store) = identity.trust_store() else { return };
        // What the owner has decided may have come while the two shook hands.
        if let Some(refusal) = trust_store.objection(peer) {
            drop(trust_store);
            return self.turn_out(peer, refusal, report);
        }
        let is_behind = trust_store.of(peer).is_some_and(|pass| pass.head.rank() < trust_store.policy().head.rank());
        if is_behind {
            self.tell(peer, &TrustMessage::Policy(Box::new(trust_store.policy_update().clone())));
        }
        if trust_store.counts_uses() {
            self.tell(peer, &TrustMessage::Admitted(trust_store.all_admitted()));
        }
    }

    /// A member tells something about who belongs to the swarm.
    pub(super) fn on_trust_message(&mut self, (from, link): (PeerId, LinkId), frame: &Frame, report: Tell<'_>) {
        let identity = self.endpoint.identity();
        let message = self.contacts.find(from, link).and_then(|link| link.read(frame).ok());
        let (Some(message), Some(mut trust_store)) = (message, identity.trust_store()) else {
            return self.contacts.cut(from);
        };
        match message {
            TrustMessage::Policy(policy_update) => {
                drop(trust_store);
                self.adopt(&policy_update, report);
            }
            TrustMessage::Renewed(pass) => {
                if !trust_store.on_renewed(from, &pass) {
                    drop(trust_store);
                    self.turn_out(from, Refusal::NoMember, report);
                }
            }
            TrustMessage::Admitted(certificates) => trust_store.on_admitted(certificates),
            TrustMessage::Removed(signature) => {
                if trust_store.is_removed(&signature) {
                    self.failure.get_or_insert_with(|| REMOVED.to_owned());
                }
            }
        }
    }

    /// A call has come to nothing. If the reason is that this peer does not belong here any more, it ends.
    pub(super) fn on_refused(&mut self, refusal: Option<Refusal>) {
        let identity = self.endpoint.identity();
        let problem = match refusal {
            Some(Refusal::Removed(signature)) => {
                identity.trust_store().filter(|trust_store| trust_store.is_removed(&signature)).map(|_| REMOVED)
            }
            Some(Refusal::Outdated) => Some(OUTDATED),
            _ => None,
        };
        if let Some(problem) = problem {
            self.failure.get_or_insert_with(|| problem.to_owned());
        }
    }

    /// Renews the own certificate in time, and parts from those whose certificate has expired.
    pub(super) fn check_certificates(&mut self, report: Tell<'_>) {
        let identity = self.endpoint.identity();
        let Some(mut trust_store) = identity.trust_store() else { return };
        let renewed = trust_store.renew().then(|| TrustMessage::Renewed(Box::new(trust_store.pass())));
        let linked: Vec<PeerId> = self.contacts.linked().collect();
        let objections: Vec<_> =
            linked.iter().filter_map(|peer| Some((*peer, trust_store.objection(*peer)?))).collect();
        drop(trust_store);
        renewed.iter().for_each(|message| linked.iter().for_each(|peer| self.tell(*peer, message)));
        objections.into_iter().for_each(|(peer, refusal)| self.turn_out(peer, refusal, report));
    }

    /// Puts what the owner has decided in force, and passes it on.
    fn adopt(&mut self, policy_update: &PolicyUpdate, report: Tell<'_>) -> Adoption {
        let identity = self.endpoint.identity();
        let Some(mut trust_store) = identity.trust_store() else { return Adoption::Unsound };
        let adoption = trust_store.adopt(policy_update);
        let renewed = TrustMessage::Renewed(Box::new(trust_store.pass()));
        drop(trust_store);
        match adoption {
            Adoption::Adopted => {
                let text = "the swarm's owner has replaced its keys; earlier tickets let nobody in any more";
                report(Report::Keys(text.to_owned()), &*self.peer);
                let policy = TrustMessage::Policy(Box::new(policy_update.clone()));
                for peer in self.contacts.linked().collect::<Vec<_>>() {
                    let objection = identity.trust_store().and_then(|trust_store| trust_store.objection(peer));
                    if let Some(refusal) = objection {
                        self.turn_out(peer, refusal, report);
                    } else {
                        self.tell(peer, &policy);
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
    fn turn_out(&mut self, peer: PeerId, refusal: Refusal, report: Tell<'_>) {
        let input = match refusal {
            Refusal::Removed(signature) => {
                self.tell(peer, &TrustMessage::Removed(signature));
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

    fn tell(&self, peer: PeerId, message: &TrustMessage) {
        if let Some(link) = self.contacts.link(peer) {
            link.say(message);
        }
    }

    /// Lets somebody in, and tells the others.
    pub(super) fn admit(&mut self, link: LinkId) -> Option<Answer> {
        let key = self.visitors.key(link)?;
        let (identity, members) = (self.endpoint.identity(), self.members());
        let admitted = identity.trust_store()?.admit(&key, members.iter().map(|(peer, _)| *peer));
        Some(match admitted {
            Ok(admission) => {
                let message = TrustMessage::Admitted(vec![admission.certificate.clone()]);
                self.contacts.linked().collect::<Vec<_>>().iter().for_each(|peer| self.tell(*peer, &message));
                let package = self.settings.package.clone();
                Answer::Join(Box::new(Invitation { package, admission, members }))
            }
            Err(reason) => Answer::NotAdmitted(reason),
        })
    }

    /// Takes what the owner has decided from somebody who brings it.
    pub(super) fn amend(&mut self, policy_update: &PolicyUpdate, report: Tell<'_>) -> Answer {
        let is_in_force = matches!(self.adopt(policy_update, report), Adoption::Adopted);
        Answer::Amended { is_in_force }
    }

    /// Tells with what others ask to be let in, if that has changed.
    pub(super) fn tell_of_ticket(&mut self, report: Tell<'_>) {
        let ticket = self.endpoint.identity().ticket(self.ticket_addresses());
        if ticket != self.ticket {
            ticket.iter().for_each(|ticket| report(Report::Ticket(ticket), &*self.peer));
            self.ticket = ticket;
        }
    }

    /// Where newcomers may ask: here; at other members, each naming those who follow it first, so that not all are sent to the same;
    /// and at what else this machine is called.
    fn ticket_addresses(&self) -> Vec<Address> {
        let (me, own) = (self.endpoint.identity().peer, &self.settings.address);
        let (after, before): (Vec<_>, Vec<_>) = self.membership.members().partition(|member| member.id > me);
        let members = after.into_iter().chain(before).map(|member| &member.address);
        let local = self.endpoint.addresses();
        let aliases = if local.contains(own) { local } else { &[] };
        let mut addresses = vec![own.clone()];
        for address in members.chain(aliases) {
            if addresses.len() == MAX_ADDRESSES {
                break;
            }
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    /// Who belongs to the swarm.
    pub(super) fn list(&self) -> Option<Answer> {
        let identity = self.endpoint.identity();
        let trust_store = identity.trust_store()?;
        let listed = |member: &membership::Member| {
            let known = trust_store.of(member.id).map(|pass| &pass.certificate);
            let certificate = if member.id == trust_store.own().peer() { Some(trust_store.own()) } else { known }?;
            let (key, since, expires): (PublicKey, _, _) =
                (*certificate.key(), certificate.since(), certificate.expires());
            Some(ListedMember { peer: member.id, key, address: member.address.clone(), since, expires })
        };
        let members = self.membership.members().filter_map(listed).collect();
        Some(Answer::Members(Box::new(MemberList {
            policy: trust_store.policy().clone(),
            keys: trust_store.keys(),
            members,
        })))
    }
}
