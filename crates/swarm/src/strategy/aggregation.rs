//! Aggregation: how contributions that lie at one place become one vector.
//!
//! A mean takes everybody's word, so one peer with broken numbers spoils it. Median, trimmed mean and Krum outvote a minority,
//! but need every contribution at one place: a sum that goes from peer to peer shows nobody whose number was which. So where
//! peers would sum along a ring, with such a rule everybody sends its vector to all others, and each applies the rule itself.

use nettorrent_engine::kernel::squared_norm;
use serde::{Deserialize, Serialize};

use super::clipping::{clip_factor, median_norm, squared_distance};
use super::optimizer_state::OptimizerState;
use super::options::{OptionDoc, OptionError};
use super::robust::{krum, trimmed_mean};
use super::round_plan::Trained;

/// What `aggregation` does.
pub(crate) const AGGREGATION: OptionDoc = OptionDoc {
    name: "aggregation",
    about: "how results become one: `average` all alike, `samples` by how many were trained, `weighted` by their mean loss, \
            `weighted-minmax` by where the loss lies between the least and the greatest; or so that a few broken or \
            hostile peers are outvoted: `median` and `trimmed-mean` of each number, `krum` the one nearest to most others; or \
            so that none moves the mean by more than the median one does: `clipped-mean`",
};

/// What `aggregation` does where peers sum on the way, unless they are to outvote a few.
pub(crate) const OUTVOTING: OptionDoc = OptionDoc {
    name: "aggregation",
    about: "how results become one: `samples`, a mean by how many were trained; or, with every peer sending its vector to all \
            others, (N-1)M in 1 step: `median` and `trimmed-mean` of each number, `krum` the one nearest to most others, \
            `clipped-mean`, in which none is longer than the median one",
};

/// What `aggregation` does where changes are taken as they come.
pub(crate) const CLIPPING: OptionDoc = OptionDoc {
    name: "aggregation",
    about: "how changes of several peers become one: `samples`, as they are, by how many were trained; or `clipped-mean`: none \
            that is longer than the median one of all peers counts for more than that",
};

/// What `bad_peers` does.
pub(crate) const BAD_PEERS: OptionDoc = OptionDoc {
    name: "bad_peers",
    about: "with `krum`: how many of N results may be bad, at most (N-3)/2; `0`: that many",
};

/// What `trim` does.
pub(crate) const TRIM: OptionDoc = OptionDoc {
    name: "trim",
    about: "with `trimmed-mean`: the share of results that is left out at each end, from 0 to below 0.5; of three or more \
            results at least one",
};

/// How contributions become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// All alike.
    #[default]
    Average,
    /// The mean, in which no contribution is longer than the median one.
    ClippedMean,
    /// The one that is nearest to most others; of fewer than three, the mean.
    Krum,
    /// The median of each number.
    Median,
    /// By how many samples were trained.
    Samples,
    /// The mean of each number without its extremes.
    TrimmedMean,
    /// By the mean loss.
    Weighted,
    /// By where the mean loss lies between the least and the greatest.
    WeightedMinmax,
}

/// What one peer hands in.
pub(crate) struct Contribution<'a> {
    /// How its local phase went.
    pub trained: Trained,
    /// Its vector, in as many parts as the result has.
    pub parts: Vec<&'a [f32]>,
}

/// How contributions become one, with all that can be said about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Which.
    pub aggregation: Aggregation,
    /// How many may be bad; 0 for as many as can be outvoted.
    pub bad_peers: u32,
    /// Which share is left out at each end.
    pub trim: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Self { aggregation: Aggregation::Average, bad_peers: 0, trim: 0.1 }
    }
}

impl Rule {
    /// Refuses numbers that mean nothing.
    pub fn check(self, strategy: &'static str) -> Result<Self, OptionError> {
        if (0.0..0.5).contains(&self.trim) {
            return Ok(self);
        }
        let problem = format!("trim = {}: must be from 0 to below 0.5, or nothing would be left", self.trim);
        Err(OptionError::Option { strategy, problem })
    }

    /// The rule by which peers outvote a few of them, or none where they take the mean by samples. Others are refused: a sum on
    /// its way cannot follow them, and they outvote nobody.
    pub(crate) fn outvoting(self, strategy: &'static str, state: OptimizerState) -> Result<Option<Self>, OptionError> {
        let rule = self.check(strategy)?;
        match rule.aggregation {
            Aggregation::Samples => Ok(None),
            Aggregation::ClippedMean | Aggregation::Krum | Aggregation::Median | Aggregation::TrimmedMean => {
                rule.aggregation.check_optimizer_state(strategy, state)?;
                Ok(Some(rule))
            }
            Aggregation::Average | Aggregation::Weighted | Aggregation::WeightedMinmax => {
                let problem = "aggregation: peers sum by samples, or outvote a few by `clipped-mean`, `krum`, `median` or \
                               `trimmed-mean`";
                Err(OptionError::Option { strategy, problem: problem.to_owned() })
            }
        }
    }

    /// Whether it is told what the round began with.
    pub(crate) fn measures_steps(&self) -> bool {
        self.aggregation == Aggregation::ClippedMean
    }

    /// Makes one vector of at least one. With weights, `origin` is what all of them began the round with, part by part; without
    /// it, contributions are changes, which begin at zero.
    pub(crate) fn aggregate(
        &self,
        contributions: &[Contribution<'_>],
        origin: Option<&[Vec<f32>]>,
        result: &mut [Vec<f32>],
    ) {
        let n = contributions.len();
        // What leaves one or two in the middle is the median.
        let most_trimmed = n.saturating_sub(1) / 2;
        match self.aggregation {
            Aggregation::Median => trim(contributions, most_trimmed, result),
            Aggregation::TrimmedMean => {
                let n_trimmed = ((self.trim * n as f64) as usize).max(1).min(most_trimmed);
                trim(contributions, n_trimmed, result);
            }
            Aggregation::ClippedMean => clip(contributions, origin, result),
            Aggregation::Krum if n >= 3 => {
                let most_bad = (n - 3) / 2;
                let n_bad = if self.bad_peers == 0 { most_bad } else { most_bad.min(self.bad_peers as usize) };
                let vectors: Vec<&[&[f32]]> = contributions.iter().map(|one| one.parts.as_slice()).collect();
                let nearest = krum(&vectors, n_bad);
                result.iter_mut().zip(vectors[nearest]).for_each(|(result, part)| result.copy_from_slice(part));
            }
            aggregation => weigh(contributions, aggregation, result),
        }
    }
}

impl Aggregation {
    /// Refuses what makes no sense together: these rules look at whole vectors, and the optimizers' state would lie in them.
    pub(crate) fn check_optimizer_state(
        self,
        strategy: &'static str,
        state: OptimizerState,
    ) -> Result<(), OptionError> {
        let reason = match self {
            Self::Krum => "krum takes one peer's weights as they are, so there is no average",
            Self::ClippedMean => {
                "clipped-mean measures how far weights have come, and the state would count as weights"
            }
            _ => return Ok(()),
        };
        if state != OptimizerState::Average {
            return Ok(());
        }
        let problem = format!("optimizer_state = \"average\": {reason}; use `keep` or `reset`");
        Err(OptionError::Option { strategy, problem })
    }

    /// Whether changes are clipped, where each is taken as it comes; other rules than that and the plain sum are refused.
    pub(crate) fn clips(self, strategy: &'static str) -> Result<bool, OptionError> {
        match self {
            Self::Samples => Ok(false),
            Self::ClippedMean => Ok(true),
            _ => {
                let problem = "aggregation: no peer has all changes before it at once, so there is nothing to outvote; use \
                               `samples` or `clipped-mean`";
                Err(OptionError::Option { strategy, problem: problem.to_owned() })
            }
        }
    }
}

fn clip(contributions: &[Contribution<'_>], origin: Option<&[Vec<f32>]>, result: &mut [Vec<f32>]) {
    let squared_len = |(k, part): (usize, &&[f32])| match origin {
        Some(origin) => squared_distance(part, &origin[k]),
        None => squared_norm(part),
    };
    let norm = |one: &Contribution<'_>| one.parts.iter().enumerate().map(squared_len).sum::<f64>().sqrt();
    let norms: Vec<f64> = contributions.iter().map(norm).collect();
    let bound = median_norm(norms.iter().copied()).unwrap_or(0.0);
    for (k, result) in result.iter_mut().enumerate() {
        match origin {
            Some(origin) => result.copy_from_slice(&origin[k]),
            None => result.fill(0.0),
        }
        for (contribution, norm) in contributions.iter().zip(&norms) {
            let share = clip_factor(*norm, bound) / contributions.len() as f32;
            let numbers = result.iter_mut().zip(contribution.parts[k]);
            match origin {
                Some(origin) => {
                    numbers.zip(&origin[k]).for_each(|((result, number), from)| *result += share * (number - from));
                }
                None => numbers.for_each(|(result, number)| *result += share * number),
            }
        }
    }
}

fn trim(contributions: &[Contribution<'_>], n_trimmed: usize, result: &mut [Vec<f32>]) {
    for (k, result) in result.iter_mut().enumerate() {
        let rows: Vec<&[f32]> = contributions.iter().map(|contribution| contribution.parts[k]).collect();
        trimmed_mean(&rows, n_trimmed, result);
    }
}

fn weigh(contributions: &[Contribution<'_>], aggregation: Aggregation, result: &mut [Vec<f32>]) {
    let trained: Vec<Trained> = contributions.iter().map(|contribution| contribution.trained).collect();
    result.iter_mut().for_each(|part| part.fill(0.0));
    for (contribution, share) in contributions.iter().zip(shares(aggregation, &trained)) {
        for (result, part) in result.iter_mut().zip(&contribution.parts) {
            result.iter_mut().zip(*part).for_each(|(result, number)| *result += share * number);
        }
    }
}

/// How much each contribution counts; together 1.
fn shares(aggregation: Aggregation, trained: &[Trained]) -> Vec<f32> {
    let losses = trained.iter().map(|each| each.mean_loss);
    let least = losses.clone().fold(f64::INFINITY, f64::min);
    let greatest = losses.fold(0.0, f64::max);
    let weight = |each: &Trained| match aggregation {
        Aggregation::Samples => each.n_samples as f64,
        Aggregation::Weighted => each.mean_loss,
        Aggregation::WeightedMinmax => (each.mean_loss - least) / (greatest - least),
        Aggregation::Average
        | Aggregation::ClippedMean
        | Aggregation::Krum
        | Aggregation::Median
        | Aggregation::TrimmedMean => 1.0,
    };
    let weights: Vec<f64> = trained.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    if !(total > 0.0 && total.is_finite()) {
        // All losses are equal, or nothing: then nobody counts more than another.
        return vec![1.0 / trained.len() as f32; trained.len()];
    }
    weights.iter().map(|weight| (weight / total) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::{Aggregation, Contribution, Rule, shares};
    use crate::strategy::Trained;

    fn trained() -> Vec<Trained> {
        [(1.0, 10), (3.0, 30), (2.0, 40)]
            .map(|(mean_loss, n_samples)| Trained { n_samples, mean_loss, ..Trained::default() })
            .to_vec()
    }

    #[test]
    fn contributions_are_weighed_as_described() {
        let expect = |aggregation: Aggregation, expected: [f32; 3]| {
            let shares = shares(aggregation, &trained());
            assert!(shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{aggregation:?}: {shares:?}");
        };
        expect(Aggregation::Average, [1.0 / 3.0; 3]);
        expect(Aggregation::Samples, [0.125, 0.375, 0.5]);
        expect(Aggregation::Weighted, [1.0 / 6.0, 0.5, 1.0 / 3.0]);
        expect(Aggregation::WeightedMinmax, [0.0, 2.0 / 3.0, 1.0 / 3.0]);
    }

    #[test]
    fn equal_losses_count_alike() {
        let equal = vec![Trained { mean_loss: 0.0, n_samples: 1, ..Trained::default() }; 4];
        for aggregation in [Aggregation::Weighted, Aggregation::WeightedMinmax] {
            assert_eq!(shares(aggregation, &equal), [0.25; 4]);
        }
    }
    /// What a rule makes of numbers, one from each peer.
    fn aggregate(rule: Rule, numbers: &[f32]) -> f32 {
        let contribution =
            |number| Contribution { trained: Trained::default(), parts: vec![std::slice::from_ref(number)] };
        let contributions: Vec<Contribution<'_>> = numbers.iter().map(contribution).collect();
        let mut result = vec![vec![9.0]];
        rule.aggregate(&contributions, None, &mut result);
        result[0][0]
    }

    #[test]
    fn the_few_are_outvoted_and_spoil_a_mean() {
        let crowd = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02];
        for aggregation in [Aggregation::Median, Aggregation::TrimmedMean, Aggregation::Krum, Aggregation::Average] {
            for bad in [-1e30, 1e6, 50.0, f32::MAX] {
                for at in 0..crowd.len() {
                    let mut numbers = crowd;
                    numbers[at] = bad;
                    let result = aggregate(Rule { aggregation, ..Rule::default() }, &numbers);
                    let is_spoilt = !(0.8..1.2).contains(&result);
                    assert_eq!(is_spoilt, aggregation == Aggregation::Average, "{aggregation:?} {bad}: {result}");
                }
            }
        }
    }

    #[test]
    fn clipping_makes_none_longer_than_the_median_and_knows_where_all_began() {
        let rule = Rule { aggregation: Aggregation::ClippedMean, ..Rule::default() };
        // 1, 2 and 2 in place of 1, 2 and -300; the sign stays.
        assert!((aggregate(rule, &[1.0, 2.0, -300.0]) - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(aggregate(rule, &[5.0]), 5.0);
        assert_eq!(aggregate(rule, &[0.0, 0.0]), 0.0);
        assert!((aggregate(rule, &[1.0, 1.0, f32::MAX]) - 1.0).abs() < 1e-3);
        let numbers = [[11.0], [12.0], [-290.0]];
        let contributions: Vec<Contribution<'_>> =
            numbers.iter().map(|one| Contribution { trained: Trained::default(), parts: vec![&one[..]] }).collect();
        let mut result = vec![vec![9.0]];
        rule.aggregate(&contributions, Some(&[vec![10.0]]), &mut result);
        assert!((result[0][0] - (10.0 + 1.0 / 3.0)).abs() < 1e-5, "{result:?}");
    }

    #[test]
    fn rules_do_what_their_numbers_say() {
        let rule = |aggregation| Rule { aggregation, ..Rule::default() };
        assert_eq!(aggregate(rule(Aggregation::Median), &[4.0, 1.0, 2.0]), 2.0);
        assert_eq!(aggregate(rule(Aggregation::Median), &[4.0, 1.0, 2.0, 3.0]), 2.5);
        // With one or two nobody is in the minority.
        for aggregation in [Aggregation::Median, Aggregation::TrimmedMean, Aggregation::Krum] {
            assert_eq!(aggregate(rule(aggregation), &[3.0]), 3.0);
            assert_eq!(aggregate(rule(aggregation), &[1.0, 2.0]), 1.5);
        }
        let ten: Vec<f32> = [0.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0, 99.0, 99.0, 99.0].to_vec();
        let trimmed = |trim| aggregate(Rule { trim, ..rule(Aggregation::TrimmedMean) }, &ten);
        assert!((trimmed(0.3) - 5.5).abs() < 1e-5);
        assert!((trimmed(0.0) - trimmed(0.1)).abs() < 1e-5, "at least one at each end");
        assert!(Rule { trim: 0.5, ..Rule::default() }.check("x").is_err());
        assert!(Rule { trim: f64::NAN, ..Rule::default() }.check("x").is_err());
    }
}
