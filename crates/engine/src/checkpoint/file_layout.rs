//! Where the tensors of a safetensors file lie: its header, made for a file that is to be written or read from one that is there.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo};

use crate::model::n_values;

/// The header's own length comes first.
const LEN: usize = size_of::<u64>();
/// No header is longer, by the rules of the format.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A file's tensors and notes.
pub(super) struct FileLayout {
    metadata: Metadata,
    /// Where the header ends and the tensors begin.
    header_end: u64,
}

/// One tensor of a file.
pub(super) struct TensorPlace {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Where in the file its bytes begin, and how many they are.
    pub first: u64,
    /// See `first`.
    pub n_bytes: u64,
}

impl FileLayout {
    /// The layout of a file with these tensors of `f32`, by name and shape, and a note; and the bytes that it begins with.
    pub(super) fn new(mut tensors: Vec<(String, Vec<usize>)>, note: (&str, String)) -> (Self, Vec<u8>) {
        tensors.sort();
        let mut end = 0;
        let tensors = tensors.into_iter().map(|(name, shape)| {
            let start = end;
            end += size_of::<f32>() * n_values(&shape);
            (name, TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) })
        });
        let notes = [(note.0.to_owned(), note.1)].into_iter().collect();
        let metadata = Metadata::new(Some(notes), tensors.collect()).expect("the tensors follow one another");
        let mut text = serde_json::to_vec(&metadata).expect("names and numbers can be written");
        // The format wants the tensors to begin at a multiple of this.
        text.resize(text.len().next_multiple_of(LEN), b' ');
        let header = [(text.len() as u64).to_le_bytes().as_slice(), &text].concat();
        (Self { metadata, header_end: header.len() as u64 }, header)
    }

    /// Reads and checks the header of a file.
    pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Self, SafeTensorError> {
        let n_bytes = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let n_behind = n_bytes.checked_sub(LEN as u64).ok_or(SafeTensorError::HeaderTooSmall)?;
        let mut len = [0; LEN];
        file.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        if len > MOST_HEADER_BYTES {
            return Err(SafeTensorError::HeaderTooLarge);
        }
        if len > n_behind {
            return Err(SafeTensorError::InvalidHeaderLength);
        }
        let mut text = vec![0; len as usize];
        file.read_exact(&mut text)?;
        let metadata: Metadata =
            serde_json::from_slice(&text).map_err(SafeTensorError::InvalidHeaderDeserialization)?;
        if metadata.data_len() as u64 != n_behind - len {
            return Err(SafeTensorError::MetadataIncompleteBuffer);
        }
        Ok(Self { metadata, header_end: LEN as u64 + len })
    }

    /// Where the header ends and the tensors begin.
    pub(super) fn header_end(&self) -> u64 {
        self.header_end
    }

    /// How long the file is.
    pub(super) fn n_bytes(&self) -> u64 {
        self.header_end + self.metadata.data_len() as u64
    }

    /// Its tensors, by name.
    pub(super) fn tensors(&self) -> BTreeMap<String, TensorPlace> {
        let place = |info: &TensorInfo| TensorPlace {
            dtype: info.dtype,
            shape: info.shape.clone(),
            first: self.header_end + info.data_offsets.0 as u64,
            n_bytes: (info.data_offsets.1 - info.data_offsets.0) as u64,
        };
        self.metadata.tensors().into_iter().map(|(name, info)| (name, place(info))).collect()
    }

    /// One of its notes.
    pub(super) fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::FileLayout;
    use safetensors::tensor::{Dtype, TensorView};
    use std::io::Cursor;

    fn tensors() -> Vec<(String, Vec<usize>)> {
        let named = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec());
        vec![named("later", &[3]), named("fc.weight", &[2, 5]), named("fc.bias", &[2]), named("empty", &[0, 4])]
    }

    #[test]
    fn the_header_is_that_of_the_safetensors_library() {
        let zeros = [0; 4 * 10];
        for note in ["pt", "a longer note, \"quoted\""] {
            let tensors = tensors();
            let views = tensors.iter().map(|(name, shape)| {
                let n_bytes = 4 * shape.iter().product::<usize>();
                (name, TensorView::new(Dtype::F32, shape.clone(), &zeros[..n_bytes]).unwrap())
            });
            let notes = [("format".to_owned(), note.to_owned())].into_iter().collect();
            let theirs = safetensors::serialize(views, Some(notes)).unwrap();
            let (layout, mut ours) = FileLayout::new(tensors.clone(), ("format", note.to_owned()));
            ours.resize(layout.n_bytes() as usize, 0);
            assert_eq!(ours, theirs);
            let back = FileLayout::read(&mut Cursor::new(&ours)).unwrap();
            assert_eq!((back.n_bytes(), back.note("format")), (layout.n_bytes(), Some(note)));
            for ((name, place), (same, other)) in back.tensors().into_iter().zip(layout.tensors()) {
                assert_eq!((name, place.shape, place.first), (same, other.shape, other.first));
            }
        }
    }

    #[test]
    fn what_is_cut_too_long_or_nonsense_is_refused() {
        let (layout, mut whole) = FileLayout::new(tensors(), ("format", "pt".to_owned()));
        whole.resize(layout.n_bytes() as usize, 0);
        for len in 0..whole.len() {
            assert!(FileLayout::read(&mut Cursor::new(&whole[..len])).is_err(), "cut to {len} bytes");
        }
        for len in [u64::MAX, u64::MAX - 8, 1 << 40, 100_000_000, whole.len() as u64, 1, 0] {
            let bytes = [len.to_le_bytes().as_slice(), &whole[8..]].concat();
            assert!(FileLayout::read(&mut Cursor::new(bytes)).is_err(), "a header of {len} bytes");
        }
        whole.push(0);
        assert!(FileLayout::read(&mut Cursor::new(&whole)).is_err(), "a byte too long");
        // Tensors that overlap, leave a gap, or are longer than any file.
        for offsets in [
            "[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]",
            "[4,8]",
            "[0,18446744073709551612]",
        ] {
            let text = format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{offsets}}}}}");
            let bytes = [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes(), &[0; 8]].concat();
            assert!(FileLayout::read(&mut Cursor::new(bytes)).is_err(), "{text}");
        }
    }
}
