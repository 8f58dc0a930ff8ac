//! Who lives: foca (SWIM), with its packets checked before and its wishes collected after.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use bytes::{Buf, Bytes};
use foca::{
    Codec, Foca, Header, Incarnation, Message, NoCustomBroadcast, Notification, PostcardCodec, Runtime, State, Timer,
};
use nettorrent_swarm::view::PeerId;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::config::Timing;
use super::member::Member;
use super::message::{MAX_MEMBERS, Malformed, detector_packet};

/// How far above the known one a generation may be that somebody says of another. A peer returns seldom, and tells its generation
/// itself; without a bound, one message would take away all generations that a peer has left.
const MAX_RETURNS: u32 = 1024;

/// The failure detector of one peer.
pub(super) struct Detector {
    foca: Foca<Member, PostcardCodec, SmallRng, NoCustomBroadcast>,
    recorder: Recorder,
    /// Who is never let in again.
    excluded: BTreeSet<PeerId>,
}

/// What the detector wants done and has found out.
#[derive(Default)]
pub(super) struct Effects {
    /// What to send, and to whom.
    pub(super) packets: Vec<(Member, Bytes)>,
    /// What to remind it of, and after how long.
    pub(super) timers: Vec<(Duration, Timer<Member>)>,
    /// What has changed, in order.
    pub(super) changes: Vec<Change>,
}

/// Something that the detector has found out.
#[derive(Debug)]
pub(super) enum Change {
    /// This member lives.
    Up(Member),
    /// This member is given up.
    Down(Member),
    /// This member has come back in a later life before it was missed.
    Replaced(Member),
    /// This member did not answer, and its time to object runs.
    Suspected(Member, Incarnation),
    /// We were given up ourselves and go on in a new generation.
    Renewed,
    /// We were given up ourselves, and there is no generation left to go on in.
    OutOfGenerations,
}

impl Detector {
    pub(super) fn new(me: Member, timing: &Timing, seed: u64) -> Self {
        let id = me.id;
        let live = BTreeMap::from([(id, me.clone())]);
        Self {
            foca: Foca::new(me, timing.detector(), SmallRng::seed_from_u64(seed), PostcardCodec),
            recorder: Recorder { me: id, live, has_changed: true, effects: Effects::default() },
            excluded: BTreeSet::new(),
        }
    }

    /// This peer, in its present generation.
    pub(super) fn me(&self) -> &Member {
        self.foca.identity()
    }

    /// All who live, this peer among them.
    pub(super) fn live(&self) -> &BTreeMap<PeerId, Member> {
        &self.recorder.live
    }

    /// Whether those who live have changed since this was called last.
    pub(super) fn take_change(&mut self) -> bool {
        mem::take(&mut self.recorder.has_changed)
    }

    /// Whether this very life of a peer goes on, as far as is known.
    pub(super) fn is_live(&self, member: &Member) -> bool {
        self.live().get(&member.id) == Some(member)
    }

    /// Whether a member has not objected to this suspicion.
    pub(super) fn is_suspect(&self, member: &Member, incarnation: Incarnation) -> bool {
        let suspect = foca::Member::new(member.clone(), incarnation, State::Suspect);
        self.foca.iter_members().any(|known| *known == suspect)
    }

    /// What it wants done since this was called last.
    pub(super) fn take_effects(&mut self) -> Effects {
        mem::take(&mut self.recorder.effects)
    }

    /// How many members it remembers, the dead among them.
    pub(super) fn n_remembered(&self) -> usize {
        self.foca.iter_membership_state().len()
    }

    /// Asks somebody for introduction, or tells somebody that we live.
    pub(super) fn announce(&mut self, to: &Member) {
        if to.id != self.me().id {
            let result = self.foca.announce(to.clone(), &mut self.recorder);
            debug_assert_eq!(result, Ok(()));
        }
    }

    /// Gives somebody up at once, and tells others.
    pub(super) fn give_up(&mut self, member: Member) {
        self.apply(vec![foca::Member::down(member)]);
        let result = self.foca.gossip(&mut self.recorder);
        debug_assert_eq!(result, Ok(()));
    }

    /// Hears nothing about a peer any more. There are no more of them than a policy can remove.
    pub(super) fn exclude(&mut self, peer: PeerId) {
        self.excluded.insert(peer);
    }

    /// Whether a peer is never let in again.
    pub(super) fn is_excluded(&self, peer: PeerId) -> bool {
        self.excluded.contains(&peer)
    }

    /// Objects to a suspicion.
    pub(super) fn object(&mut self, incarnation: Incarnation) {
        self.apply(vec![foca::Member::new(self.me().clone(), incarnation, State::Suspect)]);
    }

    /// Goes on in a generation above this one. Others know us from a life that we do not remember.
    pub(super) fn renew_beyond(&mut self, generation: u32) {
        if !self.is_plausible(&self.me().in_generation(generation)) {
            return;
        }
        let Some(next) = generation.checked_add(1) else {
            return self.recorder.effects.changes.push(Change::OutOfGenerations);
        };
        let result = self.foca.change_identity(self.me().in_generation(next), &mut self.recorder);
        debug_assert_eq!(result, Ok(()));
        self.recorder.renew(self.foca.identity().clone());
        self.apply(Vec::new());
    }

    /// Reminds it of what it wanted to be reminded of.
    pub(super) fn remind(&mut self, timer: Timer<Member>) {
        // Foca 2.0 tells a suspect that it is given up also when it has objected in time, and the suspect would believe it.
        if let Timer::ChangeSuspectToDown { member_id, incarnation, .. } = &timer
            && !self.is_suspect(member_id, *incarnation)
        {
            return;
        }
        // Foca reports a reminder that comes at an unexpected time, and has then already recovered.
        let _ = self.foca.handle_timer(timer, &mut self.recorder);
    }

    /// Takes a packet of another peer's detector.
    pub(super) fn receive(&mut self, from: PeerId, bytes: &[u8]) -> Result<(), Malformed> {
        let mut rest = bytes;
        let header: Header<Member> =
            PostcardCodec.decode_header(&mut rest).map_err(|_: postcard::Error| Malformed::Undecodable)?;
        let head = &bytes[..bytes.len() - rest.len()];
        let mut updates = decode_updates(&header, rest)?;
        updates.retain(|update| update.id().id == from || self.is_plausible(update.id()));
        // That they are gone may be heard.
        updates.retain(|update| !self.excluded.contains(&update.id().id) || update.state() == State::Down);
        let me = self.me().clone();
        if header.src.id != from {
            return Err(Malformed::Impostor { from, claimed: header.src.id });
        }
        if header.dst.id != me.id {
            return Err(Malformed::Misdirected { from, meant: header.dst.id });
        }
        let known_as = updates.iter().map(foca::Member::id).chain([&header.dst]).filter(|id| id.id == me.id);
        let latest = known_as.map(|id| id.generation).max().unwrap_or(0);
        if latest > me.generation {
            // An earlier life of ours had got further. Whatever we say would be taken for stale.
            self.renew_beyond(latest);
            self.announce(&header.src);
            return Ok(());
        }
        if !self.may_answer(&header) || self.with_room(vec![foca::Member::alive(header.src.clone())]).is_empty() {
            return Ok(());
        }
        self.foca.handle_data(head, &mut self.recorder).map_err(|_| Malformed::Senseless { from })?;
        // What the dead say about others is old, and foca does not listen to it either.
        let is_heard = self.is_live(&header.src) && header.dst == me;
        self.apply(if is_heard { updates } else { Vec::new() });
        if *self.me() != me {
            // Who told us that we were given up may be the only link between two parts of a swarm.
            self.announce(&header.src);
        }
        Ok(())
    }

    /// Whether answering makes us talk to nobody but members. Otherwise anybody could have us dial any address.
    fn may_answer(&self, header: &Header<Member>) -> bool {
        match &header.message {
            Message::PingReq { target, .. } | Message::IndirectAck { target, .. } => self.is_live(target),
            _ => true,
        }
    }

    /// Whether a member can have returned as often as somebody else says. What it says itself is always taken.
    fn is_plausible(&self, member: &Member) -> bool {
        let known = || self.foca.iter_membership_state().map(foca::Member::id).chain([self.me()]);
        let is_near = |known: &Member| known.id == member.id && member.generation - MAX_RETURNS <= known.generation;
        member.generation <= MAX_RETURNS || known().any(is_near)
    }

    /// Applies what was learnt. Even if that is nothing, foca goes on asking after a change of generation; by itself it would
    /// wait until somebody speaks to it.
    fn apply(&mut self, updates: Vec<foca::Member<Member>>) {
        let updates = self.with_room(updates);
        let result = self.foca.apply_many(updates.into_iter(), true, &mut self.recorder);
        debug_assert_eq!(result, Ok(()));
    }

    /// Those of the updates for whose members there is room.
    fn with_room(&self, mut updates: Vec<foca::Member<Member>>) -> Vec<foca::Member<Member>> {
        // One place is our own, which foca does not count.
        const ROOM: usize = MAX_MEMBERS - 1;
        if self.n_remembered() + updates.len() > ROOM {
            let mut known: BTreeSet<_> = self.foca.iter_membership_state().map(|member| member.id().id).collect();
            updates.retain(|update| {
                let id = update.id().id;
                known.contains(&id) || known.len() < ROOM && known.insert(id)
            });
        }
        updates
    }
}

/// Reads what follows the head of a packet: a count and as many updates.
fn decode_updates(header: &Header<Member>, mut rest: &[u8]) -> Result<Vec<foca::Member<Member>>, Malformed> {
    let mut updates = Vec::new();
    if rest.is_empty() {
        return Ok(updates);
    }
    if rest.len() < 2 || header.message == Message::Broadcast {
        return Err(Malformed::Undecodable);
    }
    for _ in 0..rest.get_u16() {
        updates.push(PostcardCodec.decode_member(&mut rest).map_err(|_: postcard::Error| Malformed::Undecodable)?);
    }
    if rest.is_empty() { Ok(updates) } else { Err(Malformed::Undecodable) }
}

/// Notes down what foca wants and finds out.
struct Recorder {
    me: PeerId,
    live: BTreeMap<PeerId, Member>,
    /// Those who live have changed.
    has_changed: bool,
    effects: Effects,
}

impl Recorder {
    fn renew(&mut self, me: Member) {
        self.has_changed = true;
        self.live.insert(me.id, me);
        self.effects.changes.push(Change::Renewed);
    }
}

impl Runtime<Member> for Recorder {
    fn notify(&mut self, notification: Notification<'_, Member>) {
        match notification {
            // Foca keeps our earlier lives among the dead, and they are nobody's business.
            Notification::MemberUp(member) | Notification::MemberDown(member) | Notification::Rename(_, member)
                if member.id == self.me => {}
            Notification::MemberUp(member) => {
                self.has_changed = true;
                self.live.insert(member.id, member.clone());
                self.effects.changes.push(Change::Up(member.clone()));
            }
            Notification::MemberDown(member) => {
                self.has_changed = true;
                self.live.remove(&member.id);
                self.effects.changes.push(Change::Down(member.clone()));
            }
            Notification::Rename(_, member) => {
                // If the later life has ended as well, or if it is the only one that goes on, foca says so next.
                if let Some(known) = self.live.get_mut(&member.id) {
                    self.has_changed = true;
                    *known = member.clone();
                    self.effects.changes.push(Change::Replaced(member.clone()));
                }
            }
            Notification::Rejoin(me) => self.renew(me.clone()),
            Notification::Defunct => self.effects.changes.push(Change::OutOfGenerations),
            Notification::Active | Notification::Idle => {}
        }
    }

    fn send_to(&mut self, to: Member, data: &[u8]) {
        self.effects.packets.push((to, detector_packet(data)));
    }

    fn submit_after(&mut self, timer: Timer<Member>, after: Duration) {
        if let Timer::ChangeSuspectToDown { member_id, incarnation, .. } = &timer {
            self.effects.changes.push(Change::Suspected(member_id.clone(), *incarnation));
        }
        self.effects.timers.push((after, timer));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foca::{Codec, Header, Message, PostcardCodec, Timer};
    use nettorrent_swarm::view::PeerId;

    use super::{Detector, MAX_MEMBERS, Malformed, Member};
    use crate::membership::config::Timing;

    fn member(join_index: u32) -> Member {
        Member { id: PeerId::new(join_index, 0), generation: 0, address: "10.0.0.1:1".parse().unwrap() }
    }

    fn packet(src: u32, dst: Member, message: Message<Member>, updates: &[foca::Member<Member>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header { src: member(src), src_incarnation: 0, dst, message };
        PostcardCodec.encode_header(&header, &mut bytes).unwrap();
        bytes.extend((updates.len() as u16).to_be_bytes());
        for update in updates {
            PostcardCodec.encode_member(update, &mut bytes).unwrap();
        }
        bytes
    }

    fn detector() -> Detector {
        let mut detector = Detector::new(member(0), &Timing::new(Duration::from_secs(5)), 1);
        detector.apply([1, 2].map(|join_index| foca::Member::alive(member(join_index))).into());
        detector.take_effects();
        detector
    }

    #[test]
    fn nobody_speaks_for_another() {
        let ping = packet(1, member(0), Message::Ping(1), &[]);
        assert_eq!(detector().receive(member(1).id, &ping), Ok(()));
        let impostor = detector().receive(member(2).id, &ping);
        assert_eq!(impostor, Err(Malformed::Impostor { from: member(2).id, claimed: member(1).id }));
        let stray = detector().receive(member(1).id, &packet(1, member(2), Message::Ping(1), &[]));
        assert_eq!(stray, Err(Malformed::Misdirected { from: member(1).id, meant: member(2).id }));
        let circular = Message::PingReq { target: member(0), probe_number: 1 };
        let circular = detector().receive(member(1).id, &packet(1, member(0), circular, &[]));
        assert_eq!(circular, Err(Malformed::Senseless { from: member(1).id }));
    }

    #[test]
    fn nobody_has_us_talk_to_strangers() {
        let ask = |target: Member| {
            let mut detector = detector();
            let question = Message::PingReq { target, probe_number: 1 };
            detector.receive(member(1).id, &packet(1, member(0), question, &[])).unwrap();
            detector.take_effects().packets.len()
        };
        assert_eq!(ask(member(2)), 1);
        assert_eq!(ask(member(3)), 0);
        let elsewhere = Member { address: "10.0.0.99:80".parse().unwrap(), ..member(2) };
        assert_eq!(ask(elsewhere), 0);
    }

    #[test]
    fn a_flood_of_members_is_dammed() {
        let mut detector = detector();
        for first in (0..3 * MAX_MEMBERS as u32).step_by(1000) {
            let flood: Vec<_> =
                (first..first + 1000).map(|join_index| foca::Member::alive(member(10 + join_index))).collect();
            let gossip = packet(1, member(0), Message::Gossip, &flood);
            detector.receive(member(1).id, &gossip).unwrap();
            detector.take_effects();
        }
        assert_eq!(detector.live().len(), MAX_MEMBERS);
        // Strangers are not heard any more, but members are.
        let stranger = 1 << 20;
        let announce = packet(stranger, member(0), Message::Announce, &[]);
        detector.receive(member(stranger).id, &announce).unwrap();
        assert!(detector.take_effects().packets.is_empty());
        detector.receive(member(2).id, &packet(2, member(0), Message::Ping(1), &[])).unwrap();
        assert_eq!(detector.take_effects().packets.len(), 1);
    }

    #[test]
    fn nobody_listens_to_the_dead() {
        let mut detector = detector();
        detector.give_up(member(1));
        for src in [1, 2] {
            let news = foca::Member::alive(member(10 + src));
            detector.receive(member(src).id, &packet(src, member(0), Message::Gossip, &[news])).unwrap();
        }
        assert!(!detector.is_live(&member(11)) && detector.is_live(&member(12)));
    }

    #[test]
    fn news_of_earlier_lives_of_ours_is_no_news() {
        let mut detector = detector();
        detector.renew_beyond(5);
        detector.take_effects();
        for generation in [1, 2, 3] {
            let past = foca::Member::alive(member(0).in_generation(generation));
            detector.receive(member(1).id, &packet(1, detector.me().clone(), Message::Gossip, &[past])).unwrap();
        }
        assert!(detector.take_effects().changes.is_empty());
        assert_eq!(detector.live()[&member(0).id], member(0).in_generation(6));
    }

    #[test]
    fn who_comes_back_asks_at_once_whether_others_live() {
        let mut detector = detector();
        detector.give_up(member(1));
        detector.take_effects();
        let mut told = packet(1, member(0), Message::TurnUndead, &[]);
        told.truncate(told.len() - 2);
        detector.receive(member(1).id, &told).unwrap();
        assert_eq!(detector.me().generation, 1);
        let asks = |(_, timer): &(Duration, Timer<Member>)| matches!(timer, Timer::ProbeRandomMember(_));
        assert!(detector.take_effects().timers.iter().any(asks));
        detector.renew_beyond(5);
        assert!(detector.take_effects().timers.iter().any(asks));
    }

    #[test]
    fn a_peer_that_others_know_from_a_later_life_goes_beyond_it() {
        let mut detector = Detector::new(member(0), &Timing::new(Duration::from_secs(5)), 1);
        let known_as = member(0).in_generation(1000);
        detector.receive(member(1).id, &packet(1, known_as, Message::Ping(1), &[])).unwrap();
        assert_eq!(detector.me().generation, 1001);
        assert!(detector.take_effects().packets.iter().any(|(to, _)| *to == member(1)), "the asker knows first");
        let last = member(0).in_generation(u32::MAX);
        detector.receive(member(1).id, &packet(1, last, Message::Ping(1), &[])).unwrap();
        assert_eq!(detector.me().generation, 1001);
    }
}
