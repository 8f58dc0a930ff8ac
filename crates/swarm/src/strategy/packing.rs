//! Parts of a message, several in one body: each after its length.

use bytes::{BufMut, Bytes, BytesMut};

use crate::malformed::Malformed;

/// Parts travel together until they are this long.
const PACK_LEN: usize = 1 << 16;
/// Bytes before each part.
pub(super) const LEN_LEN: usize = 4;

/// Parts together in as few bodies as they fit into.
pub(super) fn pack(parts: &[Bytes]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let mut frame = BytesMut::new();
    for part in parts {
        if !frame.is_empty() && frame.len() + LEN_LEN + part.len() > PACK_LEN {
            frames.push(frame.split().freeze());
        }
        frame.reserve(LEN_LEN + part.len());
        frame.put_u32_le(part.len() as u32);
        frame.put_slice(part);
    }
    // There is always one, if only to be heard.
    frames.push(frame.freeze());
    frames
}

/// Takes the next part off a body.
pub(super) fn next_part(body: &mut Bytes) -> Result<Bytes, Malformed> {
    let bad = || Malformed::new("what it tells of a batch ends too early");
    let len = u32::from_le_bytes(*body.first_chunk().ok_or_else(bad)?) as usize;
    if len > body.len() - LEN_LEN {
        return Err(bad());
    }
    let mut part = body.split_to(LEN_LEN + len);
    Ok(part.split_off(LEN_LEN))
}
