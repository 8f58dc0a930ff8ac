//! The handshake: both sides say who they are, prove it, and agree to the link or say why not.
//!
//! ```text
//! both   hello: a key, a nonce; a member's certificate
//! both   proof: the key's signature of (role, dialler's hello, listener's hello);
//!               of who is no member also HMAC-SHA256 of the same, with a key from the ticket's secret
//! both   accepted, or refused and why
//! ```
//!
//! Without TLS the hellos also make a key for what must not be heard by others (`cover.rs`). Over TLS the key in the hello has to be
//! the one that TLS has proven, so nobody can stand in between. Nobody waits for the other before its hello, so all this takes
//! two and a half round trips after the connection stands.

use std::sync::Arc;

use bytes::Bytes;
use nettorrent_swarm::wire::MAX_BODY_LEN;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Address;
use crate::connection::Connection;
use crate::cover::{Cover, Exchange};
use crate::frames::{FrameReader, write_frame};
use crate::hello::{Answer, Hello, MAX_HELLO_LEN, NoHello, Purpose, VERSION, looks_like_tls};
use crate::identity::{Identity, has_signed};
use crate::keys::PublicKey;
use crate::limits::Limits;
use crate::refusal::{HandshakeError, Refusal};
use crate::role::Role;
use crate::shaper::Shapers;
use crate::shared_folder::SharedFolder;
use crate::sharing::Sharing;
use crate::ticket::random_bytes;
use crate::tls::secure;
use crate::transport::{BoxRead, BoxWrite};
use crate::trust_store::NO_JOIN_INDEX;
use crate::wire::{Wire, shut_down_gracefully};

use nettorrent_swarm::view::PeerId;

/// Whether links are encrypted. All of a swarm must hold it alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// TLS 1.3.
    #[default]
    On,
    /// Nothing: for a network that one trusts, where every bit of the processor counts. Who is no member and holds no ticket is
    /// still kept out and learns no secret, but whoever can change packets on their way can change what peers say.
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
    let (address, count, route) = (wire.address.clone(), wire.count.clone(), wire.route.clone());
    let (mut reader, mut writer, result): (FrameReader<BoxRead>, BoxWrite, _) = match terms.encryption {
        Encryption::On => {
            let secured = secure(wire, role, &terms.identity.tls).await?;
            let (mut reader, mut writer) = (FrameReader::new(secured.read), secured.write);
            let talk = Talk { role, terms, address: &address, proven: Some(secured.key) };
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
        Ok((hello, cover)) => {
            reader.set_max_body_len(MAX_BODY_LEN);
            let sharing = terms.folder.clone().zip(hello.token);
            Ok(Connection {
                sharing: sharing.map(|(folder, token)| Sharing::new(folder, hello.peer, token)),
                hello,
                cover,
                role,
                address,
                route,
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
    // The key that TLS has seen.
    proven: Option<PublicKey>,
}

impl Talk<'_> {
    async fn talk(
        &self,
        reader: &mut FrameReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        judge: impl FnOnce(&Hello) -> Result<(), Refusal>,
    ) -> Result<(Hello, Option<Cover>), HandshakeError> {
        reader.set_max_body_len(MAX_HELLO_LEN);
        let exchange = if self.proven.is_none() { Exchange::new() } else { None };
        let our_frame = self.hello(exchange.as_ref()).to_frame();
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
        if self.proven.is_some_and(|proven| proven != theirs.key) {
            return refuse(writer, Refusal::WrongKey { claimed: theirs.peer }).await;
        }
        let hellos = match self.role {
            Role::Dialler => [our_frame.body, their_frame.body],
            Role::Listener => [their_frame.body, our_frame.body],
        };
        self.exchange_proofs(reader, writer, &theirs, &hellos).await?;
        let cover = match exchange {
            None => None,
            Some(exchange) => {
                let said = transcript(Role::Dialler, &hellos);
                let cover = theirs.exchange.and_then(|theirs| exchange.agree(&theirs, &said, self.role));
                Some(cover.ok_or(HandshakeError::NotNetTorrent)?)
            }
        };
        if let Err(refusal) = self.check(&theirs).and_then(|()| judge(&theirs)) {
            return refuse(writer, refusal).await;
        }
        say(writer, Answer::Accepted.to_frame()).await?;
        match answer(reader).await {
            // Who says that our certificate is of earlier keys has to show later ones.
            Err(HandshakeError::RefusedByThem(Refusal::Outdated)) if !self.shows_later_keys(&theirs) => {
                Err(HandshakeError::HungUp)
            }
            Err(error) => Err(error),
            Ok(Answer::Accepted) => {
                theirs.pass.iter().for_each(|pass| self.terms.identity.meet(pass));
                Ok((theirs, cover))
            }
            Ok(Answer::Proof { .. } | Answer::Refused(_)) => Err(HandshakeError::NotNetTorrent),
        }
    }

    fn shows_later_keys(&self, theirs: &Hello) -> bool {
        let own = self.terms.identity.trust_store().map(|trust_store| trust_store.pass());
        own.zip(theirs.pass.as_ref()).is_some_and(|(own, theirs)| theirs.head.rank() > own.head.rank())
    }

    fn hello(&self, exchange: Option<&Exchange>) -> Hello {
        let identity = &self.terms.identity;
        Hello {
            swarm: identity.swarm(),
            key: identity.key(),
            peer: identity.peer,
            pass: identity.trust_store().map(|trust_store| trust_store.pass()),
            purpose: self.terms.purpose,
            seen: self.address.clone(),
            nonce: random_bytes(),
            exchange: exchange.map(|exchange| exchange.public),
            token: self.terms.folder.as_ref().map(|folder| folder.token()),
        }
    }

    async fn exchange_proofs(
        &self,
        reader: &mut FrameReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        theirs: &Hello,
        hellos: &[Bytes; 2],
    ) -> Result<(), HandshakeError> {
        let identity = &self.terms.identity;
        let other_role = match self.role {
            Role::Dialler => Role::Listener,
            Role::Listener => Role::Dialler,
        };
        let said = transcript(self.role, hellos);
        let ticket = identity.trust_store().is_none().then(|| identity.authenticate(&said));
        say(writer, Answer::Proof { signature: identity.sign(&said), ticket }.to_frame()).await?;
        let Answer::Proof { signature, ticket } = answer(reader).await? else {
            return Err(HandshakeError::NotNetTorrent);
        };
        let heard = transcript(other_role, hellos);
        if !has_signed(&theirs.key, &heard, &signature) {
            return refuse(writer, Refusal::WrongKey { claimed: theirs.peer }).await;
        }
        let knows_ticket = || ticket.is_some_and(|code| identity.is_authentic(&heard, &code));
        if theirs.pass.is_none() && !knows_ticket() {
            return refuse(writer, Refusal::WrongTicket).await;
        }
        Ok(())
    }

    /// What everyone insists on.
    fn check(&self, theirs: &Hello) -> Result<(), Refusal> {
        let identity = &self.terms.identity;
        if theirs.key == identity.key() {
            return Err(Refusal::Oneself);
        }
        let join_index = theirs.pass.as_ref().map_or(NO_JOIN_INDEX, |pass| pass.certificate.join_index());
        let is_own = theirs.pass.as_ref().is_none_or(|pass| *pass.certificate.key() == theirs.key);
        if theirs.peer != theirs.key.named(join_index) || !is_own {
            return Err(Refusal::WrongKey { claimed: theirs.peer });
        }
        match &theirs.pass {
            Some(pass) => identity.recognise(pass)?,
            // Two who are no members have nothing to tell each other.
            None if identity.trust_store().is_none() || matches!(theirs.purpose, Purpose::Peer { .. }) => {
                return Err(Refusal::NoMember);
            }
            None => {}
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
    use crate::connection::Connection;
    use crate::founder::Founder;
    use crate::frames::{FrameReader, write_frame};
    use crate::hello::{Answer, Hello, Purpose};
    use crate::identity::Identity;
    use crate::policy::TicketLimits;
    use crate::refusal::{HandshakeError, Refusal};
    use crate::role::Role;
    use crate::ticket::Secret;
    use crate::wire::Wire;
    use tokio::io::AsyncWriteExt;

    fn plain(identity: Identity, purpose: Purpose) -> Terms {
        Terms { encryption: Encryption::Off, ..Terms::new(identity, purpose) }
    }

    fn founder() -> Founder {
        Founder::from_secret(&Secret::from_bytes([8; 32]))
    }

    const PEER: Purpose = Purpose::Peer { generation: 0, job: [0; 32] };

    #[tokio::test]
    async fn a_members_certificate_is_of_no_use_without_its_key() {
        for role in [Role::Dialler, Role::Listener] {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (terms, stolen) = (plain(founder().member(0).unwrap(), PEER), founder().member(1).unwrap());
            let impostor = async {
                let (read, mut write) = tokio::io::split(theirs);
                let mut reader = FrameReader::new(read);
                let hello = Hello::from_frame(&reader.next().await.unwrap()).unwrap();
                // It shows another's certificate and key, and sends back the proof that it gets.
                let pass = stolen.trust_store().map(|trust_store| trust_store.pass());
                let hello = Hello { peer: stolen.peer, key: stolen.key(), pass, ..hello };
                write_frame(&mut write, hello.to_frame()).await.unwrap();
                let proof = reader.next().await.unwrap();
                assert!(matches!(Answer::from_frame(&proof), Some(Answer::Proof { .. })));
                write_frame(&mut write, proof).await.unwrap();
                let answer = Answer::from_frame(&reader.next().await.unwrap());
                write.shutdown().await.unwrap();
                answer
            };
            let (result, told) = tokio::join!(shake(Wire::from(ours), role, &terms, |_| Ok(())), impostor);
            let refusal = Refusal::WrongKey { claimed: stolen.peer };
            assert!(matches!(result, Err(HandshakeError::Refused(given)) if given == refusal), "{result:?}");
            assert_eq!(told, Some(Answer::Refused(refusal)));
        }
    }

    async fn meet(dialler: &Terms, listener: &Terms) -> [Result<Connection, HandshakeError>; 2] {
        let (one, other) = tokio::io::duplex(4096);
        let (one, other) = tokio::join!(
            shake(Wire::from(one), Role::Dialler, dialler, |_| Ok(())),
            shake(Wire::from(other), Role::Listener, listener, |_| Ok(())),
        );
        [one, other]
    }

    #[tokio::test]
    async fn a_ticket_lets_one_ask_but_not_take_part() {
        let member = plain(founder().member(0).unwrap(), PEER);
        let visitor = |purpose| plain(founder().visitor(0).unwrap(), purpose);
        for purpose in [Purpose::Observer, Purpose::Joiner { job: None }] {
            let [one, other] = meet(&visitor(purpose), &member).await;
            assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
        }
        let [one, other] = meet(&visitor(PEER), &member).await;
        assert!(matches!(one, Err(HandshakeError::RefusedByThem(Refusal::NoMember))), "{one:?}");
        assert!(matches!(other, Err(HandshakeError::Refused(Refusal::NoMember))), "{other:?}");
        let [one, _] = meet(&visitor(Purpose::Observer), &visitor(Purpose::Observer)).await;
        assert!(one.is_err(), "two visitors");
    }

    #[tokio::test]
    async fn who_does_not_know_the_tickets_secret_may_not_ask() {
        let mut ticket = founder().ticket(Vec::new());
        ticket.secret = Secret::random();
        let guesser = plain(Identity::visitor(&ticket).unwrap(), Purpose::Observer);
        let [one, other] = meet(&guesser, &plain(founder().member(0).unwrap(), PEER)).await;
        assert!(matches!(one, Err(HandshakeError::RefusedByThem(Refusal::WrongTicket))), "{one:?}");
        assert!(matches!(other, Err(HandshakeError::Refused(Refusal::WrongTicket))), "{other:?}");
    }

    #[tokio::test]
    async fn a_swarm_with_another_owner_is_none_of_a_tickets_whatever_it_says() {
        let impostor = plain(Founder::new(TicketLimits::default()).member(0).unwrap(), PEER);
        let [one, other] = meet(&plain(founder().visitor(0).unwrap(), Purpose::Observer), &impostor).await;
        assert!(matches!(one, Err(HandshakeError::Refused(Refusal::WrongSwarm { .. }))), "{one:?}");
        assert!(matches!(other, Err(HandshakeError::Refused(Refusal::WrongSwarm { .. }))), "{other:?}");
    }

    #[tokio::test]
    async fn both_can_refuse_by_their_own_judgement() {
        let (one, other) = tokio::io::duplex(4096);
        let no = |_: &Hello| Err(Refusal::TooMany { most: 3 });
        let [dialler, listener] = [0, 1].map(|join_index| plain(founder().member(join_index).unwrap(), PEER));
        let (one, other) = tokio::join!(
            shake(Wire::from(one), Role::Dialler, &dialler, |_| Ok(())),
            shake(Wire::from(other), Role::Listener, &listener, no),
        );
        assert!(matches!(one, Err(HandshakeError::RefusedByThem(Refusal::TooMany { most: 3 }))), "{one:?}");
        assert!(matches!(other, Err(HandshakeError::Refused(Refusal::TooMany { most: 3 }))), "{other:?}");
    }
}
