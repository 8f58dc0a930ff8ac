//! The handshake: both sides prove that they hold the secret, say who they are, and agree to the link or say why not.
//!
//! Over TLS, certificates prove both. Without encryption, each side answers the other's challenge instead:
//!
//! ```text
//! both   hello (with a nonce)
//! both   proof: HMAC-SHA256(key from the secret, role, dialler's hello, listener's hello)     without TLS only
//! both   accepted, or refused and why
//! ```
//!
//! Nobody waits for the other before the first two, so all this takes two round trips after the connection stands.

use std::sync::Arc;

use aws_lc_rs::hmac;
use bytes::Bytes;
use nettorrent_swarm::wire::MAX_BODY_LEN;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Address;
use crate::connection::Connection;
use crate::frames::{FrameReader, write_frame};
use crate::hello::{Answer, Hello, MAX_HELLO_LEN, NoHello, Purpose, VERSION, looks_like_tls};
use crate::identity::{Identity, fingerprint};
use crate::limits::Limits;
use crate::refusal::{HandshakeError, Refusal};
use crate::role::Role;
use crate::shaper::Shapers;
use crate::shared_folder::SharedFolder;
use crate::sharing::Sharing;
use crate::ticket::random_bytes;
use crate::tls::secure;
use crate::transport::{BoxRead, BoxWrite};
use crate::wire::{Wire, shut_down_gracefully};

use nettorrent_swarm::view::PeerId;

/// Whether links are encrypted. All of a swarm must hold it alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// TLS 1.3.
    #[default]
    On,
    /// Nothing: for a network that one trusts, where every bit of the processor counts. Who holds no secret is still kept
    /// out, but whoever can change packets on their way can change what peers say.
    Off,
}

/// What this side says in a handshake, and what it insists on.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Who we are.
    pub identity: Identity,
    /// What we want.
    pub purpose: Purpose,
    /// Whether to encrypt.
    pub encryption: Encryption,
    /// How long it may take, among others.
    pub limits: Limits,
    /// Who must be at the other end, if that matters.
    pub expected: Option<PeerId>,
    /// Where large bodies go, if the other side has the same directory.
    pub folder: Option<Arc<SharedFolder>>,
}

impl Terms {
    /// Terms that expect nobody in particular, with encryption and usual limits.
    pub fn new(identity: Identity, purpose: Purpose) -> Self {
        Self { identity, purpose, encryption: Encryption::On, limits: Limits::default(), expected: None, folder: None }
    }
}

/// Makes a connection out of a wire. `judge` has the last word about whoever has passed all other checks.
pub async fn shake(
    wire: Wire,
    role: Role,
    terms: &Terms,
    judge: impl FnOnce(&Hello) -> Result<(), Refusal>,
) -> Result<Connection, HandshakeError> {
    let deadline = terms.limits.handshake;
    match tokio::time::timeout(deadline, shake_hands(wire, role, terms, judge)).await {
        Ok(result) => result,
        Err(_) => Err(HandshakeError::Deadline(deadline)),
    }
}

async fn shake_hands(
    wire: Wire,
    role: Role,
    terms: &Terms,
    judge: impl FnOnce(&Hello) -> Result<(), Refusal>,
) -> Result<Connection, HandshakeError> {
    let (address, count) = (wire.address.clone(), wire.count.clone());
    let (mut reader, mut writer, result): (FrameReader<BoxRead>, BoxWrite, _) = match terms.encryption {
        Encryption::On => {
            let secured = secure(wire, role, &terms.identity).await?;
            let (mut reader, mut writer) = (FrameReader::new(secured.read), secured.write);
            let talk = Talk { role, terms, address: &address, proven: Some(secured.fingerprint) };
            let result = talk.talk(&mut reader, &mut writer, judge).await;
            (reader, writer, result)
        }
        Encryption::Off => {
            let (mut reader, mut writer) = (FrameReader::new(wire.read), wire.write);
            let talk = Talk { role, terms, address: &address, proven: None };
            let mut result = talk.talk(&mut reader, &mut writer, judge).await;
            if result.is_err() && looks_like_tls(reader.source().first()) {
                result = Err(HandshakeError::MixedEncryption);
            }
            (reader.map_source(|read| Box::new(read) as BoxRead), Box::new(writer), result)
        }
    };
    match result {
        Ok(hello) => {
            reader.set_max_body_len(MAX_BODY_LEN);
            let sharing = terms.folder.clone().zip(hello.token);
            Ok(Connection {
                sharing: sharing.map(|(folder, token)| Sharing::new(folder, hello.peer, token)),
                hello,
                role,
                address,
                reader,
                writer,
                count,
                limits: terms.limits,
                shapers: Shapers::default(),
                slot: None,
            })
        }
        Err(error) => {
            shut_down_gracefully(reader.source(), &mut writer).await;
            Err(error)
        }
    }
}

/// One conversation.
struct Talk<'a> {
    role: Role,
    terms: &'a Terms,
    address: &'a Address,
    // The fingerprint of the key that TLS has seen.
    proven: Option<u64>,
}

impl Talk<'_> {
    async fn talk(
        &self,
        reader: &mut FrameReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        judge: impl FnOnce(&Hello) -> Result<(), Refusal>,
    ) -> Result<Hello, HandshakeError> {
        reader.set_max_body_len(MAX_HELLO_LEN);
        let our_frame = self.hello().to_frame();
        say(writer, our_frame.clone()).await?;
        let their_frame = reader.next().await?;
        let theirs = match Hello::from_frame(&their_frame) {
            Ok(theirs) => theirs,
            Err(NoHello::Version(theirs)) => {
                return refuse(writer, Refusal::WrongVersion { ours: VERSION, theirs }).await;
            }
            Err(NoHello::Malformed) => return Err(HandshakeError::NotNetTorrent),
        };
        let ours = self.terms.identity.swarm();
        if theirs.swarm != ours {
            return refuse(writer, Refusal::WrongSwarm { ours, theirs: theirs.swarm }).await;
        }
        if self.proven.is_none() {
            self.exchange_proofs(reader, writer, our_frame.body, their_frame.body).await?;
        }
        if let Err(refusal) = self.check(&theirs).and_then(|()| judge(&theirs)) {
            return refuse(writer, refusal).await;
        }
        say(writer, Answer::Accepted.to_frame()).await?;
        match answer(reader).await? {
            Answer::Accepted => Ok(theirs),
            Answer::Proof(_) | Answer::Refused(_) => Err(HandshakeError::NotNetTorrent),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            swarm: self.terms.identity.swarm(),
            peer: self.terms.identity.peer,
            purpose: self.terms.purpose,
            seen: self.address.clone(),
            nonce: random_bytes(),
            token: self.terms.folder.as_ref().map(|folder| folder.token()),
        }
    }

    async fn exchange_proofs(
        &self,
        reader: &mut FrameReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        our_hello: Bytes,
        their_hello: Bytes,
    ) -> Result<(), HandshakeError> {
        let (other_role, hellos) = match self.role {
            Role::Dialler => (Role::Listener, [our_hello, their_hello]),
            Role::Listener => (Role::Dialler, [their_hello, our_hello]),
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.terms.identity.secret.derive::<32>("plain handshake"));
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&key, &transcript(self.role, &hellos)).as_ref());
        say(writer, Answer::Proof(proof).to_frame()).await?;
        let Answer::Proof(their_proof) = answer(reader).await? else {
            return Err(HandshakeError::NotNetTorrent);
        };
        match hmac::verify(&key, &transcript(other_role, &hellos), &their_proof) {
            Ok(()) => Ok(()),
            Err(_) => refuse(writer, Refusal::WrongSecret).await,
        }
    }

    /// What everyone insists on.
    fn check(&self, theirs: &Hello) -> Result<(), Refusal> {
        let own = self.terms.identity.peer;
        if fingerprint(theirs.peer) == fingerprint(own) {
            return Err(Refusal::Oneself);
        }
        if self.proven.is_some_and(|proven| proven != fingerprint(theirs.peer)) {
            return Err(Refusal::WrongKey { claimed: theirs.peer });
        }
        if let Some(expected) = self.terms.expected.filter(|expected| *expected != theirs.peer) {
            return Err(Refusal::WrongPeer { expected, found: theirs.peer });
        }
        match (self.terms.purpose.job(), theirs.purpose.job()) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(Refusal::WrongJob { ours, theirs }),
            _ => Ok(()),
        }
    }
}

/// What a proof is about. The role keeps a proof from being sent back to who made it, and the first hello's length keeps
/// the two hellos apart.
fn transcript(role: Role, [dialler, listener]: &[Bytes; 2]) -> Vec<u8> {
    let role = match role {
        Role::Dialler => &b"dialler"[..],
        Role::Listener => &b"listener"[..],
    };
    [role, &(dialler.len() as u64).to_le_bytes(), dialler, listener].concat()
}

async fn say(
    writer: &mut (impl AsyncWrite + Unpin),
    frame: nettorrent_swarm::wire::Frame,
) -> Result<(), HandshakeError> {
    write_frame(writer, frame).await.map_err(HandshakeError::from_stream)
}

async fn answer(reader: &mut FrameReader<impl AsyncRead + Unpin>) -> Result<Answer, HandshakeError> {
    let frame = reader.next().await?;
    match Answer::from_frame(&frame) {
        Some(Answer::Refused(refusal)) => Err(HandshakeError::RefusedByThem(refusal.mirrored())),
        Some(answer) => Ok(answer),
        None => Err(HandshakeError::NotNetTorrent),
    }
}

async fn refuse<T>(writer: &mut (impl AsyncWrite + Unpin), refusal: Refusal) -> Result<T, HandshakeError> {
    // If it does not get through, the other side has gone, and needs no reason any more.
    let _ = say(writer, Answer::Refused(refusal).to_frame()).await;
    Err(HandshakeError::Refused(refusal))
}

#[cfg(test)]
mod tests {
    use super::{Encryption, Terms, shake};
    use crate::frames::{FrameReader, write_frame};
    use crate::hello::{Answer, Hello, Purpose};
    use crate::identity::Identity;
    use crate::refusal::{HandshakeError, Refusal};
    use crate::role::Role;
    use crate::ticket::Secret;
    use crate::wire::Wire;
    use nettorrent_swarm::view::PeerId;
    use tokio::io::AsyncWriteExt;

    fn terms() -> Terms {
        let identity = Identity::new(&Secret::from_bytes([8; 32]), 0).unwrap();
        Terms { encryption: Encryption::Off, ..Terms::new(identity, Purpose::Observer) }
    }

    #[tokio::test]
    async fn knowing_the_swarms_name_is_not_enough_without_its_secret() {
        for role in [Role::Dialler, Role::Listener] {
            let (ours, theirs) = tokio::io::duplex(4096);
            let terms = terms();
            let impostor = async {
                let (read, mut write) = tokio::io::split(theirs);
                let mut reader = FrameReader::new(read);
                let hello = Hello::from_frame(&reader.next().await.unwrap()).unwrap();
                // It knows the name, has a key of its own, and sends back the proof that it gets.
                let hello = Hello { peer: PeerId::new(1, 99), ..hello };
                write_frame(&mut write, hello.to_frame()).await.unwrap();
                let proof = reader.next().await.unwrap();
                assert!(matches!(Answer::from_frame(&proof), Some(Answer::Proof(_))));
                write_frame(&mut write, proof).await.unwrap();
                let answer = Answer::from_frame(&reader.next().await.unwrap());
                write.shutdown().await.unwrap();
                answer
            };
            let (result, told) = tokio::join!(shake(Wire::from(ours), role, &terms, |_| Ok(())), impostor);
            assert!(matches!(result, Err(HandshakeError::Refused(Refusal::WrongSecret))), "{result:?}");
            assert_eq!(told, Some(Answer::Refused(Refusal::WrongSecret)));
        }
    }

    #[tokio::test]
    async fn both_can_refuse_by_their_own_judgement() {
        let (one, other) = tokio::io::duplex(4096);
        let no = |_: &Hello| Err(Refusal::TooMany { most: 3 });
        let (dialler, listener) = (terms(), terms());
        let (one, other) = tokio::join!(
            shake(Wire::from(one), Role::Dialler, &dialler, |_| Ok(())),
            shake(Wire::from(other), Role::Listener, &listener, no),
        );
        assert!(matches!(one, Err(HandshakeError::RefusedByThem(Refusal::TooMany { most: 3 }))), "{one:?}");
        assert!(matches!(other, Err(HandshakeError::Refused(Refusal::TooMany { most: 3 }))), "{other:?}");
    }
}
