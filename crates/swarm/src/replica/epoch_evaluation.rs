//! The evaluation at the end of an epoch: every peer scores a part of the test set, and the first member adds the parts up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::data::ledger::Ledger;
use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use super::agreement::{Accord, decoded, encoded};
use super::partial_score::{PartialScore, test_share};
use super::{Outbox, Replica};
use crate::malformed::Malformed;
use crate::record::Event;
use crate::view::PeerId;
use crate::wire::{Frame, Kind};
use crate::work::{What, Work};

/// A peer's report to the first member, and what the first member makes of all of them: an epoch that counts, or one that shows that
/// training has diverged.
const REPORT: u64 = 0;
const CONCLUDED: u64 = 1;
// 2 to 4 speak of tests within epochs.
const SPOILT: u64 = 5;

/// What one peer tells of an epoch, or what all of them together did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    /// Counted from 1.
    epoch: u64,
    /// The round and the step that the epoch ended with; from who came later, where it came in.
    round: u32,
    step: u64,
    train: PartialScore,
    test: PartialScore,
}

/// Evaluations that are going on.
#[derive(Default)]
pub(super) struct EpochEvaluation {
    /// This peer's own test that is being computed: its work, and what will be reported.
    running: Vec<(u64, Report)>,
    /// What this peer told last.
    told: Report,
    /// What the first member heard, by epoch.
    heard: BTreeMap<u64, BTreeMap<PeerId, Report>>,
    /// The last epoch of which all is known, and what is.
    concluded: u64,
    last: Option<Report>,
    /// How long this peer's own last test took.
    took: Duration,
    /// Whether the last one shows that training has diverged: then nobody has finished.
    is_spoilt: bool,
}

impl EpochEvaluation {
    /// None yet; of these epochs all is known, for they were told before this peer began.
    pub(super) fn after(n_epochs: u64) -> Self {
        Self { concluded: n_epochs, ..Self::default() }
    }

    /// Parameters of others, or of before, are taken over, after so many epochs: what was told was about other parameters, and with
    /// that counted, more test samples would be told of than there are. Epochs that are trained again are tested again.
    pub(super) fn begin_anew(&mut self, n_epochs: u64) {
        let concluded = self.concluded.min(n_epochs);
        let last = self.last.filter(|last| last.epoch <= n_epochs);
        *self = Self { concluded, last, ..Self::default() };
    }

    /// The members have changed, and with them who would go back.
    pub(super) fn on_view(&mut self) {
        self.is_spoilt = false;
    }

    /// The ranks of those who have not told of the last epoch.
    pub(super) fn missing(&self, members: &[PeerId]) -> Vec<usize> {
        let Some((_, heard)) = self.heard.last_key_value() else { return vec![0] };
        (0..members.len()).filter(|&rank| !heard.contains_key(&members[rank])).collect()
    }
}

impl Replica {
    /// Begins this peer's part of the test after an epoch: as much as it can do in the others' time.
    pub(super) fn begin_test(&mut self, next: &Ledger, train: Score, out: &mut Outbox) {
        let core = &mut self.core;
        let speeds = next.segments.last().map(|segment| segment.speeds.as_slice()).unwrap_or_default();
        let samples = test_share(core.training.task.n_test(), core.rank, core.view.len(), speeds);
        let epoch = next.epoch;
        let (round, step) = (core.place.standing.round, core.place.step);
        let report = Report { epoch, round, step, train: train.into(), test: PartialScore::default() };
        if samples.is_empty() {
            return self.tell_test(report, out);
        }
        let id = core.next_work_id();
        let values = Arc::clone(&core.values);
        self.epoch_evaluation.running.push((id, report));
        out.work.push(Work { id, values, what: What::Test { samples } });
    }

    pub(super) fn on_own_test(&mut self, id: u64, score: Score, took: Duration, out: &mut Outbox) {
        let Some(at) = self.epoch_evaluation.running.iter().position(|(work, _)| *work == id) else {
            return self.on_own_evaluation(id, score, took, out);
        };
        let (_, mut report) = self.epoch_evaluation.running.remove(at);
        report.test = score.into();
        self.epoch_evaluation.took = took;
        self.tell_test(report, out);
    }

    fn tell_test(&mut self, report: Report, out: &mut Outbox) {
        self.epoch_evaluation.told = report;
        if !matches!(self.accord, Accord::Reached) {
            // Those who agree on a new view tell each other afterwards.
            return;
        }
        if self.core.rank == 0 {
            self.hear(self.core.me, report, out);
        } else {
            self.tell(0, Kind::Tested, REPORT, encoded(&report), out);
        }
        self.finish_if_tested(out);
    }

    /// In a new view the first member may be another, who has to be told again; and one who came late has nothing to tell
    /// of the epoch that ended before, which has to be known too.
    pub(super) fn resend_last_report(&mut self, out: &mut Outbox) {
        let epoch = self.core.place.ledger.epoch;
        if epoch == 0 || self.epoch_evaluation.running.iter().any(|(_, report)| report.epoch == epoch) {
            return;
        }
        let (round, step) = (self.core.place.standing.round, self.core.place.step);
        let nothing = Report { epoch, round, step, ..Report::default() };
        self.tell_test(
            if self.epoch_evaluation.told.epoch == epoch { self.epoch_evaluation.told } else { nothing },
            out,
        );
    }

    pub(super) fn on_tested(&mut self, from: PeerId, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        match frame.head.part {
            REPORT => {
                let report: Report = decoded(&frame.body)?;
                self.check(&report, 1)?;
                if report.epoch <= self.core.place.ledger.epoch {
                    self.hear(from, report, out);
                }
            }
            part @ (CONCLUDED | SPOILT) if self.core.view.rank(from) == Some(0) => {
                let report: Report = decoded(&frame.body)?;
                // What the first member added up may hold what another one made up: that is no reason never to finish.
                self.check(&report, self.core.view.len())?;
                if report.epoch > self.core.place.ledger.epoch {
                    // This peer has gone back meanwhile.
                    return Ok(());
                }
                let why = "the first member found it in the test after an epoch";
                self.conclude(&report, (part == SPOILT).then_some(why), out);
            }
            _ => self.on_evaluation(from, frame, out)?,
        }
        self.finish_if_tested(out);
        Ok(())
    }

    /// Refuses a report that so many peers together cannot honestly give.
    fn check(&self, report: &Report, n_peers: usize) -> Result<(), Malformed> {
        let task = &self.core.training.task;
        let (n_test, n_train) = (n_peers * task.n_test(), n_peers * task.labels().len());
        // Samples may be trained more than once in an epoch, but not without end.
        let is_sound = report.test.is_possible(n_test) && report.train.is_possible(1000 * n_train);
        if !is_sound || report.epoch > self.core.training.epochs {
            return Err(Malformed::new(format!("invalid epoch report: {report:?}")));
        }
        Ok(())
    }

    fn hear(&mut self, from: PeerId, report: Report, out: &mut Outbox) {
        if self.core.rank != 0 {
            return;
        }
        if report.epoch <= self.epoch_evaluation.concluded {
            // Who came when all was done already has to hear of it.
            let rank = self.core.view.rank(from).filter(|&rank| rank != 0 && self.all_is_concluded());
            if let (Some(rank), Some(last)) = (rank, &self.epoch_evaluation.last) {
                self.tell(rank, Kind::Tested, CONCLUDED, encoded(last), out);
            }
            return;
        }
        self.epoch_evaluation.heard.entry(report.epoch).or_default().insert(from, report);
        let members = self.core.view.members.clone();
        while let Some((&epoch, heard)) = self.epoch_evaluation.heard.first_key_value() {
            let is_complete = members.iter().all(|member| heard.contains_key(member));
            // When a later epoch is being told of, what is still missing of this one will not come.
            if !is_complete && self.epoch_evaluation.heard.len() == 1 {
                return;
            }
            let (mut train, mut test) = (Score::default(), Score::default());
            let (mut round, mut step) = (self.core.place.standing.round, self.core.place.step);
            for report in heard.values() {
                train += report.train.into();
                test += report.test.into();
                // All who were there ended it in the same place, and who came later is further.
                (round, step) = (round.min(report.round), step.min(report.step));
            }
            self.epoch_evaluation.heard.remove(&epoch);
            let report = Report { epoch, round, step, train: train.into(), test: test.into() };
            let (body, why) = (encoded(&report), self.spoilt_by(&train, &test));
            let part = if why.is_some() { SPOILT } else { CONCLUDED };
            (1..members.len()).for_each(|rank| self.tell(rank, Kind::Tested, part, body.clone(), out));
            self.conclude(&report, why.as_deref(), out);
        }
    }

    /// All is known of an epoch, and what is wrong if it shows that training has diverged. After the last one, all members have done all:
    /// only now may one go, or the others would be disturbed in their last round.
    fn conclude(&mut self, report: &Report, spoilt: Option<&str>, out: &mut Outbox) {
        if report.epoch <= self.epoch_evaluation.concluded {
            return;
        }
        self.epoch_evaluation.concluded = report.epoch;
        self.epoch_evaluation.last = Some(*report);
        let (train, test): (Score, Score) = (report.train.into(), report.test.into());
        out.records.push(self.core.record(Event::Epoch {
            epoch: report.epoch,
            round: report.round,
            step: report.step,
            train_loss: train.loss(),
            train_accuracy: train.accuracy(),
            n_train: train.n as u64,
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            n_test: test.n as u64,
            is_guessing: self.core.training.guessing().explains(&test),
            test_s: self.epoch_evaluation.took.as_secs_f64(),
        }));
        if let Some(why) = spoilt {
            self.epoch_evaluation.is_spoilt = true;
            self.on_spoilt_test(why, out);
        }
    }

    /// Whether all members are known to have done and told everything.
    pub(super) fn all_is_concluded(&self) -> bool {
        !self.epoch_evaluation.is_spoilt && self.epoch_evaluation.concluded >= self.core.n_epochs()
    }
}

#[cfg(test)]
mod tests {
    use super::{EpochEvaluation, Report};

    #[test]
    fn epochs_that_are_trained_again_are_not_concluded() {
        let last = |epoch| Some(Report { epoch, ..Report::default() });
        let mut evaluation = EpochEvaluation { is_spoilt: true, last: last(4), ..EpochEvaluation::after(4) };
        evaluation.begin_anew(4);
        assert_eq!((evaluation.concluded, evaluation.last, evaluation.is_spoilt), (4, last(4), false));
        evaluation.begin_anew(2);
        assert_eq!((evaluation.concluded, evaluation.last), (2, None));
    }
}
