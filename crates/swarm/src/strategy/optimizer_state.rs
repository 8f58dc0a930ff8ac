//! What becomes of each peer's optimizer when its weights are replaced by the peers' mean: one option for all who average weights.
//!
//! To average it, peers exchange a longer vector: behind the parameters lies the optimizer's state, and goes the same way.

use std::borrow::Cow;
use std::ops::Range;

use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
use serde::{Deserialize, Serialize};

use super::options::{OptionDoc, OptionError};
use crate::codec::Codec;

/// What becomes of a peer's momentum, and of whatever else its optimizer remembers, when its weights are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerState {
    /// It is averaged with the weights.
    Average,
    /// Each peer keeps its own.
    #[default]
    Keep,
    /// It is forgotten: the optimizer begins anew after each exchange.
    Reset,
}

/// What `optimizer_state` does.
pub(crate) const OPTIMIZER_STATE: OptionDoc = OptionDoc {
    name: "optimizer_state",
    about: "what becomes of each peer's momentum when weights are averaged: `keep`, each peer's own; `reset`, new after each \
            exchange; `average`, averaged with the weights, which sends M more (with adam, adamw or rmsprop with momentum 2M) and \
            needs numbers as `f32` or `bf16`",
};

impl OptimizerState {
    /// Refuses what cannot be averaged: numbers that travel in few bits may become zero, and the Adams divide by some of them.
    pub fn check(self, strategy: &'static str, codec: Codec) -> Result<Self, OptionError> {
        if self != Self::Average || matches!(codec, Codec::F32 | Codec::Bf16) {
            return Ok(self);
        }
        let problem = "optimizer_state = \"average\" needs numbers that travel as `f32` or `bf16`: rounded to less, small squares of \
                       gradients become zero, and optimizers divide by them";
        Err(OptionError::Option { strategy, problem: problem.to_owned() })
    }

    /// The buckets of the vector that peers exchange, where `buckets` are those of the values: if the optimizer's state goes with them, it
    /// is cut as they are, and lies behind all values.
    pub fn exchanged(
        self,
        buckets: &[Range<usize>],
        (n_values, n_params): (usize, usize),
        optimizer: &OptimizerSpec,
    ) -> Vec<Range<usize>> {
        let mut exchanged = buckets.to_vec();
        if self == Self::Average {
            let n_state = optimizer.n_state(n_params);
            for start in (0..n_state).step_by(n_params.max(1)) {
                // What the last one has of a vector is the number of steps, if there is one.
                let len = n_params.min(n_state - start);
                let cut = |bucket: &Range<usize>| bucket.start.min(len)..bucket.end.min(len);
                let pieces = buckets.iter().map(cut).filter(|piece| !piece.is_empty());
                exchanged.extend(pieces.map(|piece| n_values + start + piece.start..n_values + start + piece.end));
            }
        }
        exchanged
    }
}

/// What a peer with these parameters and this optimizer holds at a place of the vector that peers exchange.
pub(crate) fn held_at<'a>(values: &'a [f32], optimizer: &Optimizer, place: &Range<usize>) -> Cow<'a, [f32]> {
    match values.get(place.clone()) {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(optimizer.numbers(place.start - values.len()..place.end - values.len())),
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::optimizer::{Optimizer, OptimizerKind, OptimizerSpec};

    use super::{OptimizerState, held_at};
    use crate::codec::Codec;

    #[test]
    fn the_state_lies_behind_the_parameters_and_is_cut_as_they_are() {
        // Three of five numbers are trained; the last layers come first.
        let buckets = [2..5, 0..2];
        let adam = OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() };
        let sgd = OptimizerSpec { momentum: 0.9, ..OptimizerSpec::default() };
        let exchanged = |optimizer: &OptimizerSpec| OptimizerState::Average.exchanged(&buckets, (5, 3), optimizer);
        assert_eq!(exchanged(&sgd), [2..5, 0..2, 7..8, 5..7]);
        assert_eq!(exchanged(&adam), [2..5, 0..2, 7..8, 5..7, 10..11, 8..10, 11..12]);
        assert_eq!(exchanged(&OptimizerSpec::default()), buckets);
        assert_eq!(OptimizerState::Keep.exchanged(&buckets, (5, 3), &adam), buckets);

        // Two more values are in no bucket.
        assert_eq!(OptimizerState::Average.exchanged(&buckets, (7, 3), &sgd), [2..5, 0..2, 9..10, 7..9]);

        let (mut optimizer, values) = (Optimizer::new(adam.clone(), 3), [1.0, 2.0, 3.0, 4.0, 5.0]);
        optimizer.set_numbers(0..7, &[10.0, 20.0, 30.0, 0.1, 0.2, 0.3, 9.0]);
        let held: Vec<f32> = exchanged(&adam).iter().flat_map(|p| held_at(&values, &optimizer, p).to_vec()).collect();
        assert_eq!(held, [3.0, 4.0, 5.0, 1.0, 2.0, 30.0, 10.0, 20.0, 0.3, 0.1, 0.2, 9.0]);
    }

    #[test]
    fn squares_are_not_rounded_to_zero() {
        for (codec, is_refused) in [(Codec::F32, false), (Codec::Bf16, false), (Codec::F16, true), (Codec::Int8, true)]
        {
            assert_eq!(OptimizerState::Average.check("x", codec).is_err(), is_refused);
            assert!(OptimizerState::Reset.check("x", codec).is_ok());
        }
    }
}
