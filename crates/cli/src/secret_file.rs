//! A file with the secret that all peers of a swarm are given, from which each makes the ticket.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use nettorrent_net::ticket::Secret;
use zeroize::Zeroizing;

/// Secrets are far shorter.
const MAX_LEN: u64 = 64 << 10;

/// Reads the secret.
pub(crate) fn read_secret(path: &Path) -> anyhow::Result<Secret> {
    let shown = path.display();
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path).with_context(|| format!("cannot read the secret in {shown}"))?;
    file.take(MAX_LEN).read_to_string(&mut text).with_context(|| format!("cannot read the secret in {shown}"))?;
    Secret::from_text(&text).with_context(|| {
        format!("the secret in {shown} could be guessed: make one of at least 32 letters, with `head -c 32 /dev/urandom | base32` for example")
    })
}
