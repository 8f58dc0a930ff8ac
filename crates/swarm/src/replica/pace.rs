//! How fast the members are: everyone measures itself, and before work is dealt out anew, the first member tells all.
//!
//! When a peer has trained its last round of a segment, it tells the first member how many samples a second it trains. When the first
//! member knows it of all, it answers with everybody's speed compared to the fastest, and the next segment is dealt out by that. So
//! everyone deals alike, and who turns slow is followed within a few rounds. Most often the answer is there before the round's exchange is
//! over, and nobody waits for it. The members of a new view tell their speeds when they agree on it; a segment that is broken off is
//! followed by one with the speeds that were told last.
//!
//! A batch also takes some time however few samples it has, so who is given fewer measures a lower speed. That does not feed on itself:
//! shares in proportion to what was measured are at rest only where all take equally long for theirs, fixed cost and all, and come back to
//! that from anywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::core::Core;
use crate::effects::{Outbox, Phase};
use crate::malformed::Malformed;
use crate::wire::{Frame, Kind};

/// A peer's own speed, and the first member's answer.
const SPEED: u64 = 0;
const SPEEDS: u64 = 1;
/// Training has diverged, as a peer sees it; in words.
pub(super) const DIVERGED: u64 = 2;
/// What the fastest peer's speed is counted as.
const FASTEST: f32 = 1000.0;
/// Who is slower than this part of the fastest gets as much as if it were not: or it would hardly ever be measured again.
const SLOWEST: f32 = 0.01;
/// By how much a peer's speed is taken to have risen when it could not be measured.
const FORGIVEN: f64 = 0.98;
/// Whose samples took so many times as long before was held up: no machine is faster than it is.
const HELD_UP: f64 = 2.0;
/// So many times as long at most a sample is taken to take from one segment to the next.
const SUDDEN: f64 = 4.0;
/// Peers that differ by less than this are equally fast: clocks are no better than that.
const ALIKE: f32 = 0.9;

/// What a peer knows of its own speed and, as the first member, of the others'.
#[derive(Default)]
pub(super) struct Pace {
    /// How long a sample takes, as far as it was measured.
    sample_s: Option<f64>,
    /// What was trained since that was told.
    n_samples: usize,
    compute: Duration,
    /// The first round of the segment for which this peer has told its speed, and for which it has heard everybody's.
    told_for: Option<u32>,
    heard_for: Option<u32>,
    /// At the first member: for which round speeds are being told, and what was, by rank.
    telling: u32,
    told: BTreeMap<usize, f32>,
    /// Since when this peer has done all and waits for the answer, if it does; and how long it did between rounds.
    waits_since: Option<Duration>,
    waited: Duration,
}

impl Pace {
    /// A batch was trained.
    pub(super) fn measure(&mut self, n_samples: usize, took: Duration) {
        self.n_samples += n_samples;
        self.compute += took;
    }

    /// The others are other ones now.
    pub(super) fn on_view(&mut self) {
        self.told.clear();
        (self.told_for, self.heard_for, self.waits_since) = (None, None, None);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    /// How long this peer waited between rounds since this was asked last.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Whom this peer waits for, by rank.
    pub(super) fn waits_for(&self, rank: usize, n_peers: usize) -> Vec<usize> {
        match rank {
            0 => (0..n_peers).filter(|rank| !self.told.contains_key(rank)).collect(),
            _ => vec![0],
        }
    }

    /// A member tells its speed; whether it had not yet.
    fn hear(&mut self, next: u32, rank: usize, speed: f32) -> bool {
        if std::mem::replace(&mut self.telling, next) != next {
            self.told.clear();
        }
        self.told.insert(rank, speed).is_none()
    }

    /// How many samples a second this peer trains; 0 if it does not know. What is newer counts as much as all before. If it is more than
    /// twice as fast, it counts alone: something held the peer up before, as a GPU's first batch does. If it is far slower, something may
    /// hold it up now, and who is slow indeed will be so again.
    pub(super) fn speed(&mut self) -> f32 {
        if self.n_samples > 0 && !self.compute.is_zero() {
            let latest = self.compute.as_secs_f64() / self.n_samples as f64;
            let before = self.sample_s.filter(|before| *before <= HELD_UP * latest).unwrap_or(latest);
            self.sample_s = Some((before + latest.min(SUDDEN * before)) / 2.0);
            (self.n_samples, self.compute) = (0, Duration::ZERO);
        } else {
            // Who is too slow to be given anything is tried again in time.
            self.sample_s = self.sample_s.map(|sample_s| FORGIVEN * sample_s);
        }
        self.sample_s.map_or(0.0, |sample_s| (1.0 / sample_s) as f32)
    }
}

impl Pace {
    /// Whether the next segment has to wait until all know how fast everyone is.
    pub(super) fn must_wait(&mut self, core: &mut Core) -> bool {
        let was_broken_off = core.plan.is_none();
        let is_known = was_broken_off || self.heard_for == Some(core.next_segment_round());
        let must_wait = follows_speed(core) && !is_known;
        if must_wait {
            self.waits_since.get_or_insert(core.now);
            if core.phase != Phase::Exchanging {
                core.enter(Phase::Exchanging);
            }
        } else if let Some(since) = self.waits_since.take()
            && !core.is_asynchronous()
        {
            self.waited += core.now.saturating_sub(since);
        }
        must_wait
    }

    /// Tells how fast this peer is when it is time to; whether this peer has waited for the answer and has it.
    pub(super) fn keep(&mut self, core: &mut Core, local_phase_is_over: bool, out: &mut Outbox) -> bool {
        if !follows_speed(core) || !is_training(core) {
            return false;
        }
        let next = core.next_segment_round();
        if self.told_for != Some(next) && core.has_trained_all(local_phase_is_over) {
            self.tell_speed(next, core, out);
        }
        self.is_waiting() && self.heard_for == Some(next)
    }

    fn tell_speed(&mut self, next: u32, core: &mut Core, out: &mut Outbox) {
        self.told_for = Some(next);
        let speed = self.speed();
        if core.rank == 0 {
            self.hear(next, 0, speed);
            self.answer_if_all_told(next, core, out);
        } else {
            say(core, 0, (SPEED, next), Bytes::copy_from_slice(&speed.to_le_bytes()), out);
        }
    }

    /// If this first member knows everybody's speed, all shall know.
    fn answer_if_all_told(&mut self, next: u32, core: &mut Core, out: &mut Outbox) {
        let n_peers = core.view.len();
        if self.told.len() < n_peers {
            return;
        }
        let told: Vec<f32> = std::mem::take(&mut self.told).into_values().collect();
        let speeds = compared(&told);
        let body: Bytes = speeds.iter().flat_map(|speed| speed.to_le_bytes()).collect();
        (1..n_peers).for_each(|rank| say(core, rank, (SPEEDS, next), body.clone(), out));
        core.learn_speeds(&speeds);
        self.heard_for = Some(next);
    }

    /// Whether a frame speaks of a segment that this peer has yet to come to.
    pub(super) fn is_early(frame: &Frame, core: &Core) -> bool {
        frame.head.round > core.next_segment_round() || !is_training(core)
    }

    /// A member tells its speed, or the first one everybody's.
    pub(super) fn on_frame(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &mut Core,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let next = core.next_segment_round();
        if frame.head.round < next {
            return Ok(());
        }
        let n_peers = core.view.len();
        match frame.head.part {
            SPEED if core.rank == 0 => {
                let speed = frame.body.as_ref().try_into().map_or(f32::NAN, f32::from_le_bytes);
                let is_late = self.heard_for == Some(next);
                if is_late || !(speed >= 0.0 && speed.is_finite()) || !self.hear(next, rank, speed) {
                    return Err(Malformed::new("it tells a speed that cannot be, or twice"));
                }
                self.answer_if_all_told(next, core, out);
            }
            SPEEDS if rank == 0 => {
                let speeds: Vec<u16> = frame.body.as_chunks().0.iter().copied().map(u16::from_le_bytes).collect();
                if !frame.body.len().is_multiple_of(2) || ![0, n_peers].contains(&speeds.len()) {
                    return Err(Malformed::new("it does not tell of every member how fast it is"));
                }
                core.learn_speeds(&speeds);
                self.heard_for = Some(next);
            }
            _ => return Err(Malformed::new("it is not its place to tell of speeds")),
        }
        Ok(())
    }
}

fn follows_speed(core: &Core) -> bool {
    core.training.sampler.follows_speed(core.place.ledger.epoch) && core.view.len() > 1
}

fn is_training(core: &Core) -> bool {
    matches!(core.phase, Phase::Training | Phase::Exchanging)
}

/// Says something about the segment that begins with this round.
fn say(core: &Core, rank: usize, (part, round): (u64, u32), body: Bytes, out: &mut Outbox) {
    let view = &core.view;
    out.frames.push((view.members[rank], Frame::in_round(Kind::Pace, view.number, round, part, body)));
}

/// Speeds compared to the fastest; none if nobody knows its own. Who does not know is taken to be of middling speed.
pub(super) fn compared(speeds: &[f32]) -> Vec<u16> {
    let is_known = |speed: &f32| *speed > 0.0 && speed.is_finite();
    let mut known: Vec<f32> = speeds.iter().copied().filter(is_known).collect();
    known.sort_unstable_by(f32::total_cmp);
    let (Some(&slowest), Some(&fastest)) = (known.first(), known.last()) else { return Vec::new() };
    if slowest >= ALIKE * fastest {
        return vec![FASTEST as u16; speeds.len()];
    }
    let middling = known[known.len() / 2];
    let of = |speed: f32| (if is_known(&speed) { speed } else { middling } / fastest).max(SLOWEST);
    speeds.iter().map(|&speed| (of(speed) * FASTEST).round() as u16).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_engine::rng::Rng;

    use super::{Pace, compared};

    /// Peers that take so long for a batch of no samples, counted in samples, and by so much more or less each time. In some segments of
    /// four rounds they are given shares by what they measured, from these shares on: for how many samples' time each trains at last,
    /// without the noise.
    fn follow(first: &[usize], fixed: f64, noise: f64, n_segments: u64) -> Vec<f64> {
        let n_samples: usize = first.iter().sum();
        let mut peers: Vec<Pace> = first.iter().map(|_| Pace::default()).collect();
        let mut shares = first.to_vec();
        let mut rng = Rng::stream(1, "pace", n_segments);
        for _ in 0..n_segments {
            for (pace, &share) in peers.iter_mut().zip(&shares) {
                for _ in 0..4 {
                    let late = 1.0 + noise * (2.0 * f64::from(rng.uniform()) - 1.0);
                    pace.measure(share, Duration::from_secs_f64(late * (fixed + share as f64)));
                }
            }
            let told: Vec<f32> = peers.iter_mut().map(Pace::speed).collect();
            let speeds = compared(&told);
            let sum: f64 = speeds.iter().map(|&speed| f64::from(speed)).sum();
            let share = |&speed: &u16| (n_samples as f64 * f64::from(speed) / sum).round() as usize;
            shares = speeds.iter().map(share).collect();
        }
        shares.iter().map(|&share| fixed + share as f64).collect()
    }

    #[test]
    fn equal_peers_stay_equal_whatever_a_batch_costs_besides_its_samples() {
        for fixed in [0.0, 64.0, 256.0] {
            for n_segments in 200..230 {
                let times = follow(&[64; 4], fixed, 0.2, n_segments);
                assert!(times.iter().all(|time| *time < 1.1 * (fixed + 64.0)), "{fixed}: {times:?}");
            }
            // Who was given little by mistake is given its share again.
            assert_eq!(follow(&[4, 84, 84, 84], fixed, 0.0, 60), [fixed + 64.0; 4]);
        }
    }

    #[test]
    fn who_was_held_up_is_as_fast_as_ever_right_after_and_who_gets_slow_is_believed_in_time() {
        let mut pace = Pace::default();
        let mut speed_after = |seconds| {
            pace.measure(100, Duration::from_secs(seconds));
            pace.speed()
        };
        assert_eq!([4, 1, 7].map(&mut speed_after), [25.0, 100.0, 40.0]);
        assert!((0..12).map(|_| speed_after(100)).last() < Some(1.1));
    }

    #[test]
    fn speeds_are_compared_to_the_fastest() {
        assert_eq!(compared(&[0.0, 0.0]), [0; 0], "nobody knows");
        assert_eq!(compared(&[50.0, 48.0, 0.0]), [1000; 3], "nearly alike");
        assert_eq!(compared(&[50.0, 5.0, 25.0, 0.0]), [1000, 100, 500, 500]);
        assert_eq!(compared(&[1e6, 1.0]), [1000, 10], "nobody is forgotten");
    }
}
