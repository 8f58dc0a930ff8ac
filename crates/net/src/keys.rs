//! Ed25519 keys: what members, swarms and their owners are known by and sign with.

use std::fmt;

use data_encoding::HEXLOWER;
use nettorrent_swarm::view::PeerId;
use ring::digest;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The bytes from which a private key is made.
pub(crate) type Seed = Zeroizing<[u8; 32]>;

/// What stands before an Ed25519 key where it is written as a `SubjectPublicKeyInfo` (RFC 8410).
const INFO: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// What stands before an Ed25519 seed where it is written as a `PrivateKeyInfo` (RFC 8410).
const PRIVATE_INFO: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A public key. A member is whoever holds the private key that belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(pub(crate) [u8; 32]);

impl PublicKey {
    /// What people compare: half of the key's SHA-256, which nobody can imitate.
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(&self.digest()[..16])
    }

    /// The name of a peer with this key with this join index. The name has room for a part of the key only, so it is good for order and
    /// for people; whoever has to know who is there compares keys.
    pub(crate) fn named(&self, join_index: u32) -> PeerId {
        let low = self.digest().last_chunk::<8>().map_or(0, |low| u64::from_be_bytes(*low));
        PeerId::new(join_index, low)
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        sha256(&self.0)
    }

    /// Whether the key's holder has signed this; `what` keeps signatures for one purpose from being used for another.
    pub(crate) fn has_signed(&self, what: &str, message: &impl Serialize, signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(&to_sign(what, message), &signature.to_bytes()).is_ok()
    }

    /// As TLS writes it.
    pub(crate) fn to_info(self) -> Vec<u8> {
        [&INFO[..], &self.0].concat()
    }

    /// As TLS writes it; none if it is a key of another kind.
    pub(crate) fn from_info(info: &[u8]) -> Option<Self> {
        info.strip_prefix(&INFO)?.try_into().ok().map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A signature.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature([u8; 32], [u8; 32]);

impl Signature {
    fn from_bytes(bytes: &[u8]) -> Self {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        first.copy_from_slice(&bytes[..32]);
        second.copy_from_slice(&bytes[32..]);
        Self(first, second)
    }

    fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&self.0);
        bytes[32..].copy_from_slice(&self.1);
        bytes
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({}…)", HEXLOWER.encode(&self.0[..4]))
    }
}

/// A private key. Its seed is overwritten when it is dropped.
pub(crate) struct PrivateKey {
    seed: Seed,
    pair: Ed25519KeyPair,
}

impl PrivateKey {
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are the seed of a key");
        Self { seed: Zeroizing::new(*seed), pair }
    }

    pub(crate) fn seed(&self) -> &Seed {
        &self.seed
    }

    pub(crate) fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(key)
    }

    pub(crate) fn sign(&self, what: &str, message: &impl Serialize) -> Signature {
        Signature::from_bytes(self.pair.sign(&to_sign(what, message)).as_ref())
    }

    /// As TLS reads it.
    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from([&PRIVATE_INFO[..], &*self.seed].concat()))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(not shown, of {})", self.public())
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

fn to_sign(what: &str, message: &impl Serialize) -> Vec<u8> {
    let start = format!("nettorrent {what}\0").into_bytes();
    postcard::to_extend(message, start).expect("plain data can be written")
}

#[cfg(test)]
mod tests {
    use super::{PrivateKey, PublicKey};

    #[test]
    fn a_signature_is_good_for_one_key_one_purpose_and_one_message() {
        let (key, other) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
        let signature = key.sign("test", &7_u32);
        assert!(key.public().has_signed("test", &7_u32, &signature));
        assert!(!key.public().has_signed("test", &8_u32, &signature));
        assert!(!key.public().has_signed("rest", &7_u32, &signature));
        assert!(!other.public().has_signed("test", &7_u32, &signature));
    }

    #[test]
    fn keys_go_through_tls_as_they_were() {
        let key = PrivateKey::from_seed(&[1; 32]).public();
        assert_eq!(PublicKey::from_info(&key.to_info()), Some(key));
        assert_eq!(PublicKey::from_info(&key.to_info()[1..]), None);
        assert_eq!(PublicKey::from_info(&[key.to_info(), vec![0]].concat()), None);
    }

    #[test]
    fn a_private_key_is_never_shown() {
        let shown = format!("{:?}", PrivateKey::from_seed(&[0x61; 32]));
        assert!(!shown.contains("6161") && !shown.contains("97, 97"), "{shown}");
    }
}
