//! Which layers several peers can share as tensor shards, and what one of them then makes.

use std::ops::Range;

use super::description::LayerSpec;
use crate::partition::block;

/// What keeps layers from being split into tensor shards, and where it stands among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsplittable {
    /// The first layer's outputs cannot be made by several peers.
    Begins(usize),
    /// A layer mixes the channels of what comes to it.
    Mixes(usize),
}

/// What one tensor shard makes.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    /// Which outputs of the first layer, in order, and how many there are over all shards.
    pub rows: Vec<Range<usize>>,
    /// See `rows`.
    pub n_rows: usize,
    /// Which channels come out in the end, and how many there are over all shards.
    pub channels: Range<usize>,
    /// See `channels`.
    pub n_channels: usize,
}

/// How many tensor shards these layers can have at most: the first layer's outputs are divided among them and the others follow channel by
/// channel, or where it makes the queries, keys and values of the attention after it, that layer's heads are.
pub fn most_tensor_shards(layers: &[LayerSpec]) -> Result<usize, Unsplittable> {
    let first = first_layer(layers);
    let n_outputs = layers[first].outputs_to_split().ok_or(Unsplittable::Begins(first))?;
    let (most, next) = match (&layers[first], layers.get(first + 1)) {
        (LayerSpec::Dense(_), Some(LayerSpec::Attention(spec))) => (spec.kv_heads.unwrap_or(spec.heads), first + 2),
        _ => (n_outputs, first + 1),
    };
    match (next..layers.len()).find(|&layer| !layers[layer].is_by_channel()) {
        Some(layer) => Err(Unsplittable::Mixes(layer)),
        None => Ok(most),
    }
}

/// Has layers that can be split, into so many shards at most, make only what one of them makes.
pub(super) fn take_shard(layers: &mut [LayerSpec], (column, columns): (usize, usize), most: usize) -> Shard {
    let share = block(column, columns, most);
    let at = first_layer(layers);
    let (first, rest) = layers[at..].split_first_mut().expect("there is a layer to split");
    let is_dense = matches!(first, LayerSpec::Dense(_));
    let out = first.outputs_mut().expect("its outputs can be split");
    let n_rows = *out;
    let Some(LayerSpec::Attention(spec)) = rest.first_mut().filter(|_| is_dense) else {
        *out = share.len();
        return Shard { rows: vec![share.clone()], n_rows, channels: share, n_channels: n_rows };
    };
    // So many heads ask each head of keys and values; a shard has both.
    let (n_heads, n_asking) = (spec.heads, spec.heads / most);
    let len = n_rows / (n_heads + 2 * most);
    let queries = share.start * n_asking * len..share.end * n_asking * len;
    let below = |n: usize| (n + share.start) * len..(n + share.end) * len;
    let rows = vec![queries.clone(), below(n_heads), below(n_heads + most)];
    *out = rows.iter().map(Range::len).sum();
    (spec.heads, spec.kv_heads) = (share.len() * n_asking, Some(share.len()));
    Shard { rows, n_rows, channels: queries, n_channels: n_heads * len }
}

/// The layer that is split: a flatten moves no number, so it may stand before it.
fn first_layer(layers: &[LayerSpec]) -> usize {
    layers.iter().position(|layer| *layer != LayerSpec::Flatten).unwrap_or(0)
}
