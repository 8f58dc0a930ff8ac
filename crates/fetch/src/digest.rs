//! The SHA-256 of a file, read in pieces.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};

const N_BYTES_A_PIECE: usize = 1 << 18;

/// The digest in lower-case hexadecimal digits. What is hashed is what is on the disk, so bytes
/// kept from an earlier try are covered like those that just came.
pub(crate) fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Context::new(&SHA256);
    let mut piece = vec![0; N_BYTES_A_PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(HEXLOWER.encode(hasher.finish().as_ref())),
            Ok(n_bytes) => hasher.update(&piece[..n_bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sha256_of_file;

    #[test]
    fn the_standard_example_hashes_as_the_standard_says() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "abc").expect("written");
        let found = sha256_of_file(file.path()).expect("readable");
        assert_eq!(found, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
