//! A pass: a batch on its way through a block, up and down again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::{Columns, Mode, Rows, Score, loss_gradient};
use serde::{Deserialize, Serialize};

use super::gather::Gather;
use super::label::{Label, Letter, Purpose, Subject, letters};
use super::network::LayerNetwork;
use super::row_sum::RowSum;
use super::seat::{Key, Seat, overlap, ways};
use super::work::{Descent, Feed, PartDone, PartWork, Samples};
use crate::malformed::Malformed;
use crate::wire::{decoded, encoded};

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The group below sends its outputs.
    Below,
    /// The way up can be computed.
    Forward,
    /// The other columns of the last layer send their outputs.
    Beside,
    /// The group above sends its gradients.
    Above,
    /// The gradient by the inputs can be computed.
    InputGradient,
    /// The gradient by the block's own numbers can be computed.
    WeightGradient,
    /// The rows of this column add up their gradients.
    Rows,
    /// Nothing.
    Over,
}

/// What to compute first: what others wait for, then what ends a pass, then what begins one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    InputGradient,
    WeightGradient,
    Forward,
}

/// A batch on its way through a block.
pub(super) struct Pass {
    key: Key,
    samples: Samples,
    mode: Mode,
    /// How many samples the batch has, and which of them are this block's.
    n: usize,
    rows: Range<usize>,
    stage: Stage,
    is_computing: bool,
    inputs: Option<Gather>,
    outputs: Option<Gather>,
    gradients: Option<Gather>,
    row_sum: Option<RowSum>,
    /// The parameters that it goes up with, and how many steps had gone into them.
    values: Option<Arc<Vec<f32>>>,
    pub step: u64,
    kept: Option<Box<nettorrent_engine::model::Pass>>,
    /// The gradient by the block's own numbers, once all rows' are in it.
    gradient: Option<Vec<f32>>,
    /// By row of the last group; none where that row has no samples.
    scores: Vec<Option<Score>>,
    n_scores_missing: usize,
    pub compute: Duration,
}

/// A score as it travels.
#[derive(Serialize, Deserialize)]
struct Told {
    loss_sum: f64,
    n_correct: u64,
    n: u64,
}

impl Pass {
    pub(super) fn new(seat: &Seat, key: Key, samples: Samples, mode: Mode) -> Self {
        let (network, n) = (&seat.network, samples.len());
        let (at, part, rows) = (network.at(seat.slot), network.part(seat.slot), network.rows(seat.slot, n));
        let is_training = key.purpose == Purpose::Train;
        let is_last = network.is_last(at.group);
        let gather = |row_len: usize, slots: Range<usize>, columns: &dyn Fn(usize) -> Columns| {
            let mut gather = Gather::new(rows.len(), row_len);
            slots.for_each(|slot| gather.expect(slot, overlap(&rows, &network.rows(slot, n)), columns(slot)));
            gather
        };
        let columns_of = |slot: usize| network.part(slot).outputs().clone();
        let inputs = (at.group > 0).then(|| gather(part.input_len(), network.group(at.group - 1), &columns_of));
        let outputs = (is_last && (is_training || at.column == 0)).then(|| {
            let mut outputs = Gather::new(rows.len(), part.outputs().whole_len());
            for slot in network.group(at.group).filter(|&slot| slot != seat.slot && network.at(slot).row == at.row) {
                outputs.expect(slot, 0..rows.len(), columns_of(slot));
            }
            outputs
        });
        let gradients = (is_training && !is_last).then(|| {
            let len = part.outputs().len();
            gather(len, network.group(at.group + 1), &|_| Columns { n_pixels: 1, n_channels: len, channels: 0..len })
        });
        let n_rows = network.plan.groups[at.group].rows;
        let row_sum = (is_training && n_rows > 1).then(|| RowSum::new(at.row, n_rows, part.n_values()));
        let last = network.group(network.plan.groups.len() - 1).filter(|&slot| network.at(slot).column == 0);
        let scores: Vec<Option<Score>> =
            last.map(|slot| network.rows(slot, n).is_empty().then(Score::default)).collect();
        let n_scores_missing = scores.iter().filter(|score| score.is_none()).count();
        Self {
            key,
            samples,
            mode,
            n,
            rows,
            stage: Stage::Below,
            is_computing: false,
            inputs,
            outputs,
            gradients,
            row_sum,
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
    pub(super) fn take(
        &mut self,
        seat: &Seat,
        (label, from): (Label, usize),
        body: &[u8],
        out: &mut Vec<Letter>,
    ) -> Result<(), Malformed> {
        let network = &seat.network;
        let out_of_turn = || Malformed::new("it sends a block what is not for this block");
        let gather = match label.subject {
            Subject::Up => self.inputs.as_mut(),
            Subject::Down => self.gradients.as_mut(),
            Subject::Outputs => self.outputs.as_mut(),
            Subject::Score => return self.take_score(network, from, body),
            Subject::RowPart | Subject::RowSum => {
                let (mine, other) = (network.at(seat.slot), network.at(from));
                let is_beside = (mine.group, mine.column) == (other.group, other.column) && mine.row != other.row;
                let row_sum = self.row_sum.as_mut().filter(|_| is_beside).ok_or_else(out_of_turn)?;
                let ways = ways(seat, self.key);
                row_sum.take((label, other.row), body, &ways, out)?;
                self.end_if_summed();
                return Ok(());
            }
            _ => None,
        };
        gather.ok_or_else(out_of_turn)?.take(from, label.piece, body)
    }

    fn take_score(&mut self, network: &LayerNetwork, from: usize, body: &[u8]) -> Result<(), Malformed> {
        let (at, told): (_, Told) = (network.at(from), decoded(body)?);
        let due = network.rows(from, self.n).len() as u64;
        let is_due = network.is_last(at.group) && at.column == 0 && self.scores[at.row].is_none();
        if !is_due || told.n != due || told.n_correct > told.n {
            return Err(Malformed::new("it tells of a score that cannot be"));
        }
        let Told { loss_sum, n_correct, n } = told;
        self.scores[at.row] = Some(Score { loss_sum, n_correct: n_correct as usize, n: n as usize });
        self.n_scores_missing -= 1;
        Ok(())
    }

    /// What can be computed next, if anything.
    pub(super) fn urgency(&mut self, seat: &Seat, out: &mut Vec<Letter>) -> Option<Urgency> {
        self.advance(seat, out);
        if self.is_computing {
            return None;
        }
        match self.stage {
            Stage::Forward => Some(Urgency::Forward),
            Stage::InputGradient => Some(Urgency::InputGradient),
            Stage::WeightGradient => Some(Urgency::WeightGradient),
            _ => None,
        }
    }

    /// Goes on where what was waited for has come.
    fn advance(&mut self, seat: &Seat, out: &mut Vec<Letter>) {
        let is_complete = |gather: &Option<Gather>| gather.as_ref().is_none_or(Gather::is_complete);
        match self.stage {
            Stage::Below if self.rows.is_empty() => self.end_without_samples(seat, out),
            Stage::Below if is_complete(&self.inputs) => self.stage = Stage::Forward,
            Stage::Above if is_complete(&self.gradients) => self.stage = Stage::InputGradient,
            Stage::Beside if is_complete(&self.outputs) && self.key.purpose == Purpose::Train => {
                self.stage = Stage::InputGradient;
            }
            Stage::Beside if is_complete(&self.outputs) => self.judge(seat, out),
            _ => {}
        }
    }

    /// A row that has no samples of a batch has nothing to do but to say so.
    fn end_without_samples(&mut self, seat: &Seat, out: &mut Vec<Letter>) {
        self.stage = Stage::Over;
        if self.key.purpose == Purpose::Train {
            self.on_gradient(seat, vec![0.0; seat.network.part(seat.slot).n_values()], out);
        }
    }

    /// Begins what can be computed next; `values` are the block's numbers after so many steps, for a pass that begins.
    pub(super) fn begin(&mut self, seat: &Seat, values: &Arc<Vec<f32>>, step: u64) -> (PartWork, Arc<Vec<f32>>) {
        self.is_computing = true;
        let (network, part) = (&seat.network, seat.network.part(seat.slot).clone());
        let rows = Rows { first: self.rows.start, n: self.rows.len(), batch_len: self.n };
        let share = network.share(seat.slot);
        let kept = |kept: &mut Option<Box<_>>| kept.take().expect("it was kept on the way up");
        let work = match self.stage {
            Stage::Forward => {
                let feed = match self.inputs.take() {
                    Some(inputs) => Feed::Numbers(inputs.join()),
                    None => Feed::Samples { samples: self.samples.clone(), learning: network.learning.clone() },
                };
                (self.values, self.step) = (Some(values.clone()), step);
                PartWork::Forward { part, feed, rows, mode: self.mode, share }
            }
            Stage::InputGradient => {
                let descent = match (self.gradients.take(), self.outputs.take()) {
                    (Some(gradients), _) => Descent::Numbers(gradients.sum()),
                    (None, outputs) => {
                        let labels = self.samples.labels(&network.learning, self.rows.clone());
                        Descent::Loss { outputs: outputs.map(Gather::join).unwrap_or_default(), labels }
                    }
                };
                let is_wanted = network.at(seat.slot).group > 0;
                PartWork::InputGradient { part, pass: kept(&mut self.kept), descent, rows, is_wanted, share }
            }
            _ => PartWork::WeightGradient { part, pass: kept(&mut self.kept), rows, share },
        };
        (work, self.values.clone().expect("it went up with some"))
    }

    /// Something was computed. What others wait for is sent at once. An error is this peer's own: its numbers are no numbers.
    pub(super) fn on_done(
        &mut self,
        seat: &Seat,
        done: PartDone,
        took: Duration,
        out: &mut Vec<Letter>,
    ) -> Result<(), String> {
        self.is_computing = false;
        self.compute += took;
        match done {
            PartDone::Forward { pass } => {
                if !is_finite(pass.output()) {
                    return Err("what the network computes became infinite or no number".into());
                }
                self.send_up(seat, pass.output(), out);
                self.kept = (self.key.purpose == Purpose::Train).then_some(pass);
            }
            PartDone::InputGradient { pass, gradient, score } => {
                if !is_finite(&gradient) {
                    return Err("the gradient became infinite or no number".into());
                }
                self.kept = Some(pass);
                self.send_down(seat, &gradient, out);
                if let Some(score) = score.filter(|_| seat.network.at(seat.slot).column == 0) {
                    self.tell_score(seat, score, out);
                }
                self.stage = Stage::WeightGradient;
            }
            PartDone::WeightGradient { gradient } => {
                if !is_finite(&gradient) {
                    return Err("the gradient became infinite or no number".into());
                }
                self.on_gradient(seat, gradient, out);
            }
        }
        Ok(())
    }

    fn send_up(&mut self, seat: &Seat, output: &[f32], out: &mut Vec<Letter>) {
        let (network, at) = (&seat.network, seat.network.at(seat.slot));
        let len = network.part(seat.slot).outputs().len();
        if !network.is_last(at.group) {
            for slot in network.group(at.group + 1) {
                let rows = overlap(&self.rows, &network.rows(slot, self.n));
                let label = seat.label(Subject::Up, self.key, slot);
                out.extend(letters(label, self.key.serial, &output[rows.start * len..rows.end * len]));
            }
            self.stage = if self.key.purpose == Purpose::Train { Stage::Above } else { Stage::Over };
            return;
        }
        for slot in network.group(at.group).filter(|&slot| slot != seat.slot && network.at(slot).row == at.row) {
            if self.key.purpose == Purpose::Train || network.at(slot).column == 0 {
                out.extend(letters(seat.label(Subject::Outputs, self.key, slot), self.key.serial, output));
            }
        }
        match &mut self.outputs {
            Some(outputs) => {
                outputs.put(seat.slot, network.part(seat.slot).outputs().clone(), output);
                self.stage = Stage::Beside;
            }
            None => self.stage = Stage::Over,
        }
    }

    /// The gradient by the inputs is this column's part of it; who adds the parts up is the group below.
    fn send_down(&self, seat: &Seat, gradient: &[f32], out: &mut Vec<Letter>) {
        let (network, at) = (&seat.network, seat.network.at(seat.slot));
        if at.group == 0 {
            return;
        }
        let len = network.part(seat.slot).input_len();
        for slot in network.group(at.group - 1) {
            let rows = overlap(&self.rows, &network.rows(slot, self.n));
            let columns = network.part(slot).outputs().take(&gradient[rows.start * len..rows.end * len]);
            out.extend(letters(seat.label(Subject::Down, self.key, slot), self.key.serial, &columns));
        }
    }

    /// All outputs of the network for this block's samples are there, and nothing goes down.
    fn judge(&mut self, seat: &Seat, out: &mut Vec<Letter>) {
        let outputs = self.outputs.take().map(Gather::join).unwrap_or_default();
        let labels = self.samples.labels(&seat.network.learning, self.rows.clone());
        let n_classes = seat.network.part(seat.slot).outputs().whole_len();
        let (score, _) = loss_gradient(&outputs, &labels, n_classes, self.n);
        self.tell_score(seat, score, out);
        self.stage = Stage::Over;
    }

    fn tell_score(&self, seat: &Seat, score: Score, out: &mut Vec<Letter>) {
        let Score { loss_sum, n_correct, n } = score;
        let body = encoded(&Told { loss_sum, n_correct: n_correct as u64, n: n as u64 });
        for slot in 0..seat.network.n_slots() {
            let label = seat.label(Subject::Score, self.key, slot);
            out.push(Letter { label, round: self.key.serial, body: body.clone() });
        }
    }

    fn on_gradient(&mut self, seat: &Seat, gradient: Vec<f32>, out: &mut Vec<Letter>) {
        match &mut self.row_sum {
            None => {
                self.gradient = Some(gradient);
                self.stage = Stage::Over;
            }
            Some(row_sum) => {
                self.stage = Stage::Rows;
                row_sum.put(gradient, &ways(seat, self.key), out);
                self.end_if_summed();
            }
        }
        // The copy of the parameters that it went up with is not needed any more.
        self.values = None;
    }

    fn end_if_summed(&mut self) {
        if let Some(sum) = self.row_sum.as_mut().and_then(RowSum::take_sum) {
            self.gradient = Some(sum);
            self.stage = Stage::Over;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.n_scores_missing == 0
    }

    /// How all samples of the batch were classified, and the gradient if there is one; once it is over.
    pub(super) fn into_result(self) -> (Score, Option<Vec<f32>>) {
        let mut score = Score::default();
        self.scores.into_iter().flatten().for_each(|part| score += part);
        (score, self.gradient)
    }

    /// The slots of this pipeline that it waits for.
    pub(super) fn waits_for(&self, seat: &Seat) -> Vec<usize> {
        let of = |gather: &Option<Gather>| gather.iter().flat_map(Gather::waits_for).collect();
        match self.stage {
            Stage::Below => of(&self.inputs),
            Stage::Beside => of(&self.outputs),
            Stage::Above => of(&self.gradients),
            Stage::Rows => {
                let ways = ways(seat, self.key);
                let rows = self.row_sum.iter().flat_map(RowSum::waits_for);
                rows.map(|row| ways.slots[row] % seat.network.n_slots()).collect()
            }
            _ => Vec::new(),
        }
    }
}
