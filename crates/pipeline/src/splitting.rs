//! What of a network can be split how: which layers can follow one another in tensor shards, and which need the whole batch.
//!
//! The planner looks at very many stages, so it asks [`most_shards`] and [`has_batch_norm`], which only look at the
//! description; a plan that is to be run is asked of the engine itself, which must build the parts.

use std::ops::Range;

use nettorrent_engine::model::{LayerSpec, ModelError, ModelSpec, Unsplittable, most_tensor_shards};

/// How many tensor shards these layers can have at most.
pub(crate) fn most_shards(spec: &ModelSpec, layers: &Range<usize>) -> Result<usize, ModelError> {
    let refused = |layer: usize, what_to_do: &str| ModelError {
        place: place(spec, layers.start + layer),
        problem: format!("it cannot be split into tensor shards; {what_to_do}, or use tensor_shards = 1"),
    };
    most_tensor_shards(&spec.layers[layers.clone()]).map_err(|why| match why {
        Unsplittable::Begins(layer) => {
            refused(layer, "begin the stage at a layer whose outputs can be split, such as conv or dense")
        }
        Unsplittable::Mixes(layer) => refused(layer, "end the stage before it"),
    })
}

/// Whether a batch norm is among these layers, at whatever depth: its statistics are those of the whole batch.
pub(crate) fn has_batch_norm(layers: &[LayerSpec]) -> bool {
    layers.iter().any(|layer| match layer {
        LayerSpec::BatchNorm(_) => true,
        LayerSpec::Residual(spec) => has_batch_norm(&spec.body) || has_batch_norm(&spec.projection),
        _ => false,
    })
}

fn place(spec: &ModelSpec, layer: usize) -> String {
    format!("layers[{layer}] ({})", spec.layers[layer].kind())
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::model::zoo::{ZOO, describe};
    use nettorrent_engine::model::{Part, PartSpec};

    use super::{has_batch_norm, most_shards};

    #[test]
    fn the_engine_thinks_the_same() {
        for entry in ZOO {
            let spec = describe(entry.name, None, None).unwrap();
            for start in 0..spec.layers.len() {
                for end in start + 1..=spec.layers.len().min(start + 6) {
                    if !(spec.can_cut(start) && spec.can_cut(end)) {
                        continue;
                    }
                    let part = |columns| Part::new(&spec, &PartSpec { layers: start..end, column: 0, columns });
                    let whole = part(1).unwrap_or_else(|error| panic!("{} {start}..{end}: {error}", entry.name));
                    assert_eq!(whole.needs_all_rows(), has_batch_norm(&spec.layers[start..end]));
                    let can_split = most_shards(&spec, &(start..end)).is_ok();
                    assert_eq!(part(2).is_ok(), can_split, "{} {start}..{end}", entry.name);
                }
            }
        }
    }
}
