//! A network that reads a sequence one position after the other, and says after each what comes next.
//!
//! Every layer remembers what it needs of the positions before (attention their keys and values, a recurrent layer its state), so that a
//! position costs as much as it is long in the model and not as the whole sequence.

use super::description::{LayerSpec, ModelSpec};
use super::graph::{ModelError, Op};
use super::layer::{Cache, Context, Mode, Scratch};
use super::network::Network;
use super::workspace::Workspace;
use crate::kernel::Before;
use crate::team::TeamError;

/// A network with its parameters, somewhere in a sequence of tokens.
pub struct Decoder {
    network: Network,
    values: Vec<f32>,
    workspace: Workspace,
    /// For each of the network's values its numbers at this position; for each of its steps what it remembers.
    numbers: Vec<Vec<f32>>,
    caches: Vec<Cache>,
    scratch: Scratch,
    n_read: usize,
    n_positions: Option<usize>,
}

/// Why a network cannot continue a text.
#[derive(Debug, thiserror::Error)]
pub enum DecoderError {
    /// It is no language model.
    #[error("it cannot continue a text: {0}")]
    Unfit(String),
    /// Its description is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There are no threads to compute with.
    #[error(transparent)]
    Threads(#[from] TeamError),
}

impl Decoder {
    /// A network by its description, with its parameters, before a sequence.
    pub fn new(spec: &ModelSpec, values: Vec<f32>) -> Result<Self, DecoderError> {
        let [length] = spec.input[..] else {
            let problem = format!("its samples are {:?}, and not rows of tokens", spec.input);
            return Err(DecoderError::Unfit(problem));
        };
        let mut spec = ModelSpec { input: vec![1], ..spec.clone() };
        let mut n_positions = None;
        spec.layers.iter_mut().try_for_each(|layer| prepare(layer, length, &mut n_positions))?;
        let network = Network::new(&spec)?;
        if network.n_values() != values.len() || network.output().len() != 2 {
            let problem = "it does not give the next token's scores at every position".to_owned();
            return Err(DecoderError::Unfit(problem));
        }
        let mut workspace = Workspace::new(1)?;
        workspace.prepare(&network, &values);
        let numbers = network.lens.iter().map(|&len| vec![0.0; len]).collect();
        let caches = network.steps.iter().map(|_| Cache::default()).collect();
        Ok(Self { network, values, workspace, numbers, caches, scratch: Scratch::default(), n_read: 0, n_positions })
    }

    /// How many tokens it knows.
    pub fn n_tokens(&self) -> usize {
        self.network.n_classes()
    }

    /// How many tokens it can still read before it has to begin anew; none if there is no end.
    pub fn n_left(&self) -> Option<usize> {
        self.n_positions.map(|n_positions| n_positions - self.n_read)
    }

    /// Forgets what it has read.
    pub fn restart(&mut self) {
        self.caches.iter_mut().for_each(|cache| *cache = Cache::default());
        self.n_read = 0;
    }

    /// Reads a token, and says how likely each token is to be the next: the higher its number, the likelier.
    ///
    /// # Panics
    /// If nothing is [left](Self::n_left).
    pub fn read(&mut self, token: u32) -> &[f32] {
        assert_ne!(self.n_left(), Some(0), "the sequence is as long as the model can read");
        self.numbers[0][0] = token as f32;
        for (index, step) in self.network.steps.iter().enumerate() {
            let mut y = std::mem::take(&mut self.numbers[step.output]);
            let x = |input: usize| self.numbers[step.inputs[input]].as_slice();
            match &step.op {
                Op::Join(join) => join.forward([x(0), x(1)], &mut y),
                Op::Layer(layer) => {
                    let context = Context {
                        params: &self.values[step.params.clone()],
                        buffers: &self.values[step.buffers.clone()],
                        prepared: &self.workspace.prepared[step.prepared.clone()],
                        mode: Mode::Test,
                        n: 1,
                        first: 0,
                        batch_len: 1,
                        before: Before::Lost,
                        sums: &[],
                        gradient_sums: &[],
                    };
                    layer.next(&context, x(0), &mut y, &mut self.caches[index], &mut self.scratch);
                    self.caches[index].n_read += 1;
                }
            }
            self.numbers[step.output] = y;
        }
        self.n_read += 1;
        &self.numbers[self.network.output]
    }
}

/// Makes a layer one for single positions, if it can be.
fn prepare(layer: &mut LayerSpec, length: usize, n_positions: &mut Option<usize>) -> Result<(), DecoderError> {
    let unfit = |problem: &str| Err(DecoderError::Unfit(problem.to_owned()));
    match layer {
        LayerSpec::Residual(spec) => {
            spec.body.iter_mut().chain(&mut spec.projection).try_for_each(|layer| prepare(layer, length, n_positions))
        }
        LayerSpec::Positions(spec) => {
            let own = *spec.length.get_or_insert(length);
            *n_positions = Some(n_positions.map_or(own, |other| other.min(own)));
            Ok(())
        }
        LayerSpec::Attention(spec) if !spec.causal => unfit("its attention looks at tokens that are still to come"),
        LayerSpec::Attention(_)
        | LayerSpec::Dense(_)
        | LayerSpec::Dropout(_)
        | LayerSpec::Embedding(_)
        | LayerSpec::Gelu
        | LayerSpec::GeluTanh
        | LayerSpec::Gru(_)
        | LayerSpec::LayerNorm(_)
        | LayerSpec::Lstm(_)
        | LayerSpec::Recurrent(_)
        | LayerSpec::Relu
        | LayerSpec::RmsNorm(_)
        | LayerSpec::Sigmoid
        | LayerSpec::Silu
        | LayerSpec::Swiglu(_)
        | LayerSpec::Tanh
        | LayerSpec::TiedDense(_) => Ok(()),
        layer => unfit(&format!("a layer of kind `{}` does not go through a text token by token", layer.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::Decoder;
    use crate::data::{Batch, Targets};
    use crate::model::{Network, Workspace, zoo};
    use crate::rng::Rng;

    /// Token by token as all at once.
    #[test]
    fn what_is_remembered_changes_nothing() {
        for name in ["gpt:2x16x4", "llama:2x16x4x2", "lstm-lm:12"] {
            let spec = zoo::describe(name, Some(&[9]), Some(11)).unwrap();
            let network = Network::new(&spec).unwrap();
            let values: Vec<f32> = network.init(&mut Rng::new(3)).iter().map(|value| 3.0 * value).collect();
            let tokens: Vec<u32> = (0..9).map(|k| k * 7 % 11).collect();
            let inputs = tokens.iter().map(|&token| token as f32).collect();
            let batch = Batch { n: 1, inputs, targets: Targets::Classes(vec![0; 9]) };
            let (expected, _) = network.predict(&values, &batch, &mut Workspace::new(1).unwrap());
            let mut decoder = Decoder::new(&spec, values).unwrap();
            for _ in 0..2 {
                for (token, expected) in tokens.iter().zip(expected.chunks_exact(11)) {
                    let found = decoder.read(*token);
                    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(off < 1e-4, "{name}: {off} off");
                }
                decoder.restart();
            }
        }
    }

    #[test]
    fn other_networks_are_refused_with_a_reason() {
        for (name, input, reason) in [
            ("mlp:4", vec![5], "`flatten` does not go through a text"),
            ("speech-attention:8", vec![6, 3], "rows of tokens"),
        ] {
            let spec = zoo::describe(name, Some(&input), Some(3)).unwrap();
            let n_values = Network::new(&spec).unwrap().n_values();
            let error = Decoder::new(&spec, vec![0.0; n_values]).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
