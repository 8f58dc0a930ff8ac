//! `manager-worker`: each peer trains its share by itself; the first peer weighs the results and sends the new weights.
//!
//! This is local SGD, and with weights by samples federated averaging. The manager trains like all others, and when it is
//! lost the next peer takes its place: workers keep what they trained and hand it to the new one. Answers that do not come
//! are not counted, and their samples are trained again by somebody.
//!
//! Messages: a worker's report (mean loss of a batch as f64, samples as u64) and its weights; the manager's list of those
//! who were counted (a bit for each rank) and the new weights, both in segments of buckets.
//! McMahan et al. (2017), "Communication-efficient learning of deep networks from decentralized data".

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Bucket, Buckets, Expected, send_segments, vector_len};
use crate::collective::segments::{Label, segments};
use crate::strategy::{
    AGGREGATION, Aggregation, AnyStrategy, BAD_PEERS, CODEC, Contribution, Cost, CostQuestion, Counted, LOCAL_STEPS,
    LocalSteps, Malformed, Message, Mixing, OPTIMIZER_STATE, OptimizerState, OptionDoc, OptionError, Payload, RoundCtx,
    RoundPlan, RoundStrategy, Rule, Scale, Spec, Strategy, TRIM, Trained, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "manager-worker",
    about: "Each peer trains some batches (or its share of an epoch) by itself; one of them averages the weights and sends \
            them back. Little traffic; replicas drift apart in between.",
    cost: "each worker sends M and receives M per exchange, the manager (N-1)M both ways; 2 steps",
    paper: "McMahan et al. 2017",
    options: &[
        AGGREGATION,
        BAD_PEERS,
        CODEC,
        LOCAL_STEPS,
        OPTIMIZER_STATE,
        OptionDoc {
            name: "patience",
            about: "seconds that the manager waits for the others after the first result; `0`: as long as they live",
        },
        TRIM,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        if !(options.patience >= 0.0 && options.patience < 1e9) {
            let problem = format!("patience = {}: must be a number of seconds from 0 up", options.patience);
            return Err(OptionError::Option { strategy: SPEC.name, problem });
        }
        options.rule.check(SPEC.name)?;
        options.optimizer_state.check(SPEC.name, options.codec)?;
        options.rule.aggregation.check_optimizer_state(SPEC.name, options.optimizer_state)?;
        Ok(AnyStrategy::round(ManagerWorker { options, ..ManagerWorker::default() }))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    rule: Rule,
    codec: Codec,
    local_steps: LocalSteps,
    optimizer_state: OptimizerState,
    patience: f64,
}

impl Default for Options {
    fn default() -> Self {
        let rule = Rule { aggregation: Aggregation::Samples, ..Rule::default() };
        Self {
            rule,
            codec: Codec::F32,
            local_steps: LocalSteps::Auto,
            optimizer_state: OptimizerState::Keep,
            patience: 0.0,
        }
    }
}

#[derive(Default)]
struct ManagerWorker {
    options: Options,
    /// What this peer trained in the present round.
    own: Answer,
    /// At the manager: what came from the others, by rank.
    answers: BTreeMap<usize, Answer>,
    /// At a worker: the new weights as they come.
    result: Incoming,
    /// Who has to answer next.
    missing: Vec<usize>,
}

/// A peer's result of its local phase.
#[derive(Default)]
struct Answer {
    report: Option<Trained>,
    weights: Incoming,
}

/// Weights that come in segments.
#[derive(Default)]
struct Incoming {
    buckets: Buckets,
    counted: Option<Vec<usize>>,
}

const REPORT: usize = 0;
const WEIGHTS: usize = 1;
const SETTLED: usize = 2;
const RESULT: usize = 3;
const REPORT_LEN: usize = 16;
const OUT_OF_PATIENCE: u32 = 0;
const MANAGER: usize = 0;

impl Incoming {
    fn new(ctx: &RoundCtx<'_>) -> Self {
        Self { buckets: Buckets::incoming(ctx), counted: None }
    }

    fn take(&mut self, codec: Codec, label: Label, body: Bytes) -> Result<(), Malformed> {
        self.buckets.take_incoming(codec, label, body)
    }
}

impl Answer {
    /// Whether all of it is here; without samples there are no weights.
    fn is_complete(&self) -> bool {
        self.report.is_some_and(|report| report.n_samples == 0 || self.weights.buckets.is_complete())
    }

    /// What of it counts: nothing, without samples.
    fn contribution(&self) -> Option<Contribution<'_>> {
        let trained = self.report.filter(|report| report.n_samples > 0)?;
        let parts = self.weights.buckets.iter().filter_map(|bucket| bucket.numbers.as_deref()).collect();
        Some(Contribution { trained, parts })
    }
}

impl ManagerWorker {
    fn forget_round(&mut self) {
        self.own = Answer::default();
        self.missing.clear();
        self.forget_others();
    }

    fn forget_others(&mut self) {
        self.answers.clear();
        self.result = Incoming::default();
    }

    /// Hands this peer's result in: to itself, or to the manager.
    fn answer(&mut self, ctx: &mut RoundCtx<'_>) {
        if ctx.rank() == MANAGER {
            return self.aggregate_if_complete(ctx);
        }
        self.missing = vec![MANAGER];
        let Some(report) = self.own.report.filter(|_| ctx.trains(ctx.rank())) else { return };
        ctx.send(MANAGER, Label { bucket: 0, step: REPORT, segment: 0 }.to_part(), report_to_bytes(report));
        if report.n_samples > 0 {
            for (bucket, numbers) in self.own.weights.buckets.iter().map(|bucket| &bucket.numbers).enumerate() {
                let numbers = numbers.as_deref().expect("what was trained was handed over");
                let address = Address { to: MANAGER, bucket, step: WEIGHTS };
                send_segments(ctx, self.options.codec, address, numbers, 0..numbers.len());
            }
        }
    }

    fn aggregate_if_complete(&mut self, ctx: &mut RoundCtx<'_>) {
        self.missing = (0..ctx.n_peers()).filter(|&rank| ctx.trains(rank) && !self.has_answered(rank)).collect();
        if self.missing.is_empty() {
            self.aggregate(ctx);
        } else if self.options.patience > 0.0 && self.has_result() {
            ctx.timer(Duration::from_secs_f64(self.options.patience), OUT_OF_PATIENCE);
        }
    }

    /// Whether anything that was trained is here. Who had nothing to train answers at once; if patience began then, the last
    /// samples of an epoch could be given to a slow peer again and again, and never be waited for.
    fn has_result(&self) -> bool {
        let answers = self.answers.values().chain([&self.own]);
        answers
            .filter(|answer| answer.is_complete())
            .any(|answer| answer.report.is_some_and(|report| report.n_samples > 0))
    }

    fn has_answered(&self, rank: usize) -> bool {
        let answer = if rank == MANAGER { Some(&self.own) } else { self.answers.get(&rank) };
        answer.is_some_and(Answer::is_complete)
    }

    /// The new weights from those who have answered; then everybody gets them.
    fn aggregate(&mut self, ctx: &mut RoundCtx<'_>) {
        let mut answers = std::mem::take(&mut self.answers);
        answers.insert(MANAGER, std::mem::take(&mut self.own));
        answers.retain(|_, answer| answer.is_complete());
        let counted: Vec<usize> = answers.keys().copied().collect();
        let contributions: Vec<Contribution<'_>> = answers.values().filter_map(Answer::contribution).collect();
        if contributions.is_empty() {
            // Nobody had anything to train: the weights stay.
            let held = (0..ctx.buckets().len()).map(|bucket| ctx.held(bucket).into_owned()).collect();
            return self.publish(ctx, held, counted);
        }
        let mut result: Vec<Vec<f32>> = ctx.buckets().iter().map(|range| vec![0.0; range.len()]).collect();
        let rule = self.options.rule;
        let held_at_start = |bucket: usize| ctx.held_at_start(bucket).into_owned();
        let origin: Option<Vec<Vec<f32>>> =
            rule.measures_steps().then(|| (0..ctx.buckets().len()).map(held_at_start).collect());
        rule.aggregate(&contributions, origin.as_deref(), &mut result);
        // The messages are as long as a vector, and need the room.
        drop(contributions);
        drop((answers, origin));
        self.publish(ctx, result, counted);
    }

    fn publish(&mut self, ctx: &mut RoundCtx<'_>, mut weights: Vec<Vec<f32>>, counted: Vec<usize>) {
        let codec = self.options.codec;
        let list = counted_to_bytes(&counted, ctx.n_peers());
        let others: Vec<usize> = (0..ctx.n_peers()).filter(|&rank| rank != MANAGER).collect();
        let part = Label { bucket: 0, step: SETTLED, segment: 0 }.to_part();
        others.iter().for_each(|&to| ctx.send(to, part, list.clone()));
        for (bucket, numbers) in weights.iter_mut().enumerate() {
            for (k, place) in segments(0..numbers.len()).enumerate() {
                let body = codec.encode(&numbers[place.clone()]);
                // What the others will read, the manager holds too, however numbers travel.
                codec.decode(&body, &mut numbers[place]).expect("it was just encoded");
                let part = Label { bucket, step: RESULT, segment: k }.to_part();
                others.iter().for_each(|&to| ctx.send(to, part, body.clone()));
            }
        }
        self.finish(ctx, weights, counted);
    }

    fn finish(&mut self, ctx: &mut RoundCtx<'_>, weights: Vec<Vec<f32>>, counted: Vec<usize>) {
        self.forget_round();
        let everybody = counted.len() == ctx.n_peers();
        ctx.finish_round(weights, if everybody { Counted::All } else { Counted::Ranks(counted) });
    }

    fn on_answer(&mut self, ctx: &mut RoundCtx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        if ctx.rank() != MANAGER || !ctx.trains(from) {
            return Err(Malformed::new("it sends its result to one who did not ask for it"));
        }
        let answer = self.answers.entry(from).or_default();
        if label.step == REPORT {
            if answer.report.is_some() {
                return Err(Malformed::new("it reports twice on the same round"));
            }
            answer.report = Some(report_from_bytes(&body)?);
            answer.weights = Incoming::new(ctx);
        } else {
            answer.weights.take(self.options.codec, label, body)?;
        }
        if answer.is_complete() {
            self.aggregate_if_complete(ctx);
        }
        Ok(())
    }

    fn on_result(&mut self, ctx: &mut RoundCtx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        if from != MANAGER {
            return Err(Malformed::new("only the manager sends new weights"));
        }
        if label.step == SETTLED {
            if self.result.counted.is_some() {
                return Err(Malformed::new("it sends two results for one round"));
            }
            self.result = Incoming::new(ctx);
            self.result.counted = Some(counted_from_bytes(&body, ctx.n_peers())?);
        } else {
            self.result.take(self.options.codec, label, body)?;
        }
        if self.result.buckets.is_complete() {
            let Incoming { mut buckets, counted } = std::mem::take(&mut self.result);
            self.finish(ctx, buckets.take_result(), counted.unwrap_or_default());
        }
        Ok(())
    }
}

impl Strategy for ManagerWorker {
    fn round_plan(&self) -> RoundPlan {
        let length = self.options.local_steps.into();
        let optimizer_state = self.options.optimizer_state;
        RoundPlan { payload: Payload::Weights, length, scale: Scale::Plain, mixing: Mixing::Full, optimizer_state }
    }

    fn follows_speed(&self) -> bool {
        self.options.rule.aggregation == Aggregation::Samples
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let vector = vector_len(self.options.codec, question);
        let others = question.n_peers as u64 - 1;
        let up = others * (vector + REPORT_LEN as u64);
        let down = others * (vector + question.n_peers.div_ceil(8) as u64);
        let (most_sent, most_received) = (down.max(up / others.max(1)), up.max(down / others.max(1)));
        Cost { total: up + down, most_sent, most_received, n_steps: if others > 0 { 2 } else { 0 } }
    }

    fn counts_all(&self) -> bool {
        false
    }

    fn waits_for(&self) -> Vec<usize> {
        self.missing.clone()
    }
}

impl RoundStrategy for ManagerWorker {
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        if bucket == 0 {
            self.own = Answer { report: None, weights: Incoming::new(ctx) };
        }
        let own = &mut self.own.weights.buckets[bucket];
        *own = Bucket::new(numbers.len(), &Expected { n_steps: 0, longest: 0, n_messages: 0 });
        own.numbers = Some(numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, trained: &Trained) {
        self.own.report = Some(*trained);
        self.answer(ctx);
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        match label.step {
            REPORT | WEIGHTS => self.on_answer(ctx, from, label, message.body),
            SETTLED | RESULT => self.on_result(ctx, from, label, message.body),
            _ => Err(Malformed::new("there is no such message in this strategy")),
        }
    }

    fn on_timer(&mut self, ctx: &mut RoundCtx<'_>, timer: u32) {
        if timer == OUT_OF_PATIENCE && ctx.rank() == MANAGER {
            // It was set when the first result came, so there is one.
            self.aggregate(ctx);
        }
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        self.forget_others();
        if !ctx.local_phase_goes_on() {
            self.own = Answer::default();
        } else if self.own.report.is_some() {
            self.answer(ctx);
        }
    }

    fn keeps_local_phase(&self) -> bool {
        true
    }
}

fn report_to_bytes(report: Trained) -> Bytes {
    [report.mean_loss.to_le_bytes(), report.n_samples.to_le_bytes()].concat().into()
}

fn report_from_bytes(body: &[u8]) -> Result<Trained, Malformed> {
    let bad_report = || Malformed::new("its report on a round cannot be read");
    let (&[mean_loss, n_samples], []) = body.as_chunks().0.split_first_chunk().ok_or_else(bad_report)? else {
        return Err(bad_report());
    };
    let (mean_loss, n_samples) = (f64::from_le_bytes(mean_loss), u64::from_le_bytes(n_samples));
    let report = Trained { mean_loss, n_samples, ..Trained::default() };
    // A loss is a number from 0 up; with another, the weights would be none.
    let is_sound = body.len() == REPORT_LEN && report.mean_loss >= 0.0 && report.mean_loss.is_finite();
    is_sound.then_some(report).ok_or_else(bad_report)
}

fn counted_to_bytes(counted: &[usize], n_peers: usize) -> Bytes {
    let mut bits = vec![0; n_peers.div_ceil(8)];
    counted.iter().for_each(|rank| bits[rank / 8] |= 1 << (rank % 8));
    bits.into()
}

fn counted_from_bytes(body: &[u8], n_peers: usize) -> Result<Vec<usize>, Malformed> {
    if body.len() != n_peers.div_ceil(8) {
        return Err(Malformed::new("its list of who was counted has the wrong length"));
    }
    Ok((0..n_peers).filter(|rank| body[rank / 8] & 1 << (rank % 8) != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::{counted_from_bytes, counted_to_bytes, report_from_bytes, report_to_bytes};
    use crate::strategy::Trained;

    #[test]
    fn lists_and_reports_come_back() {
        let counted = vec![0, 3, 8, 9];
        assert_eq!(counted_from_bytes(&counted_to_bytes(&counted, 11), 11).unwrap(), counted);
        assert!(counted_from_bytes(&[0], 11).is_err());
        let report = Trained { mean_loss: 3.0, n_samples: 30, ..Trained::default() };
        assert_eq!(report_from_bytes(&report_to_bytes(report)).unwrap(), report);
        for hostile in [&[0; 15][..], &[0; 17], &[0xff; 16]] {
            assert!(report_from_bytes(hostile).is_err());
        }
    }
}
