//! A model's parameters as a safetensors file, in the names and layouts that PyTorch uses.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::Path;

use nettorrent_files::write_file;
use safetensors::SafeTensorError;

use super::checksums::FileChecksums;
use super::error::CheckpointError;
use super::file_layout::FileLayout;
use super::runs;
use super::share::Share;
use crate::model::{Layout, NamedTensor};
use crate::nearest::nearest;

/// What PyTorch and Hugging Face write besides the parameters: counters, masks, tables, and a head that is the embedding once more.
const IGNORED_SUFFIXES: [&str; 5] =
    ["num_batches_tracked", ".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "lm_head.weight"];
/// What Hugging Face puts before the names of GPT-2's tensors where there is a head.
const PREFIX: &str = "transformer.";

/// Writes the parameters to a file.
pub fn save_weights(path: &Path, layout: &Layout, values: &[f32]) -> Result<(), CheckpointError> {
    Ok(write_file(path, &weights_to_bytes(layout, values))?)
}

/// Reads the parameters of a model from a file.
pub fn load_weights(path: &Path, layout: &Layout) -> Result<Vec<f32>, CheckpointError> {
    load_share(path, layout, &Share::whole(layout))
}

/// The file's contents for these parameters.
fn weights_to_bytes(layout: &Layout, values: &[f32]) -> Vec<u8> {
    assert_eq!(values.len(), layout.n_values(), "the parameters belong to another model");
    let (file_layout, mut bytes) = file_layout(layout.tensors());
    bytes.resize(file_layout.n_bytes() as usize, 0);
    write(&mut Cursor::new(bytes.as_mut_slice()), &file_layout, layout.tensors(), &Share::whole(layout), values)
        .expect("there is workspace for all");
    bytes
}

/// Reads some of the parameters of a model from a file.
pub(super) fn load_share(path: &Path, layout: &Layout, share: &Share) -> Result<Vec<f32>, CheckpointError> {
    let mut file = File::open(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
    read(path, &mut file, layout, share)
}

/// The layout of a file with these tensors, and the bytes that it begins with.
pub(super) fn file_layout(tensors: &[NamedTensor]) -> (FileLayout, Vec<u8>) {
    let tensors = tensors.iter().map(|named| (named.name.clone(), named.tensor.shape.clone())).collect();
    // The note that PyTorch's own tools leave and look for.
    FileLayout::new(tensors, ("format", "pt".to_owned()))
}

/// Writes some of the parameters to their places in a file of this layout.
pub(super) fn write(
    file: &mut (impl Write + Seek),
    layout: &FileLayout,
    tensors: &[NamedTensor],
    share: &Share,
    values: &[f32],
) -> io::Result<()> {
    let places = layout.tensors();
    for NamedTensor { name, tensor, range } in tensors {
        runs::write(file, &places[name], tensor, &share.within(range), values)?;
    }
    Ok(())
}

fn read(
    path: &Path,
    file: &mut (impl Read + Seek),
    layout: &Layout,
    share: &Share,
) -> Result<Vec<f32>, CheckpointError> {
    let malformed = |problem: String| CheckpointError::malformed(path, problem);
    let unreadable = |source: io::Error| CheckpointError::Read { path: path.to_owned(), source };
    let file_layout = FileLayout::read(file).map_err(|error| match error {
        SafeTensorError::IoError(source) => unreadable(source),
        error => malformed(format!("not a whole safetensors file ({error}); copy it again, or use another checkpoint")),
    })?;
    let mut found = file_layout.tensors();
    let names: Vec<String> = found.keys().cloned().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sums = FileChecksums::of(path)?;
    let mut values = vec![0.0; share.n_values];
    for NamedTensor { name, tensor, range } in layout.tensors() {
        let place = found.remove(name).or_else(|| found.remove(&format!("{PREFIX}{name}"))).ok_or_else(|| {
            let hint = nearest(name, &names).map_or(String::new(), |near| format!("; the nearest there is `{near}`"));
            malformed(format!("it has no tensor `{name}`{hint}; is it a checkpoint of another model?"))
        })?;
        if place.shape != tensor.shape {
            let problem = format!("`{name}` has the shape {:?} and should have {:?}", place.shape, tensor.shape);
            return Err(malformed(format!("{problem}; is it a checkpoint of another model?")));
        }
        if !runs::is_readable(place.dtype) {
            let problem = format!("`{name}` holds {:?}; f32, f64, f16 and bf16 can be read", place.dtype);
            return Err(malformed(problem));
        }
        let stretches = share.within(range);
        if let Some(sums) = sums.as_ref().filter(|_| !stretches.is_empty()) {
            sums.check(file, name, &place).map_err(unreadable)?.map_or(Ok(()), |problem| Err(malformed(problem)))?;
        }
        runs::read(file, &place, tensor, &stretches, &mut values).map_err(unreadable)?;
    }
    if let Some(name) = found.keys().find(|name| !IGNORED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))) {
        return Err(malformed(format!(
            "it has a tensor `{name}` that the model has no place for; is it of another model?"
        )));
    }
    Ok(values)
}
