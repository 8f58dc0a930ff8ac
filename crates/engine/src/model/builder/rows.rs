//! Layers that treat every row, the last axis, by itself.

use crate::model::columns::Columns;
use crate::model::graph::ModelError;
use crate::model::join::Join;
use crate::model::layer::{Init, Layer, Tensor, n_values};
use crate::model::layer_options::{DenseSpec, RowNormSpec, SwigluSpec};
use crate::model::layers::{Activation, ActivationKind, BatchNorm, Dense, Dropout, RowNorm, RowNormKind};
use crate::model::place::{Place, show};

use super::{Builder, Flow};

impl Builder {
    pub(super) fn activation(
        &mut self,
        kind: ActivationKind,
        name: &'static str,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        self.push(Box::new(Activation(kind)), name, place, flow, flow.shape.clone())
    }

    pub(super) fn batch_norm(&mut self, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let channels = flow.shape[flow.shape.len() - 1];
        let n_rows = n_values(&flow.shape) / channels;
        let layer = BatchNorm { channels, n_rows, axes: flow.feature_axes() };
        self.push(Box::new(layer), "batch-norm", place, flow, flow.shape.clone())
    }

    pub(super) fn dense(&mut self, spec: &DenseSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        if flow.shape.len() > 2 {
            let problem =
                format!("its input {} is an image; put \"flatten\" or \"global-pool\" before it", show(&flow.shape));
            return Err(place.error(problem));
        }
        let n_outputs = place.positive("out", spec.out)?;
        self.reserve(place, &[n_values(&flow.shape), n_outputs])?;
        let n_inputs = flow.shape[flow.shape.len() - 1];
        let n_rows = n_values(&flow.shape) / n_inputs;
        let mut shape = flow.shape.clone();
        *shape.last_mut().expect("a shape has an axis") = n_outputs;
        let layer = Dense { n_rows, n_inputs, n_outputs, bias: spec.bias, input_axes: flow.feature_axes() };
        let tensors = stored(spec, layer.tensors(), place)?;
        self.push_with(tensors, Box::new(layer), "dense", place, flow, shape)
    }

    pub(super) fn dropout(&mut self, rate: f32, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        if !(0.0..1.0).contains(&rate) {
            return Err(place.error(format!("a rate of {rate} is not 0 or more and less than 1")));
        }
        let len = n_values(&flow.shape);
        let columns = self.split.as_ref().map(|(channels, n_channels)| Columns {
            n_pixels: len / channels.len(),
            n_channels: *n_channels,
            channels: channels.clone(),
        });
        let layer = Dropout { rate, len, index: self.n_steps_below + self.steps.len(), columns };
        self.push(Box::new(layer), "dropout", place, flow, flow.shape.clone())
    }

    pub(super) fn row_norm(
        &mut self,
        kind: RowNormKind,
        spec: &RowNormSpec,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        let (name, usual) = match kind {
            RowNormKind::Layer => ("layer-norm", 1e-5),
            RowNormKind::Rms => ("rms-norm", 1e-6),
        };
        let epsilon = spec.epsilon.unwrap_or(usual);
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(place.error(format!("an `epsilon` of {epsilon} is not above 0; leave it out for {usual}")));
        }
        let layer = RowNorm { kind, features: flow.shape[flow.shape.len() - 1], epsilon, axes: flow.feature_axes() };
        self.push(Box::new(layer), name, place, flow, flow.shape.clone())
    }

    /// Two dense layers side by side, and the product of what comes out of them.
    pub(super) fn swiglu(&mut self, spec: &SwigluSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let dense = DenseSpec { bias: spec.bias, ..DenseSpec::new(spec.out) };
        let mut projection = |name: &str| {
            let place = Place { described: place.described.clone(), name: format!("{}.{name}", place.name) };
            self.dense(&dense, &place, flow)
        };
        let (gate, up) = (projection("gate_proj")?, projection("up_proj")?);
        let value = self.join(Join::Swiglu, "swiglu", place, [gate.value, up.value], &up.shape)?;
        Ok(Flow { value, ..up })
    }
}

/// A dense layer's tensors as its options have them stored.
fn stored(spec: &DenseSpec, mut tensors: Vec<Tensor>, place: &Place) -> Result<Vec<Tensor>, ModelError> {
    if let Some(deviation) = place.deviation(spec.init)? {
        let inits = [Init::Normal(deviation), Init::Constant(0.0)];
        tensors.iter_mut().zip(inits).for_each(|(tensor, init)| tensor.init = init);
    }
    if spec.transposed {
        tensors[0].shape.reverse();
        tensors[0].axes.rotate_left(1);
    }
    if spec.parts.is_empty() {
        return Ok(tensors);
    }
    let n_outputs = spec.parts.iter().fold(0, |sum: usize, (_, n)| sum.saturating_add(*n));
    if n_outputs != spec.out || spec.transposed || spec.parts.iter().any(|(_, n)| *n == 0) {
        let problem = format!(
            "its `parts` have {n_outputs} outputs together and it has {}; each has some, together as many, and none is `transposed`",
            spec.out
        );
        return Err(place.error(problem));
    }
    let part = |tensor: &Tensor, (name, n): &(String, usize)| {
        let mut part = Tensor { name: format!("{name}.{}", tensor.name), ..tensor.clone() };
        (part.shape[0], part.axes[0].0) = (*n, *n);
        part
    };
    Ok(tensors.iter().flat_map(|tensor| spec.parts.iter().map(move |named| part(tensor, named))).collect())
}
