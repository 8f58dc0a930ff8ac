//! What a layer is: a function over flat slices with its two gradients apart, and the tensors it is made of.

use crate::kernel::Before;
use crate::rng::Rng;

/// The shape of one sample: `[depth, height, width, channels]`, `[height, width, channels]`, `[steps, features]` or
/// `[features]`.
pub type Shape = Vec<usize>;

/// How many numbers a sample of this shape has.
pub fn n_values(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Whether a network is being trained or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops (by this seed), batch norm takes its statistics from the batch.
    Train {
        /// What to drop; a new one for every step.
        seed: u64,
    },
    /// Dropout passes all, batch norm uses the running statistics.
    Test,
}

/// What a layer is handed beside its input.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The layer's own trainable numbers, its tensors one after the other.
    pub params: &'a [f32],
    /// The layer's own running statistics.
    pub buffers: &'a [f32],
    /// What [`Layer::prepare`] made of the parameters; not to be relied on for the gradient by the weights.
    pub prepared: &'a [f32],
    /// Training or using.
    pub mode: Mode,
    /// How many samples are in this call.
    pub n: usize,
    /// The number of the first of them within the batch.
    pub first: usize,
    /// How many samples the whole batch has.
    pub batch_len: usize,
    /// What becomes of what is in a weight gradient's place; [`Before::Lost`] only for layers that
    /// [overwrite](Layer::overwrites).
    pub before: Before,
    /// What a layer with [`BatchStatistics`] gathered over the whole batch on the forward pass.
    pub sums: &'a [f64],
    /// What it gathered on the backward pass.
    pub gradient_sums: &'a [f64],
}

/// What is known when a gradient comes down: the layer's input and output (if it [keeps](Layer::keeps) them) and the
/// gradient of the loss by its output.
#[derive(Clone, Copy)]
pub struct Backward<'a> {
    /// The input, or nothing.
    pub x: &'a [f32],
    /// The output, or nothing.
    pub y: &'a [f32],
    /// The gradient by the output.
    pub dy: &'a [f32],
    /// The gradient by the input, for the weights' gradient only; or nothing.
    pub dx: &'a [f32],
}

/// What must still be there when the gradient comes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// The layer's input.
    pub input: bool,
    /// The layer's output.
    pub output: bool,
    /// The gradient by the layer's input, from which the gradient by the weights then follows. Only for layers whose input is
    /// another step's output, and nobody else's input.
    pub input_gradient: bool,
}

impl Keeps {
    /// The input only.
    pub const INPUT: Self = Self { input: true, ..Self::NOTHING };
    /// The output only.
    pub const OUTPUT: Self = Self { output: true, ..Self::NOTHING };
    /// Neither.
    pub const NOTHING: Self = Self { input: false, output: false, input_gradient: false };
}

/// Room that a layer may use during a call and whose contents nobody relies on afterwards.
#[derive(Default)]
pub struct Scratch(Vec<f32>);

impl Scratch {
    /// `n` numbers with arbitrary contents.
    pub fn take(&mut self, n: usize) -> &mut [f32] {
        if self.0.len() < n {
            self.0.resize(n, 0.0);
        }
        &mut self.0[..n]
    }
}

/// What a layer remembers of a sequence that it is given position by position.
#[derive(Default)]
pub struct Cache {
    /// How many positions it has seen.
    pub n_read: usize,
    /// What it keeps of them.
    pub numbers: Vec<f32>,
}

/// A layer: an immutable function of its parameters and its input.
///
/// The gradient by the input and the gradient by the weights are apart, because one is wanted by the layer below and the
/// other by the optimizer (or by other peers), and the first should not wait for the second.
pub trait Layer: Send + Sync {
    /// The tensors that the layer is made of, in the order in which they lie in the flat vectors.
    fn tensors(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// What must be kept for the gradients.
    fn keeps(&self) -> Keeps;

    /// Whether the layer does better with all samples at once than with a few that fit the cache.
    fn wants_whole_batch(&self) -> bool {
        false
    }

    /// Multiplications (each with its addition) for one sample on the forward pass.
    fn n_multiplications(&self) -> usize {
        0
    }

    /// How much room [`prepare`](Self::prepare) needs.
    fn n_prepared(&self) -> usize {
        0
    }

    /// Rearranges the parameters, once for all samples of a batch.
    fn prepare(&self, _params: &[f32], _prepared: &mut [f32]) {}

    /// `y` from `x`.
    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch);

    /// The gradient by the input; overwrites `dx`.
    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch);

    /// Whether [`weight_gradient`](Self::weight_gradient) can overwrite instead of adding; else its place is zeroed first.
    fn overwrites(&self) -> bool {
        false
    }

    /// Adds the gradient by the parameters to `dw`, or overwrites it if the context says so.
    fn weight_gradient(&self, _context: &Context<'_>, _back: Backward<'_>, _dw: &mut [f32], _scratch: &mut Scratch) {}

    /// `y` from `x` at the next position of a sequence, for a layer that was made for single positions and has seen those before.
    fn next(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Cache, scratch: &mut Scratch) {
        self.forward(context, x, y, scratch);
    }

    /// For layers that need to know the whole batch before they can do their work.
    fn statistics(&self) -> Option<&dyn BatchStatistics> {
        None
    }
}

/// A layer that first needs sums over the whole batch: batch norm.
///
/// The sums are gathered a few samples at a time, by several threads (or, in a layer network, peers), added up in a fixed
/// order, and then handed to the layer's passes in the [`Context`].
pub trait BatchStatistics {
    /// How many sums there are, each way.
    fn n_sums(&self) -> usize;
    /// Adds what these samples contribute to the sums that the forward pass needs.
    fn gather(&self, context: &Context<'_>, x: &[f32], sums: &mut [f64]);
    /// Adds what these samples contribute to the sums that the backward pass needs.
    fn gather_gradient(&self, context: &Context<'_>, back: Backward<'_>, sums: &mut [f64]);
    /// Adds the gradient by the parameters, which follows from the sums, once for the whole batch.
    fn finish_gradient(&self, context: &Context<'_>, dw: &mut [f32]);
    /// How far the running statistics are from this batch's: what is to be taken off them, scaled by the layer's momentum.
    fn delta(&self, context: &Context<'_>, delta: &mut [f32]);
}

/// One named tensor of a layer, as a checkpoint shows it, and how it lies in the engine's flat vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The last part of its name: `weight`, `bias`, `running_mean`.
    pub name: String,
    /// Its shape in a checkpoint.
    pub shape: Vec<usize>,
    /// For each axis (of the checkpoint's order, possibly split further): its length, and its step in the flat vector.
    pub axes: Vec<(usize, usize)>,
    /// What it starts as.
    pub init: Init,
    /// Whether it is trained, or a running statistic.
    pub role: Role,
}

/// Whether a tensor is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Changed by the optimizer.
    Parameter,
    /// Changed by what the batches look like.
    Buffer,
}

/// What a tensor starts as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All the same.
    Constant(f32),
    /// Normal, with this deviation.
    Normal(f32),
    /// Uniform between minus and plus this.
    Uniform(f32),
}

impl Init {
    /// The next number.
    pub fn draw(self, rng: &mut Rng) -> f32 {
        match self {
            Self::Constant(constant) => constant,
            Self::Normal(deviation) => deviation * rng.normal(),
            Self::Uniform(bound) => rng.range(-bound, bound),
        }
    }

    /// As if this many numbers had been drawn.
    pub fn skip(self, n: usize, rng: &mut Rng) {
        let draws = match self {
            Self::Constant(_) => 0,
            Self::Normal(_) => 2,
            Self::Uniform(_) => 1,
        };
        for _ in 0..n * draws {
            rng.next_u64();
        }
    }
}

impl Tensor {
    /// A trained tensor that lies in the flat vector just as in a checkpoint.
    pub fn plain(name: impl Into<String>, shape: &[usize], init: Init) -> Self {
        let mut step = n_values(shape);
        let axes = shape.iter().map(|&n| {
            step /= n.max(1);
            (n, step)
        });
        Self { name: name.into(), shape: shape.to_vec(), axes: axes.collect(), init, role: Role::Parameter }
    }

    /// The same with another place for each axis.
    pub fn laid_out(mut self, axes: Vec<(usize, usize)>) -> Self {
        self.axes = axes;
        self
    }

    /// The same as a running statistic.
    pub fn buffer(mut self) -> Self {
        self.role = Role::Buffer;
        self
    }

    /// How many numbers it has.
    pub fn len(&self) -> usize {
        n_values(&self.shape)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each number in the checkpoint's order, where it lies in the flat vector.
    pub fn places(&self) -> Vec<usize> {
        let mut places = vec![0];
        for &(n, step) in &self.axes {
            places = places.iter().flat_map(|&place| (0..n).map(move |i| place + i * step)).collect();
        }
        places
    }
}
