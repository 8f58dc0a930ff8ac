//! How all members come to hold the same view: the lowest of the living proposes, all agree, it tells them so.
//!
//! ```text
//! proposer  PROPOSE(number, members) -> all      each promises to agree to no lower number
//!           <- ACKNOWLEDGE(number) of all
//!           COMMIT(number) -> all                each puts the view in place
//!           <- DONE(number) of all
//! ```
//!
//! So a view is in place somewhere only after all its members have heard of it. Whoever has promised more REFUSEs, and says
//! how much, and the proposer goes above that. A proposer that dies is followed by the next lowest; a member that dies
//! meanwhile changes who lives, and that makes a new proposal. Two proposers at a time cost time, never agreement, because
//! their numbers differ and a member agrees to each number once.
//!
//! Whether a member still holds what it has confirmed is asked in a roundabout way: every member tells all others now and
//! then which view it holds (REPORT), and the proposer makes a new one where that is not the right one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nettorrent_swarm::view::{PeerId, View};

use super::member::Member;
use super::message::Message;
use super::number::{Numbers, within_reach};

/// One peer's part in agreeing on views.
pub(super) struct Agreement {
    me: PeerId,
    wait_for: usize,
    numbers: Numbers,
    /// Nothing with a number up to this is agreed to any more.
    promised: u32,
    view: Option<Roster>,
    /// What was agreed to and is not yet in place, and who proposed it.
    pending: Option<(PeerId, Roster)>,
    round: Option<Round>,
    /// Who lives as others say, but does not answer us; left out until it is heard.
    mute: BTreeSet<PeerId>,
    /// Somebody does not hold the view that it should hold, and only a new one helps.
    is_stale: bool,
    /// Somebody has a view, so the first has been.
    has_begun: bool,
    news: Option<View>,
}

/// A numbered list of members, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) number: u32,
    /// The latest view that had a quorum, by number: this one, or an earlier one.
    pub(super) base: u32,
    pub(super) members: Vec<Member>,
}

/// A proposal of our own.
struct Round {
    roster: Roster,
    stage: Stage,
    /// Who has not answered in this stage.
    missing: BTreeSet<PeerId>,
    since: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Proposed,
    Committed,
}

/// Something to send.
pub(super) struct Letter {
    pub(super) to: Vec<Member>,
    pub(super) message: Message,
}

/// There is no higher number.
#[derive(Debug)]
pub(super) struct OutOfNumbers;

impl Agreement {
    pub(super) fn new(me: PeerId, wait_for: usize, salt: u64) -> Self {
        Self {
            me,
            wait_for,
            numbers: Numbers::new(me, salt),
            promised: 0,
            view: None,
            pending: None,
            round: None,
            mute: BTreeSet::new(),
            is_stale: false,
            has_begun: false,
            news: None,
        }
    }

    /// The view that was put in place since this was called last.
    pub(super) fn take_news(&mut self) -> Option<View> {
        self.news.take()
    }

    /// A member of anything that is agreed on or under way.
    pub(super) fn find(&self, peer: PeerId) -> Option<&Member> {
        let pending = self.pending.as_ref().map(|(_, roster)| roster);
        let round = self.round.as_ref().map(|round| &round.roster);
        [self.view.as_ref(), pending, round].into_iter().flatten().find_map(|roster| roster.find(peer))
    }

    /// The members of the view who do not live as far as we know.
    pub(super) fn missed(&self, live: &BTreeMap<PeerId, Member>) -> Vec<Member> {
        let members = self.view.iter().flat_map(|view| &view.members);
        members.filter(|member| !live.contains_key(&member.id)).cloned().collect()
    }

    /// Whether this is not the view that these should hold.
    pub(super) fn is_out_of_date(&self, candidates: &[&Member]) -> bool {
        self.needs_view(candidates, self.is_stale)
    }

    /// The same, if it is known from elsewhere whether somebody does not hold the view that it should hold.
    pub(super) fn needs_view(&self, candidates: &[&Member], is_stale: bool) -> bool {
        if self.n_missing(candidates.len()) > 0 {
            return false;
        }
        let latest = self.round.as_ref().map(|round| &round.roster).or(self.view.as_ref());
        is_stale || !latest.is_some_and(|roster| roster.lists(candidates.iter().copied()))
    }

    /// How many more the next view waits for, where so many are there.
    pub(super) fn n_missing(&self, n_there: usize) -> usize {
        let n_wanted = if self.has_begun { 1 } else { self.wait_for };
        n_wanted.saturating_sub(n_there)
    }

    /// Whether a member answers as far as we know.
    pub(super) fn answers(&self, peer: PeerId) -> bool {
        !self.mute.contains(&peer)
    }

    /// Whether somebody takes part in the view, in its present life.
    pub(super) fn is_member(&self, member: &Member) -> bool {
        let known = self.view.as_ref().and_then(|view| view.find(member.id));
        known.is_some_and(|known| known.generation == member.generation)
    }

    /// Proposes a view of these; if they are too few, it goes back to an earlier one that was not.
    pub(super) fn propose(
        &mut self,
        now: Duration,
        (members, base): (Vec<Member>, Option<u32>),
        mail: &mut Vec<Letter>,
    ) -> Result<(), OutOfNumbers> {
        let number = self.numbers.next(self.promised).ok_or(OutOfNumbers)?;
        self.promised = number;
        self.pending = None;
        self.is_stale = false;
        let roster = Roster { number, base: base.unwrap_or(number), members };
        self.round = Some(Round { missing: roster.others(self.me), roster, stage: Stage::Proposed, since: now });
        self.resend(mail);
        self.commit_if_complete(now, mail);
        Ok(())
    }

    /// Says again what has not been answered. Returns whether there was anything.
    pub(super) fn resend(&self, mail: &mut Vec<Letter>) -> bool {
        let Some(round) = &self.round else { return false };
        let missing = |member: &&Member| round.missing.contains(&member.id);
        let to: Vec<_> = round.roster.members.iter().filter(missing).cloned().collect();
        let Roster { number, base, members } = round.roster.clone();
        let message = match round.stage {
            Stage::Proposed => Message::Propose { number, base, members },
            Stage::Committed => Message::Commit { number },
        };
        if !to.is_empty() {
            mail.push(Letter { to, message });
        }
        true
    }

    /// Gives up a proposal of our own that would change what need not change: the view is one of these, and nothing else was to be mended.
    pub(super) fn withdraw(&mut self, candidates: &[Member]) {
        let is_right = |roster: &Roster| roster.lists(candidates.iter());
        let is_in_place = self.view.as_ref().is_some_and(is_right);
        self.round.take_if(|round| is_in_place && round.stage == Stage::Proposed && !is_right(&round.roster));
    }

    /// These live; nobody else is left out.
    pub(super) fn forget_all_but(&mut self, live: &BTreeMap<PeerId, Member>) {
        self.mute.retain(|peer| live.contains_key(peer));
    }

    /// Leaves out those who have not answered for this long, and returns them. They live, or they would have been given up
    /// before, so others can talk to them and we cannot; without them the others can at least go on.
    pub(super) fn leave_out(&mut self, now: Duration, patience: Duration) -> Vec<PeerId> {
        let overdue = self.round.iter().filter(|round| now.saturating_sub(round.since) >= patience);
        let missing = overdue.flat_map(|round| round.missing.iter().copied());
        missing.filter(|peer| self.mute.insert(*peer)).collect()
    }

    /// A packet of this peer has arrived. Returns whether it was left out.
    pub(super) fn hear(&mut self, peer: PeerId) -> bool {
        self.mute.remove(&peer)
    }

    /// Somebody proposes a view; it lists both of us, sorted.
    pub(super) fn on_propose(&mut self, from: &Member, roster: Roster, mail: &mut Vec<Letter>) {
        let number = roster.number;
        // What is already in place is proposed again only by somebody who has forgotten it, and the others should notice.
        let is_known =
            self.pending.as_ref().is_some_and(|(proposer, pending)| *proposer == from.id && *pending == roster);
        let is_higher = number > self.promised;
        self.raise_promise(number);
        // Who is too far above us is refused, and proposes again until we are there.
        if is_higher && number == self.promised {
            self.pending = Some((from.id, roster));
            self.round = None;
        } else if !is_known {
            self.refuse(from, number, mail);
            return;
        }
        mail.push(Letter::new(from, Message::Acknowledge { number }));
    }

    /// Somebody agrees to a proposal.
    pub(super) fn on_acknowledge(&mut self, now: Duration, from: PeerId, number: u32, mail: &mut Vec<Letter>) {
        if let Some(round) = self.round.as_mut().filter(|round| round.is(number, Stage::Proposed)) {
            round.missing.remove(&from);
            self.commit_if_complete(now, mail);
        }
    }

    /// Somebody has promised more than we propose, or does not know what we tell it.
    pub(super) fn on_refuse(&mut self, from: PeerId, number: u32, promised: u32) {
        if self.round.as_ref().is_some_and(|round| round.roster.number == number && round.missing.contains(&from)) {
            self.raise_promise(promised);
            self.round = None;
            self.is_stale = true;
        }
    }

    /// A proposal has become the view.
    pub(super) fn on_commit(&mut self, from: &Member, number: u32, mail: &mut Vec<Letter>) {
        let is_pending = |(proposer, roster): &mut (PeerId, Roster)| *proposer == from.id && roster.number == number;
        if let Some((_, roster)) = self.pending.take_if(is_pending) {
            self.put_in_place(roster);
        }
        if self.view.as_ref().is_some_and(|view| view.number == number) {
            mail.push(Letter::new(from, Message::Done { number }));
        } else {
            self.refuse(from, number, mail);
        }
    }

    /// Somebody has put the view in place.
    pub(super) fn on_done(&mut self, from: PeerId, number: u32) {
        if let Some(round) = self.round.as_mut().filter(|round| round.is(number, Stage::Committed)) {
            round.missing.remove(&from);
        }
        self.round.take_if(|round| round.stage == Stage::Committed && round.missing.is_empty());
    }

    /// Somebody holds this view. Returns whether that may ask for another.
    pub(super) fn on_status(&mut self, from: PeerId, number: u32) -> bool {
        let before = (self.is_stale, self.has_begun);
        self.raise_promise(number);
        self.has_begun |= number > 0;
        let mine = self.view.as_ref().map_or(0, |view| view.number);
        let has_lost_it = number < mine && self.view.as_ref().is_some_and(|view| view.find(from).is_some());
        // While a round goes on, everybody is asked anyway.
        self.is_stale |= self.round.is_none() && (number > mine || has_lost_it);
        (self.is_stale, self.has_begun) != before
    }

    /// Somebody names a number: nothing up to it is agreed to any more, as far as one message may say so.
    fn raise_promise(&mut self, number: u32) {
        self.promised = self.promised.max(within_reach(self.promised, number));
    }

    fn commit_if_complete(&mut self, now: Duration, mail: &mut Vec<Letter>) {
        let Some(round) = self.round.as_mut().filter(|round| round.missing.is_empty()) else { return };
        let roster = round.roster.clone();
        *round = Round { missing: roster.others(self.me), roster: roster.clone(), stage: Stage::Committed, since: now };
        self.put_in_place(roster);
        self.resend(mail);
        self.round.take_if(|round| round.missing.is_empty());
    }

    fn put_in_place(&mut self, roster: Roster) {
        debug_assert!(self.view.as_ref().is_none_or(|view| view.number < roster.number));
        let ids = roster.members.iter().map(|member| member.id).collect();
        self.news = Some(View::new(roster.number, ids).based_on(roster.base));
        self.view = Some(roster);
        self.is_stale = false;
        self.has_begun = true;
    }

    fn refuse(&self, to: &Member, number: u32, mail: &mut Vec<Letter>) {
        mail.push(Letter::new(to, Message::Refuse { number, promised: self.promised }));
    }
}

impl Letter {
    pub(super) fn new(to: &Member, message: Message) -> Self {
        Self { to: vec![to.clone()], message }
    }
}

impl Roster {
    fn find(&self, peer: PeerId) -> Option<&Member> {
        self.members.binary_search_by_key(&peer, |member| member.id).ok().map(|rank| &self.members[rank])
    }

    fn others(&self, me: PeerId) -> BTreeSet<PeerId> {
        self.members.iter().map(|member| member.id).filter(|id| *id != me).collect()
    }

    /// Whether these are the members, in the same lives.
    fn lists<'a>(&self, members: impl Iterator<Item = &'a Member>) -> bool {
        let life = |member: &Member| (member.id, member.generation);
        self.members.iter().map(life).eq(members.map(life))
    }
}

impl Round {
    fn is(&self, number: u32, stage: Stage) -> bool {
        self.roster.number == number && self.stage == stage
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_swarm::view::PeerId;

    use super::{Agreement, Letter, Member, Message, Roster};

    fn member(join_index: u32) -> Member {
        Member { id: PeerId::new(join_index, 0), generation: 0, address: "10.0.0.1:1".parse().unwrap() }
    }

    fn living(join_indices: &[u32]) -> Vec<Member> {
        join_indices.iter().map(|join_index| member(*join_index)).collect()
    }

    fn is_out_of_date(peer: &Agreement, join_indices: &[u32]) -> bool {
        peer.is_out_of_date(&living(join_indices).iter().collect::<Vec<_>>())
    }

    fn agreement(join_index: u32) -> Agreement {
        Agreement::new(member(join_index).id, 1, 0)
    }

    /// Delivers letters until nobody has anything to say.
    fn deliver(peers: &mut [Agreement], from: usize, mail: Vec<Letter>) {
        let mut queue: Vec<_> = mail.into_iter().map(|letter| (from, letter)).collect();
        while !queue.is_empty() {
            let (from, Letter { to, message }) = queue.remove(0);
            let sender = member(peers[from].me.join_index());
            for receiver in to {
                let at = peers.iter().position(|peer| peer.me == receiver.id).unwrap();
                let mut answers = Vec::new();
                let peer = &mut peers[at];
                match message.clone() {
                    Message::Propose { number, base, members } => {
                        peer.on_propose(&sender, Roster { number, base, members }, &mut answers);
                    }
                    Message::Acknowledge { number } => {
                        peer.on_acknowledge(Duration::ZERO, sender.id, number, &mut answers);
                    }
                    Message::Refuse { number, promised } => peer.on_refuse(sender.id, number, promised),
                    Message::Commit { number } => peer.on_commit(&sender, number, &mut answers),
                    Message::Done { number } => peer.on_done(sender.id, number),
                    other => panic!("{other:?}"),
                }
                queue.extend(answers.into_iter().map(|letter| (at, letter)));
            }
        }
    }

    fn propose(peers: &mut [Agreement], from: usize, join_indices: &[u32]) {
        let mut mail = Vec::new();
        peers[from].propose(Duration::ZERO, (living(join_indices), None), &mut mail).unwrap();
        deliver(peers, from, mail);
    }

    fn number(peer: &Agreement) -> u32 {
        peer.view.as_ref().unwrap().number
    }

    #[test]
    fn all_put_the_same_view_in_place() {
        let mut peers = [0, 1, 2].map(agreement);
        assert!(is_out_of_date(&peers[0], &[0, 1, 2]));
        propose(&mut peers, 0, &[0, 1, 2]);
        let news = peers.each_mut().map(|peer| peer.take_news().unwrap());
        assert!(news[0].len() == 3 && news[0] == news[1] && news[1] == news[2]);
        assert!(peers[0].round.is_none() && !is_out_of_date(&peers[0], &[0, 1, 2]));
        assert!(is_out_of_date(&peers[0], &[0, 1]));
    }

    #[test]
    fn a_proposal_to_take_in_somebody_who_is_gone_is_withdrawn() {
        let mut peers = [0, 1, 2].map(agreement);
        propose(&mut peers, 0, &[0, 1]);
        // Nobody carries the letters.
        let propose = |peer: &mut Agreement, join_indices: &[u32]| {
            peer.propose(Duration::ZERO, (living(join_indices), None), &mut Vec::new()).unwrap();
        };
        propose(&mut peers[1], &[0, 1, 2]);
        peers[1].withdraw(&living(&[0, 1, 2]));
        assert!(is_out_of_date(&peers[1], &[0, 1]) && peers[1].resend(&mut Vec::new()), "who is there is asked again");
        peers[1].withdraw(&living(&[0, 1]));
        assert!(!is_out_of_date(&peers[1], &[0, 1]) && !peers[1].resend(&mut Vec::new()));
        // The same once more, for those who have lost it.
        propose(&mut peers[1], &[0, 1]);
        peers[1].withdraw(&living(&[0, 1]));
        assert!(peers[1].resend(&mut Vec::new()));
    }

    #[test]
    fn a_proposer_that_is_refused_goes_higher() {
        let mut peers = [0, 1, 2].map(agreement);
        for _ in 0..5 {
            propose(&mut peers, 1, &[1, 2]);
        }
        let before = number(&peers[2]);
        propose(&mut peers, 0, &[0, 1, 2]);
        assert_eq!(number(&peers[2]), before);
        assert!(is_out_of_date(&peers[0], &[0, 1, 2]));
        propose(&mut peers, 0, &[0, 1, 2]);
        assert!(number(&peers[0]) > before && number(&peers[2]) == number(&peers[0]));
    }

    #[test]
    fn of_two_proposals_at_a_time_one_wins() {
        let mut peers = [0, 1, 2].map(agreement);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        peers[0].propose(Duration::ZERO, (living(&[0, 1, 2]), None), &mut first).unwrap();
        peers[1].propose(Duration::ZERO, (living(&[0, 1, 2]), None), &mut second).unwrap();
        deliver(&mut peers, 1, second);
        deliver(&mut peers, 0, first);
        assert!(peers.iter().all(|peer| number(peer) == number(&peers[1])));
    }

    #[test]
    fn what_was_not_proposed_cannot_be_committed() {
        let (mut peer, mut mail) = (agreement(1), Vec::new());
        peer.on_commit(&member(0), 5 << 12, &mut mail);
        let members = vec![member(0), member(1), member(2)];
        peer.on_propose(&member(0), Roster { number: 6 << 12, base: 1, members }, &mut mail);
        peer.on_commit(&member(2), 6 << 12, &mut mail);
        assert!(peer.take_news().is_none());
        assert!(matches!(mail[2].message, Message::Refuse { .. }));
        peer.on_commit(&member(0), 6 << 12, &mut mail);
        assert!(peer.take_news().is_some());
    }

    #[test]
    fn a_view_that_a_member_forgot_before_it_was_in_place_is_proposed_anew() {
        let mut peers = [0, 1, 2].map(agreement);
        let mut mail = Vec::new();
        peers[0].propose(Duration::ZERO, (living(&[0, 1, 2]), None), &mut mail).unwrap();
        let forgetful = |peers: &mut [Agreement]| peers[2] = agreement(2);
        for join_index in [1, 2] {
            peers[0].on_acknowledge(Duration::ZERO, member(join_index).id, peers[0].promised, &mut mail);
        }
        forgetful(&mut peers);
        deliver(&mut peers, 0, mail.split_off(1));
        assert!(is_out_of_date(&peers[0], &[0, 1, 2]));
        propose(&mut peers, 0, &[0, 1, 2]);
        assert!(peers.iter().all(|peer| number(peer) == peers[0].promised));
    }

    #[test]
    fn a_number_is_agreed_to_once() {
        let (mut peer, mut mail) = (agreement(1), Vec::new());
        let roster = |join_indices: &[u32]| Roster { number: 9 << 12, base: 1, members: living(join_indices) };
        peer.on_propose(&member(0), roster(&[0, 1, 2]), &mut mail);
        peer.on_propose(&member(0), roster(&[0, 1]), &mut mail);
        peer.on_propose(&member(0), roster(&[0, 1, 2]), &mut mail);
        let agreed: Vec<_> = mail.iter().map(|letter| matches!(letter.message, Message::Acknowledge { .. })).collect();
        assert_eq!(agreed, [true, false, true]);
    }

    #[test]
    fn a_member_that_lost_its_view_makes_it_stale() {
        let mut peers = [0, 1, 2].map(agreement);
        propose(&mut peers, 0, &[0, 1, 2]);
        let held = number(&peers[0]);
        peers[0].on_status(member(1).id, held);
        assert!(!is_out_of_date(&peers[0], &[0, 1, 2]));
        peers[0].on_status(member(1).id, 0);
        assert!(is_out_of_date(&peers[0], &[0, 1, 2]));
        propose(&mut peers, 0, &[0, 1, 2]);
        peers[0].on_status(member(1).id, number(&peers[0]) + (9 << 12));
        assert!(is_out_of_date(&peers[0], &[0, 1, 2]));
    }

    #[test]
    fn who_does_not_answer_is_left_out_until_it_is_heard() {
        let (mut peer, mut mail) = (agreement(0), Vec::new());
        peer.propose(Duration::ZERO, (living(&[0, 1, 2]), None), &mut mail).unwrap();
        peer.on_acknowledge(Duration::ZERO, member(1).id, peer.promised, &mut mail);
        let patience = Duration::from_secs(5);
        assert!(peer.leave_out(patience / 2, patience).is_empty());
        assert_eq!(peer.leave_out(patience, patience), [member(2).id]);
        assert!(!peer.answers(member(2).id));
        peer.propose(patience, (living(&[0, 1]), None), &mut mail).unwrap();
        peer.on_acknowledge(patience, member(1).id, peer.promised, &mut mail);
        assert_eq!(peer.take_news().map(|view| view.len()), Some(2));
        assert!(!is_out_of_date(&peer, &[0, 1]));
        assert!(peer.hear(member(2).id) && peer.answers(member(2).id) && is_out_of_date(&peer, &[0, 1, 2]));
    }

    #[test]
    fn numbers_can_run_out() {
        let (mut peer, mut mail) = (agreement(0), Vec::new());
        peer.on_status(member(1).id, u32::MAX);
        assert!(peer.propose(Duration::ZERO, (living(&[0, 1]), None), &mut mail).is_ok(), "one message is not enough");
        mail.clear();
        for _ in 0..2000 {
            peer.on_status(member(1).id, u32::MAX);
        }
        assert!(peer.propose(Duration::ZERO, (living(&[0, 1]), None), &mut mail).is_err());
        assert!(mail.is_empty());
    }

    #[test]
    fn who_is_far_behind_catches_up() {
        let mut peers = [0, 1].map(agreement);
        peers[0].promised = 9000 << 12;
        for _ in 0..9 {
            propose(&mut peers, 0, &[0, 1]);
        }
        assert!(peers[1].take_news().is_some_and(|view| view.len() == 2 && view.number > 9000 << 12));
    }
}
