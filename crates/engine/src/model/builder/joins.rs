//! Layers where two values meet.

use crate::model::graph::{ModelError, Op, Step, Weights};
use crate::model::join::Join;
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
        let value = self.join(Join::Add, "add", place, [body.value, straight.value], &body.shape)?;
        Ok(Flow { value, ..body })
    }

    /// Makes one value of two.
    pub(super) fn join(
        &mut self,
        join: Join,
        kind: &'static str,
        place: &Place,
        inputs: [usize; 2],
        shape: &[usize],
    ) -> Result<usize, ModelError> {
        self.reserve(place, shape)?;
        let output = self.value(shape.to_vec());
        self.steps.push(Step {
            op: Op::Join(join),
            inputs: inputs.to_vec(),
            output,
            params: 0..0,
            buffers: 0..0,
            prepared: 0..0,
            weights: Weights::Own,
            name: place.name.clone(),
            kind,
        });
        Ok(output)
    }
}
