//! Sizes on the command line.

use bytesize::ByteSize;

/// A number of bytes, as people write it.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let size: Option<ByteSize> = text.trim().parse().ok();
    let size = size.map(|size| size.as_u64()).filter(|size| *size > 0);
    size.ok_or_else(|| "not a size: write a number and kB, MB or GB, for example 2GB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes =
            [("2GB", 2_000_000_000), ("2G", 2_000_000_000), ("1.5 MB", 1_500_000), ("4gib", 4 << 30), ("12 b", 12)];
        for (text, bytes) in sizes {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-1GB", "nanGB", "infMB", "2X", "0B"] {
            assert!(size(text).unwrap_err().contains("for example 2GB"), "{text}");
        }
    }
}
