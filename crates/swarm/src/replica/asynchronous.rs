//! Asynchronous training: batch after batch without waiting for rounds, and how members of a new view stay honest about it.
//!
//! Within a segment every peer is in a round of its own: the number of its batch. Its ledger counts whose batches have gone
//! into its own parameters, so it says exactly what these are made of. When all batches of all peers have, the segment is
//! over, and all are together again.
//!
//! When the view changes in the middle, the most advanced peer's parameters go on. Batches that others have trained stay
//! counted: what the most advanced has not heard of them, their strategies take back and say again.

use crate::sampling::ledger::Ledger;
use nettorrent_engine::rng::mix;
use serde::{Deserialize, Serialize};

use super::core::Core;
use crate::malformed::Malformed;
use crate::place::Place;
use crate::shared::Shared;
use crate::strategy::Past;
use crate::wire::encoded;

/// What a peer that trains asynchronously says about itself when the view changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// A fingerprint of the segment that it is in.
    pub segment: u64,
    /// How many batches of it this peer has trained.
    pub n_trained: u32,
}

impl Clock {
    /// The present segment and how far this peer is in it.
    pub(super) fn of(core: &Core) -> Self {
        let Some(segment) = core.segment() else { return Self::default() };
        let before = &core.place.ledger.segments[..core.place.ledger.segments.len() - 1];
        let Ledger { epoch, start, .. } = core.place.ledger;
        let name = encoded(&(epoch, start, before, &segment.members, core.place.version.history));
        let n_trained = core.slot_of(core.me).map_or(0, |slot| segment.done[slot]);
        Self { segment: name.iter().fold(0, |hash, &byte| mix(hash ^ u64::from(byte))), n_trained }
    }
}

/// How a segment ended: which, by slot how many batches count, and how many of these are in the parameters that went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ending {
    segment: u64,
    counted: Shared<u32>,
    heard: Shared<u32>,
}

impl Ending {
    /// What has become of a peer's part in the past, which was at this clock and had this slot.
    pub(super) fn past_of(endings: &[Self], clock: Clock, slot: Option<usize>) -> Past {
        let (Some(ending), Some(slot)) = (endings.iter().find(|ending| ending.segment == clock.segment), slot) else {
            return Past::Stranger;
        };
        match (ending.counted.get(slot), ending.heard.get(slot)) {
            // What others do not count, they may do again.
            (Some(&counted), Some(&n_heard)) if counted == clock.n_trained => Past::Adopted { n_heard },
            _ => Past::Stranger,
        }
    }
}

/// How the last segments ended, where peers train asynchronously: who comes from one of them asks for that. A peer that takes over
/// another's state may see more than one view before it has all of it.
#[derive(Default)]
pub(super) struct LastEndings {
    /// The last one first.
    endings: Vec<Ending>,
}

/// So many are remembered.
const MOST_ENDINGS: usize = 16;

impl LastEndings {
    /// Another's state goes on, after segments that ended so; the last one first.
    pub(super) fn replace(&mut self, endings: Vec<Ending>) {
        self.endings = endings;
        self.endings.truncate(MOST_ENDINGS);
    }

    /// The view has changed in the middle of a segment: what its members have trained in it counts, whether it is in the
    /// parameters that go on or not. Returns how the segment ended, and how those before did.
    pub(super) fn count_others(&mut self, core: &mut Core, clocks: &[Option<u32>]) -> Result<Vec<Ending>, Malformed> {
        if core.is_asynchronous() {
            self.endings.splice(0..0, break_off(core, clocks)?);
            self.endings.truncate(MOST_ENDINGS);
        }
        Ok(self.endings.clone())
    }

    /// All batches of all peers are in everybody's parameters: all stand at the same place again.
    pub(super) fn close_segment(&mut self, core: &mut Core) {
        if core.plan.is_none() {
            return;
        }
        let Clock { segment, .. } = Clock::of(core);
        let counted = core.segment().map(|last| last.done.clone()).unwrap_or_default();
        self.endings = vec![Ending { segment, heard: counted.clone(), counted }];
        let n_rounds = core.segment_rounds().len() as u64;
        let Place { version, step, .. } = &mut core.place;
        version.round = core.segment_start.round + n_rounds as u32;
        *step = core.segment_start.step + n_rounds;
        version.pass(core.view.number);
        core.plan = None;
    }
}

/// Counts what the members have trained of a segment that is broken off, and says how it ended.
fn break_off(core: &mut Core, clocks: &[Option<u32>]) -> Result<Option<Ending>, Malformed> {
    let Clock { segment, .. } = Clock::of(core);
    let (Some(plan), Some(last)) = (core.plan.clone(), core.segment()) else { return Ok(None) };
    let heard = last.done.clone();
    for (rank, clock) in clocks.iter().enumerate() {
        let (Some(clock), Some(slot)) = (*clock, core.slot_of(core.view.members[rank])) else { continue };
        if clock as usize > plan.n_rounds() {
            return Err(Malformed::new("it counts batches that nobody had to train"));
        }
        (heard[slot]..clock).for_each(|_| core.count_round(slot));
    }
    let counted = core.segment().map(|last| last.done.clone()).unwrap_or_default();
    Ok(Some(Ending { segment, counted, heard }))
}
