//! Whether a strategy learns here: how its pilots stand beside those of one machine alone.

use serde::Serialize;

use crate::trial::Trial;

/// What pilots say about learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Learning {
    /// The target was reached with more than half of the seeds.
    Reached,
    /// Time was over first, but the model was as good as that of one machine after as many epochs. It is taken to need as
    /// many epochs as one machine.
    OnCourse,
    /// The target was not reached in the job's epochs, or the model was clearly worse than that of one machine after as many.
    DoesNotLearn,
    /// Time was over before anything could be said.
    Unknown,
    /// It was not simulated: its epochs take so long that one machine alone is sooner however well it learns.
    TooSlow,
    /// Nobody asked.
    Untested,
}

/// Whether a strategy learns, and how many epochs it needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// What pilots say.
    pub learning: Learning,
    /// How many epochs are needed, as finely as the job tests; none if that did not come out.
    pub epochs: Option<f64>,
    /// How many epochs were simulated, with the seed that did most.
    pub n_epochs_simulated: u64,
    /// How good the model is after each seed's last one ([`Measure::quality`](nettorrent_engine::measure::Measure::quality)), in the mean over the seeds.
    pub quality: Option<f64>,
    /// The same of one machine alone after as many epochs.
    pub quality_alone: Option<f64>,
    /// How many seeds were tried.
    pub n_seeds: usize,
    /// With how many of them the target was reached.
    pub n_reached: usize,
}

/// By how much a model may be worse than that of one machine after as many epochs: what is worse does not learn.
const CLEARLY_WORSE: f64 = 0.01;

impl Verdict {
    /// Nothing is known about learning: every strategy is taken to need so many epochs.
    pub(crate) fn untested(epochs: u64) -> Self {
        Self { epochs: Some(epochs as f64), ..Self::not_simulated(Learning::Untested) }
    }

    /// A strategy that cannot be sooner than one machine alone.
    pub(crate) fn too_slow() -> Self {
        Self::not_simulated(Learning::TooSlow)
    }

    fn not_simulated(learning: Learning) -> Self {
        Self {
            learning,
            epochs: None,
            n_epochs_simulated: 0,
            quality: None,
            quality_alone: None,
            n_seeds: 0,
            n_reached: 0,
        }
    }

    /// What a trial says beside that of one machine alone; of that one, beside itself. Where there was no time to find a target,
    /// nothing can be said. Pilots had this share of the job's samples: a sample is taken to teach as much, whether it is
    /// one of few that come often or of many.
    pub(crate) fn new(trial: &Trial, alone: &Trial, target: Option<f64>, share: f64) -> Self {
        let epochs_to = |trial: &Trial| target.and_then(|target| trial.epochs_to(target)).map(|epochs| share * epochs);
        let n_reached = target.map_or(0, |target| trial.n_reached(target));
        let may_get_there = 2 * (n_reached + trial.n_cut_short()) > trial.n_seeds();
        let after = |n_epochs| trial.quality_after(n_epochs).zip(alone.quality_after(n_epochs));
        let (learning, epochs) = match (epochs_to(trial), after(trial.n_epochs())) {
            (Some(epochs), _) => (Learning::Reached, Some(epochs)),
            (None, _) if !may_get_there && (target.is_some() || trial.pilots.is_empty()) => {
                (Learning::DoesNotLearn, None)
            }
            (None, Some((quality, others))) if target.is_some() => match quality < others - CLEARLY_WORSE {
                true => (Learning::DoesNotLearn, None),
                false => (Learning::OnCourse, epochs_to(alone)),
            },
            (None, _) => (Learning::Unknown, None),
        };
        let n_epochs_simulated = trial.most_epochs();
        let (quality, quality_alone) = (trial.quality_after(u64::MAX), alone.quality_after(n_epochs_simulated));
        Self { learning, epochs, n_epochs_simulated, quality, quality_alone, n_seeds: trial.n_seeds(), n_reached }
    }
}

#[cfg(test)]
mod tests {
    use super::{Learning, Verdict};
    use crate::pilot::{Pilot, PilotEpoch};
    use crate::trial::Trial;

    fn trial(qualities: &[f64], is_out_of_time: bool) -> Trial {
        let epoch = |&quality: &f64| PilotEpoch { quality, seconds: 1.0, n_rounds: 1 };
        let epochs = qualities.iter().map(epoch).collect();
        Trial { pilots: vec![Pilot { epochs, is_out_of_time, ..Pilot::default() }], problems: Vec::new() }
    }

    #[test]
    fn learning_is_judged_by_the_target_and_beside_one_machine() {
        let alone = trial(&[0.5, 0.8, 0.97], false);
        for (qualities, is_out_of_time, learning, epochs) in [
            (&[0.5, 0.97][..], false, Learning::Reached, Some(2.0)),
            (&[0.5, 0.97], true, Learning::Reached, Some(2.0)),
            (&[0.5, 0.8, 0.95], false, Learning::DoesNotLearn, None),
            (&[0.5, 0.785], true, Learning::DoesNotLearn, None),
            (&[0.5, 0.795], true, Learning::OnCourse, Some(3.0)),
            (&[], true, Learning::Unknown, None),
        ] {
            let verdict = Verdict::new(&trial(qualities, is_out_of_time), &alone, Some(0.965), 1.0);
            assert_eq!((verdict.learning, verdict.epochs), (learning, epochs), "{qualities:?}");
        }
        // Two of three seeds have done their epochs, so that the third one cannot help any more.
        let pilots = [false, false, true].map(|is_cut| trial(&[0.5, 0.8, 0.96], is_cut).pilots.remove(0)).to_vec();
        let most = Verdict::new(&Trial { pilots, problems: Vec::new() }, &alone, Some(0.965), 1.0);
        assert_eq!((most.learning, most.n_seeds, most.n_reached), (Learning::DoesNotLearn, 3, 0));
        assert_eq!(Verdict::new(&trial(&[0.5], false), &alone, None, 1.0).learning, Learning::Unknown);
        let fewer = Verdict::new(&trial(&[0.5, 0.97], false), &alone, Some(0.965), 0.25);
        assert_eq!((fewer.epochs, fewer.n_epochs_simulated), (Some(0.5), 2), "two epochs of a quarter of the samples");
        let failed = Trial { pilots: Vec::new(), problems: vec!["it diverged".to_owned()] };
        assert_eq!(Verdict::new(&failed, &alone, Some(0.965), 1.0).learning, Learning::DoesNotLearn);
    }
}
