//! A cover for secrets on links that are not encrypted: what members tell newcomers and each other about keys is not for whoever
//! listens. Both sides make a key for each other (X25519) in their hellos, which they sign.

use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::hkdf;
use ring::rand::SystemRandom;

use crate::keys::sha256;
use crate::role::Role;
use crate::ticket::random_bytes;

const NONCE_LEN: usize = 12;

/// What one side contributes, before it knows the other's part.
pub(crate) struct Exchange {
    private: EphemeralPrivateKey,
    /// What the other side has to know.
    pub(crate) public: [u8; 32],
}

/// Hides bodies of frames from all but the two ends of a link.
pub(crate) struct Cover {
    key: LessSafeKey,
    role: Role,
}

impl Exchange {
    /// A fresh one; none if the system has no randomness.
    pub(crate) fn new() -> Option<Self> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// The cover of both; `said` is what both have said and signed, alike on both sides. None if the other's part is senseless.
    pub(crate) fn agree(self, theirs: &[u8; 32], said: &[u8], role: Role) -> Option<Cover> {
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let key = agree_ephemeral(self.private, &theirs, |shared| {
            let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &sha256(said)).extract(shared);
            let expanded = extracted.expand(&[b"nettorrent cover"], &AES_256_GCM).ok()?;
            Some(LessSafeKey::new(UnboundKey::from(expanded)))
        });
        key.ok().flatten().map(|key| Cover { key, role })
    }
}

impl Cover {
    /// The body as it travels.
    pub(crate) fn close(&self, body: &[u8]) -> Bytes {
        // So few go over a link that random nonces never meet.
        let nonce: [u8; NONCE_LEN] = random_bytes();
        let mut covered = body.to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), by(self.role), &mut covered)
            .expect("a body is far shorter than the cipher allows");
        [&nonce[..], &covered].concat().into()
    }

    /// The body as the other side wrote it; none if that is not what came.
    pub(crate) fn open(&self, covered: &[u8]) -> Option<Vec<u8>> {
        let (nonce, covered) = covered.split_first_chunk::<NONCE_LEN>()?;
        let other = match self.role {
            Role::Dialler => Role::Listener,
            Role::Listener => Role::Dialler,
        };
        let mut body = covered.to_vec();
        let n_bytes = self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), by(other), &mut body).ok()?.len();
        body.truncate(n_bytes);
        Some(body)
    }
}

/// Who has written it, so that nobody is told what it said itself.
fn by(role: Role) -> Aad<[u8; 1]> {
    Aad::from([u8::from(role == Role::Dialler)])
}

#[cfg(test)]
mod tests {
    use super::Exchange;
    use crate::role::Role;

    #[test]
    fn only_the_other_end_reads_what_is_covered() {
        let [dialler, listener, other] = [(), (), ()].map(|()| Exchange::new().unwrap());
        let (to_listener, to_dialler) = (listener.public, dialler.public);
        let stranger = other.agree(&to_dialler, b"hellos", Role::Listener).unwrap();
        let dialler = dialler.agree(&to_listener, b"hellos", Role::Dialler).unwrap();
        let listener = listener.agree(&to_dialler, b"hellos", Role::Listener).unwrap();
        let covered = dialler.close(b"a secret");
        assert!(!covered.windows(6).any(|window| window == b"secret"));
        assert_eq!(listener.open(&covered).as_deref(), Some(&b"a secret"[..]));
        assert_eq!(stranger.open(&covered), None);
        assert_eq!(dialler.open(&covered), None, "its own words");
        let mut changed = covered.to_vec();
        changed[15] ^= 1;
        assert_eq!(listener.open(&changed), None);
        assert_eq!(listener.open(b"short"), None);
    }

    #[test]
    fn who_has_heard_other_hellos_has_another_cover() {
        let [one, other] = [(), ()].map(|()| Exchange::new().unwrap());
        let (ours, theirs) = (one.public, other.public);
        let one = one.agree(&theirs, b"these", Role::Dialler).unwrap();
        let other = other.agree(&ours, b"those", Role::Listener).unwrap();
        assert_eq!(other.open(&one.close(b"a secret")), None);
        assert!(Exchange::new().unwrap().agree(&[0; 32], b"these", Role::Dialler).is_none());
    }
}
