//! Layers over sequences.

use crate::model::graph::ModelError;
use crate::model::layer_options::{EmbeddingSpec, RecurrentSpec, StepsKept};
use crate::model::layers::{Embedding, LastStep, Recurrent};
use crate::model::place::{Place, show};

use super::{Builder, Flow};

impl Builder {
    pub(super) fn embedding(&mut self, spec: &EmbeddingSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [steps] = flow.shape[..] else {
            let problem = format!("its input must be [steps], a row of symbols, and not {}", show(&flow.shape));
            return Err(place.error(problem));
        };
        let n_symbols = place.positive("symbols", spec.symbols)?;
        let features = place.positive("out", spec.out)?;
        self.reserve(place, &[n_symbols, features])?;
        let layer = Embedding { n_symbols, features };
        self.push(Box::new(layer), "embedding", place, flow, vec![steps, features])
    }

    pub(super) fn recurrent(&mut self, spec: &RecurrentSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [n_steps, n_inputs] = flow.shape[..] else {
            let problem = format!("its input must be [steps, features] and not {}", show(&flow.shape));
            return Err(place.error(problem));
        };
        let n_states = place.positive("out", spec.out)?;
        // The sum is that of both weight matrices' rows and both biases.
        let row = [n_inputs, n_states, 2].into_iter().fold(0, usize::saturating_add);
        self.reserve(place, &[n_steps, n_states, row])?;
        let layer = Recurrent { n_steps, n_inputs, n_states };
        let states = self.push(Box::new(layer), "recurrent", place, flow, vec![n_steps, n_states])?;
        match spec.steps {
            StepsKept::All => Ok(states),
            StepsKept::Last => {
                let layer = LastStep { n_steps, features: n_states };
                self.push(Box::new(layer), "last-step", place, &states, vec![n_states])
            }
        }
    }
}
