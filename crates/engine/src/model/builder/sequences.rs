//! Layers over sequences.

use crate::model::graph::ModelError;
use crate::model::layer::Tensor;
use crate::model::layer_options::{EmbeddingSpec, RecurrentSpec, StepsKept};
use crate::model::layers::{Cell, Dense, Embedding, Recurrent, States};
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
        let layer = Embedding { n_symbols, features, deviation: place.deviation(spec.init)?.unwrap_or(1.0) };
        self.push(Box::new(layer), "embedding", place, flow, vec![steps, features])
    }

    /// A dense layer for the inputs of all steps, the recurrence itself, and what goes on of it.
    pub(super) fn recurrent(
        &mut self,
        cell: Cell,
        spec: &RecurrentSpec,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        let [n_steps, n_inputs] = flow.shape[..] else {
            let problem = format!("its input must be [steps, features] and not {}", show(&flow.shape));
            return Err(place.error(problem));
        };
        let n_states = place.positive("out", spec.out)?;
        // The sum is that of both weight matrices' rows and both biases.
        let row = [n_inputs, n_states, 2].into_iter().fold(0, usize::saturating_add);
        self.reserve(place, &[n_steps, cell.n_gates(), n_states, row])?;
        let (n_outputs, features) = (cell.n_gates() * n_states, cell.n_kept() * n_states);
        let recurrent = Recurrent { cell, n_steps, n_states };
        let (products, kind) = match cell {
            Cell::Gru => ("gru-input", "gru"),
            Cell::Lstm => ("lstm-input", "lstm"),
            Cell::Simple => ("recurrent-input", "recurrent"),
        };
        let weights = Tensor::plain("weight_ih_l0", &[n_outputs, n_inputs], recurrent.init());
        let dense = Dense { n_rows: n_steps, n_inputs, n_outputs, bias: false, input_axes: flow.feature_axes() };
        let shape = vec![n_steps, n_outputs];
        let inputs = self.push_with(vec![weights], Box::new(dense), products, place, flow, shape)?;
        let kept = self.push(Box::new(recurrent), kind, place, &inputs, vec![n_steps, features])?;
        let shape = match spec.steps {
            StepsKept::All if features == n_states => return Ok(kept),
            StepsKept::All => vec![n_steps, n_states],
            StepsKept::Last => vec![n_states],
        };
        let states = States { n_steps, features, n_states, steps: spec.steps };
        self.push(Box::new(states), "states", place, &kept, shape)
    }
}
