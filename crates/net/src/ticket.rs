//! Tickets: one word with which one may ask a swarm to be let in: its admission secret, its owner's key, and where its peers are.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hkdf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::address::Address;
use crate::keys::PublicKey;

/// How many addresses a ticket holds at most.
pub(crate) const MAX_ADDRESSES: usize = 16;

// The number is the version: of what follows, and of the kinds of addresses that every program of this version knows.
const PREFIX: &str = "nt3";
const SECRET_LEN: usize = 32;
// Of a text from which a secret is made: 32 letters hold 128 bits even if they are hexadecimal digits.
const SHORTEST_TEXT: usize = 32;
const OWNER_LEN: usize = 32;
const NUMBER_LEN: usize = 4;
const CHECKSUM_LEN: usize = 4;
// The longest address: a key and the name of a relay fit.
const MAX_ADDRESS_LEN: usize = 127;
// One byte says how many addresses there are, and one before each how long it is: so those of kinds that come later can be
// skipped.
const MAX_PAYLOAD_LEN: usize =
    SECRET_LEN + OWNER_LEN + NUMBER_LEN + 1 + MAX_ADDRESSES * (1 + MAX_ADDRESS_LEN) + CHECKSUM_LEN;
// Base32 writes 5 bits a letter.
const MAX_TEXT_LEN: usize = PREFIX.len() + (MAX_PAYLOAD_LEN * 8).div_ceil(5);

/// Bytes that only some may know. They are overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_LEN]>);

impl Secret {
    /// A new secret from the system's randomness.
    ///
    /// # Panics
    /// If the system has no randomness: nothing can be secret there.
    pub fn random() -> Self {
        Self(Zeroizing::new(random_bytes()))
    }

    /// The secret with these bytes.
    pub fn from_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret that comes of a text which is secret itself, but for white space at its ends; none of one that is short enough to be guessed.
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let bytes: [u8; SECRET_LEN] = digest.as_ref().try_into().expect("SHA-256 gives 32 bytes");
        (text.len() >= SHORTEST_TEXT).then(|| Self::from_bytes(bytes))
    }

    /// A new text for [`Secret::from_text`], of letters and digits.
    pub fn random_text() -> Zeroizing<String> {
        let bytes = Zeroizing::new(random_bytes::<SECRET_LEN>());
        Zeroizing::new(BASE32_NOPAD.encode(&*bytes).to_ascii_lowercase())
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// Bytes for one purpose, from which neither the secret nor the bytes for another purpose can be told.
    pub(crate) fn derive<const N: usize>(&self, purpose: &str) -> [u8; N] {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"nettorrent/1").extract(&*self.0);
        let mut bytes = [0; N];
        extracted
            .expand(&[purpose.as_bytes()], Length(N))
            .and_then(|expanded| expanded.fill(&mut bytes))
            .expect("HKDF yields up to 8160 bytes, and we ask for a few dozen");
        bytes
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        // In constant time, so that nobody learns from our answers' timing how much of a guess was right.
        self.0.ct_eq(&*other.0).into()
    }
}

impl Eq for Secret {}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <[u8; SECRET_LEN]>::deserialize(deserializer).map(Self::from_bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// Fresh randomness that is fit for keys.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system gives randomness");
    bytes
}

/// A swarm's public name, derived from its owner's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SwarmId(pub [u8; 16]);

impl SwarmId {
    /// The name of the swarm whose owner has this key.
    pub(crate) fn of_owner(owner: &PublicKey) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&owner.digest()[..16]);
        Self(id)
    }

    /// The whole name, where `Display` shows only as much as people compare.
    pub(crate) fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl fmt::Display for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0[..4]))
    }
}

impl fmt::Debug for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SwarmId({self})")
    }
}

/// What one needs to ask a swarm to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// What shows that its holder may ask.
    pub secret: Secret,
    /// The key of the swarm's owner, by which its members are recognised.
    pub owner: PublicKey,
    /// The number of the policy of which it is: members of earlier ones do not count any more.
    pub number: u32,
    /// Where to knock, best first; `MAX_ADDRESSES` of them at most.
    pub addresses: Vec<Address>,
}

/// Why a word is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It is something else.
    #[error("a ticket begins with \"{PREFIX}\": copy the whole word that `nettorrent` showed")]
    NotATicket,
    /// It was written by an earlier version, whose peers speak another protocol.
    #[error("the ticket is of an earlier version than this program: use the version that the swarm was started with")]
    Earlier,
    /// It was written by a later version.
    #[error("the ticket is of a later version than this program knows: update this program")]
    Later,
    /// A letter that tickets do not have.
    #[error("the ticket is damaged at letter {letter}, copy it again")]
    Letter {
        /// Which letter, counted from one.
        letter: usize,
    },
    /// Its end is missing.
    #[error("the ticket is damaged at its end (letter {n_letters} is the last one here), copy it again")]
    Cut {
        /// How many letters there are.
        n_letters: usize,
    },
    /// There is too much of it.
    #[error("the ticket is damaged at letter {longest}: no ticket is that long, copy it again")]
    TooLong {
        /// The longest that a ticket may be.
        longest: usize,
    },
    /// Letters were mistyped, or its end is missing.
    #[error("the ticket is damaged at some letter or its end (its checksum does not fit), copy it again")]
    Checksum,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut payload = Vec::with_capacity(MAX_PAYLOAD_LEN);
        payload.extend(*self.secret.0);
        payload.extend(self.owner.0);
        payload.extend(self.number.to_le_bytes());
        let addresses = &self.addresses[..self.addresses.len().min(MAX_ADDRESSES)];
        payload.push(addresses.len() as u8);
        for address in addresses {
            let bytes = postcard::to_allocvec(address).map_err(|_| fmt::Error)?;
            payload.push(bytes.len() as u8);
            payload.extend(bytes);
        }
        payload.extend(checksum(&payload));
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&payload).to_ascii_lowercase())
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        // First of all, so that nothing below works on more than a few hundred bytes.
        if text.len() > MAX_TEXT_LEN {
            return Err(TicketError::TooLong { longest: MAX_TEXT_LEN });
        }
        let Some(letters) = text.get(..PREFIX.len()).filter(|start| start.eq_ignore_ascii_case(PREFIX)) else {
            return Err(not_our_prefix(text));
        };
        let letters = &text[letters.len()..];
        let is_known = |letter: char| matches!(letter, 'a'..='z' | 'A'..='Z' | '2'..='7');
        if let Some(at) = letters.chars().position(|letter| !is_known(letter)) {
            return Err(TicketError::Letter { letter: PREFIX.len() + at + 1 });
        }
        let cut = TicketError::Cut { n_letters: text.len() };
        let payload = BASE32_NOPAD.decode(letters.to_ascii_uppercase().as_bytes()).map_err(|_| cut.clone())?;
        let (content, found) = payload.split_last_chunk::<CHECKSUM_LEN>().ok_or(cut)?;
        if *found != checksum(content) {
            return Err(TicketError::Checksum);
        }
        // A checksum that fits is no proof of good will, so what follows is read with the same suspicion.
        parse_content(content).ok_or(TicketError::Later)
    }
}

fn not_our_prefix(text: &str) -> TicketError {
    let mut letters = text.bytes().map(|letter| letter.to_ascii_lowercase());
    match (letters.next(), letters.next(), letters.next()) {
        (Some(b'n'), Some(b't'), Some(b'1' | b'2')) => TicketError::Earlier,
        (Some(b'n'), Some(b't'), Some(b'4'..=b'9')) => TicketError::Later,
        _ => TicketError::NotATicket,
    }
}

fn parse_content(content: &[u8]) -> Option<Ticket> {
    let (secret, rest) = content.split_first_chunk::<SECRET_LEN>()?;
    let (owner, rest) = rest.split_first_chunk::<OWNER_LEN>()?;
    let (number, rest) = rest.split_first_chunk::<NUMBER_LEN>()?;
    let (&n_addresses, mut rest) = rest.split_first()?;
    if usize::from(n_addresses) > MAX_ADDRESSES {
        return None;
    }
    let mut addresses = Vec::with_capacity(usize::from(n_addresses));
    for _ in 0..n_addresses {
        let (&n_bytes, after) = rest.split_first()?;
        let (address, after) = after.split_at_checked(usize::from(n_bytes))?;
        // Of a kind that this program does not know; another of the ticket's addresses may do.
        addresses.extend(postcard::from_bytes::<Address>(address));
        rest = after;
    }
    let is_understood = rest.is_empty() && addresses.is_empty() == (n_addresses == 0);
    let (secret, owner, number) = (Secret::from_bytes(*secret), PublicKey(*owner), u32::from_le_bytes(*number));
    is_understood.then_some(Ticket { secret, owner, number, addresses })
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(PREFIX.as_bytes());
    context.update(content);
    let mut checksum = [0; CHECKSUM_LEN];
    checksum.copy_from_slice(&context.finish().as_ref()[..CHECKSUM_LEN]);
    checksum
}

#[cfg(test)]
mod tests {
    use super::{CHECKSUM_LEN, MAX_ADDRESSES, MAX_TEXT_LEN, PREFIX, Secret, SwarmId, Ticket, TicketError, checksum};
    use crate::keys::{PrivateKey, PublicKey};
    use data_encoding::BASE32_NOPAD;
    use zeroize::ZeroizeOnDrop;

    fn ticket(addresses: &[&str]) -> Ticket {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Ticket { secret: Secret::from_bytes([7; 32]), owner: PublicKey([8; 32]), number: 9, addresses }
    }

    #[test]
    fn secrets_are_overwritten_when_they_are_dropped() {
        // It does not compile where they are not.
        fn check(_: &impl ZeroizeOnDrop) {}
        check(&Secret::from_bytes([7; 32]).0);
        check(&Secret::random_text());
        check(PrivateKey::from_seed(&[7; 32]).seed());
    }

    #[test]
    fn tickets_come_back_as_they_were() {
        let full = ["[2001:db8::1]:65535"; MAX_ADDRESSES];
        let mixed = &["[2001:db8::1]:1", "10.0.0.1:65535", "in-process:7"];
        for addresses in [&[][..], &["192.0.2.1:4000"], mixed, &full] {
            let ticket = ticket(addresses);
            let text = ticket.to_string();
            assert!(text.len() <= MAX_TEXT_LEN);
            assert!(text.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit()), "{text}");
            assert_eq!(text.parse(), Ok(ticket.clone()));
            assert_eq!(format!("  {}\n", text.to_uppercase()).parse(), Ok(ticket));
        }
    }

    #[test]
    fn the_seventeenth_address_is_left_out() {
        let mut ticket = ticket(&["192.0.2.1:4000"; MAX_ADDRESSES + 1]);
        let back: Ticket = ticket.to_string().parse().unwrap();
        ticket.addresses.pop();
        assert_eq!(back, ticket);
    }

    #[test]
    fn every_mistyped_letter_is_noticed() {
        let text = ticket(&["192.0.2.1:4000"]).to_string();
        for at in 3..text.len() {
            for letter in ["a", "7", "ä", "0"] {
                let damaged = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
                let expected = match letter {
                    "ä" | "0" => TicketError::Letter { letter: at + 1 },
                    _ if damaged == text => continue,
                    _ => TicketError::Checksum,
                };
                let found = damaged.parse::<Ticket>().unwrap_err();
                // The very last letter holds padding bits too, which must be zero.
                assert!(found == expected || at == text.len() - 1, "{damaged}: {found}");
            }
        }
    }

    #[test]
    fn every_cut_is_noticed_and_explained() {
        let text = ticket(&["192.0.2.1:4000", "[::1]:5"]).to_string();
        for end in 0..text.len() {
            let error = text[..end].parse::<Ticket>().unwrap_err();
            assert!(error.to_string().contains("copy"), "{end}: {error}");
        }
        assert_eq!(format!("{text}{}", "a".repeat(MAX_TEXT_LEN)).parse::<Ticket>(), too_long());
    }

    fn too_long() -> Result<Ticket, TicketError> {
        Err(TicketError::TooLong { longest: MAX_TEXT_LEN })
    }

    #[test]
    fn other_words_are_named_as_such() {
        for text in ["", "n", "hello", "ñt1abc", "http://example.org", "nt3"] {
            let error = text.parse::<Ticket>().unwrap_err();
            assert!(matches!(error, TicketError::NotATicket | TicketError::Cut { .. }), "{text}: {error:?}");
        }
        assert_eq!("nt2abcdef".parse::<Ticket>(), Err(TicketError::Earlier));
        assert_eq!("NT4abcdef".parse::<Ticket>(), Err(TicketError::Later));
    }

    /// A ticket with these bytes for addresses.
    fn parsed(addresses: &[&[u8]]) -> Result<Ticket, TicketError> {
        let mut content = [[7; 32].as_slice(), &[8; 32], &[9, 0, 0, 0], &[addresses.len() as u8]].concat();
        for address in addresses {
            content.push(address.len() as u8);
            content.extend(*address);
        }
        content.extend::<[u8; CHECKSUM_LEN]>(checksum(&content));
        format!("{PREFIX}{}", BASE32_NOPAD.encode(&content)).parse()
    }

    #[test]
    fn addresses_of_later_kinds_are_skipped_if_another_is_known() {
        let (later, known): (&[u8], &[u8]) = (&[99, 1, 2, 3], &[0, 0, 192, 0, 2, 1, 0xa0, 0x1f]);
        assert_eq!(parsed(&[later, known]), Ok(ticket(&["192.0.2.1:4000"])));
        assert_eq!(parsed(&[later]), Err(TicketError::Later));
        assert_eq!(parsed(&[known, &[]]), Ok(ticket(&["192.0.2.1:4000"])));
    }

    #[test]
    fn secrets_come_of_texts_that_nobody_guesses() {
        let text = Secret::random_text();
        assert_eq!(Secret::from_text(&text), Secret::from_text(&format!(" {}\n", *text)));
        assert!(Secret::from_text(&text).is_some());
        assert_ne!(Secret::from_text(&text), Secret::from_text(&Secret::random_text()));
        assert_eq!(Secret::from_text("a word"), None);
    }

    #[test]
    fn secrets_are_never_shown() {
        let secret = Secret::from_bytes([0x61; 32]);
        let shown = format!("{secret:?} {:?}", Ticket { secret: secret.clone(), ..ticket(&[]) });
        assert!(!shown.contains("6161") && !shown.contains("97, 97"), "{shown}");
        assert_ne!(Secret::random(), Secret::random());
        assert_eq!(SwarmId::of_owner(&PublicKey([8; 32])).to_string().len(), 8);
    }
}
