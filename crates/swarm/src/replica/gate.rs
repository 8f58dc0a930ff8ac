//! What decides whether a frame has come before its time.

use std::ops::Range;

use super::agreement::Agreement;
use super::core::Core;
use super::pace::Pace;
use crate::effects::Phase;

/// Where a replica is, as far as it matters to frames that are early. As long as it is the same, a frame that is held stays held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gate {
    view: u32,
    is_agreed: bool,
    awaits_verdict: bool,
    phase: Phase,
    first_round: u32,
    open_rounds: Range<u32>,
    next_segment_round: u32,
    awaits_speeds: bool,
}

impl Gate {
    pub(super) fn of(core: &Core, agreement: &Agreement, pace: &Pace) -> Self {
        Self {
            view: core.view.number,
            is_agreed: agreement.is_reached(),
            awaits_verdict: matches!(agreement, Agreement::Waiting(_)),
            phase: core.phase,
            first_round: core.place.first_round,
            open_rounds: core.open_rounds(),
            next_segment_round: core.next_segment_round(),
            awaits_speeds: pace.is_waiting(),
        }
    }
}
