//! A turn: what a peer trains by itself before each exchange.

use std::time::Duration;

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::Score;

use super::agreement::Accord;
use super::turn_state::TurnState;
use super::{Outbox, Phase, Replica, batch_seed};
use crate::record::Event;
use crate::strategy::{Ctx, Payload, Scale, Trained, held_at};
use crate::work::{Done, What, Work, scaled};

impl Replica {
    /// Begins the turn that the ledger and the plan say is next.
    pub(super) fn begin_turn(&mut self, out: &mut Outbox) {
        let core = &mut self.core;
        core.delay = self.strategy.delay();
        let plan = core.plan.clone().expect("a turn begins within a segment");
        let seat = core.seat_of(core.me);
        let round = core.own_round();
        let batches = seat.map_or(0..0, |seat| plan.batches_in(seat, round));
        let (first, n_mine) = (batches.start as u32, batches.len() as u32);
        let share = match core.turn.scale {
            Scale::Plain => 1.0,
            Scale::Share => {
                let mine = seat.map_or(0, |seat| plan.samples_of(seat, round));
                (mine as f64 / plan.samples_in(round).max(1) as f64) as f32
            }
        };
        self.turn = Some(TurnState {
            work: 0,
            round,
            first,
            n_mine,
            n_done: 0,
            share,
            gradient: Vec::new(),
            waited: self.core.now.saturating_sub(self.phase_began),
            staleness: if self.is_asynchronous() { self.core.staleness() } else { 0 },
            is_finite: true,
            score: Score::default(),
            loss_sum: 0.0,
            compute: Duration::ZERO,
            ended: None,
        });
        let core = &mut self.core;
        core.is_computing = true;
        let takes_steps = core.turn.payload == Payload::Weights;
        core.round_start = takes_steps.then(|| (core.values.clone(), core.optimizer.clone()));
        self.enter(Phase::Training);
        if n_mine == 0 {
            return self.contribute_nothing(out);
        }
        self.train_batch(out);
    }

    /// Has the next batch of the turn computed.
    fn train_batch(&mut self, out: &mut Outbox) {
        let (core, turn) = (&mut self.core, self.turn.as_mut().expect("a turn is going on"));
        let (Some(seat), Some(plan)) = (core.seat_of(core.me), core.plan.clone()) else { return };
        turn.work = core.next_work_id();
        turn.gradient.clear();
        let scale = if core.turn.payload == Payload::Gradients { turn.share } else { 1.0 };
        let step = core.place.step + u64::from(turn.n_done);
        let what = What::Gradient {
            plan,
            seat,
            batch: (turn.first + turn.n_done) as usize,
            step,
            seed: batch_seed(core.training.seed, seat, step),
            scale,
            spare: std::mem::take(&mut core.spare),
        };
        out.work.push(Work { id: turn.work, values: core.values.clone(), what });
    }

    /// Work came back. What belongs to a turn that is no more is not wanted.
    pub(super) fn on_done(&mut self, done: Done, took: Duration, out: &mut Outbox) {
        let is_current = |id: u64| self.turn.as_ref().is_some_and(|turn| turn.work == id && turn.ended.is_none());
        match done {
            Done::Bucket { id, bucket, numbers } if is_current(id) => self.on_bucket(bucket, numbers, out),
            Done::Trained { id, score, left_out } if is_current(id) => {
                if !left_out.is_empty() {
                    let step = self.core.place.step;
                    out.records.push(self.core.record(Event::LeftOut { samples: left_out, step }));
                }
                self.on_batch(score, took, out);
            }
            Done::Scored { id, score } if self.core.scoring == Some(id) => {
                self.core.scoring = None;
                self.strategy.on_scored(&mut Ctx::new(&mut self.core, out), &score);
            }
            Done::Tested { id, score } => self.on_own_test(id, score, took, out),
            Done::Failed { problem } => out.failure = Some(problem),
            Done::Bucket { .. } | Done::Trained { .. } | Done::Scored { .. } | Done::Part { .. } => {}
        }
    }

    fn on_bucket(&mut self, bucket: usize, numbers: Vec<f32>, out: &mut Outbox) {
        if !is_finite(&numbers) {
            // Nobody else gets to see it; when the batch is over, this peer says what is wrong.
            self.turn.as_mut().expect("it is current").is_finite = false;
            return;
        }
        match self.core.turn.payload {
            Payload::Gradients => self.strategy.on_part(&mut Ctx::new(&mut self.core, out), bucket, numbers),
            Payload::Weights | Payload::Updates => {
                self.turn.as_mut().expect("it is current").gradient.push(numbers);
            }
        }
    }

    fn on_batch(&mut self, score: Score, took: Duration, out: &mut Outbox) {
        let turn = self.turn.as_mut().expect("it is current");
        if !score.loss_sum.is_finite() || !turn.is_finite {
            return self.fail_turn(score.loss(), out);
        }
        turn.score += score;
        turn.loss_sum += score.loss();
        turn.compute += took;
        self.pace.measure(score.n, took);
        if let Some(why) = self.watch(score) {
            return self.on_divergence(&why, out);
        }
        let (core, turn) = (&mut self.core, self.turn.as_mut().expect("it is current"));
        out.records.push(core.record(Event::Batch {
            epoch: core.place.ledger.epoch,
            round: core.place.standing.round,
            n_samples: score.n as u64,
            loss: score.loss(),
            n_correct: score.n_correct as u64,
            lr: core.lr(turn.round, turn.share_done()),
            compute_s: took.as_secs_f64(),
        }));
        if core.turn.payload == Payload::Weights {
            let (gradient, lr) = (std::mem::take(&mut turn.gradient), core.lr(turn.round, turn.share_done()));
            core.take_step(gradient, lr);
        }
        core.is_computing = false;
        turn.n_done += 1;
        if core.turn.payload == Payload::Updates {
            return self.end_free_turn(out);
        }
        if turn.n_done < turn.n_mine {
            return self.train_batch(out);
        }
        if core.turn.payload == Payload::Weights && !core.is_finite() {
            return self.fail_turn(score.loss(), out);
        }
        self.end_turn_if_agreed(out);
    }

    /// What this peer computed are no numbers.
    fn fail_turn(&mut self, loss: f64, out: &mut Outbox) {
        if self.strategy.survives_divergence() {
            self.give_up_turn(out);
        } else {
            self.diverge(loss, out);
        }
    }

    /// What this peer trained in the turn is forgotten; it waits for the others' parameters.
    fn give_up_turn(&mut self, out: &mut Outbox) {
        let core = &mut self.core;
        core.roll_back();
        core.round_start = Some((core.values.clone(), core.optimizer.clone()));
        core.is_computing = false;
        let turn = self.turn.as_mut().expect("a turn is going on");
        (turn.n_done, turn.is_finite) = (turn.n_mine, false);
        self.end_turn_if_agreed(out);
    }

    /// What this peer computed is of no use to anybody: nobody else gets to see it.
    fn diverge(&mut self, loss: f64, out: &mut Outbox) {
        let is_finite = self.turn.as_ref().is_some_and(|turn| turn.is_finite);
        let why = match (loss.is_finite(), is_finite) {
            (false, _) => format!("the loss became {loss}"),
            (true, false) => format!("the gradient became infinite or no number (the loss is {loss})"),
            (true, true) => format!("the parameters became infinite or no number (the loss was {loss})"),
        };
        self.on_divergence(&why, out);
    }

    /// Hands over what was trained in a turn. While the members of a new view agree on whose parameters go on, nobody knows
    /// whether it counts, and nobody could do anything with it: then it waits.
    pub(super) fn end_turn_if_agreed(&mut self, out: &mut Outbox) {
        let is_trained = self.turn.as_ref().is_some_and(|turn| turn.ended.is_none() && turn.n_done >= turn.n_mine);
        if !is_trained || !matches!(self.accord, Accord::Reached) {
            return;
        }
        if self.core.turn.payload == Payload::Weights {
            self.hand_over_weights(out);
        }
        self.end_turn(out);
    }

    fn hand_over_weights(&mut self, out: &mut Outbox) {
        let share = self.turn.as_ref().expect("a turn is going on").share;
        let buckets = self.core.buckets.clone();
        for (bucket, place) in buckets.iter().enumerate() {
            let core = &mut self.core;
            let numbers = scaled(&held_at(&core.values, &core.optimizer, place), share, &mut core.spare);
            self.strategy.on_part(&mut Ctx::new(core, out), bucket, numbers);
        }
    }

    /// A peer with nothing to train takes part all the same, without weight.
    fn contribute_nothing(&mut self, out: &mut Outbox) {
        match self.core.turn.payload {
            Payload::Weights => self.hand_over_weights(out),
            Payload::Updates => {
                self.core.is_computing = false;
                return self.end_free_turn(out);
            }
            Payload::Gradients => {
                let task = self.core.training.task.clone();
                for (bucket, range) in task.buckets().iter().enumerate() {
                    let mut numbers = self.core.buffer(range.len());
                    numbers.fill(0.0);
                    self.strategy.on_part(&mut Ctx::new(&mut self.core, out), bucket, numbers);
                }
            }
        }
        self.end_turn(out);
    }

    fn end_turn(&mut self, out: &mut Outbox) {
        let turn = self.turn.as_mut().expect("a turn is going on");
        turn.ended = Some(self.core.now);
        let trained = Trained {
            n_samples: turn.score.n as u64,
            mean_loss: turn.loss_sum / f64::from(turn.n_done.max(1)),
            compute: turn.compute,
            has_diverged: !turn.is_finite,
        };
        self.enter(Phase::Exchanging);
        self.strategy.on_trained(&mut Ctx::new(&mut self.core, out), &trained);
    }
}
