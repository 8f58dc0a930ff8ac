//! What a membership does by itself: propose when all is calm, repeat itself, report, look for the lost.

use std::time::Duration;

use foca::Timer;

use super::agreement::Letter;
use super::member::Member;
use super::message::Message;
use super::note::{Note, Why};
use super::{Membership, Outbox, post};

/// How many of the living look for the lost at a time: if all did, a dead peer would be dialled by the whole swarm.
const N_SEEKERS: usize = 4;

/// How many of the lost are tried at a time.
const N_SOUGHT: usize = 4;

impl Membership {
    pub(super) fn on_wake(&mut self, now: Duration, out: &mut Outbox) {
        if let Some(slept) =
            self.routine.report.map(|at| now.saturating_sub(at)).filter(|late| *late > self.timing.grace)
        {
            self.links.forgive(slept);
            self.deadlocks.forgive(slept);
        }
        while let Some(timer) = self.reminders.pop(now, self.timing.grace) {
            self.remind(now, timer);
            self.absorb(now, Why::Silent, out);
        }
        if self.routine.warn.take_if(|at| *at <= now).is_some() {
            self.warn(now, out);
        }
        if self.routine.propose.take_if(|at| *at <= now).is_some() {
            self.propose(now, out);
        }
        if self.routine.resend.take_if(|at| *at <= now).is_some() {
            self.resend(now, out);
        }
        if self.routine.report.take_if(|at| *at <= now).is_some() {
            self.report(now, out);
        }
        if self.routine.tidy.take_if(|at| *at <= now).is_some() {
            self.tidy(now, out);
        }
        if self.routine.seek.take_if(|at| *at <= now).is_some() {
            self.seek(now, out);
        }
    }

    /// Decides when to propose a view, if that may be up to us: a little after the first change, so that what changes at the same
    /// time makes one view; and after so many others have let their time pass who should have done it.
    pub(super) fn plan_proposal(&mut self, now: Duration, turn: Option<usize>) {
        let Some(turn) = turn else {
            self.routine.propose = None;
            return;
        };
        let begins = self.electorate.waits_until().filter(|at| *at > now);
        let soon = begins.unwrap_or(now + self.timing.calm) + self.timing.turn * turn as u32;
        let planned = self.routine.propose.filter(|_| begins.is_none());
        self.routine.propose = Some(planned.unwrap_or(soon).min(soon));
    }

    /// Our place among those who may propose a view of these; none if we may not, or need not.
    pub(super) fn turn(&self, candidates: &[&Member]) -> Option<usize> {
        let live = self.detector.live();
        // Who waits for introduction would only make a view of itself alone, to be merged with the others' at once.
        let is_introduced = self.introducers.is_empty() || live.len() > 1 || self.view.is_some();
        let turn = self.proposers(candidates).iter().position(|proposer| *proposer == self.me().id);
        let is_due = match turn {
            Some(0) => self.agreement.is_out_of_date(candidates),
            // What was said once is old by then: what counts is what others say now.
            _ => {
                let members = candidates.iter().copied().filter(|candidate| self.agreement.is_member(candidate));
                self.agreement.needs_view(candidates, self.links.are_parted(members))
            }
        };
        turn.filter(|_| is_introduced && is_due)
    }

    /// Reminds the detector, but not that a suspect is to be given up of whom something has arrived of late: on a full link its
    /// objection may be under way for long.
    fn remind(&mut self, now: Duration, timer: Timer<Member>) {
        if let Timer::ChangeSuspectToDown { member_id, .. } = &timer
            && let Some(heard) = self.links.last_heard(member_id.id)
            && now < heard + self.timing.suspicion
        {
            return self.reminders.set(heard + self.timing.suspicion, timer);
        }
        self.detector.remind(timer);
    }

    fn propose(&mut self, now: Duration, out: &mut Outbox) {
        self.agreement.forget_all_but(self.detector.live());
        let candidates = self.candidates();
        if self.turn(&candidates).is_none() {
            return;
        }
        let mut mail = Vec::new();
        let candidates: Vec<Member> = candidates.into_iter().cloned().collect();
        let base = self.view.as_ref().filter(|_| self.electorate.is_short()).map(|view| view.base);
        match self.agreement.propose(now, (candidates, base), &mut mail) {
            Ok(()) => self.routine.resend = Some(now + self.timing.resend),
            Err(_) if self.routine.is_out_of_numbers => {}
            Err(_) => {
                self.routine.is_out_of_numbers = true;
                out.notes.push(Note::OutOfNumbers);
            }
        }
        post(mail, out);
    }

    /// Says again what was not answered, if it is still needed, and leaves out those who have not answered for as long as the silent are
    /// given.
    fn resend(&mut self, now: Duration, out: &mut Outbox) {
        let candidates: Vec<Member> = self.candidates().into_iter().cloned().collect();
        self.agreement.withdraw(&candidates);
        for peer in self.agreement.leave_out(now, self.timing.deadline) {
            out.notes.push(Note::Lost { peer, why: Why::NoAnswer });
        }
        let mut mail = Vec::new();
        if self.agreement.resend(&mut mail) {
            self.routine.resend = Some(now + self.timing.resend);
        }
        post(mail, out);
    }

    /// Warns those whom we are about to give up, again and again. Foca tells them by gossip, which dies down, so a suspect
    /// whose link was broken for a while would not know that it has to object.
    pub(super) fn warn(&mut self, now: Duration, out: &mut Outbox) {
        self.suspicions.retain(|_, (suspect, incarnation)| self.detector.is_suspect(suspect, *incarnation));
        for (suspect, incarnation) in self.suspicions.values() {
            let message = Message::Suspected { generation: suspect.generation, incarnation: *incarnation };
            post(vec![Letter::new(suspect, message)], out);
        }
        self.routine.warn = (!self.suspicions.is_empty()).then_some(now + self.timing.probe);
    }

    /// Tells everybody how we are and whom we hear.
    fn report(&mut self, now: Duration, out: &mut Outbox) {
        self.routine.report = Some(now + self.timing.report);
        let bytes = Message::Report(self.links.own().clone()).to_packet();
        let me = self.me().id;
        out.probes
            .extend(self.members().filter(|member| member.id != me).map(|member| (member.clone(), bytes.clone())));
        self.tell_left_out(now, out);
        out.notes.extend(self.electorate.take_note(now, self.timing.report));
        self.resolve_deadlock(now, out);
    }

    /// Where all wait for each other, refuses one of them.
    fn resolve_deadlock(&mut self, now: Duration, out: &mut Outbox) {
        self.deadlocks.tidy(now, |peer| self.detector.live().contains_key(&peer));
        let refused = self.deadlocks.resolve(now, self.timing.deadline, self.me().id, &self.links.works());
        out.notes.extend(refused.map(|(peer, lasts)| Note::Withholds { peer, lasts }));
    }

    /// Speaks to members of the view who are missed, and forgets those who died long ago.
    fn tidy(&mut self, now: Duration, out: &mut Outbox) {
        self.routine.tidy = Some(now + self.timing.tidy);
        for member in self.reminders.pop_graves(now) {
            self.detector.remind(Timer::RemoveDown(member));
        }
        // Two members may take each other for dead while all others know better. Then one of them has to speak first.
        for member in self.agreement.missed(self.detector.live()) {
            self.detector.announce(&member);
        }
        self.absorb(now, Why::Silent, out);
    }

    /// Asks for introduction, and tries whether some of the lost are there again.
    pub(super) fn seek(&mut self, now: Duration, out: &mut Outbox) {
        for introducer in self.introducers.clone() {
            self.detector.announce(&introducer);
        }
        for member in self.sought() {
            self.detector.announce(&member);
        }
        let is_alone = self.detector.live().len() == 1;
        let pause = match (is_alone, &self.view) {
            (true, None) => self.timing.deadline / 5,
            (true, Some(_)) => self.timing.deadline,
            (false, _) => self.timing.seek,
        };
        self.routine.seek = Some(now + pause);
        self.absorb(now, Why::Silent, out);
    }

    /// Whom to look for now. A few members look at a time, in turns, because each may know of others.
    fn sought(&mut self) -> Vec<Member> {
        let me = self.me().id;
        let rank = self.members().take_while(|member| member.id != me).count();
        let n_turns = self.detector.live().len().div_ceil(N_SEEKERS);
        self.routine.n_searches += 1;
        let is_our_turn = (rank + self.routine.n_searches).is_multiple_of(n_turns);
        self.lost.next(if is_our_turn { N_SOUGHT } else { 0 })
    }
}
