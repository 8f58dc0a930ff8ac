//! Layers of transformers.

use crate::model::graph::{ModelError, Weights};
use crate::model::layers::{Attention, Dense, Positions, Rotary};
use crate::model::place::{Place, show};
use crate::model::sequence_options::{AttentionSpec, PositionsSpec, TiedSpec};

use super::{Builder, Flow};

impl Builder {
    pub(super) fn attention(&mut self, spec: &AttentionSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [n_steps, n_inputs] = place.sequence(&flow.shape)?;
        let n_heads = place.positive("heads", spec.heads)?;
        let n_kv_heads = place.positive("kv_heads", spec.kv_heads.unwrap_or(n_heads))?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(place.error(format!("{n_heads} heads cannot share {n_kv_heads} evenly; make it a multiple")));
        }
        let n_parts = n_kv_heads.saturating_mul(2).saturating_add(n_heads);
        if !n_inputs.is_multiple_of(n_parts) {
            let problem = format!(
                "its input has {n_inputs} features, which is no multiple of {n_parts}: queries of {n_heads} heads, keys and values of \
                 {n_kv_heads}; put a dense layer with a multiple of {n_parts} outputs before it"
            );
            return Err(place.error(problem));
        }
        let head_len = n_inputs / n_parts;
        if !(0.0..1.0).contains(&spec.dropout) {
            return Err(place.error(format!("a `dropout` of {} is not 0 or more and less than 1", spec.dropout)));
        }
        let rotary = match spec.rotary {
            None => None,
            Some(base) if base > 1.0 && base.is_finite() && head_len.is_multiple_of(2) => {
                Some(Rotary::new(n_steps, head_len, base))
            }
            Some(base) => {
                let problem = format!(
                    "rotary positions need a base above 1 and heads with an even number of features, not {base} and {head_len}"
                );
                return Err(place.error(problem));
            }
        };
        self.reserve(place, &[2, n_steps, n_inputs])?;
        let index = self.n_steps_below + self.steps.len();
        let (is_causal, dropout) = (spec.causal, spec.dropout);
        let of_all =
            self.split.as_ref().map(|(channels, n_channels)| (channels.start / head_len, n_channels / head_len));
        let layer = Attention { n_steps, n_heads, n_kv_heads, head_len, is_causal, rotary, dropout, index, of_all };
        let shape = vec![n_steps, layer.n_outputs()];
        self.push(Box::new(layer), "attention", place, flow, shape)
    }

    pub(super) fn positions(&mut self, spec: &PositionsSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [n_steps, features] = place.sequence(&flow.shape)?;
        let n_positions = place.positive("length", spec.length.unwrap_or(n_steps))?;
        if n_steps > n_positions {
            let problem = format!(
                "a sample has {n_steps} positions and there are vectors for {n_positions}; raise `length`, or make samples shorter"
            );
            return Err(place.error(problem));
        }
        let deviation = place.deviation(spec.init)?.unwrap_or(0.02);
        self.reserve(place, &[n_positions, features])?;
        let layer = Positions { n_positions, n_steps, features, deviation };
        self.push(Box::new(layer), "positions", place, flow, flow.shape.clone())
    }

    pub(super) fn tied_dense(&mut self, spec: &TiedSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [n_rows, n_inputs] = place.sequence(&flow.shape)?;
        let owner = self.steps.iter().position(|step| step.name == spec.to && step.kind == "embedding");
        let Some(owner) = owner else {
            let problem = format!(
                "there is no embedding named `{}` below it; name the embedding so, and keep both in one stage of a pipeline",
                spec.to
            );
            return Err(place.error(problem));
        };
        let n_outputs = self.n_symbols(owner);
        if self.shapes[self.steps[owner].output].last() != Some(&n_inputs) {
            let problem = format!("its input {} has not as many features as `{}`", show(&flow.shape), spec.to);
            return Err(place.error(problem));
        }
        self.reserve(place, &[n_rows, n_inputs, n_outputs])?;
        let layer = Dense { n_rows, n_inputs, n_outputs, bias: false, input_axes: flow.feature_axes() };
        let above = self.push_with(Vec::new(), Box::new(layer), "tied-dense", place, flow, vec![n_rows, n_outputs])?;
        let last = self.steps.len() - 1;
        self.steps[last].weights = Weights::Borrowed { from: owner };
        self.steps[owner].weights = Weights::Lent;
        Ok(above)
    }

    /// How many symbols an embedding has vectors for.
    fn n_symbols(&self, embedding: usize) -> usize {
        let tensors = self.tensors.iter().find(|(step, _)| *step == embedding).map(|(_, tensors)| tensors);
        tensors.and_then(|tensors| tensors.first()).map_or(0, |table| table.shape[0])
    }
}
