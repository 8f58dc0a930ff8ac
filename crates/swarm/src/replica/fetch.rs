//! A peer that is behind fetches another's whole state, chunk by chunk, from all who have it.
//!
//! What it has got stays good when the view changes: of the state that then goes on it fetches only the chunks that are different.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::asynchronous::Ending;
use super::core::Core;
use super::transfer::{Chunks, DIGESTS_AT_ONCE, Digest, Message, Said, Title, Transfer, WINDOW};
use crate::codec::Codec;
use crate::effects::{Outbox, TimerToken};
use crate::malformed::Malformed;
use crate::place::Place;
use crate::record::Event;
use crate::wire::Frame;

/// Another peer's whole state.
pub(super) struct Snapshot {
    pub place: Place,
    pub optimizer_steps: u64,
    pub endings: Vec<Ending>,
    pub account: Vec<u8>,
    pub values: Vec<f32>,
    /// The strategy's state with the average behind it, if there is one; and the optimizer's.
    pub strategy: Vec<Arc<Vec<f32>>>,
    pub optimizer: Vec<Vec<f32>>,
}

/// The numbers that have come so far.
#[derive(Default)]
pub(super) struct Partial {
    vectors: Vec<Vec<f32>>,
    /// What is known of each chunk that has come.
    digests: Vec<Option<Digest>>,
}

/// A state that is on its way.
pub(super) struct Fetch {
    transfer: Transfer,
    /// Who has it; the first is the main donor.
    donors: Vec<Giver>,
    /// Those of whom nothing came in time, by rank.
    given_up: Vec<usize>,
    /// Whether the timer is set.
    is_timed: bool,
    title: Option<Box<Title>>,
    chunks: Chunks,
    n_state_vectors: usize,
    /// How many of the chunks, from the first on, all donors have alike.
    n_common: usize,
    /// What the chunks must be, as far as that is told.
    digests: Vec<Digest>,
    partial: Partial,
    /// Who is asked for which chunk.
    asked: BTreeMap<usize, Vec<usize>>,
    /// All chunks before this one have come or are asked for.
    next: usize,
    n_missing: usize,
    began: Duration,
    n_bytes: u64,
}

/// One who has the state.
struct Giver {
    rank: usize,
    /// How many chunks are asked of it.
    n_asked: usize,
    /// Whether it owed something when the timer was set, and whether something has come from it since.
    owed: bool,
    has_given: bool,
}

/// How many deadlines a donor may send nothing of what it was asked for; it is looked at as often, so it takes up to twice as long. A
/// chunk must come through a slow link in that time.
const DEADLINES: u32 = 2;
/// The timer of transfers. Strategies count theirs from 0.
pub(super) const TIMER: u32 = u32::MAX;

impl Fetch {
    /// A state that these ranks have; with what came before the view changed.
    pub(super) fn begin(transfer: Transfer, donors: &[u32], partial: Partial, core: &Core, out: &mut Outbox) -> Self {
        let giver = |&rank: &u32| Giver { rank: rank as usize, n_asked: 0, owed: false, has_given: false };
        let mut fetch = Self {
            transfer,
            donors: donors.iter().map(giver).collect(),
            given_up: Vec::new(),
            is_timed: false,
            title: None,
            chunks: Chunks::new([]),
            n_state_vectors: 0,
            n_common: 0,
            digests: Vec::new(),
            partial,
            asked: BTreeMap::new(),
            next: 0,
            n_missing: 0,
            began: core.now,
            n_bytes: 0,
        };
        fetch.set_timer_if_owed(core, out);
        fetch
    }

    /// The main donor's rank.
    pub(super) fn donor(&self) -> usize {
        self.donors[0].rank
    }

    /// Whether something is to come from a donor.
    fn owes(&self, giver: &Giver) -> bool {
        let is_told = self.title.is_some() && self.digests.len() == self.chunks.n();
        giver.n_asked > 0 || giver.rank == self.donor() && !is_told
    }

    fn set_timer_if_owed(&mut self, core: &Core, out: &mut Outbox) {
        let owed: Vec<bool> = self.donors.iter().map(|giver| self.owes(giver)).collect();
        if self.is_timed || !owed.contains(&true) {
            return;
        }
        self.is_timed = true;
        for (giver, owed) in self.donors.iter_mut().zip(owed) {
            (giver.owed, giver.has_given) = (owed, false);
        }
        let token = TimerToken { view: core.view.number, round: self.transfer.0, timer: TIMER };
        out.timers.push((core.training.swarm.deadline().saturating_mul(DEADLINES), token));
    }

    /// The time is over in which something should have come from everybody who was asked. Others are asked instead; if there are none,
    /// who has the state and does not give it costs all who wait, and is given up.
    pub(super) fn on_timer(&mut self, token: TimerToken, core: &Core, out: &mut Outbox) {
        if (token.view, token.round) != (core.view.number, self.transfer.0) {
            return;
        }
        self.is_timed = false;
        let is_late = |giver: &&Giver| giver.owed && !giver.has_given && self.owes(giver);
        let late: Vec<usize> = self.donors.iter().filter(is_late).map(|giver| giver.rank).collect();
        for rank in late {
            let who = core.view.members[rank];
            if self.donors.len() == 1 {
                let waited_s = (core.training.swarm.deadline() * DEADLINES).as_secs_f64();
                let why = format!("nothing of the state that it was asked for has come for {waited_s} seconds");
                return out.refused.push((who, Malformed::new(why)));
            }
            let was_main = rank == self.donor();
            self.give_up(rank);
            let instead = core.view.members[self.donor()];
            out.records.push(core.record(Event::LateDonor { who, instead }));
            if was_main {
                self.begin_anew();
                self.transfer.say(&Message::AskTitle, self.donor(), core, out);
            }
        }
        if self.title.is_some() {
            self.ask(core, out);
        }
        self.set_timer_if_owed(core, out);
    }

    /// Nothing more is asked of a donor.
    fn give_up(&mut self, rank: usize) {
        self.forget_donor(rank);
        self.given_up.push(rank);
    }

    /// Another donor tells what there is. What has come is compared with that, and fetched anew only where it is something else.
    fn begin_anew(&mut self) {
        (self.title, self.digests, self.next) = (None, Vec::new(), 0);
        self.asked.clear();
        self.donors.iter_mut().for_each(|giver| giver.n_asked = 0);
    }

    /// Whom this peer waits for, by rank.
    pub(super) fn waits_for(&self) -> Vec<usize> {
        let asked = self.donors.iter().filter(|giver| giver.n_asked > 0).map(|giver| giver.rank);
        if self.asked.is_empty() { vec![self.donor()] } else { asked.collect() }
    }

    /// What has come, for another try.
    pub(super) fn into_partial(self) -> Partial {
        self.partial
    }

    /// Takes in what a donor says, given how many vectors are the state of an epoch's strategy; when all has come, the whole.
    pub(super) fn on_frame(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &Core,
        n_state_vectors_at: impl Fn(u64) -> usize,
        out: &mut Outbox,
    ) -> Result<Option<Snapshot>, Malformed> {
        let is_main = rank == self.donor();
        let Some(said) = self.transfer.read(frame)? else { return Ok(None) };
        if self.given_up.contains(&rank) {
            // It comes after all, and was not waited for.
            return Ok(None);
        }
        self.donors.iter_mut().filter(|giver| giver.rank == rank).for_each(|giver| giver.has_given = true);
        match said {
            Said::Message(Message::Title(mut title)) if is_main && self.title.is_none() => {
                core.training.check_ledger(&title.place.ledger)?;
                title.place.ledger = core.training.alike.taken_over.shared(title.place.ledger);
                self.n_state_vectors = n_state_vectors_at(title.place.ledger.epoch);
                self.lay_out(core);
                self.title = Some(title);
            }
            Said::Message(Message::Digests { first, digests }) if is_main && self.title.is_some() => {
                self.on_digests(first as usize, &digests)?;
                if self.digests.len() < self.chunks.n() {
                    self.transfer.say(&Message::AskDigests(self.digests.len() as u32), rank, core, out);
                }
            }
            Said::Chunk { index, body } => self.on_chunk(rank, index, &body, core, out)?,
            Said::Message(_) => return Err(Malformed::new("it speaks out of turn of a state")),
        }
        if self.title.is_some() && self.n_missing == 0 && self.digests.len() == self.chunks.n() {
            return Ok(self.conclude(core, out));
        }
        self.ask(core, out);
        self.set_timer_if_owed(core, out);
        Ok(None)
    }

    fn lay_out(&mut self, core: &Core) {
        let (n_values, n_params) = (core.training.task.n_values(), core.training.task.n_params());
        let of_optimizer = core.optimizer.state().1.map(|_| n_params);
        let lens = std::iter::repeat_n(n_values, 1 + self.n_state_vectors).chain(of_optimizer);
        self.chunks = Chunks::new(lens);
        self.n_missing = self.chunks.n();
        self.n_common = match core.optimizers_are_equal() {
            true => self.n_missing,
            false => Chunks::new(std::iter::repeat_n(n_values, 1 + self.n_state_vectors)).n(),
        };
        let is_same = self.partial.vectors.iter().map(Vec::len).eq(self.chunks.lens().iter().copied());
        if !is_same {
            let vectors = self.chunks.lens().iter().map(|&len| vec![0.0; len]).collect();
            self.partial = Partial { vectors, digests: vec![None; self.n_missing] };
        }
    }

    fn on_digests(&mut self, first: usize, digests: &[Digest]) -> Result<(), Malformed> {
        let n = DIGESTS_AT_ONCE.min(self.chunks.n() - self.digests.len());
        if first != self.digests.len() || digests.len() != n {
            return Err(Malformed::new("it does not say what the chunks of its state are"));
        }
        if first == 0 {
            // The main donor sends these without being asked.
            let n_sent = WINDOW.min(self.chunks.n());
            self.asked.extend((0..n_sent).map(|index| (index, vec![self.donors[0].rank])));
            self.donors[0].n_asked = n_sent;
        }
        let known = self.partial.digests[first..].iter().zip(digests).filter(|(known, told)| **known == Some(**told));
        self.n_missing -= known.count();
        self.digests.extend_from_slice(digests);
        Ok(())
    }

    fn is_here(&self, index: usize) -> bool {
        self.partial.digests[index] == Some(self.digests[index])
    }

    fn on_chunk(
        &mut self,
        rank: usize,
        index: usize,
        body: &[u8],
        core: &Core,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let Some(ranks) = self.asked.get_mut(&index) else {
            // One that was left out may have more on its way.
            let is_donor = self.donors.iter().any(|giver| giver.rank == rank);
            let unasked = "it sends a chunk of a state that it was not asked for";
            return if is_donor { Err(Malformed::new(unasked)) } else { Ok(()) };
        };
        let Some(at) = ranks.iter().position(|asked| *asked == rank) else { return Ok(()) };
        ranks.swap_remove(at);
        if ranks.is_empty() {
            self.asked.remove(&index);
        }
        self.donors.iter_mut().filter(|giver| giver.rank == rank).for_each(|giver| giver.n_asked -= 1);
        self.n_bytes += body.len() as u64;
        if self.is_here(index) {
            // Another was asked as well, and was faster.
            return Ok(());
        }
        let (vector, range) = self.chunks.place(index).expect("it was asked for");
        if Digest::of(body) != self.digests[index] {
            if rank == self.donor() {
                return Err(Malformed::new("a chunk of its state is not what it said that it would be"));
            }
            self.leave_out(rank, core, out);
            return Ok(());
        }
        Codec::F32.check_finite(body, range.len())?;
        Codec::F32.decode(body, &mut self.partial.vectors[vector][range])?;
        self.partial.digests[index] = Some(self.digests[index]);
        self.n_missing -= 1;
        Ok(())
    }

    /// This donor says that it has the same past as the main donor, and has other numbers: nothing more is asked of it.
    fn leave_out(&mut self, rank: usize, core: &Core, out: &mut Outbox) {
        self.forget_donor(rank);
        let members = &core.view.members;
        let (who, from) = (members[rank], members[self.donor()]);
        out.records.push(core.record(Event::Differs { who, from, epoch: None, is_outvoted: true }));
    }

    fn forget_donor(&mut self, rank: usize) {
        self.donors.retain(|giver| giver.rank != rank);
        let of_it: Vec<usize> =
            self.asked.iter().filter(|(_, ranks)| ranks.contains(&rank)).map(|(index, _)| *index).collect();
        for index in of_it {
            let ranks = self.asked.get_mut(&index).expect("it is one of them");
            ranks.retain(|asked| *asked != rank);
            if ranks.is_empty() {
                self.asked.remove(&index);
            }
        }
        self.next = 0;
    }

    /// Asks for more, as much as may be on its way. When all is asked for, who has nothing left to send is asked for a chunk that
    /// comes slowly from another.
    fn ask(&mut self, core: &Core, out: &mut Outbox) {
        for at in 0..self.donors.len() {
            while self.donors[at].n_asked < WINDOW {
                let rank = self.donors[at].rank;
                let is_idle = self.donors[at].n_asked == 0;
                let Some(index) = self.next_chunk(rank, is_idle) else { break };
                self.asked.entry(index).or_default().push(rank);
                self.donors[at].n_asked += 1;
                self.transfer.say(&Message::AskChunk(index as u32), rank, core, out);
            }
        }
    }

    /// What to ask this donor for.
    fn next_chunk(&mut self, rank: usize, is_idle: bool) -> Option<usize> {
        let end = if rank == self.donor() { self.chunks.n() } else { self.n_common };
        while self.next < self.digests.len().min(end) {
            let index = self.next;
            self.next += 1;
            if !self.is_here(index) && !self.asked.contains_key(&index) {
                return Some(index);
            }
        }
        let is_last = self.digests.len() == self.chunks.n();
        let is_late = |index: usize, ranks: &[usize]| ranks.len() == 1 && ranks[0] != rank && !self.is_here(index);
        let late = self.asked.range(..end).find(|(index, ranks)| is_late(**index, ranks));
        late.filter(|_| is_idle && is_last && self.next >= self.chunks.n().min(end)).map(|(index, _)| *index)
    }

    /// All has come.
    fn conclude(&mut self, core: &Core, out: &mut Outbox) -> Option<Snapshot> {
        let Title { place, optimizer_steps, endings, account } = *self.title.take()?;
        for rank in self.donors.iter().map(|giver| giver.rank).chain(self.given_up.iter().copied()) {
            self.transfer.say(&Message::Done, rank, core, out);
        }
        let seconds = core.now.saturating_sub(self.began).as_secs_f64();
        let donors = self.donors.iter().map(|giver| core.view.members[giver.rank]).collect();
        out.records.push(core.record(Event::StateReceived { n_bytes: self.n_bytes, seconds, donors }));
        let mut vectors = std::mem::take(&mut self.partial.vectors).into_iter();
        let values = vectors.next()?;
        let strategy = vectors.by_ref().take(self.n_state_vectors).map(Arc::new).collect();
        Some(Snapshot { place, optimizer_steps, endings, account, values, strategy, optimizer: vectors.collect() })
    }
}
