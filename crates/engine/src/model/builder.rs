//! From a description to a network: shapes are inferred and checked, layers become steps, tensors get their places.

mod attention;
mod images;
mod joins;
mod rows;
mod sequences;

use std::collections::BTreeMap;
use std::ops::Range;

use super::description::{LayerSpec, ModelSpec};
use super::graph::{ModelError, NamedTensor, Op, Step, Weights};
use super::layer::{Layer, Role, Shape, Tensor, n_values};
use super::layers::{ActivationKind, Cell, PoolKind, RowNormKind};
use super::loss::Loss;
use super::network::Network;
use super::place::{Place, Size, check_names, show};
use super::plan::{Plan, WeightGradients};

impl Network {
    /// Builds the network that a description describes.
    pub fn new(spec: &ModelSpec) -> Result<Self, ModelError> {
        let mut builder = Builder::new(&spec.input)?;
        let flow = builder.list(&spec.layers, "", "layers", builder.input())?;
        if builder.steps.is_empty() {
            let problem = "there is none; a network needs at least a dense layer".to_owned();
            return Err(ModelError { place: "layers".into(), problem });
        }
        builder.finish(&flow, WeightGradients::Together)
    }
}

/// Some layers of a description that are to be a network of their own.
pub(super) struct Section<'a> {
    /// The layers below, which are only looked at for what comes out of them.
    pub below: &'a [LayerSpec],
    /// The layers.
    pub layers: &'a [LayerSpec],
    /// Which channels come out of them, if not all, and how many there are over all columns.
    pub split: Option<(Range<usize>, usize)>,
}

/// Builds a section of a network, with the names that its tensors have in the whole, and says the shape of its output.
pub(super) fn build_section(input: &[usize], section: Section<'_>) -> Result<(Network, Shape), ModelError> {
    let mut below = Builder::new(input)?;
    let start = below.list(section.below, "", "layers", below.input())?;
    let mut builder = Builder::new(&start.shape)?;
    builder.n_layers_below = section.below.len();
    builder.n_steps_below = below.steps.len();
    builder.split = section.split;
    let flow = builder.list(section.layers, "", "layers", Flow { value: 0, ..start })?;
    Ok((builder.finish(&flow, WeightGradients::Afterwards)?, flow.shape))
}

/// A value on its way through the layers.
#[derive(Clone)]
struct Flow {
    value: usize,
    shape: Shape,
    /// If this row was an image, its shape: in checkpoints such rows go channel by channel.
    flattened: Option<Shape>,
}

impl Flow {
    /// The order of the features in a checkpoint, as axes over their order here.
    fn feature_axes(&self) -> Vec<(usize, usize)> {
        match (&self.flattened, self.shape.as_slice()) {
            (Some(image), [_]) => {
                let n_axes = image.len() - 1;
                let positions = (0..n_axes).map(|axis| (image[axis], n_values(&image[axis + 1..])));
                std::iter::once((image[n_axes], 1)).chain(positions).collect()
            }
            (_, shape) => vec![(shape[shape.len() - 1], 1)],
        }
    }
}

struct Builder {
    steps: Vec<Step>,
    shapes: Vec<Shape>,
    /// The layers' tensors, to be given places at the end.
    tensors: Vec<(usize, Vec<Tensor>)>,
    n_prepared: usize,
    size: Size,
    /// How many layers and steps of the whole network come before the first, if this is a section of one.
    n_layers_below: usize,
    n_steps_below: usize,
    /// See [`Section::split`].
    split: Option<(Range<usize>, usize)>,
    /// The values that a mark remembers, by its name.
    marks: BTreeMap<String, Flow>,
}

impl Builder {
    fn new(input: &[usize]) -> Result<Self, ModelError> {
        let wrong =
            |problem: &str| Err(ModelError { place: "input".into(), problem: format!("{} is {problem}", show(input)) });
        if input.is_empty() || input.len() > 4 || input.contains(&0) {
            let shapes = "[depth, height, width, channels], [height, width, channels], [steps, features] or [features]";
            return wrong(&format!("no shape; give {shapes}"));
        }
        let mut size = Size::default();
        if !size.grow(input) {
            return wrong("too large for any machine; make it smaller");
        }
        Ok(Self {
            steps: Vec::new(),
            shapes: vec![input.to_vec()],
            tensors: Vec::new(),
            n_prepared: 0,
            size,
            n_layers_below: 0,
            n_steps_below: 0,
            split: None,
            marks: BTreeMap::new(),
        })
    }

    fn input(&self) -> Flow {
        Flow { value: 0, shape: self.shapes[0].clone(), flattened: None }
    }

    fn list(&mut self, layers: &[LayerSpec], prefix: &str, field: &str, flow: Flow) -> Result<Flow, ModelError> {
        let mut flow = flow;
        for i in running_order(layers) {
            let layer = &layers[i];
            let i = if prefix.is_empty() { self.n_layers_below + i } else { i };
            // Sub-lists are told apart by their field's name, unless the layer has a name of its own.
            let name = match (layer.name(), prefix) {
                (Some(name), "") => name.to_owned(),
                (Some(name), _) => format!("{prefix}.{name}"),
                (None, "") => i.to_string(),
                (None, _) => format!("{prefix}.{field}.{i}"),
            };
            let described = match prefix {
                "" => format!("{field}[{i}] ({})", layer.kind()),
                _ => format!("{prefix}.{field}[{i}] ({})", layer.kind()),
            };
            flow = self.layer(layer, &Place { described, name }, &flow)?;
        }
        Ok(flow)
    }

    fn layer(&mut self, spec: &LayerSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        match spec {
            LayerSpec::Attention(spec) => self.attention(spec, place, flow),
            LayerSpec::AveragePool(spec) => self.pool(spec, PoolKind::Average, place, flow),
            LayerSpec::BatchNorm(_) => self.batch_norm(place, flow),
            LayerSpec::Concat(mark) => self.concat(mark, place, flow),
            LayerSpec::Conv(spec) => self.conv(2, spec, place, flow),
            LayerSpec::Conv1d(spec) => self.conv(1, spec, place, flow),
            LayerSpec::Conv3d(spec) => self.conv(3, spec, place, flow),
            LayerSpec::Dense(spec) => self.dense(spec, place, flow),
            LayerSpec::DepthwiseConv(spec) => self.depthwise(spec, place, flow),
            LayerSpec::Dropout(rate) => self.dropout(*rate, place, flow),
            LayerSpec::Embedding(spec) => self.embedding(spec, place, flow),
            LayerSpec::Flatten => Ok(flatten(flow)),
            LayerSpec::Gelu => self.activation(ActivationKind::Gelu, "gelu", place, flow),
            LayerSpec::GeluTanh => self.activation(ActivationKind::GeluTanh, "gelu-tanh", place, flow),
            LayerSpec::GlobalPool => self.global_pool(place, flow),
            LayerSpec::Gru(spec) => self.recurrent(Cell::Gru, spec, place, flow),
            LayerSpec::LayerNorm(spec) => self.row_norm(RowNormKind::Layer, spec, place, flow),
            LayerSpec::Lstm(spec) => self.recurrent(Cell::Lstm, spec, place, flow),
            LayerSpec::Mark(name) => self.mark(name, place, flow),
            LayerSpec::MaxPool(spec) => self.pool(spec, PoolKind::Max, place, flow),
            LayerSpec::Positions(spec) => self.positions(spec, place, flow),
            LayerSpec::Recurrent(spec) => self.recurrent(Cell::Simple, spec, place, flow),
            LayerSpec::Relu => self.activation(ActivationKind::Relu, "relu", place, flow),
            LayerSpec::Residual(spec) => self.residual(spec, place, flow),
            LayerSpec::RmsNorm(spec) => self.row_norm(RowNormKind::Rms, spec, place, flow),
            LayerSpec::Sequence => sequence(place, flow),
            LayerSpec::Sigmoid => self.activation(ActivationKind::Sigmoid, "sigmoid", place, flow),
            LayerSpec::Silu => self.activation(ActivationKind::Silu, "silu", place, flow),
            LayerSpec::Swiglu(spec) => self.swiglu(spec, place, flow),
            LayerSpec::Tanh => self.activation(ActivationKind::Tanh, "tanh", place, flow),
            LayerSpec::TiedDense(spec) => self.tied_dense(spec, place, flow),
            LayerSpec::TransposedConv(spec) => self.transposed_conv(spec, place, flow),
            LayerSpec::Upsample(spec) => self.upsample(spec, place, flow),
        }
    }

    fn value(&mut self, shape: Shape) -> usize {
        self.shapes.push(shape);
        self.shapes.len() - 1
    }

    /// Makes sure that sizes can be multiplied from here on without a look; what a layer is made of, it reserves first.
    fn reserve(&mut self, place: &Place, factors: &[usize]) -> Result<(), ModelError> {
        if self.size.grow(factors) {
            return Ok(());
        }
        let problem = "with it, the network is too large for any machine; make it or its input smaller";
        Err(place.error(problem.into()))
    }

    fn push(
        &mut self,
        layer: Box<dyn Layer>,
        kind: &'static str,
        place: &Place,
        flow: &Flow,
        shape: Shape,
    ) -> Result<Flow, ModelError> {
        let tensors = layer.tensors();
        self.push_with(tensors, layer, kind, place, flow, shape)
    }

    /// The same for a layer whose tensors have other names than usual.
    fn push_with(
        &mut self,
        tensors: Vec<Tensor>,
        layer: Box<dyn Layer>,
        kind: &'static str,
        place: &Place,
        flow: &Flow,
        shape: Shape,
    ) -> Result<Flow, ModelError> {
        // The output, and at most four numbers for each feature in it, as a batch norm has.
        self.reserve(place, &[5, shape.iter().copied().fold(1, usize::saturating_mul)])?;
        // What follows a flattened image keeps its order as long as nothing mixes the features.
        let flattened = flow.flattened.clone().filter(|_| shape == flow.shape && kind != "dense");
        let output = self.value(shape.clone());
        self.tensors.push((self.steps.len(), tensors));
        let prepared = self.n_prepared..self.n_prepared + layer.n_prepared();
        self.n_prepared = prepared.end;
        self.steps.push(Step {
            op: Op::Layer(layer),
            inputs: vec![flow.value],
            output,
            params: 0..0,
            buffers: 0..0,
            prepared,
            weights: Weights::Own,
            name: place.name.clone(),
            kind,
        });
        Ok(Flow { value: output, shape, flattened })
    }

    /// Gives every tensor its place: first all that are trained, then the running statistics.
    fn finish(mut self, end_of: &Flow, weight_gradients: WeightGradients) -> Result<Network, ModelError> {
        let mut named = Vec::new();
        let mut end = 0;
        let mut n_params = 0;
        for role in [Role::Parameter, Role::Buffer] {
            for (step, tensors) in &self.tensors {
                let step = &mut self.steps[*step];
                let start = end;
                for tensor in tensors.iter().filter(|tensor| tensor.role == role) {
                    let range = end..end + tensor.len();
                    end = range.end;
                    named.push(NamedTensor {
                        name: format!("{}.{}", step.name, tensor.name),
                        tensor: tensor.clone(),
                        range,
                    });
                }
                match role {
                    Role::Parameter => step.params = start..end,
                    Role::Buffer => step.buffers = start..end,
                }
            }
            if role == Role::Parameter {
                n_params = end;
            }
        }
        check_names(&named)?;
        for step in 0..self.steps.len() {
            if let Weights::Borrowed { from } = self.steps[step].weights {
                self.steps[step].params = self.steps[from].params.clone();
            }
        }
        let lens: Vec<usize> = self.shapes.iter().map(|shape| n_values(shape)).collect();
        Ok(Network {
            plan: Plan::new(&self.steps, &lens, weight_gradients),
            steps: self.steps,
            lens,
            output: end_of.value,
            output_shape: end_of.shape.clone(),
            n_prepared: self.n_prepared,
            input: self.shapes[0].clone(),
            shapes: self.shapes,
            tensors: named,
            n_params,
            n_values: end,
            loss: Loss::default(),
        })
    }
}

/// The order in which layers run: as they are given, but for a relu before a max-pool. The largest of the positive parts is
/// the positive part of the largest, so these two may change places, and then the relu has fewer pixels to go through.
fn running_order(layers: &[LayerSpec]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..layers.len()).collect();
    for i in 1..layers.len() {
        if let (LayerSpec::Relu, LayerSpec::MaxPool(_)) = (&layers[i - 1], &layers[i]) {
            order.swap(i - 1, i);
        }
    }
    order
}

fn sequence(place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
    let [height, width, channels] = place.image(&flow.shape)?;
    Ok(Flow { value: flow.value, shape: vec![height * width, channels], flattened: None })
}

fn flatten(flow: &Flow) -> Flow {
    let flattened = if flow.shape.len() > 2 { Some(flow.shape.clone()) } else { flow.flattened.clone() };
    Flow { value: flow.value, shape: vec![n_values(&flow.shape)], flattened }
}
