//! The evaluation at the end of an epoch: every peer scores a part of the test set, and the first member adds the parts up.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sampling::ledger::Ledger;
use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use super::core::Core;
use super::partial_score::{AboutTest, PartialScore, decoded_with_metrics, encoded_with_metrics, test_share};
use super::recovery::Recovery;
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::place::Place;
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
pub(super) struct Report {
    /// Counted from 1.
    epoch: u64,
    /// The round and the step that the epoch ended with; from who came later, where it came in.
    round: u32,
    step: u64,
    train: PartialScore,
    test: PartialScore,
    /// What the parameters were, where all should have the same: this peer's, or what most have.
    hash: Option<u64>,
    /// In what all together did: who has that, by rank.
    rank: u32,
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
    /// What this peer's parameters were after the epochs that are not concluded.
    own_hashes: BTreeMap<u64, u64>,
    is_outvoted: bool,
}

/// What members say about parameters that should be equal.
#[derive(Debug, PartialEq, Eq)]
struct Vote {
    /// What most have; of equals, what the first one has.
    hash: u64,
    /// The first one who has it.
    first: PeerId,
    /// Who has something else.
    others: Vec<PeerId>,
    /// Whether those are fewer than half.
    is_outvoted: bool,
}

impl Vote {
    /// None if there is nothing to compare.
    fn of(hashes: impl Iterator<Item = (PeerId, u64)>) -> Option<Self> {
        let hashes: Vec<(PeerId, u64)> = hashes.collect();
        let n_with = |hash: u64| hashes.iter().filter(|(_, other)| *other == hash).count();
        // Of several that are the most, `max_by_key` would take the last.
        let (first, hash) = hashes.iter().rev().copied().max_by_key(|(_, hash)| n_with(*hash))?;
        let others: Vec<PeerId> = hashes.iter().filter(|(_, other)| *other != hash).map(|(peer, _)| *peer).collect();
        let is_outvoted = 2 * n_with(hash) > hashes.len();
        (hashes.len() > 1).then_some(Self { hash, first, others, is_outvoted })
    }
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

    /// Whether this peer's own part is being computed.
    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
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

impl EpochEvaluation {
    /// Begins this peer's part of the test after an epoch: as much as it can do in the others' time. If that is nothing, it has
    /// something to tell at once.
    pub(super) fn begin(&mut self, core: &mut Core, next: &Ledger, train: Score, out: &mut Outbox) -> Option<Report> {
        let speeds = next.segments.last().map(|segment| segment.speeds.as_slice()).unwrap_or_default();
        let samples = test_share(core.training.task.n_test(), core.rank, core.view.len(), speeds);
        let epoch = next.epoch;
        let (round, step) = (core.place.version.round, core.place.step);
        let report = Report { epoch, round, step, train: train.into(), ..Report::default() };
        // Who trains asynchronously is together with the others in the end only.
        let are_equal = !core.is_asynchronous() || epoch >= core.n_epochs();
        let is_compared = are_equal && core.view.len() > 1 && core.holds_whole;
        if samples.is_empty() && !is_compared {
            self.told = report;
            return Some(report);
        }
        let id = core.next_work_id();
        let values = core.judged();
        self.running.push((id, report));
        out.work.push(Work { id, what: What::Test { values, samples, is_compared } });
        None
    }

    /// What this peer has to tell when its part is done; none if the work was not for that.
    pub(super) fn on_own_test(
        &mut self,
        id: u64,
        (score, hash): (Score, Option<u64>),
        took: Duration,
    ) -> Option<Report> {
        let at = self.running.iter().position(|(work, _)| *work == id)?;
        let (_, report) = self.running.remove(at);
        self.own_hashes.extend(hash.map(|hash| (report.epoch, hash)));
        self.took = took;
        self.told = Report { test: score.into(), hash, ..report };
        Some(self.told)
    }

    /// In a new view the first member may be another, who has to be told again; and one who came late has nothing to tell
    /// of the epoch that ended before, which has to be known too.
    pub(super) fn last_report(&mut self, place: &Place) -> Option<Report> {
        let epoch = place.ledger.epoch;
        if epoch == 0 || self.running.iter().any(|(_, report)| report.epoch == epoch) {
            return None;
        }
        if self.told.epoch != epoch {
            self.told = Report { epoch, round: place.version.round, step: place.step, ..Report::default() };
        }
        Some(self.told)
    }

    /// Tells the first member, which may be this peer. Says what is wrong if it then knows that training has diverged.
    pub(super) fn tell(
        &mut self,
        report: Report,
        core: &Core,
        recovery: &Recovery,
        out: &mut Outbox,
    ) -> Option<String> {
        if core.rank == 0 {
            return self.hear((core.me, report), core, recovery, out);
        }
        core.tell(0, Kind::Tested, REPORT, encoded_with_metrics(&report, core.task()), out);
        None
    }

    /// Whether a frame is about the test at an epoch's end, and not about one within it.
    pub(super) fn is_meant(frame: &Frame) -> bool {
        matches!(frame.head.part, REPORT | CONCLUDED | SPOILT)
    }

    /// A member tells of its part, or the first one of the whole. Says what is wrong if training has diverged.
    pub(super) fn on_frame(
        &mut self,
        (from, frame): (PeerId, &Frame),
        core: &Core,
        recovery: &Recovery,
        out: &mut Outbox,
    ) -> Result<Option<String>, Malformed> {
        let report: Report = decoded_with_metrics(&frame.body, core.task())?;
        match frame.head.part {
            REPORT => {
                report.check(core, 1)?;
                let is_over = report.epoch <= core.place.ledger.epoch;
                Ok(if is_over { self.hear((from, report), core, recovery, out) } else { None })
            }
            part if core.view.rank(from) == Some(0) => {
                // What the first member added up may hold what another one made up: that is no reason never to finish.
                report.check(core, core.view.len())?;
                if report.epoch > core.place.ledger.epoch {
                    // This peer has gone back meanwhile.
                    return Ok(None);
                }
                let why = "the first member found it in the test after an epoch";
                Ok(self.conclude(&report, (part == SPOILT).then(|| why.to_owned()), core, out))
            }
            _ => Err(Malformed::new("it speaks of a test in a way that is not its place")),
        }
    }

    fn hear(
        &mut self,
        (from, report): (PeerId, Report),
        core: &Core,
        recovery: &Recovery,
        out: &mut Outbox,
    ) -> Option<String> {
        if core.rank != 0 {
            return None;
        }
        if report.epoch > self.concluded {
            self.heard.entry(report.epoch).or_default().insert(from, report);
            return self.add_up(core, recovery, out);
        }
        // Who came when all was done already has to hear of it.
        let rank = core.view.rank(from).filter(|&rank| rank != 0 && self.all_is_concluded(core));
        if let (Some(rank), Some(last)) = (rank, &self.last) {
            core.tell(rank, Kind::Tested, CONCLUDED, encoded_with_metrics(last, core.task()), out);
        }
        None
    }

    /// At the first member: adds up what all have told, epoch after epoch. Says what is wrong as soon as one shows that training has
    /// diverged; there may be more to add up then.
    pub(super) fn add_up(&mut self, core: &Core, recovery: &Recovery, out: &mut Outbox) -> Option<String> {
        while let Some((&epoch, heard)) = self.heard.first_key_value().filter(|_| core.rank == 0) {
            let (members, n_heard) = (&core.view.members, heard.len());
            let is_complete = n_heard >= members.len() && members.iter().all(|member| heard.contains_key(member));
            // When a later epoch is being told of, what is still missing of this one will not come.
            if !is_complete && self.heard.len() == 1 {
                return None;
            }
            let (mut train, mut test) = (Score::default(), Score::default());
            let (mut round, mut step) = (core.place.version.round, core.place.step);
            for report in heard.values() {
                train += report.train.into();
                test += report.test.into();
                // All who were there ended it in the same place, and who came later is further.
                (round, step) = (round.min(report.round), step.min(report.step));
            }
            let vote = Vote::of(heard.iter().filter_map(|(peer, report)| Some((*peer, report.hash?))));
            self.heard.remove(&epoch);
            let mut report = Report { epoch, round, step, train: train.into(), test: test.into(), ..Report::default() };
            if let Some(Vote { hash, first: from, others, is_outvoted }) = vote {
                let differs =
                    others.into_iter().map(|who| Event::Differs { who, from, epoch: Some(epoch), is_outvoted });
                out.records.extend(differs.map(|differs| core.record(differs)));
                if is_outvoted {
                    report.hash = Some(hash);
                    report.rank = core.view.rank(from).unwrap_or(0) as u32;
                }
            }
            let why = recovery.spoilt_by(core, &train, &test);
            let part = if why.is_some() { SPOILT } else { CONCLUDED };
            core.tell_others(Kind::Tested, part, &encoded_with_metrics(&report, core.task()), out);
            if let Some(why) = self.conclude(&report, why, core, out) {
                return Some(why);
            }
        }
        None
    }

    /// All is known of an epoch, and what is wrong if it shows that training has diverged. After the last one, all members have done all:
    /// only now may one go, or the others would be disturbed in their last round.
    fn conclude(&mut self, report: &Report, spoilt: Option<String>, core: &Core, out: &mut Outbox) -> Option<String> {
        if report.epoch <= self.concluded {
            return None;
        }
        self.concluded = report.epoch;
        self.compare(report, core, out);
        self.last = Some(*report);
        let (train, test): (Score, Score) = (report.train.into(), report.test.into());
        self.is_spoilt |= spoilt.is_some();
        if test.n == 0 && core.task().n_test() > 0 {
            // All who tested it are gone, and those who came later have nothing to tell: that is no result.
            return spoilt;
        }
        out.records.push(core.record(Event::Epoch {
            epoch: report.epoch,
            round: report.round,
            step: report.step,
            train_loss: train.loss(),
            train_accuracy: train.accuracy(),
            n_train: train.n as u64,
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            n_test: test.n as u64,
            metrics: test.named_metrics(core.task().metrics()),
            is_guessing: core.training.guessing().explains(&test),
            test_s: self.took.as_secs_f64(),
        }));
        spoilt
    }

    /// Most members have these parameters after an epoch, as far as that is known: does this peer?
    fn compare(&mut self, report: &Report, core: &Core, out: &mut Outbox) {
        let own = self.own_hashes.remove(&report.epoch);
        self.own_hashes.retain(|epoch, _| *epoch > report.epoch);
        let (Some(own), Some(most)) = (own, report.hash) else { return };
        self.is_outvoted = own != most;
        // The first member has said so already, also of itself.
        let Some(&from) = core.view.members.get(report.rank as usize).filter(|_| core.rank != 0) else { return };
        if self.is_outvoted {
            let differs = Event::Differs { who: core.me, from, epoch: Some(report.epoch), is_outvoted: true };
            out.records.push(core.record(differs));
        }
    }

    /// Whether this peer had other parameters than most after the last epoch that was compared.
    pub(super) fn is_outvoted(&self) -> bool {
        self.is_outvoted
    }

    /// Whether all members are known to have done and told everything.
    pub(super) fn all_is_concluded(&self, core: &Core) -> bool {
        !self.is_spoilt && self.concluded >= core.n_epochs()
    }
}

impl AboutTest for Report {
    fn test(&mut self) -> &mut PartialScore {
        &mut self.test
    }
}

impl Report {
    /// Refuses a report that so many peers together cannot honestly give.
    fn check(&self, core: &Core, n_peers: usize) -> Result<(), Malformed> {
        let task = &core.training.task;
        let (n_test, n_train) = (n_peers * task.n_test(), n_peers * task.labels().len());
        // Samples may be trained more than once in an epoch, but not without end.
        let is_sound = self.test.is_possible(n_test) && self.train.is_possible(1000 * n_train);
        if !is_sound || self.epoch > core.training.epochs {
            return Err(Malformed::new(format!("invalid epoch report: {self:?}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{EpochEvaluation, Report, Vote};
    use crate::view::PeerId;

    #[test]
    fn who_has_what_few_have_is_named() {
        let vote = |hashes: &[u64]| Vote::of((0..).map(PeerId).zip(hashes.iter().copied()));
        let found = |hash, first, others: &[u64], is_outvoted| {
            let others = others.iter().copied().map(PeerId).collect();
            Some(Vote { hash, first: PeerId(first), others, is_outvoted })
        };
        assert_eq!(vote(&[]), None);
        assert_eq!(vote(&[5]), None);
        assert_eq!(vote(&[5, 5, 5]), found(5, 0, &[], true));
        assert_eq!(vote(&[5, 5, 7, 5]), found(5, 0, &[2], true));
        assert_eq!(vote(&[7, 5, 5]), found(5, 1, &[0], true));
        assert_eq!(vote(&[7, 5]), found(7, 0, &[1], false));
        assert_eq!(vote(&[9, 5, 7, 5]), found(5, 1, &[0, 2], false));
    }

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
