//! Layers where two values meet.

use crate::model::description::ResidualSpec;
use crate::model::graph::{ModelError, Op, Step, Weights};
use crate::model::join::Join;
use crate::model::layer::Shape;
use crate::model::place::{Place, show};
use crate::nearest::nearest;

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

    /// Remembers the value for a concat above.
    pub(super) fn mark(&mut self, name: &str, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        match self.marks.insert(name.to_owned(), flow.clone()) {
            None => Ok(flow.clone()),
            Some(_) => Err(place.error(format!("there is already a mark named `{name}`; give it another name"))),
        }
    }

    /// Joins the channels of a value that was marked to those of this one.
    pub(super) fn concat(&mut self, mark: &str, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let Some(marked) = self.marks.get(mark).cloned() else {
            let names: Vec<&str> = self.marks.keys().map(String::as_str).collect();
            let hint = nearest(mark, &names).map_or(String::new(), |near| format!(", did you mean `{near}`?"));
            return Err(place.error(format!("there is no mark named `{mark}` before it{hint}")));
        };
        let [(channels, size), (more, other)] =
            [flow, &marked].map(|flow| flow.shape.split_last().expect("a shape has an axis"));
        if size != other {
            let (here, there) = (show(&flow.shape), show(&marked.shape));
            let problem = format!(
                "{here} cannot be joined to {there} of the mark `{mark}`: all but the channels must be equal; pool or upsample one of them"
            );
            return Err(place.error(problem));
        }
        if flow.flattened.is_some() || marked.flattened.is_some() {
            return Err(place.error("a flattened image cannot be joined; put \"flatten\" after it".into()));
        }
        let shape: Shape = size.iter().copied().chain([channels + more]).collect();
        let join = Join::Concat { channels: [*channels, *more] };
        let value = self.join(join, "concat", place, [flow.value, marked.value], &shape)?;
        Ok(Flow { value, shape, flattened: None })
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
