//! NumPy's files of one array.
//!
//! A file is `\x93NUMPY`, two bytes of version, the length of a header (two bytes, or four from version 2 on), the header as a
//! Python dictionary of `descr`, `fortran_order` and `shape`, and the values. The header is believed only after it has been
//! held against the real length of the file.

use std::path::Path;

use super::DataError;

const MAGIC: &[u8] = b"\x93NUMPY";
/// What to do about a file that is not whole.
const FETCH_AGAIN: &str = "it is damaged or was cut off: get it again";

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bool,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
}

/// All types by NumPy's name, sorted.
const TYPES: [(&str, Type); 10] = [
    ("<f4", Type::F32),
    ("<f8", Type::F64),
    ("<i2", Type::I16),
    ("<i4", Type::I32),
    ("<i8", Type::I64),
    ("<u2", Type::U16),
    ("<u4", Type::U32),
    ("|b1", Type::Bool),
    ("|i1", Type::I8),
    ("|u1", Type::U8),
];

impl Type {
    fn n_bytes(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// An array that lies in the bytes of a file.
#[derive(Debug, PartialEq)]
pub struct Array<'a> {
    /// The dimensions; the first is the number of samples.
    pub dimensions: Vec<usize>,
    kind: Type,
    values: &'a [u8],
}

/// Reads the bytes of one file; `path` is for the messages only.
pub fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Array<'a>, DataError> {
    try_parse(bytes).map_err(|problem| DataError::malformed(path, problem))
}

impl Array<'_> {
    /// Whether the values are whole numbers.
    pub fn is_whole(&self) -> bool {
        !matches!(self.kind, Type::F32 | Type::F64)
    }

    /// The values as they are if they are bytes.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (self.kind == Type::U8).then_some(self.values)
    }

    /// The values as floats. Fails where one is no number, or too large for one.
    pub fn floats(&self) -> Result<Vec<f32>, String> {
        let floats: Vec<f32> = match self.kind {
            Type::F32 => self.values.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            Type::F64 => self.values.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes) as f32).collect(),
            _ => self.whole().map(|number| number as f32).collect(),
        };
        match floats.iter().position(|value| !value.is_finite()) {
            Some(at) => {
                Err(format!("value {at} is {}, which is not a number; fill it in or remove its sample", floats[at]))
            }
            None => Ok(floats),
        }
    }

    /// The values, which must be whole numbers.
    pub(crate) fn whole(&self) -> Box<dyn Iterator<Item = i64> + '_> {
        match self.kind {
            Type::Bool | Type::U8 => Box::new(self.values.iter().map(|&byte| i64::from(byte))),
            Type::I8 => Box::new(self.values.iter().map(|&byte| i64::from(byte.cast_signed()))),
            Type::I16 => Box::new(self.values.as_chunks().0.iter().map(|&bytes| i64::from(i16::from_le_bytes(bytes)))),
            Type::U16 => Box::new(self.values.as_chunks().0.iter().map(|&bytes| i64::from(u16::from_le_bytes(bytes)))),
            Type::I32 => Box::new(self.values.as_chunks().0.iter().map(|&bytes| i64::from(i32::from_le_bytes(bytes)))),
            Type::U32 => Box::new(self.values.as_chunks().0.iter().map(|&bytes| i64::from(u32::from_le_bytes(bytes)))),
            Type::I64 => Box::new(self.values.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes))),
            Type::F32 | Type::F64 => Box::new(std::iter::empty()),
        }
    }
}

fn try_parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err("is no file of NumPy: it does not begin as one; save the array again with numpy.save".to_owned());
    };
    let cut_off = || format!("ends within its header; {FETCH_AGAIN}");
    let (&[major, _], rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
    let (header_len, rest) = match major {
        1 => rest.split_first_chunk().map(|(&len, rest)| (usize::from(u16::from_le_bytes(len)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(&len, rest)| (u32::from_le_bytes(len) as usize, rest)),
        _ => return Err(format!("is of version {major} of NumPy's format; 1 to 3 are understood")),
    }
    .ok_or_else(cut_off)?;
    let (header, values) = rest.split_at_checked(header_len).ok_or_else(cut_off)?;
    let header = str::from_utf8(header).map_err(|_| format!("has a header that is no text; {FETCH_AGAIN}"))?;
    let kind = kind(header)?;
    if entry(header, "fortran_order").is_none_or(|order| !order.starts_with("False")) {
        let problem =
            "is in Fortran order, column by column; save it with numpy.save(…, numpy.ascontiguousarray(array))";
        return Err(problem.to_owned());
    }
    let dimensions = dimensions(header).ok_or_else(|| format!("has a header without a shape: {header:?}"))?;
    let n_values = dimensions.iter().try_fold(1_usize, |product, &n| product.checked_mul(n));
    if n_values.and_then(|n| n.checked_mul(kind.n_bytes())) != Some(values.len()) {
        let (n_bytes, each) = (values.len(), kind.n_bytes());
        return Err(format!(
            "claims {dimensions:?} values of {each} bytes, and holds {n_bytes} bytes of them; {FETCH_AGAIN}"
        ));
    }
    if values.is_empty() {
        return Err(format!("holds no values: its dimensions are {dimensions:?}"));
    }
    Ok(Array { dimensions, kind, values })
}

/// What stands behind a name in the header.
fn entry<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = header.split_once(&format!("'{name}'"))?;
    Some(after.trim_start().strip_prefix(':')?.trim_start())
}

fn kind(header: &str) -> Result<Type, String> {
    let known = || TYPES.map(|(name, _)| name).join(", ");
    let quoted = entry(header, "descr").and_then(|text| text.strip_prefix('\''));
    let Some((name, _)) = quoted.and_then(|text| text.split_once('\'')) else {
        return Err(format!("has no simple type of values; known: {}", known()));
    };
    let found = TYPES.iter().find(|(known, _)| *known == name);
    found.map(|&(_, kind)| kind).ok_or_else(|| {
        format!("has values of type `{name}`; known: {}. Save it again with array.astype(\"float32\")", known())
    })
}

fn dimensions(header: &str) -> Option<Vec<usize>> {
    let (inside, _) = entry(header, "shape")?.strip_prefix('(')?.split_once(')')?;
    let numbers = inside.split(',').map(str::trim).filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::{Array, TYPES, parse};
    use crate::rng::Rng;

    /// A file with this type, shape and values.
    pub(crate) fn file(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        written(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"), values)
    }

    fn written(header: &str, values: &[u8]) -> Vec<u8> {
        [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
    }

    fn problem(bytes: &[u8]) -> String {
        parse(Path::new("x.npy"), bytes).unwrap_err().to_string()
    }

    #[test]
    fn every_type_is_read() {
        let floats = |array: Array<'_>| array.floats().unwrap();
        let read = |descr: &str, bytes: &[u8]| floats(parse(Path::new("x"), &file(descr, "(2,)", bytes)).unwrap());
        assert_eq!(read("<f4", &[1.5_f32, -2.0].map(f32::to_le_bytes).concat()), [1.5, -2.0]);
        assert_eq!(read("<f8", &[1.5_f64, -2.0].map(f64::to_le_bytes).concat()), [1.5, -2.0]);
        assert_eq!(read("<i8", &[7_i64, -2].map(i64::to_le_bytes).concat()), [7.0, -2.0]);
        assert_eq!(read("<i4", &[7_i32, -2].map(i32::to_le_bytes).concat()), [7.0, -2.0]);
        assert_eq!(read("<u4", &[7_u32, 2].map(u32::to_le_bytes).concat()), [7.0, 2.0]);
        assert_eq!(read("<i2", &[7_i16, -2].map(i16::to_le_bytes).concat()), [7.0, -2.0]);
        assert_eq!(read("<u2", &[7_u16, 2].map(u16::to_le_bytes).concat()), [7.0, 2.0]);
        assert_eq!(
            (read("|u1", &[7, 255]), read("|i1", &[7, 255]), read("|b1", &[1, 0])),
            (vec![7.0, 255.0], vec![7.0, -1.0], vec![1.0, 0.0])
        );
        assert!(TYPES.is_sorted_by_key(|(name, _)| name));
        let second = [b"\x93NUMPY\x02\0", &54_u32.to_le_bytes()[..], &file("|u1", "(1, 2)", &[3, 4])[10..]].concat();
        let len = second.len() - 2 - 12;
        let second = [&second[..8], &(len as u32).to_le_bytes()[..], &second[12..]].concat();
        assert_eq!(parse(Path::new("x"), &second).unwrap().dimensions, [1, 2]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let whole = file("<f4", "(1,)", &[0; 4]);
        assert!(problem(b"PK\x03\x04").contains("x.npy: is no file of NumPy"));
        assert!(problem(b"").contains("is no file of NumPy"));
        for len in 6..whole.len() - 4 {
            assert!(problem(&whole[..len]).contains("ends within its header"), "{len}");
        }
        assert!(problem(&whole[..whole.len() - 1]).contains("holds 3 bytes of them"));
        assert!(problem(&file("<f4", "(4611686018427387904, 4)", &[0; 4])).contains("claims [4611686018427387904, 4]"));
        assert!(problem(&file("<f4", "(0, 3)", &[])).contains("holds no values"));
        assert!(problem(&file(">f4", "(1,)", &[0; 4])).contains("type `>f4`; known: <f4"));
        assert!(problem(&file("|O", "(1,)", &[0; 4])).contains("type `|O`"));
        assert!(problem(&file("<f4", "[1]", &[0; 4])).contains("without a shape"));
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }";
        assert!(problem(&written(fortran, &[0; 4])).contains("Fortran order"));
        let infinite = file("<f4", "(2,)", &[1.0, f32::INFINITY].map(f32::to_le_bytes).concat());
        let error = parse(Path::new("x"), &infinite).unwrap().floats().unwrap_err();
        assert!(error.contains("value 1 is inf"), "{error}");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = file("<i4", "(2, 3)", &[7; 24]);
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let mut bytes = whole.clone();
            for _ in 0..rng.below(6) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() * 2) + 1);
            if let Ok(array) = parse(Path::new("x"), &bytes) {
                let n_values: usize = array.dimensions.iter().product();
                assert!(array.floats().is_err() || array.floats().unwrap().len() == n_values, "seed {seed}");
            }
        }
    }
}
