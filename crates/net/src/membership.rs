//! Who takes part: joins, silences and goodbyes in, views that all members agree on out.
//!
//! A [`Membership`] is one peer's part in this. It is pure: the host hands it the time and what happens, carries its packets,
//! and wakes it when it wants to be woken. [`foca`] (SWIM) finds out who lives (`detector`); on top of that the lowest of the
//! living gets all of them to agree on numbered views (`agreement`).
//!
//! ```
//! use std::time::Duration;
//! use nettorrent_net::membership::{Config, Input, Member, Membership, Outbox};
//! use nettorrent_swarm::view::PeerId;
//!
//! let me = Member { id: PeerId::new(0, 7), generation: 0, address: "10.0.0.1:7000".parse()? };
//! let mut membership = Membership::new(me, &Config::default(), 42);
//! let mut out = Outbox::default();
//! // Nobody is there to be asked for introduction, so this peer starts a swarm, and in a moment it is the only member.
//! membership.handle(Duration::ZERO, Input::Join(Vec::new()), &mut out)?;
//! while out.view.is_none() {
//!     let now = membership.wake_at().expect("it wants to be woken");
//!     membership.handle(now, Input::Wake, &mut out)?;
//! }
//! assert_eq!(out.view.map(|view| view.len()), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod agreement;
mod clique;
mod config;
mod deadlock;
mod detector;
mod electorate;
mod left_out;
mod links;
mod lost;
mod member;
mod message;
mod note;
mod number;
mod packets;
mod reminders;
mod round_trip;
mod routine;
mod waking;
mod work_state;

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::rng::mix;
use nettorrent_swarm::view::{PeerId, View};

use self::agreement::{Agreement, Letter};
use self::config::Timing;
use self::deadlock::Deadlocks;
use self::detector::{Change, Detector};
use self::electorate::Electorate;
use self::left_out::LeftOut;
use self::links::Links;
use self::lost::Lost;
use self::message::Message;
use self::reminders::Reminders;
use self::routine::Routine;

use crate::address::Address;

pub use self::config::Config;
pub use self::member::Member;
pub use self::message::{MAX_MEMBERS, MAX_PACKET_LEN, Malformed};
pub use self::note::{Note, Why};
pub use self::work_state::WorkState;

/// What can happen to a peer's membership.
#[derive(Clone, Debug)]
pub enum Input {
    /// Take part, and ask these for introduction; nobody starts a swarm. Only their names and addresses count. A peer that
    /// asks makes no view before somebody has answered.
    Join(Vec<Member>),
    /// A packet came over a link whose other end has proved to be this peer.
    Packet {
        /// Who sent it.
        from: PeerId,
        /// What it says.
        bytes: Bytes,
    },
    /// The time of [`Membership::wake_at`] has come. Too early does no harm.
    Wake,
    /// Bytes arrive from these peers, be it in the middle of a long frame.
    Heard(Vec<PeerId>),
    /// The link to this peer broke.
    Broken(PeerId),
    /// The link to this peer goes by another way now.
    Rerouted(PeerId),
    /// A link to this peer did not come about.
    Unreachable(PeerId),
    /// Nobody listens at this peer's address.
    Refused(PeerId),
    /// This peer sent what no honest one sends, and its links were cut.
    CutOff(PeerId),
    /// This peer is no member any more, and will never be one again.
    Excluded(PeerId),
    /// How this peer's work gets on.
    Work(WorkState),
    /// Say goodbye. Nothing that is handed in afterwards has any effect.
    Leave,
}

/// What a membership wants done. The host empties it after each input.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// What to send and to whom, in this order. Where there is no link the host dials; where that fails the packet is lost.
    pub packets: Vec<(Member, Bytes)>,
    /// What must not wait behind anything else that is to be sent.
    pub probes: Vec<(Member, Bytes)>,
    /// Whose links are of no use: nothing has come over them for the deadline. The next packet is to go over a new one.
    pub silent: Vec<PeerId>,
    /// The view that was just put in place.
    pub view: Option<View>,
    /// What people may want to know.
    pub notes: Vec<Note>,
}

/// One peer's part in finding out who takes part.
pub struct Membership {
    timing: Timing,
    detector: Detector,
    agreement: Agreement,
    reminders: Reminders,
    routine: Routine,
    links: Links,
    left_out: LeftOut,
    electorate: Electorate,
    /// The number of a view in which a link broke between us and another member.
    void: Option<u32>,
    work: WorkState,
    deadlocks: Deadlocks,
    /// Something has changed that may ask for another view.
    is_unsettled: bool,
    /// Whom we asked for introduction and have not met.
    introducers: Vec<Member>,
    lost: Lost,
    /// Whom we are about to give up, and for which of their incarnations.
    suspicions: BTreeMap<PeerId, (Member, u16)>,
    view: Option<View>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Present,
    Left,
}

impl Membership {
    /// The membership of this peer; `seed` decides all that is random in it.
    pub fn new(me: Member, config: &Config, seed: u64) -> Self {
        let me = me.without_scope();
        let timing = Timing::new(config.deadline);
        Self {
            agreement: Agreement::new(me.id, config.wait_for, mix(seed)),
            links: Links::new(me.id, timing.deadline, mix(!seed)),
            left_out: LeftOut::default(),
            electorate: Electorate::new(config.quorum, timing.patience),
            void: None,
            work: WorkState::default(),
            deadlocks: Deadlocks::default(),
            is_unsettled: true,
            detector: Detector::new(me, &timing, seed),
            timing,
            reminders: Reminders::default(),
            routine: Routine::default(),
            introducers: Vec::new(),
            lost: Lost::default(),
            suspicions: BTreeMap::new(),
            view: None,
            stage: Stage::New,
        }
    }

    /// Takes what happens at `now`, which never goes back. Only packets can be malformed; the membership goes on regardless.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        match self.stage {
            Stage::Left => return Ok(()),
            Stage::New => {
                self.stage = Stage::Present;
                self.routine.begin(now, &self.timing);
            }
            Stage::Present => {}
        }
        let mut heard = Vec::new();
        let mut result = Ok(());
        self.is_unsettled |= !matches!(input, Input::Packet { .. } | Input::Heard(_));
        match input {
            Input::Join(introducers) => self.join(now, introducers, out),
            Input::Packet { from, bytes } => {
                heard.push(from);
                result = self.on_packet(now, from, &bytes, out);
            }
            Input::Heard(peers) => heard = peers,
            Input::Wake => self.on_wake(now, out),
            Input::Broken(peer) => self.on_broken(peer, out),
            Input::Rerouted(peer) => self.links.measure_anew(peer),
            Input::Unreachable(peer) => self.on_unreachable(peer),
            Input::Refused(peer) => self.on_refused(now, peer, out),
            Input::CutOff(peer) => self.give_up(now, peer, Why::CutOff, out),
            Input::Excluded(peer) => self.exclude(now, peer, out),
            Input::Work(work) => self.on_work(now, work, out),
            Input::Leave => self.leave(out),
        }
        if let Some(view) = self.agreement.take_news() {
            self.view = Some(view.clone());
            self.electorate.begin();
            self.routine.propose = None;
            self.is_unsettled = true;
            out.view = Some(view);
        }
        self.refresh(now, &heard, out);
        if mem::take(&mut self.is_unsettled) {
            self.reconsider(now);
        }
        result
    }

    /// When to hand in [`Input::Wake`].
    pub fn wake_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Present => self.reminders.next_at().into_iter().chain(self.routine.next_at()).min(),
            Stage::New | Stage::Left => None,
        }
    }

    /// This peer, in its present generation.
    pub fn me(&self) -> &Member {
        self.detector.me()
    }

    /// The view that is in place.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// All who live as far as this peer knows, itself among them, in the order of their names. If nothing changes they will
    /// be the next view.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.detector.live().values()
    }

    /// How long it takes until others have answered, of all of whom that is known.
    pub fn round_trips(&self) -> BTreeMap<PeerId, Duration> {
        self.links.round_trips()
    }

    /// How many more members the first view waits for; 0 once there is one, and where this peer was not told to wait.
    pub(crate) fn n_missing(&self) -> usize {
        self.agreement.n_missing(self.detector.live().len())
    }

    /// Where to dial a peer: one that lives, one of the view, or one that was lost.
    pub(crate) fn address_of(&self, peer: PeerId) -> Option<&Address> {
        let known = self.find(peer).or_else(|| self.lost.find(peer));
        known.map(|member| &member.address)
    }

    /// Whether a peer belongs to the view that is in place, or to one that is proposed.
    pub(crate) fn lists(&self, peer: PeerId) -> bool {
        self.agreement.find(peer).is_some()
    }

    /// How many things it remembers: members, the dead among them, and reminders. A host can watch that this stays small.
    pub fn n_remembered(&self) -> usize {
        self.detector.n_remembered()
            + self.reminders.len()
            + self.suspicions.len()
            + self.introducers.len()
            + self.links.len()
    }

    fn find(&self, peer: PeerId) -> Option<&Member> {
        self.detector.live().get(&peer).or_else(|| self.agreement.find(peer))
    }

    fn join(&mut self, now: Duration, introducers: Vec<Member>, out: &mut Outbox) {
        let me = self.me().id;
        let strangers = introducers.into_iter().map(Member::without_scope).filter(|member| member.id != me);
        self.introducers.extend(strangers.take(MAX_MEMBERS));
        self.introducers.retain(|member| !self.detector.live().contains_key(&member.id));
        self.introducers.sort_by_key(|member| member.id);
        self.introducers.dedup_by_key(|member| member.id);
        self.introducers.truncate(MAX_MEMBERS);
        self.seek(now, out);
    }

    /// Keeps what is known of links up to date, and plans to tell it if that is news.
    fn refresh(&mut self, now: Duration, heard: &[PeerId], out: &mut Outbox) {
        if self.detector.take_change() {
            self.links.follow(self.detector.live());
        }
        heard.iter().for_each(|peer| self.links.hear(now, *peer));
        let silent = self.links.take_silent(now);
        // Their links are closed, and what was on its way is lost, even if they are heard again at once.
        silent.iter().for_each(|peer| self.on_unreachable(*peer));
        self.is_unsettled |= self.links.have_changed();
        let is_void = self.view.as_ref().is_some_and(|view| self.void == Some(view.number));
        let refused = self.deadlocks.refused().collect();
        let has_changed = self.links.renew_report(self.view.as_ref(), (is_void, &self.work), refused);
        out.silent.extend(silent);
        if has_changed {
            self.is_unsettled = true;
            self.routine.report_at(now + self.timing.react);
        }
    }

    fn on_work(&mut self, now: Duration, work: WorkState, out: &mut Outbox) {
        self.deadlocks.look(now, &work, self.view.as_ref().map_or(0, |view| view.number));
        let is_news = work == WorkState::Stuck && self.work != WorkState::Stuck;
        self.work = work;
        if is_news && self.detector.live().len() > 1 {
            out.notes.push(Note::Stuck(self.me().id));
        }
    }

    fn leave(&mut self, out: &mut Outbox) {
        self.stage = Stage::Left;
        let me = self.me().id;
        let to = self.members().filter(|member| member.id != me).cloned().collect();
        post(vec![Letter { to, message: Message::Leaving }], out);
    }

    /// Gives up a member that the detector still takes for alive.
    fn give_up(&mut self, now: Duration, peer: PeerId, why: Why, out: &mut Outbox) {
        if peer == self.me().id {
            return;
        }
        if let Some(member) = self.detector.live().get(&peer).cloned() {
            self.detector.give_up(member);
            self.absorb(now, why, out);
        }
    }

    /// Gives a member up for good: nobody waits for it, and what others say about it is not heard.
    fn exclude(&mut self, now: Duration, peer: PeerId, out: &mut Outbox) {
        self.electorate.miss(peer, self.view.as_ref());
        self.give_up(now, peer, Why::Removed, out);
        self.detector.exclude(peer);
        self.lost.remove(peer);
        self.introducers.retain(|introducer| introducer.id != peer);
    }

    /// Does what the detector wants and reacts to what it has found out; `why` is the reason if somebody is given up.
    fn absorb(&mut self, now: Duration, why: Why, out: &mut Outbox) {
        let effects = self.detector.take_effects();
        out.probes.extend(effects.packets);
        for (after, timer) in effects.timers {
            self.reminders.set(now + after, timer);
        }
        for change in effects.changes {
            self.react(now, change, why, out);
        }
    }

    fn react(&mut self, now: Duration, change: Change, why: Why, out: &mut Outbox) {
        match change {
            Change::Up(member) => {
                self.introducers.retain(|introducer| introducer.id != member.id);
                let was_lost = self.lost.remove(member.id);
                let n_missing = self.agreement.n_missing(self.detector.live().len());
                out.notes.push(if was_lost { Note::Returned(member) } else { Note::Joined { member, n_missing } });
            }
            Change::Replaced(member) => out.notes.push(Note::Returned(member)),
            Change::Down(member) => {
                if why == Why::Left {
                    out.notes.push(Note::Left(member.id));
                } else {
                    out.notes.push(Note::Lost { peer: member.id, why });
                    self.lost.insert(member);
                }
            }
            Change::Suspected(member, incarnation) => {
                let suspicion = (member.clone(), incarnation);
                if self.suspicions.insert(member.id, suspicion.clone()) != Some(suspicion) {
                    out.notes.push(Note::Suspected(member.id));
                    self.routine.warn_at(now);
                }
            }
            Change::OutOfGenerations => out.notes.push(Note::OutOfNumbers),
            Change::Renewed => out.notes.push(Note::Renewed { generation: self.me().generation }),
        }
    }
}

/// Puts letters into the outbox. What goes to many is encoded once.
fn post(mail: Vec<Letter>, out: &mut Outbox) {
    for Letter { to, message } in mail {
        let bytes = message.to_packet();
        out.packets.extend(to.into_iter().map(|member| (member, bytes.clone())));
    }
}
