//! From a description to a network: shapes are inferred and checked, layers become steps, tensors get their places.

use std::ops::Range;

use super::columns::Columns;
use super::description::{
    ConvSpec, DenseSpec, DepthwiseSpec, EmbeddingSpec, LayerSpec, ModelSpec, NormSpec, PoolSpec, RecurrentSpec,
    ResidualSpec, StepsKept,
};
use super::graph::{ModelError, NamedTensor, Op, Step};
use super::layer::{Layer, Role, Shape, Tensor, n_values};
use super::layers::{
    Activation, ActivationKind, BatchNorm, Conv, Dense, Depthwise, Dropout, Embedding, GlobalPool, LastStep, LayerNorm,
    Pool, PoolKind, Recurrent,
};
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
        builder.finish(flow.value, WeightGradients::Together)
    }
}

/// Some layers of a description that are to be a network of their own.
pub(super) struct Section<'a> {
    /// The layers below, which are only looked at for what comes out of them.
    pub below: &'a [LayerSpec],
    /// The layers.
    pub layers: &'a [LayerSpec],
    /// Which channels the first of them makes, if not all, and how many there are over all columns.
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
    Ok((builder.finish(flow.value, WeightGradients::Afterwards)?, flow.shape))
}

/// A value on its way through the layers.
#[derive(Clone)]
struct Flow {
    value: usize,
    shape: Shape,
    /// If this row was an image, its height, width and channels: in checkpoints such rows go channel by channel.
    flattened: Option<[usize; 3]>,
}

impl Flow {
    /// The order of the features in a checkpoint, as axes over their order here.
    fn feature_axes(&self) -> Vec<(usize, usize)> {
        match (self.flattened, self.shape.as_slice()) {
            (Some([h, w, c]), [_]) => vec![(c, 1), (h, w * c), (w, c)],
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
}

impl Builder {
    fn new(input: &[usize]) -> Result<Self, ModelError> {
        let wrong =
            |problem: &str| Err(ModelError { place: "input".into(), problem: format!("{} is {problem}", show(input)) });
        if input.is_empty() || input.len() > 3 || input.contains(&0) {
            return wrong("no shape; give [height, width, channels], [steps, features] or [features]");
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
        let activation = |kind| Box::new(Activation(kind));
        let same = flow.shape.clone();
        match spec {
            LayerSpec::AveragePool(spec) => self.pool(spec, PoolKind::Average, place, flow),
            LayerSpec::MaxPool(spec) => self.pool(spec, PoolKind::Max, place, flow),
            LayerSpec::BatchNorm(_) => {
                let channels = same[same.len() - 1];
                let n_rows = n_values(&same) / channels;
                let layer = BatchNorm { channels, n_rows, axes: flow.feature_axes() };
                self.push(Box::new(layer), "batch-norm", place, flow, same)
            }
            LayerSpec::LayerNorm(NormSpec { .. }) => {
                let layer = LayerNorm { features: same[same.len() - 1], axes: flow.feature_axes() };
                self.push(Box::new(layer), "layer-norm", place, flow, same)
            }
            LayerSpec::Conv(spec) => self.conv(spec, place, flow),
            LayerSpec::DepthwiseConv(spec) => self.depthwise(spec, place, flow),
            LayerSpec::Dense(spec) => self.dense(spec, place, flow),
            LayerSpec::Dropout(rate) => {
                if !(0.0..1.0).contains(rate) {
                    return Err(place.error(format!("a rate of {rate} is not 0 or more and less than 1")));
                }
                let len = n_values(&same);
                let columns = self.split.as_ref().map(|(channels, n_channels)| Columns {
                    n_pixels: len / channels.len(),
                    n_channels: *n_channels,
                    channels: channels.clone(),
                });
                let layer = Dropout { rate: *rate, len, index: self.n_steps_below + self.steps.len(), columns };
                self.push(Box::new(layer), "dropout", place, flow, same)
            }
            LayerSpec::Embedding(spec) => self.embedding(spec, place, flow),
            LayerSpec::Flatten => Ok(flatten(flow)),
            LayerSpec::Gelu => self.push(activation(ActivationKind::Gelu), "gelu", place, flow, same),
            LayerSpec::Relu => self.push(activation(ActivationKind::Relu), "relu", place, flow, same),
            LayerSpec::Sigmoid => self.push(activation(ActivationKind::Sigmoid), "sigmoid", place, flow, same),
            LayerSpec::Tanh => self.push(activation(ActivationKind::Tanh), "tanh", place, flow, same),
            LayerSpec::GlobalPool => {
                let [h, w, channels] = place.image(&flow.shape)?;
                let layer = GlobalPool { n_pixels: h * w, channels };
                self.push(Box::new(layer), "global-pool", place, flow, vec![channels])
            }
            LayerSpec::Recurrent(spec) => self.recurrent(spec, place, flow),
            LayerSpec::Residual(spec) => self.residual(spec, place, flow),
        }
    }

    fn conv(&mut self, spec: &ConvSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("kernel", spec.kernel), spec.stride, spec.padding)?;
        let out_channels = place.positive("out", spec.out)?;
        // Both ways a packed filter has its channels rounded up to whole vectors, of 16 lanes at most.
        let [channels, out] = [window.channels, out_channels].map(|channels| channels.saturating_add(16));
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[2, padded_height, padded_width, window.kernel, window.kernel, channels, out])?;
        let layer = Conv { window, out_channels, bias: spec.bias };
        self.push(Box::new(layer), "conv", place, flow, vec![height, width, out_channels])
    }

    fn depthwise(&mut self, spec: &DepthwiseSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("kernel", spec.kernel), spec.stride, spec.padding)?;
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[padded_height, padded_width, window.kernel, window.kernel, window.channels])?;
        let layer = Depthwise { window, bias: spec.bias };
        self.push(Box::new(layer), "depthwise-conv", place, flow, vec![height, width, window.channels])
    }

    fn pool(&mut self, spec: &PoolSpec, kind: PoolKind, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("size", spec.size), spec.stride.unwrap_or(spec.size), spec.padding)?;
        if spec.padding > spec.size / 2 {
            let (padding, size) = (spec.padding, spec.size);
            let problem = format!("a padding of {padding} is more than half of the window's {size}; make it smaller");
            return Err(place.error(problem));
        }
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[padded_height, padded_width, window.channels])?;
        let name = if kind == PoolKind::Max { "max-pool" } else { "average-pool" };
        self.push(Box::new(Pool { kind, window }), name, place, flow, vec![height, width, window.channels])
    }

    fn dense(&mut self, spec: &DenseSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        if flow.shape.len() == 3 {
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
        self.push(Box::new(layer), "dense", place, flow, shape)
    }

    fn embedding(&mut self, spec: &EmbeddingSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
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

    fn recurrent(&mut self, spec: &RecurrentSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
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

    fn residual(&mut self, spec: &ResidualSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
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
        // The output, and at most four numbers for each feature in it, as a batch norm has.
        self.reserve(place, &[5, shape.iter().copied().fold(1, usize::saturating_mul)])?;
        // What follows a flattened image keeps its order as long as nothing mixes the features.
        let flattened = flow.flattened.filter(|_| shape == flow.shape && kind != "dense");
        let output = self.value(shape.clone());
        self.tensors.push((self.steps.len(), layer.tensors()));
        let prepared = self.n_prepared..self.n_prepared + layer.n_prepared();
        self.n_prepared = prepared.end;
        self.steps.push(Step {
            op: Op::Layer(layer),
            inputs: vec![flow.value],
            output,
            params: 0..0,
            buffers: 0..0,
            prepared,
            name: place.name.clone(),
            kind,
        });
        Ok(Flow { value: output, shape, flattened })
    }

    /// Gives every tensor its place: first all that are trained, then the running statistics.
    fn finish(mut self, output: usize, weight_gradients: WeightGradients) -> Result<Network, ModelError> {
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
        let lens: Vec<usize> = self.shapes.iter().map(|shape| n_values(shape)).collect();
        Ok(Network {
            plan: Plan::new(&self.steps, &lens, weight_gradients),
            steps: self.steps,
            lens,
            output,
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

fn flatten(flow: &Flow) -> Flow {
    let flattened = match flow.shape[..] {
        [h, w, c] => Some([h, w, c]),
        _ => flow.flattened,
    };
    Flow { value: flow.value, shape: vec![n_values(&flow.shape)], flattened }
}
