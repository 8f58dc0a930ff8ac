//! A pass: a batch on its way through a block, up and down again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::{Columns, Mode, Rows, Score};
use nettorrent_swarm::Malformed;
use nettorrent_swarm::wire::{decoded, encoded};

use crate::gather::Gather;
use crate::gradient_sum::GradientSum;
use crate::message::{Label, Message, Purpose, Subject, messages};
use crate::pipeline_setup::PipelineSetup;
use crate::position::{Key, Position, overlap, ways};
use crate::score_message::ScoreMessage;
use crate::work::{Descent, Feed, PartDone, PartWork, Samples};

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The stage below sends its outputs.
    Below,
    /// The forward pass can be computed.
    Forward,
    /// The other tensor shards of the last layer send their outputs.
    Beside,
    /// The stage above sends its gradients.
    Above,
    /// The gradient by the inputs can be computed.
    InputGradient,
    /// The gradient by the block's own numbers can be computed.
    WeightGradient,
    /// The batch shards add up their gradients.
    Summing,
    /// Nothing.
    Over,
}

/// What to compute first: what others wait for, then what ends a pass, then what begins one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    InputGradient,
    WeightGradient,
    Forward,
}

/// A batch on its way through a block.
pub(crate) struct Pass {
    key: Key,
    samples: Samples,
    mode: Mode,
    /// How many samples the batch has, and which of them are this block's.
    n: usize,
    rows: Range<usize>,
    next: Step,
    is_computing: bool,
    inputs: Option<Gather>,
    outputs: Option<Gather>,
    gradients: Option<Gather>,
    gradient_sum: Option<GradientSum>,
    /// The parameters that it goes up with, and how many steps had gone into them.
    values: Option<Arc<Vec<f32>>>,
    pub step: u64,
    kept: Option<Box<nettorrent_engine::model::Pass>>,
    /// The gradient by the block's own numbers, once those of all batch shards are in it.
    gradient: Option<Vec<f32>>,
    /// By batch shard of the last stage; none where that has no samples.
    scores: Vec<Option<Score>>,
    n_scores_missing: usize,
    pub compute: Duration,
}

impl Pass {
    pub(crate) fn new(position: &Position, key: Key, samples: Samples, mode: Mode) -> Self {
        let (setup, n) = (&position.setup, samples.len());
        let (at, part, rows) = (setup.at(position.slot), setup.part(position.slot), setup.samples(position.slot, n));
        let is_training = key.purpose == Purpose::Train;
        let is_last = setup.is_last(at.stage);
        let gather = |row_len: usize, slots: Range<usize>, columns: &dyn Fn(usize) -> Columns| {
            let mut gather = Gather::new(rows.len(), row_len);
            slots.for_each(|slot| gather.expect(slot, overlap(&rows, &setup.samples(slot, n)), columns(slot)));
            gather
        };
        let columns_of = |slot: usize| setup.part(slot).outputs().clone();
        let inputs = (at.stage > 0).then(|| gather(part.input_len(), setup.stage(at.stage - 1), &columns_of));
        let outputs = (is_last && (is_training || at.tensor_shard == 0)).then(|| {
            let mut outputs = Gather::new(rows.len(), part.outputs().whole_len());
            for slot in setup
                .stage(at.stage)
                .filter(|&slot| slot != position.slot && setup.at(slot).batch_shard == at.batch_shard)
            {
                outputs.expect(slot, 0..rows.len(), columns_of(slot));
            }
            outputs
        });
        let gradients = (is_training && !is_last).then(|| {
            let len = part.outputs().len();
            gather(len, setup.stage(at.stage + 1), &|_| Columns { n_pixels: 1, n_channels: len, channels: 0..len })
        });
        let n_rows = setup.plan.stages[at.stage].batch_shards;
        let gradient_sum =
            (is_training && n_rows > 1).then(|| GradientSum::new(at.batch_shard, n_rows, part.n_values()));
        let last = setup.stage(setup.plan.stages.len() - 1).filter(|&slot| setup.at(slot).tensor_shard == 0);
        let scores: Vec<Option<Score>> =
            last.map(|slot| setup.samples(slot, n).is_empty().then(Score::default)).collect();
        let n_scores_missing = scores.iter().filter(|score| score.is_none()).count();
        Self {
            key,
            samples,
            mode,
            n,
            rows,
            next: Step::Below,
            is_computing: false,
            inputs,
            outputs,
            gradients,
            gradient_sum,
            values: None,
            step: 0,
            kept: None,
            gradient: None,
            scores,
            n_scores_missing,
            compute: Duration::ZERO,
        }
    }

    /// A piece of what another block of the pipeline says about this pass.
    pub(crate) fn take(
        &mut self,
        position: &Position,
        (label, from): (Label, usize),
        body: &[u8],
        out: &mut Vec<Message>,
    ) -> Result<(), Malformed> {
        let setup = &position.setup;
        let out_of_turn = || Malformed::new("it sends a block what is not for this block");
        let gather = match label.subject {
            Subject::Up => self.inputs.as_mut(),
            Subject::Down => self.gradients.as_mut(),
            Subject::Outputs => self.outputs.as_mut(),
            Subject::Score => return self.take_score(setup, from, body),
            Subject::GradientPart | Subject::GradientSum => {
                let (mine, other) = (setup.at(position.slot), setup.at(from));
                let is_beside = (mine.stage, mine.tensor_shard) == (other.stage, other.tensor_shard)
                    && mine.batch_shard != other.batch_shard;
                let gradient_sum = self.gradient_sum.as_mut().filter(|_| is_beside).ok_or_else(out_of_turn)?;
                let ways = ways(position, self.key);
                gradient_sum.take((label, other.batch_shard), body, &ways, out)?;
                self.end_if_summed();
                return Ok(());
            }
            _ => None,
        };
        gather.ok_or_else(out_of_turn)?.take(from, label.piece, body)
    }

    fn take_score(&mut self, setup: &PipelineSetup, from: usize, body: &[u8]) -> Result<(), Malformed> {
        let (at, told): (_, ScoreMessage) = (setup.at(from), decoded(body)?);
        let due = setup.samples(from, self.n).len() as u64;
        let is_due = setup.is_last(at.stage) && at.tensor_shard == 0 && self.scores[at.batch_shard].is_none();
        if !is_due || told.n != due || told.n_correct > told.n {
            return Err(Malformed::new("it tells of a score that cannot be"));
        }
        self.scores[at.batch_shard] = Some(told.into());
        self.n_scores_missing -= 1;
        Ok(())
    }

    /// What can be computed next, if anything.
    pub(crate) fn urgency(&mut self, position: &Position, out: &mut Vec<Message>) -> Option<Urgency> {
        self.advance(position, out);
        if self.is_computing {
            return None;
        }
        match self.next {
            Step::Forward => Some(Urgency::Forward),
            Step::InputGradient => Some(Urgency::InputGradient),
            Step::WeightGradient => Some(Urgency::WeightGradient),
            _ => None,
        }
    }

    /// Goes on where what was waited for has come.
    fn advance(&mut self, position: &Position, out: &mut Vec<Message>) {
        let is_complete = |gather: &Option<Gather>| gather.as_ref().is_none_or(Gather::is_complete);
        match self.next {
            Step::Below if self.rows.is_empty() => self.end_without_samples(position, out),
            Step::Below if is_complete(&self.inputs) => self.next = Step::Forward,
            Step::Above if is_complete(&self.gradients) => self.next = Step::InputGradient,
            Step::Beside if is_complete(&self.outputs) && self.key.purpose == Purpose::Train => {
                self.next = Step::InputGradient;
            }
            Step::Beside if is_complete(&self.outputs) => self.judge(position, out),
            _ => {}
        }
    }

    /// A batch shard that has no samples has nothing to do but to say so.
    fn end_without_samples(&mut self, position: &Position, out: &mut Vec<Message>) {
        self.next = Step::Over;
        if self.key.purpose == Purpose::Train {
            self.on_gradient(position, vec![0.0; position.setup.part(position.slot).n_values()], out);
        }
    }

    /// Begins what can be computed next; `values` are the block's numbers after so many steps, for a pass that begins.
    pub(crate) fn begin(
        &mut self,
        position: &Position,
        values: &Arc<Vec<f32>>,
        step: u64,
    ) -> (PartWork, Arc<Vec<f32>>) {
        self.is_computing = true;
        let (setup, part) = (&position.setup, position.setup.part(position.slot).clone());
        let rows = Rows { first: self.rows.start, n: self.rows.len(), batch_len: self.n };
        let share = setup.share(position.slot);
        let kept = |kept: &mut Option<Box<_>>| kept.take().expect("it was kept on the forward pass");
        let work = match self.next {
            Step::Forward => {
                let feed = match self.inputs.take() {
                    Some(inputs) => Feed::Numbers(inputs.join()),
                    None => Feed::Samples { samples: self.samples.clone(), learning: setup.learning.clone() },
                };
                (self.values, self.step) = (Some(values.clone()), step);
                PartWork::Forward { part, feed, rows, mode: self.mode, share }
            }
            Step::InputGradient => {
                let descent = match (self.gradients.take(), self.outputs.take()) {
                    (Some(gradients), _) => Descent::Numbers(gradients.sum()),
                    (None, outputs) => Descent::Loss {
                        outputs: outputs.map(Gather::join).unwrap_or_default(),
                        samples: self.samples.clone(),
                        learning: setup.learning.clone(),
                    },
                };
                let is_wanted = setup.at(position.slot).stage > 0;
                PartWork::InputGradient { part, pass: kept(&mut self.kept), descent, rows, is_wanted, share }
            }
            _ => PartWork::WeightGradient { part, pass: kept(&mut self.kept), rows, share },
        };
        (work, self.values.clone().expect("it went up with some"))
    }

    /// Something was computed. What others wait for is sent at once. An error is this peer's own: its numbers are no numbers.
    pub(crate) fn on_done(
        &mut self,
        position: &Position,
        done: PartDone,
        took: Duration,
        out: &mut Vec<Message>,
    ) -> Result<(), String> {
        self.is_computing = false;
        self.compute += took;
        match done {
            PartDone::Forward { pass } => {
                if !is_finite(pass.output()) {
                    return Err("what the setup computes became infinite or no number".into());
                }
                self.send_up(position, pass.output(), out);
                self.kept = (self.key.purpose == Purpose::Train).then_some(pass);
            }
            PartDone::InputGradient { pass, gradient, score } => {
                if !is_finite(&gradient) {
                    return Err("the gradient became infinite or no number".into());
                }
                self.kept = Some(pass);
                self.send_down(position, &gradient, out);
                if let Some(score) = score.filter(|_| position.setup.at(position.slot).tensor_shard == 0) {
                    self.tell_score(position, score, out);
                }
                self.next = Step::WeightGradient;
            }
            PartDone::WeightGradient { gradient } => {
                if !is_finite(&gradient) {
                    return Err("the gradient became infinite or no number".into());
                }
                self.on_gradient(position, gradient, out);
            }
        }
        Ok(())
    }

    fn send_up(&mut self, position: &Position, output: &[f32], out: &mut Vec<Message>) {
        let (setup, at) = (&position.setup, position.setup.at(position.slot));
        let len = setup.part(position.slot).outputs().len();
        if !setup.is_last(at.stage) {
            for slot in setup.stage(at.stage + 1) {
                let rows = overlap(&self.rows, &setup.samples(slot, self.n));
                let label = position.label(Subject::Up, self.key, slot);
                out.extend(messages(label, self.key.serial, &output[rows.start * len..rows.end * len]));
            }
            self.next = if self.key.purpose == Purpose::Train { Step::Above } else { Step::Over };
            return;
        }
        for slot in
            setup.stage(at.stage).filter(|&slot| slot != position.slot && setup.at(slot).batch_shard == at.batch_shard)
        {
            if self.key.purpose == Purpose::Train || setup.at(slot).tensor_shard == 0 {
                out.extend(messages(position.label(Subject::Outputs, self.key, slot), self.key.serial, output));
            }
        }
        match &mut self.outputs {
            Some(outputs) => {
                outputs.put(position.slot, setup.part(position.slot).outputs().clone(), output);
                self.next = Step::Beside;
            }
            None => self.next = Step::Over,
        }
    }

    /// The gradient by the inputs is this tensor shard's part of it; who adds the parts up is the stage below.
    fn send_down(&self, position: &Position, gradient: &[f32], out: &mut Vec<Message>) {
        let (setup, at) = (&position.setup, position.setup.at(position.slot));
        if at.stage == 0 {
            return;
        }
        let len = setup.part(position.slot).input_len();
        for slot in setup.stage(at.stage - 1) {
            let rows = overlap(&self.rows, &setup.samples(slot, self.n));
            let columns = setup.part(slot).outputs().take(&gradient[rows.start * len..rows.end * len]);
            out.extend(messages(position.label(Subject::Down, self.key, slot), self.key.serial, &columns));
        }
    }

    /// All outputs of the setup for this block's samples are there, and nothing goes down.
    fn judge(&mut self, position: &Position, out: &mut Vec<Message>) {
        let outputs = self.outputs.take().map(Gather::join).unwrap_or_default();
        let (learning, n) = (&position.setup.learning, self.rows.len());
        let score = self.samples.score(learning, self.rows.clone(), &outputs, self.n);
        // Samples that cannot be read any more have no loss.
        let score = score.unwrap_or_else(|_| Score { loss_sum: f64::NAN, n, ..Score::default() });
        self.tell_score(position, score, out);
        self.next = Step::Over;
    }

    fn tell_score(&self, position: &Position, score: Score, out: &mut Vec<Message>) {
        let body = encoded(&ScoreMessage::from(score));
        for slot in 0..position.setup.n_slots() {
            let label = position.label(Subject::Score, self.key, slot);
            out.push(Message { label, round: self.key.serial, body: body.clone() });
        }
    }

    fn on_gradient(&mut self, position: &Position, gradient: Vec<f32>, out: &mut Vec<Message>) {
        match &mut self.gradient_sum {
            None => {
                self.gradient = Some(gradient);
                self.next = Step::Over;
            }
            Some(gradient_sum) => {
                self.next = Step::Summing;
                gradient_sum.put(gradient, &ways(position, self.key), out);
                self.end_if_summed();
            }
        }
        // The copy of the parameters that it went up with is not needed any more.
        self.values = None;
    }

    fn end_if_summed(&mut self) {
        if let Some(sum) = self.gradient_sum.as_mut().and_then(GradientSum::take_sum) {
            self.gradient = Some(sum);
            self.next = Step::Over;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.next == Step::Over && self.n_scores_missing == 0
    }

    /// How all samples of the batch were classified, and the gradient if there is one; once it is over.
    pub(crate) fn into_result(self) -> (Score, Option<Vec<f32>>) {
        let mut score = Score::default();
        self.scores.into_iter().flatten().for_each(|part| score += part);
        (score, self.gradient)
    }

    /// The slots of this pipeline that it waits for.
    pub(crate) fn waits_for(&self, position: &Position) -> Vec<usize> {
        let of = |gather: &Option<Gather>| gather.iter().flat_map(Gather::waits_for).collect();
        match self.next {
            Step::Below => of(&self.inputs),
            Step::Beside => of(&self.outputs),
            Step::Above => of(&self.gradients),
            Step::Summing => {
                let ways = ways(position, self.key);
                let shards = self.gradient_sum.iter().flat_map(GradientSum::waits_for);
                shards.map(|shard| ways.slots[shard] % position.setup.n_slots()).collect()
            }
            _ => Vec::new(),
        }
    }
}
