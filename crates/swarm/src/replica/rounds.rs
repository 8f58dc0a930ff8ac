//! The end of rounds and epochs, and what comes next.

use super::{Outbox, Phase, Replica, Request};
use crate::record::Event;
use crate::sketch::sketch;
use crate::strategy::{Ctx, Settled};

impl Replica {
    /// Does what the strategy asked for, as long as it asks.
    pub(super) fn apply_requests(&mut self, out: &mut Outbox) {
        loop {
            match self.core.request.take() {
                None => return,
                Some(Request::FinishRound { result, settled }) => {
                    // The result may be there before this peer's own work is quite over, which must have its parameters to
                    // the end; but what did not go into the result is not waited for.
                    if !self.turn_is_over() && settled.contains(self.core.rank) {
                        self.core.request = Some(Request::FinishRound { result, settled });
                        return;
                    }
                    self.finish_round(result, &settled, out);
                }
                Some(Request::Synced) => self.finish_epoch(out),
            }
        }
    }

    fn turn_is_over(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.ended.is_some())
    }

    fn finish_round(&mut self, result: Vec<Vec<f32>>, settled: &Settled, out: &mut Outbox) {
        let turn = self.turn.take().expect("a round has a turn");
        let core = &mut self.core;
        let lr = core.lr(turn.round, 0.0);
        core.adopt(result, lr);
        core.round_start = None;
        let (n_samples, n_batches) = core.settle(settled);
        if *settled != Settled::All {
            // Some have work left that did not count: all share it.
            core.end_segment();
        }
        core.place.standing.advance(core.view.number, n_samples);
        core.place.step += u64::from(n_batches);
        core.epoch_score += turn.score;
        let waited = core.now.saturating_sub(turn.ended.unwrap_or(core.now)) + self.pace.take_waited();
        out.records.push(core.round_record(&turn, lr, waited));
        self.proceed(out);
    }

    /// Goes on where the place says: another turn, another segment, or the end of the epoch.
    pub(super) fn proceed(&mut self, out: &mut Outbox) {
        if self.core.place.ledger.epoch >= self.core.n_epochs() {
            return self.finish(out);
        }
        if !self.core.segment_is_over() {
            self.evaluate_if_due(out);
            if self.is_asynchronous() {
                self.begin_free_turn_if_allowed(out);
            } else {
                self.begin_turn(out);
            }
            return self.release_held(out);
        }
        if self.must_hear_speeds() {
            return self.release_held(out);
        }
        if self.is_asynchronous() {
            self.close_free_segment();
        }
        let next = self.core.next_ledger();
        if next.epoch > self.core.place.ledger.epoch {
            // Who trains asynchronously waits for the others' last batches; who exchanges in rounds has waited for them in the last one.
            let has_waited = self.is_asynchronous() && self.phase == Phase::Exchanging;
            self.idle_since = if has_waited { self.phase_began } else { self.core.now };
            self.enter(Phase::Syncing);
            let sketch = sketch(&self.core.values, self.core.training.seed);
            out.records.push(self.core.record(Event::Replica { epoch: next.epoch, sketch }));
            self.strategy.sync(&mut Ctx::new(&mut self.core, out));
        } else {
            self.core.open(next);
            return self.proceed(out);
        }
        self.release_held(out);
    }

    fn finish_epoch(&mut self, out: &mut Outbox) {
        let core = &mut self.core;
        core.place.standing.advance(core.view.number, 0);
        let next = core.next_ledger();
        let (sent_bytes, received_bytes) = core.take_counts();
        let wait_s = (core.now.saturating_sub(self.idle_since) + self.pace.take_waited()).as_secs_f64();
        let (epoch, encode_s, decode_s, send_s) = (next.epoch, 0.0, 0.0, 0.0);
        out.records.push(core.record(Event::Synced {
            epoch,
            wait_s,
            encode_s,
            decode_s,
            send_s,
            sent_bytes,
            received_bytes,
        }));
        // What was waited for until now is told; the next turn's waiting begins here.
        self.phase_began = core.now;
        let train = std::mem::take(&mut core.epoch_score);
        self.begin_test(&next, train, out);
        self.choose_strategy(next.epoch);
        self.core.open(next);
        self.keep_good_state();
        self.proceed(out);
    }

    fn finish(&mut self, out: &mut Outbox) {
        self.turn = None;
        self.core.plan = None;
        if let Some(why) = self.ends_diverged() {
            return self.give_up(&why, out);
        }
        self.enter(Phase::Testing);
        self.release_held(out);
        self.finish_if_tested(out);
    }

    /// All is done when everybody's last test is.
    pub(super) fn finish_if_tested(&mut self, out: &mut Outbox) {
        if self.phase != Phase::Testing || !self.all_is_concluded() {
            return;
        }
        self.enter(Phase::Finished);
        let rounds = self.core.place.standing.round;
        out.records.push(self.core.record(Event::Finished { rounds }));
    }
}
