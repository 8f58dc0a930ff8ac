//! A network's parameters as a safetensors file, in the names and layouts that PyTorch uses.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{CheckpointError, write_file};
use crate::model::{NamedTensor, Network};
use crate::nearest::nearest;

/// Buffers that PyTorch writes and that have no meaning here.
const IGNORED_SUFFIX: &str = "num_batches_tracked";

/// Writes the parameters to a file.
pub fn save_weights(path: &Path, network: &Network, values: &[f32]) -> Result<(), CheckpointError> {
    write_file(path, &weights_to_bytes(network, values))
}

/// Reads the parameters of this network from a file.
pub fn load_weights(path: &Path, network: &Network) -> Result<Vec<f32>, CheckpointError> {
    let bytes = std::fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
    weights_from_bytes(path, &bytes, network)
}

/// The file's contents for these parameters.
pub fn weights_to_bytes(network: &Network, values: &[f32]) -> Vec<u8> {
    assert_eq!(values.len(), network.n_values(), "the parameters belong to another network");
    let tensors: Vec<(&NamedTensor, Vec<u8>)> = network
        .tensors()
        .iter()
        .map(|named| {
            let numbers = &values[named.range.clone()];
            (named, named.tensor.places().iter().flat_map(|&place| numbers[place].to_le_bytes()).collect())
        })
        .collect();
    let views = tensors.iter().map(|(named, bytes)| {
        let view =
            TensorView::new(Dtype::F32, named.tensor.shape.clone(), bytes).expect("as many bytes as the shape says");
        (named.name.as_str(), view)
    });
    // The note that PyTorch's own tools leave and look for.
    let metadata = [("format".to_owned(), "pt".to_owned())].into_iter().collect();
    safetensors::serialize(views, Some(metadata)).expect("the names differ and the sizes are right")
}

/// The parameters in a file's contents; `path` is only for messages.
pub fn weights_from_bytes(path: &Path, bytes: &[u8], network: &Network) -> Result<Vec<f32>, CheckpointError> {
    let malformed = |problem: String| CheckpointError::malformed(path, problem);
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| {
        malformed(format!("not a whole safetensors file ({error}); copy it again, or use another checkpoint"))
    })?;
    let mut found: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
    let names: Vec<String> = found.keys().cloned().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut values = vec![0.0; network.n_values()];
    for NamedTensor { name, tensor, range } in network.tensors() {
        let view = found.remove(name).ok_or_else(|| {
            let hint = nearest(name, &names).map_or(String::new(), |near| format!("; the nearest there is `{near}`"));
            malformed(format!("it has no tensor `{name}`{hint}; is it a checkpoint of another model?"))
        })?;
        if view.shape() != tensor.shape {
            let problem = format!("`{name}` has the shape {:?} and should have {:?}", view.shape(), tensor.shape);
            return Err(malformed(format!("{problem}; is it a checkpoint of another model?")));
        }
        let numbers = numbers(&view).ok_or_else(|| {
            malformed(format!("`{name}` holds {:?}; f32, f64, f16 and bf16 can be read", view.dtype()))
        })?;
        let target = &mut values[range.clone()];
        for (place, number) in tensor.places().into_iter().zip(numbers) {
            target[place] = number;
        }
    }
    if let Some(name) = found.keys().find(|name| !name.ends_with(IGNORED_SUFFIX)) {
        return Err(malformed(format!(
            "it has a tensor `{name}` that the model has no place for; is it of another model?"
        )));
    }
    Ok(values)
}

/// The numbers of a tensor of any floating-point kind.
fn numbers(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let data = view.data();
    Some(match view.dtype() {
        Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F64 => data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        Dtype::F16 => data.as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::BF16 => data.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => return None,
    })
}
