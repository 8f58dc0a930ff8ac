//! What each of a network's layers weighs: its numbers, its multiplications, what it hands on.

use std::ops::Range;

use nettorrent_engine::model::{LayerSpec, ModelError, ModelSpec, Network, n_values};

use crate::splitting::{has_batch_norm, most_shards};

/// Sums over the first layers of a network: all that comes before each cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Below {
    n_params: usize,
    n_values: usize,
    n_multiplications: usize,
    /// Numbers of a sample that are kept for the backward pass.
    n_kept: usize,
    /// Numbers of a sample that cross the cut.
    n_crossing: usize,
}

/// What all layers of a network weigh.
pub(super) struct Profile {
    /// For every cut, from before the first layer to behind the last.
    below: Vec<Below>,
    /// Where stages may begin, and where the last one ends.
    pub(super) cuts: Vec<usize>,
}

/// What some consecutive layers weigh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    pub(super) n_params: usize,
    pub(super) n_values: usize,
    pub(super) n_multiplications: usize,
    pub(super) n_kept: usize,
    pub(super) input_len: usize,
    pub(super) output_len: usize,
}

impl Profile {
    pub(super) fn new(spec: &ModelSpec) -> Result<Self, ModelError> {
        // The whole first, so that what is wrong with it is told as of the whole.
        Network::new(spec)?;
        let mut below = vec![Below { n_crossing: n_values(&spec.input), ..Below::default() }];
        let mut n_values_of_steps = 0;
        for (index, layer) in spec.layers.iter().enumerate() {
            let before = below[index];
            let first = &spec.layers[..=index];
            if first.iter().all(|layer| matches!(layer, LayerSpec::Flatten | LayerSpec::Mark(_))) {
                below.push(before);
                continue;
            }
            let network = Network::new(&ModelSpec { input: spec.input.clone(), layers: first.to_vec() })?;
            let steps = network.summary();
            let of_steps: usize = steps.iter().map(|step| n_values(&step.output)).sum();
            let n_crossing = network.output_len();
            let n_new = match layer {
                LayerSpec::Flatten | LayerSpec::Mark(_) => 0,
                // These are several steps, each with a value of its own.
                LayerSpec::Gru(_)
                | LayerSpec::Lstm(_)
                | LayerSpec::Recurrent(_)
                | LayerSpec::Residual(_)
                | LayerSpec::Swiglu(_) => of_steps.saturating_sub(n_values_of_steps),
                _ => n_crossing,
            };
            n_values_of_steps = of_steps;
            below.push(Below {
                n_params: network.n_params(),
                n_values: network.n_values(),
                n_multiplications: steps.iter().map(|step| step.n_multiplications).sum(),
                n_kept: before.n_kept + n_new,
                n_crossing,
            });
        }
        let begins = |index: &usize| multiplies(&spec.layers[*index]) && spec.can_cut(*index);
        // What comes before the first that multiplies belongs to it.
        let inner = (0..spec.layers.len()).filter(begins).skip(1);
        let cuts = std::iter::once(0).chain(inner.filter(|cut| *cut > 0)).chain([spec.layers.len()]).collect();
        Ok(Self { below, cuts })
    }

    pub(super) fn weight(&self, layers: &Range<usize>) -> Weight {
        let (from, to) = (self.below[layers.start], self.below[layers.end]);
        Weight {
            n_params: to.n_params - from.n_params,
            n_values: to.n_values - from.n_values,
            n_multiplications: to.n_multiplications - from.n_multiplications,
            n_kept: to.n_kept - from.n_kept,
            input_len: from.n_crossing,
            output_len: to.n_crossing,
        }
    }
}

fn multiplies(layer: &LayerSpec) -> bool {
    matches!(
        layer,
        LayerSpec::Conv(_)
            | LayerSpec::Conv1d(_)
            | LayerSpec::Conv3d(_)
            | LayerSpec::Dense(_)
            | LayerSpec::DepthwiseConv(_)
            | LayerSpec::Embedding(_)
            | LayerSpec::Gru(_)
            | LayerSpec::Lstm(_)
            | LayerSpec::Recurrent(_)
            | LayerSpec::Residual(_)
            | LayerSpec::Swiglu(_)
            | LayerSpec::TransposedConv(_)
    )
}

/// How many batch shards these layers can have for a batch of so many samples.
pub(super) fn most_batch_shards(spec: &ModelSpec, layers: &Range<usize>, batch: usize) -> usize {
    if has_batch_norm(&spec.layers[layers.clone()]) { 1 } else { batch }
}

/// How many tensor shards these layers can have.
pub(super) fn most_tensor_shards(spec: &ModelSpec, layers: &Range<usize>) -> usize {
    most_shards(spec, layers).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::model::{Network, zoo};

    use super::Profile;

    #[test]
    fn layers_weigh_together_what_the_network_weighs() {
        for entry in zoo::ZOO {
            let spec = zoo::describe(entry.name, None, None).unwrap();
            let network = Network::new(&spec).unwrap();
            let profile = Profile::new(&spec).unwrap();
            let all = profile.weight(&(0..spec.layers.len()));
            assert_eq!((all.n_params, all.n_values), (network.n_params(), network.n_values()), "{}", entry.name);
            let n_multiplications: usize = network.summary().iter().map(|step| step.n_multiplications).sum();
            assert_eq!(all.n_multiplications, n_multiplications, "{}", entry.name);
            assert_eq!(all.output_len, network.output_len());
            let parts = profile.cuts.windows(2).map(|cut| profile.weight(&(cut[0]..cut[1])));
            assert_eq!(parts.map(|part| part.n_params).sum::<usize>(), network.n_params());
        }
    }

    #[test]
    fn single_layers_weigh_what_their_formulas_say() {
        // Flatten, dense 784 x 512, relu, dense 512 x 512, relu, dense 512 x 10.
        let profile = Profile::new(&zoo::describe("mlp", None, None).unwrap()).unwrap();
        assert_eq!(profile.cuts, [0, 3, 5, 6]);
        let first = profile.weight(&(0..3));
        assert_eq!((first.n_params, first.n_multiplications), (784 * 512 + 512, 784 * 512));
        assert_eq!((first.input_len, first.output_len, first.n_kept), (784, 512, 1024));
        let last = profile.weight(&(5..6));
        assert_eq!((last.n_params, last.input_len, last.output_len), (5130, 512, 10));
        let resnet = Profile::new(&zoo::describe("resnet50", None, None).unwrap()).unwrap();
        assert_eq!(resnet.cuts.len(), 1 + 16 + 1 + 1, "the stem, sixteen blocks, the head, the end");
    }
}
