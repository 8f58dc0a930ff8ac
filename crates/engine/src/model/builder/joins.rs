//! Layers where two values meet.

use crate::model::graph::{ModelError, Op, Step};
use crate::model::layer_options::ResidualSpec;
use crate::model::place::{Place, show};

use super::{Builder, Flow};

impl Builder {
    pub(super) fn residual(&mut self, spec: &ResidualSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let body = self.list(&spec.body, &place.name, "body", flow.clone())?;
        let straight = self.list(&spec.projection, &place.name, "projection", flow.clone())?;
        if body.shape != straight.shape {
            return Err(place.error(format!(
                "the body's output {} cannot be added to {}; give a \"projection\" that makes the shapes equal",
                show(&body.shape),
                show(&straight.shape)
            )));
        }
        self.reserve(place, &body.shape)?;
        let output = self.value(body.shape.clone());
        self.steps.push(Step {
            op: Op::Add,
            inputs: vec![body.value, straight.value],
            output,
            params: 0..0,
            buffers: 0..0,
            prepared: 0..0,
            name: place.name.clone(),
            kind: "add",
        });
        Ok(Flow { value: output, ..body })
    }
}
