//! A new view: its members agree on whose parameters go on, and those who are behind take them over.
//!
//! Everyone tells the first member how far it is. The first member answers with the donor: who is most advanced, of equals the
//! first. The donor sends its state to those whose past is another. A view that changes in the middle begins this anew.

use std::collections::BTreeMap;

use bytes::Bytes;
use nettorrent_engine::rng::mix;
use serde::{Deserialize, Serialize};

use super::asynchronous::{Clock, Ending};
use super::pace::compared;
use super::snapshot::Incoming;
use super::{Outbox, Phase, Replica};
use crate::malformed::Malformed;
use crate::place::{Place, Standing};
use crate::record::Event;
use crate::strategy::{Ctx, Past};
use crate::view::View;
use crate::wire::{Frame, Kind};

/// How far the members of a view have agreed.
pub(super) enum Accord {
    /// This peer waits for a view, or for the first member's word.
    Waiting,
    /// This peer is the first member and gathers how far the others are.
    Gathering(BTreeMap<usize, Claim>),
    /// This peer is behind and takes over another's state.
    Behind(Incoming),
    /// All is agreed.
    Reached,
}

/// How far a peer says it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Epochs done. This comes first: of two who trained as many samples, one may not have ended the epoch yet; and who has
    /// finished takes part in nothing any more.
    epoch: u64,
    standing: Standing,
    /// Where turns go on over a change of the view, and where peers train asynchronously: a fingerprint of who trained what. Else it
    /// follows from the past.
    ledger: u64,
    /// Where peers train asynchronously: how far this one is.
    clock: Clock,
    /// How many samples a second it trains; 0 if it does not know.
    speed: f32,
}

impl Claim {
    /// Whether two peers have the same past, and hold the same.
    fn is_equal(&self, other: &Self) -> bool {
        (self.epoch, self.standing, self.ledger) == (other.epoch, other.standing, other.ledger)
    }
}

/// What the first member says.
#[derive(Serialize, Deserialize)]
struct Verdict {
    donor: u32,
    behind: Vec<u32>,
    /// Where peers train asynchronously: by rank, how many batches everybody has trained who is in the donor's segment.
    clocks: Vec<Option<u32>>,
    /// By rank, how fast everybody is compared to the fastest; empty if nobody knows.
    speeds: Vec<u16>,
    /// Whether this is no new view: training has diverged, and all take the first member's state over.
    is_rollback: bool,
}

const CLAIM: u64 = 0;
const VERDICT: u64 = 1;

impl Accord {
    /// Whom this peer waits for, by rank.
    pub(super) fn waits_for(&self, view: &View) -> Vec<usize> {
        match self {
            Self::Waiting => vec![0],
            Self::Gathering(claims) => (0..view.len()).filter(|rank| !claims.contains_key(rank)).collect(),
            Self::Behind(incoming) => vec![incoming.donor],
            Self::Reached => Vec::new(),
        }
    }
}

impl Replica {
    pub(super) fn on_view(&mut self, view: View, out: &mut Outbox) -> Result<(), Malformed> {
        let core = &mut self.core;
        if view.number <= core.view.number {
            return Ok(());
        }
        let Some(rank) = view.rank(core.me) else {
            return Err(Malformed::new("a view came that this peer is not part of"));
        };
        (core.view, core.rank, core.request) = (view, rank, None);
        (core.is_computing, core.scoring) = (false, None);
        self.pace.on_view();
        self.epoch_evaluation.on_view();
        self.evaluations.forget();
        if !self.strategy.keeps_turn() {
            // What is still being computed for it is not wanted any more.
            self.turn = None;
        }
        if self.phase != Phase::Finished {
            self.enter(Phase::Agreeing);
        }
        let claim = self.claim();
        if rank == 0 {
            self.accord = Accord::Gathering(BTreeMap::from([(0, claim)]));
            self.conclude_if_gathered(out)?;
        } else {
            self.accord = Accord::Waiting;
            self.tell(0, Kind::Agreement, CLAIM, encoded(&claim), out);
        }
        self.release_held(out);
        Ok(())
    }

    fn claim(&mut self) -> Claim {
        let speed = self.pace.speed();
        let Place { standing, ledger, .. } = &self.core.place;
        let fingerprint = |bytes: &[u8]| bytes.iter().fold(0, |hash, &byte| mix(hash ^ u64::from(byte)));
        let is_told = self.strategy.keeps_turn() || self.is_asynchronous();
        let shares = if is_told { fingerprint(&encoded(&(ledger, self.strategy.account()))) } else { 0 };
        let clock = if self.is_asynchronous() { self.core.clock() } else { Clock::default() };
        Claim { epoch: ledger.epoch, standing: *standing, ledger: shares, clock, speed }
    }

    pub(super) fn on_agreement(&mut self, rank: usize, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        match (frame.head.part, &mut self.accord) {
            (CLAIM, Accord::Gathering(claims)) => {
                claims.insert(rank, decoded(&frame.body)?);
                self.conclude_if_gathered(out)
            }
            (VERDICT, accord) if rank == 0 && self.core.rank != 0 => {
                let is_waiting = matches!(accord, Accord::Waiting);
                let verdict: Verdict = decoded(&frame.body)?;
                if verdict.is_rollback && verdict.donor == 0 && verdict.behind.contains(&(self.core.rank as u32)) {
                    self.abandon();
                } else if !is_waiting || verdict.is_rollback {
                    return Err(Malformed::new("it decides again what was decided"));
                }
                self.on_verdict(&verdict, out)
            }
            _ => Err(Malformed::new("it speaks out of turn in the agreement on a view")),
        }
    }

    /// If this first member knows how far all are, it says whose state goes on.
    fn conclude_if_gathered(&mut self, out: &mut Outbox) -> Result<(), Malformed> {
        let Accord::Gathering(claims) = &self.accord else { return Ok(()) };
        if claims.len() < self.core.view.len() {
            return Ok(());
        }
        let most_advanced = |claim: &Claim| (claim.epoch, claim.standing.n_samples, claim.standing.round);
        let mut donor = 0;
        for (&rank, claim) in claims {
            if most_advanced(claim) > most_advanced(&claims[&donor]) {
                donor = rank;
            }
        }
        let goes_on = claims[&donor];
        let behind = claims.iter().filter(|(_, claim)| !claim.is_equal(&goes_on)).map(|(&rank, _)| rank as u32);
        let clock = |claim: &Claim| (claim.clock.segment == goes_on.clock.segment).then_some(claim.clock.n_trained);
        let clocks = claims.values().map(clock).collect();
        let speeds: Vec<f32> = claims.values().map(|claim| claim.speed).collect();
        let verdict = Verdict {
            donor: donor as u32,
            behind: behind.collect(),
            clocks,
            speeds: compared(&speeds),
            is_rollback: false,
        };
        let body = encoded(&verdict);
        for rank in 1..self.core.view.len() {
            self.tell(rank, Kind::Agreement, VERDICT, body.clone(), out);
        }
        self.on_verdict(&verdict, out)
    }

    /// Tells the others that they are to take this first member's state over, though the view is the same.
    pub(super) fn tell_rollback(&self, others: &[u32], out: &mut Outbox) {
        let clocks = vec![None; self.core.view.len()];
        let (behind, speeds) = (others.to_vec(), self.core.speeds.clone());
        let body = encoded(&Verdict { donor: 0, behind, clocks, speeds, is_rollback: true });
        for &rank in others {
            self.tell(rank as usize, Kind::Agreement, VERDICT, body.clone(), out);
        }
    }

    fn on_verdict(&mut self, verdict: &Verdict, out: &mut Outbox) -> Result<(), Malformed> {
        let (donor, n_peers) = (verdict.donor as usize, self.core.view.len());
        if donor >= n_peers || verdict.behind.iter().any(|&rank| rank as usize >= n_peers) {
            return Err(Malformed::new("it names a member that the view does not have"));
        }
        if verdict.clocks.len() != n_peers || ![0, n_peers].contains(&verdict.speeds.len()) {
            return Err(Malformed::new("it does not say of every member how far and how fast it is"));
        }
        self.core.speeds.clone_from(&verdict.speeds);
        if verdict.behind.contains(&(self.core.rank as u32)) {
            self.accord = Accord::Behind(Incoming::new(donor));
            self.release_held(out);
            return Ok(());
        }
        let mut endings: Vec<Ending> = self.ending.take().into_iter().collect();
        if self.is_asynchronous() {
            // The last one first.
            endings.splice(0..0, self.core.count_others(&verdict.clocks)?);
        }
        self.ending = endings.first().cloned();
        if donor == self.core.rank {
            self.send_snapshot(&verdict.behind, endings, out);
        }
        self.core.past = Past::Own;
        self.go_on(donor, false, out);
        Ok(())
    }

    /// The agreement is reached; this peer's state is the one that goes on.
    pub(super) fn go_on(&mut self, donor: usize, was_behind: bool, out: &mut Outbox) {
        self.accord = Accord::Reached;
        let core = &mut self.core;
        let members = core.view.members.to_vec();
        let (view, round, donor) = (core.view.number, core.place.standing.round, members[donor]);
        out.records.push(core.record(Event::View { view, members, donor, was_behind, round }));
        self.resend_last_report(out);
        if self.phase == Phase::Finished {
            if was_behind {
                // It has to know whose parameters these are, though nothing more is done with them.
                self.core.turn_goes_on = false;
                self.strategy.on_view(&mut Ctx::new(&mut self.core, out));
            }
            return self.release_held(out);
        }
        // If only peers who are gone had anything left to train, the turn is empty, and who was behind begins another one.
        let is_worth_it = !was_behind && self.turn.is_some() && !self.core.segment_is_over();
        self.core.turn_goes_on = self.strategy.keeps_turn() && is_worth_it;
        self.strategy.on_view(&mut Ctx::new(&mut self.core, out));
        if self.core.turn_goes_on {
            let is_over = self.turn.as_ref().is_some_and(|turn| turn.ended.is_some());
            self.enter(if is_over { Phase::Exchanging } else { Phase::Training });
            self.end_turn_if_agreed(out);
            return self.release_held(out);
        }
        self.turn = None;
        self.core.roll_back();
        if !self.strategy.keeps_turn() {
            self.core.end_segment();
        }
        self.proceed(out);
    }

    pub(super) fn tell(&self, rank: usize, kind: Kind, part: u64, body: Bytes, out: &mut Outbox) {
        let (view, round) = (&self.core.view, self.core.place.standing.round);
        out.frames.push((view.members[rank], Frame::in_round(kind, view.number, round, part, body)));
    }
}

pub(crate) fn encoded(value: &impl Serialize) -> Bytes {
    postcard::to_allocvec(value).expect("plain values can be written").into()
}

pub(crate) fn decoded<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    postcard::from_bytes(body).map_err(|error| Malformed::new(format!("its message cannot be read: {error}")))
}
