//! Where a peer can be reached by its key: through routers, and through a relay where there is no other way.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The longest URL of a relay.
pub const MAX_RELAY_LEN: usize = 64;

/// The longest that such an address may be as bytes, so that it fits in a ticket with the byte that tells its kind.
const MAX_LEN: usize = 126;
const KEY_LEN: usize = 32;
// As bytes: whether there is a relay, its length, and how many sockets there are.
const COUNTS_LEN: usize = 3;

/// A key, the relay at which whoever holds it listens, and sockets at which it may be reached directly, best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct KeyAddress {
    key: [u8; KEY_LEN],
    relay: Option<String>,
    sockets: Vec<SocketAddr>,
}

/// A text or bytes that are no key's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key's address is 64 hexadecimal digits and, after commas, the URL of a relay and sockets, in at most {MAX_LEN} bytes"
)]
pub struct NoKeyAddress;

/// What travels; anybody can have written it.
#[derive(Deserialize)]
struct Unchecked {
    key: [u8; KEY_LEN],
    relay: Option<String>,
    sockets: Vec<SocketAddr>,
}

impl KeyAddress {
    /// An address with as many of these sockets as there is room for; none if what is said to be a relay's URL is none.
    pub fn new(key: [u8; KEY_LEN], relay: Option<String>, sockets: &[SocketAddr]) -> Option<Self> {
        if !relay.as_deref().is_none_or(is_relay) {
            return None;
        }
        let mut address = Self { key, relay, sockets: Vec::new() };
        for socket in sockets.iter().copied().map(without_scope) {
            if !address.sockets.contains(&socket) && address.len() + socket_len(socket) <= MAX_LEN {
                address.sockets.push(socket);
            }
        }
        Some(address)
    }

    /// The key. It is the transport's, and not the one by which a peer is a member.
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
    }

    /// The URL of the relay.
    pub fn relay(&self) -> Option<&str> {
        self.relay.as_deref()
    }

    /// Where TCP and UDP may lead there directly, best first.
    pub fn sockets(&self) -> &[SocketAddr] {
        &self.sockets
    }

    /// The same, which is known to be at this socket too.
    #[must_use]
    pub fn also_at(&self, socket: SocketAddr) -> Self {
        let sockets: Vec<_> = [socket].into_iter().chain(self.sockets.iter().copied()).collect();
        Self::new(self.key, self.relay.clone(), &sockets).expect("the relay was checked before")
    }

    /// How many bytes it is on its way.
    fn len(&self) -> usize {
        let sockets: usize = self.sockets.iter().copied().map(socket_len).sum();
        KEY_LEN + COUNTS_LEN + self.relay.as_ref().map_or(0, String::len) + sockets
    }
}

/// How many bytes a socket's address is at most on its way: its kind, the machine, the port.
fn socket_len(socket: SocketAddr) -> usize {
    if socket.is_ipv4() { 1 + 4 + 3 } else { 1 + 16 + 3 }
}

/// The scope and flow of an IPv6 address mean something on one machine only.
fn without_scope(socket: SocketAddr) -> SocketAddr {
    SocketAddr::new(socket.ip(), socket.port())
}

/// Whether a text can be a relay's URL, as far as one sees without reading URLs. It is shown to people, so it holds nothing else.
pub fn is_relay(url: &str) -> bool {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]".contains(&byte);
    url.len() <= MAX_RELAY_LEN && host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_plain))
}

impl fmt::Display for KeyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.key))?;
        self.relay.iter().try_for_each(|relay| write!(f, ",{relay}"))?;
        self.sockets.iter().try_for_each(|socket| write!(f, ",{socket}"))
    }
}

impl FromStr for KeyAddress {
    type Err = NoKeyAddress;

    fn from_str(text: &str) -> Result<Self, NoKeyAddress> {
        let mut parts = text.split(',').peekable();
        let key = parts.next().and_then(|key| HEXLOWER.decode(key.as_bytes()).ok());
        let key = key.and_then(|key| key.try_into().ok()).ok_or(NoKeyAddress)?;
        let relay = parts.next_if(|part| is_relay(part)).map(str::to_owned);
        let sockets = parts.map(str::parse).collect::<Result<Vec<SocketAddr>, _>>().map_err(|_| NoKeyAddress)?;
        Unchecked { key, relay, sockets }.checked().ok_or(NoKeyAddress)
    }
}

impl Unchecked {
    /// The same, if nothing in it is too long or twice.
    fn checked(self) -> Option<KeyAddress> {
        let n_sockets = self.sockets.len();
        KeyAddress::new(self.key, self.relay, &self.sockets).filter(|address| address.sockets.len() == n_sockets)
    }
}

impl<'de> Deserialize<'de> for KeyAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Unchecked::deserialize(deserializer)?.checked().ok_or_else(|| D::Error::custom(NoKeyAddress))
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyAddress, MAX_LEN, MAX_RELAY_LEN, Unchecked};
    use std::net::SocketAddr;

    fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn as_many_sockets_as_fit_are_kept_in_their_order() {
        let relay = format!("http://{}", "r".repeat(MAX_RELAY_LEN - 7));
        let many: Vec<SocketAddr> = (0..40).map(|host| ([255, 255, 255, host], 65535).into()).collect();
        for (relay, sockets) in [(None, &many[..]), (Some(relay.clone()), &many), (Some(relay), &many[..1])] {
            let address = KeyAddress::new([255; 32], relay, sockets).unwrap();
            let bytes = postcard::to_allocvec(&address).unwrap();
            assert!(bytes.len() <= MAX_LEN, "{}", bytes.len());
            assert!(!address.sockets().is_empty() && sockets.starts_with(address.sockets()));
            assert_eq!(postcard::from_bytes(&bytes), Ok(address));
        }
    }

    #[test]
    fn what_is_too_long_or_no_relay_is_refused() {
        let long = format!("http://{}", "r".repeat(MAX_RELAY_LEN));
        for relay in ["", "http://", "ftp://a", "http://a b", "http://a\u{1b}[2J", "http://a,b", "http://a@b", &long] {
            assert_eq!(KeyAddress::new([1; 32], Some(relay.to_owned()), &[]), None, "{relay}");
        }
        let many = sockets(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "[2001:db8::4]:1", "[::5]:1"]);
        let twice = sockets(&["192.0.2.1:1", "192.0.2.1:1"]);
        for sockets in [many, twice] {
            assert_eq!(Unchecked { key: [1; 32], relay: None, sockets }.checked(), None);
        }
    }

    #[test]
    fn what_is_known_last_comes_first() {
        let [one, two] = sockets(&["192.0.2.1:1", "192.0.2.2:2"])[..] else { panic!("two") };
        let address = KeyAddress::new([1; 32], None, &[one, two]).unwrap();
        assert_eq!(address.also_at(two).sockets(), [two, one]);
    }
}
