//! Which members hear each other: what this peer hears itself, and what the others say they hear.
//!
//! Every member sends every other a report now and then. Whoever was heard within the deadline is heard; what counts is what
//! arrives, never what was handed to the system to be sent. A link works if both ends hear each other, so one that
//! carries only one way does not.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use nettorrent_engine::rng::mix;
use nettorrent_swarm::view::{PeerId, View};
use serde::{Deserialize, Serialize};

use super::member::Member;
use super::round_trip::RoundTrip;
use super::work_state::WorkState;

/// What a member says about itself and its links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// The view that it holds; 0 for none.
    pub(super) view: u32,
    /// What was on its way in that view was lost with a link, so it cannot be ended.
    pub(super) is_void: bool,
    /// How its work gets on.
    pub(super) work: WorkState,
    /// Who is heard by it and does not send what it waits for; sorted once it is kept.
    pub(super) refused: Vec<PeerId>,
    /// Who lives as far as it knows, and is not heard by it; sorted once it is kept.
    pub(super) unheard: Vec<PeerId>,
    /// Whom it hears though they do not hold its view; sorted once it is kept.
    pub(super) beyond: Vec<PeerId>,
}

impl Report {
    fn misses(&self, peer: PeerId) -> bool {
        self.unheard.binary_search(&peer).is_ok()
    }

    fn lacks(&self, peer: PeerId) -> bool {
        self.misses(peer) || self.refused.binary_search(&peer).is_ok()
    }

    fn hears_beyond(&self, peer: PeerId) -> bool {
        self.beyond.binary_search(&peer).is_ok()
    }
}

/// Whether two members say of each other that they hear each other, or hold the same view and do not say otherwise.
pub(super) fn are_linked((a, by_a): (PeerId, &Report), (b, by_b): (PeerId, &Report)) -> bool {
    let share_view = by_a.view > 0 && by_a.view == by_b.view;
    !by_a.lacks(b) && !by_b.lacks(a) && (share_view || by_a.hears_beyond(b) && by_b.hears_beyond(a))
}

/// Whom this peer hears, and what the others say about that.
pub(super) struct Links {
    me: PeerId,
    /// How long somebody may be silent.
    deadline: Duration,
    ears: BTreeMap<PeerId, Ear>,
    /// The latest report of everyone who is heard, and the own one.
    reports: BTreeMap<PeerId, Report>,
    /// Nobody has been silent for the deadline before this.
    silent_from: Duration,
    /// Who is heard or what is reported has changed since the own report was brought up to date.
    has_changed: bool,
    /// Known to nobody else.
    salt: u64,
}

/// What this peer has heard of another in its present generation.
struct Ear {
    generation: u32,
    /// When it was heard last; unknown once its link broke.
    last: Option<Duration>,
    was_heard: bool,
    round_trip: RoundTrip,
}

impl Links {
    pub(super) fn new(me: PeerId, deadline: Duration, salt: u64) -> Self {
        Self {
            me,
            deadline,
            ears: BTreeMap::new(),
            reports: BTreeMap::from([(me, Report::default())]),
            silent_from: Duration::MAX,
            has_changed: false,
            salt,
        }
    }

    /// Something arrived from a peer.
    pub(super) fn hear(&mut self, now: Duration, peer: PeerId) {
        if let Some(ear) = self.ears.get_mut(&peer) {
            self.has_changed |= ear.last.is_none();
            (ear.last, ear.was_heard) = (Some(now), true);
            self.silent_from = self.silent_from.min(now + self.deadline);
        }
    }

    /// The link to a peer broke: it is not heard until something arrives again.
    pub(super) fn break_off(&mut self, peer: PeerId) {
        if let Some(ear) = self.ears.get_mut(&peer) {
            self.has_changed |= ear.last.take().is_some();
        }
        self.measure_anew(peer);
    }

    /// The link to a peer goes by another way now: what was measured says nothing about it.
    pub(super) fn measure_anew(&mut self, peer: PeerId) {
        if let Some(ear) = self.ears.get_mut(&peer) {
            ear.round_trip.break_off();
        }
    }

    /// The number of a question by whose answer it shows how near a peer is, if that is not known.
    pub(super) fn question(&mut self, now: Duration, peer: PeerId) -> Option<u32> {
        self.ears.get_mut(&peer)?.round_trip.question(now, self.deadline / 5)
    }

    /// A peer has answered the question of this number.
    pub(super) fn on_answer(&mut self, now: Duration, peer: PeerId, number: u32) {
        if let Some(ear) = self.ears.get_mut(&peer) {
            ear.round_trip.on_answer(now, number);
        }
    }

    /// How long it takes until others have answered, of all of whom that is known.
    pub(super) fn round_trips(&self) -> BTreeMap<PeerId, Duration> {
        self.ears.iter().filter_map(|(peer, ear)| Some((*peer, ear.round_trip.shortest()?))).collect()
    }

    /// This peer slept for so long, and what others said meanwhile may lie unread.
    pub(super) fn forgive(&mut self, slept: Duration) {
        self.ears.values_mut().filter_map(|ear| ear.last.as_mut()).for_each(|last| *last += slept);
    }

    /// Whether something ever arrived from a peer in its present generation.
    pub(super) fn was_heard(&self, peer: PeerId) -> bool {
        self.ears.get(&peer).is_some_and(|ear| ear.was_heard)
    }

    /// When a peer was heard last.
    pub(super) fn last_heard(&self, peer: PeerId) -> Option<Duration> {
        self.ears.get(&peer)?.last
    }

    /// A member reports.
    pub(super) fn on_report(&mut self, from: PeerId, mut report: Report) {
        let (me, ears) = (self.me, &self.ears);
        report.unheard.retain(|peer| *peer == me || ears.contains_key(peer));
        report.refused.retain(|peer| *peer == me || ears.contains_key(peer));
        report.unheard.sort_unstable();
        report.refused.sort_unstable();
        report.beyond.sort_unstable();
        if ears.contains_key(&from) && self.reports.get(&from) != Some(&report) {
            self.reports.insert(from, report);
            self.has_changed = true;
        }
    }

    /// Takes note of who lives, which has changed.
    pub(super) fn follow(&mut self, live: &BTreeMap<PeerId, Member>) {
        self.has_changed = true;
        self.ears.retain(|peer, ear| live.get(peer).is_some_and(|member| member.generation == ear.generation));
        for member in live.values().filter(|member| member.id != self.me) {
            let generation = member.generation;
            self.ears.entry(member.id).or_insert(Ear {
                generation,
                last: None,
                was_heard: false,
                round_trip: RoundTrip::new(mix(self.salt ^ member.id.0)),
            });
        }
    }

    /// Who has been silent for the deadline since this was called last.
    pub(super) fn take_silent(&mut self, now: Duration) -> Vec<PeerId> {
        if now < self.silent_from {
            return Vec::new();
        }
        let deadline = self.deadline;
        let is_silent = |ear: &mut Ear| ear.last.take_if(|last| now.saturating_sub(*last) >= deadline).is_some();
        let silent: Vec<_> = self.ears.iter_mut().filter_map(|(peer, ear)| is_silent(ear).then_some(*peer)).collect();
        let earliest = self.ears.values().filter_map(|ear| ear.last).min();
        self.silent_from = earliest.map_or(Duration::MAX, |last| last + deadline);
        self.has_changed |= !silent.is_empty();
        silent
    }

    /// Whether who is heard or what is reported has changed since the own report was brought up to date.
    pub(super) fn have_changed(&self) -> bool {
        self.has_changed
    }

    /// Brings the own report up to date, and drops those of others who are not heard. Returns whether there is news.
    pub(super) fn renew_report(
        &mut self,
        view: Option<&View>,
        (is_void, work): (bool, &WorkState),
        refused: Vec<PeerId>,
    ) -> bool {
        let number = view.map_or(0, |view| view.number);
        let own = self.own();
        let is_the_same = (own.view, own.is_void, &own.work, &own.refused) == (number, is_void, work, &refused);
        if !mem::take(&mut self.has_changed) && is_the_same {
            return false;
        }
        let (me, ears) = (self.me, &self.ears);
        self.reports.retain(|peer, _| *peer == me || ears.get(peer).is_some_and(|ear| ear.last.is_some()));
        let shares_view = |peer: PeerId| {
            let holds = self.reports.get(&peer).map(|report| report.view);
            view.is_some_and(|view| view.rank(peer).is_some()) && holds.is_none_or(|holds| holds == number)
        };
        let (heard, unheard): (Vec<_>, Vec<_>) = ears.iter().partition(|(_, ear)| ear.last.is_some());
        let unheard = unheard.into_iter().map(|(peer, _)| *peer).collect();
        let beyond = heard.into_iter().map(|(peer, _)| *peer).filter(|peer| !shares_view(*peer)).collect();
        let report = Report { view: number, is_void, work: work.clone(), refused, unheard, beyond };
        self.reports.insert(me, report.clone()) != Some(report)
    }

    /// What this peer has to say.
    pub(super) fn own(&self) -> &Report {
        &self.reports[&self.me]
    }

    /// Whether a member holds a view, as far as is known.
    pub(super) fn holds_view(&self, peer: PeerId) -> bool {
        self.reports.get(&peer).is_some_and(|report| report.view > 0)
    }

    /// Whether a member holds the view that this peer holds, or a later one. Who is listed in a view need not have it in place.
    pub(super) fn keeps_up(&self, peer: PeerId) -> bool {
        self.reports.get(&peer).is_some_and(|report| report.view >= self.own().view)
    }

    /// Whether one of these says now that it does not hold the view that this peer holds, or that it cannot be ended.
    pub(super) fn are_parted<'a>(&self, mut members: impl Iterator<Item = &'a Member>) -> bool {
        let number = self.own().view;
        let is_parted = |report: &Report| report.is_void || report.view != number;
        members.any(|member| self.reports.get(&member.id).is_some_and(is_parted))
    }

    /// Whether a member says that its computation stands still.
    pub(super) fn is_stuck(&self, peer: PeerId) -> bool {
        self.reports.get(&peer).is_some_and(|report| report.work == WorkState::Stuck)
    }

    /// How the work of those gets on who hold the view that this peer holds.
    pub(super) fn works(&self) -> BTreeMap<PeerId, &WorkState> {
        let number = self.own().view;
        let in_view = self.reports.iter().filter(|(_, report)| report.view == number);
        in_view.map(|(peer, report)| (*peer, &report.work)).collect()
    }

    /// All pairs of which one says that it does not hear the other, or waits for it in vain.
    pub(super) fn broken(&self) -> impl Iterator<Item = (PeerId, PeerId)> {
        self.reports.iter().flat_map(|(a, report)| report.unheard.iter().chain(&report.refused).map(move |b| (*a, *b)))
    }

    /// Whether somebody waits for a member in vain.
    pub(super) fn is_refused(&self, peer: PeerId) -> bool {
        self.reports.values().any(|report| report.refused.binary_search(&peer).is_ok())
    }

    /// Whether one of two says that it does not hear the other.
    pub(super) fn is_cut(&self, a: PeerId, b: PeerId) -> bool {
        let says = |a, b| self.report(a).is_some_and(|report| report.misses(b));
        says(a, b) || says(b, a)
    }

    /// Whether one of two says that it does not hear the other, or waits for it in vain.
    pub(super) fn is_broken(&self, a: PeerId, b: PeerId) -> bool {
        let says = |a, b| self.report(a).is_some_and(|report| report.lacks(b));
        says(a, b) || says(b, a)
    }

    /// The latest report of a member that is heard, or the own one.
    pub(super) fn report(&self, peer: PeerId) -> Option<&Report> {
        self.reports.get(&peer)
    }

    /// How many peers it remembers something of.
    pub(super) fn len(&self) -> usize {
        self.ears.len()
    }
}
