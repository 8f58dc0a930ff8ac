//! Attacks: what hostile peers of a scenario hand in instead of what they learnt.
//!
//! Baruch, Baruch and Goldberg (2019), "A little is enough: circumventing defenses for distributed learning".

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use nettorrent_swarm::strategy::AnyStrategy;
use serde::{Deserialize, Serialize};

use crate::corrupted::{HandedIn, corrupted};

/// What hostile peers hand in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Attack {
    /// All the same: the mean of what they would have learnt, less so many standard deviations of each number. Each number by
    /// itself looks like one that an honest peer might have sent.
    ALittle(f32),
    /// What they learnt, times a factor; with −1 the opposite.
    Scaled(f32),
}

const A_LITTLE: &str = "a-little";
const SCALED: &str = "scaled";
const SIGN_FLIP: &str = "sign-flip";
/// As many standard deviations as the paper uses where a fifth of the peers are hostile.
const USUAL_DEVIATIONS: f32 = 1.5;

/// An attack that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: there are `a-little`, `a-little:DEVIATIONS`, `scaled:FACTOR` and `sign-flip`, with numbers that are not 0"
)]
pub struct AttackError(String);

impl FromStr for Attack {
    type Err = AttackError;

    fn from_str(text: &str) -> Result<Self, AttackError> {
        let error = || AttackError(text.to_owned());
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let number: Option<f32> = number.map(str::parse).transpose().map_err(|_| error())?;
        if number.is_some_and(|number| !number.is_finite() || number == 0.0) {
            return Err(error());
        }
        match (name, number) {
            (A_LITTLE, number) => Ok(Self::ALittle(number.unwrap_or(USUAL_DEVIATIONS))),
            (SCALED, Some(factor)) => Ok(Self::Scaled(factor)),
            (SIGN_FLIP, None) => Ok(Self::Scaled(-1.0)),
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for Attack {
    type Error = AttackError;

    fn try_from(text: String) -> Result<Self, AttackError> {
        text.parse()
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ALittle(deviations) => write!(f, "{A_LITTLE}:{deviations}"),
            Self::Scaled(-1.0) => f.write_str(SIGN_FLIP),
            Self::Scaled(factor) => write!(f, "{SCALED}:{factor}"),
        }
    }
}

impl From<Attack> for String {
    fn from(attack: Attack) -> Self {
        attack.to_string()
    }
}

/// Hostile peers who know of each other.
#[derive(Clone)]
pub(crate) struct Conspiracy {
    attack: Attack,
    shared: Arc<Mutex<Collusion>>,
}

impl Conspiracy {
    pub(crate) fn new(attack: Attack) -> Self {
        Self { attack, shared: Arc::default() }
    }

    /// An honest strategy in the hands of one of them.
    pub(crate) fn strategy(&self, honest: AnyStrategy) -> AnyStrategy {
        let Self { attack, shared } = self.clone();
        corrupted(honest, move |part: &HandedIn, mut numbers: Vec<f32>| {
            let origin = |k: usize| part.origin.get(k).copied().unwrap_or(0.0);
            match attack {
                Attack::Scaled(factor) => {
                    let numbers = numbers.iter_mut().enumerate();
                    numbers.for_each(|(k, number)| *number = origin(k) + factor * (*number - origin(k)));
                }
                Attack::ALittle(deviations) => {
                    let learnt: Vec<f32> = numbers.iter().enumerate().map(|(k, number)| number - origin(k)).collect();
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let told = shared.agree(part, &learnt, deviations).iter();
                    numbers.iter_mut().zip(told).enumerate().for_each(|(k, (number, told))| *number = origin(k) + told);
                }
            }
            numbers
        })
    }
}

/// What hostile peers know together: how what they learn honestly is spread, from round to round and from one to the other.
#[derive(Default)]
struct Collusion {
    by_bucket: BTreeMap<usize, Spread>,
}

#[derive(Default)]
struct Spread {
    means: Vec<f32>,
    squares: Vec<f32>,
    /// What they tell in which round.
    told: Option<(u32, Vec<f32>)>,
}

/// How much of a running mean the latest is.
const FRESH: f32 = 0.1;

impl Collusion {
    /// What all of them tell in this round; whoever comes first decides.
    fn agree(&mut self, part: &HandedIn, learnt: &[f32], deviations: f32) -> &[f32] {
        let Spread { means, squares, told } = self.by_bucket.entry(part.bucket).or_default();
        let is_first = means.is_empty();
        means.resize(learnt.len(), 0.0);
        squares.resize(learnt.len(), 0.0);
        for ((mean, square), &number) in means.iter_mut().zip(squares.iter_mut()).zip(learnt) {
            let fresh = if is_first { 1.0 } else { FRESH };
            *mean += fresh * (number - *mean);
            *square += fresh * (number * number - *square);
        }
        if told.as_ref().is_none_or(|(round, _)| *round != part.round) {
            let spread = means.iter().zip(squares.iter());
            let tell = |(mean, square): (&f32, &f32)| mean - deviations * (square - mean * mean).max(0.0).sqrt();
            *told = Some((part.round, spread.map(tell).collect()));
        }
        told.as_ref().map_or(&[], |(_, numbers)| numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, Collusion};
    use crate::corrupted::HandedIn;

    #[test]
    fn attacks_are_read_and_written() {
        for text in ["sign-flip", "scaled:10", "scaled:-100", "a-little:1.5"] {
            assert_eq!(text.parse::<Attack>().unwrap().to_string(), text);
        }
        assert_eq!("a-little".parse::<Attack>().unwrap(), Attack::ALittle(1.5));
        for wrong in ["", "scaled", "scaled:0", "scaled:nan", "sign-flip:2", "a-lot", "a-little:"] {
            assert!(wrong.parse::<Attack>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn those_who_collude_tell_the_same_which_lies_beside_what_they_learnt() {
        let mut collusion = Collusion::default();
        for round in 0..100 {
            let part = HandedIn { round, bucket: 0, origin: Vec::new() };
            let noise = if round % 2 == 0 { 1.0 } else { -1.0 };
            let first = collusion.agree(&part, &[3.0 + noise, 5.0], 2.0).to_vec();
            assert_eq!(collusion.agree(&part, &[3.0 - noise, 5.0], 2.0), first);
            // A mean of 3 with a deviation of 1, and one without any.
            if round > 60 {
                assert!((0.7..1.3).contains(&first[0]) && (first[1] - 5.0).abs() < 0.05, "{first:?}");
            }
        }
    }
}
