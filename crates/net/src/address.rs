//! Where a peer can be reached, by whichever transport.

use std::fmt;
use std::net::{AddrParseError, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::key_address::KeyAddress;

/// Where a peer can be reached. Each transport has addresses of its own; new kinds go at the end, for their order is what
/// travels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A port of a machine.
    Tcp(SocketAddr),
    /// A number within one process.
    InProcess(u64),
    /// A key, wherever whoever holds it may be.
    Key(KeyAddress),
}

const IN_PROCESS: &str = "in-process:";
const KEY: &str = "key:";

impl Address {
    /// The machine and port, if it is one that TCP reaches; of a key's sockets, the best.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.sockets().first().copied()
    }

    /// All that TCP may reach, best first.
    pub fn sockets(&self) -> &[SocketAddr] {
        match self {
            Self::Tcp(address) => std::slice::from_ref(address),
            Self::InProcess(_) => &[],
            Self::Key(address) => address.sockets(),
        }
    }

    /// As people read it among other words: of a key where it is, and not which.
    pub fn brief(&self) -> String {
        match self {
            Self::Key(key) => match (self.tcp(), key.relay()) {
                (Some(socket), _) => socket.to_string(),
                (None, Some(relay)) => format!("by {relay}"),
                (None, None) => "by its key".to_owned(),
            },
            Self::Tcp(_) | Self::InProcess(_) => self.to_string(),
        }
    }

    /// The same peer, which others reach at this address: a key may be in several places.
    #[must_use]
    pub fn known_as(&self, address: &Self) -> Self {
        match (self, address) {
            (Self::Key(key), Self::Tcp(socket)) => Self::Key(key.also_at(*socket)),
            _ => address.clone(),
        }
    }

    /// The same address as it looks after it has travelled: the scope and flow of an IPv6 address mean something on one
    /// machine only and do not travel.
    #[must_use]
    pub(crate) fn without_scope(self) -> Self {
        match self {
            Self::Tcp(SocketAddr::V6(address)) => {
                Self::Tcp(SocketAddrV6::new(*address.ip(), address.port(), 0, 0).into())
            }
            other => other,
        }
    }

    /// Where somebody listens who is seen at this address and knows where it listens on its own machine.
    #[must_use]
    pub fn at_port_of(&self, listens: &Self) -> Self {
        match (self.tcp(), listens.tcp()) {
            (Some(seen), Some(own)) => listens.known_as(&Self::Tcp(SocketAddr::new(seen.ip(), own.port()))),
            _ => listens.clone(),
        }
    }
}

impl<A: Into<SocketAddr>> From<A> for Address {
    fn from(address: A) -> Self {
        Self::Tcp(address.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::InProcess(number) => write!(f, "{IN_PROCESS}{number}"),
            Self::Key(address) => write!(f, "{KEY}{address}"),
        }
    }
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is a machine's and a port, as 192.0.2.1:4000 or [2001:db8::1]:4000")]
pub struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if let Some(number) = text.strip_prefix(IN_PROCESS) {
            return number.parse().map(Self::InProcess).map_err(|_| NoAddress);
        }
        match text.strip_prefix(KEY) {
            Some(address) => address.parse().map(Self::Key).map_err(|_| NoAddress),
            None => text.parse().map(Self::Tcp).map_err(|_: AddrParseError| NoAddress),
        }
    }
}

/// An address as it travels between peers, where bytes count.
#[derive(Serialize, Deserialize)]
enum Compact {
    Tcp(SocketAddr),
    InProcess(u64),
    Key(KeyAddress),
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            _ if serializer.is_human_readable() => serializer.collect_str(self),
            Self::Tcp(address) => Compact::Tcp(*address).serialize(serializer),
            Self::InProcess(number) => Compact::InProcess(*number).serialize(serializer),
            Self::Key(address) => Compact::Key(address.clone()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?.parse().map_err(de::Error::custom);
        }
        Ok(match Compact::deserialize(deserializer)? {
            Compact::Tcp(address) => Self::Tcp(address),
            Compact::InProcess(number) => Self::InProcess(number),
            Compact::Key(address) => Self::Key(address),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, NoAddress};

    fn all() -> Vec<Address> {
        let key = "0f".repeat(32);
        let keys = [
            format!("key:{key}"),
            format!("key:{key},https://relay.example.org/"),
            format!("key:{key},http://[2001:db8::1]:3340,192.0.2.1:4000,[2001:db8::1]:65535"),
        ];
        let plain = ["192.0.2.1:4000", "[2001:db8::1]:65535", "in-process:7"].map(str::to_owned);
        plain.iter().chain(&keys).map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_come_back_from_text_and_from_bytes() {
        for address in all() {
            assert_eq!(address.to_string().parse(), Ok(address.clone()));
            let bytes = postcard::to_allocvec(&address).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(address));
        }
        for text in ["", "example.org", "1.2.3.4", "in-process:", "in-process:-1", "key:", "key:0f0f"] {
            assert_eq!(text.parse::<Address>(), Err(NoAddress), "{text}");
        }
    }

    #[test]
    fn who_is_seen_elsewhere_listens_at_its_own_port_there() {
        let [seen, listens, number] =
            ["10.0.0.7:50000", "0.0.0.0:4000", "in-process:7"].map(|text| text.parse().unwrap());
        assert_eq!(Address::at_port_of(&seen, &listens).to_string(), "10.0.0.7:4000");
        assert_eq!(Address::at_port_of(&seen, &number), number);
        // A key is there too, and stays where it was.
        let key = format!("key:{}", "0f".repeat(32));
        let at = |sockets: &str| format!("{key},{sockets}").parse::<Address>().unwrap();
        assert_eq!(at("192.0.2.1:4000").brief(), "192.0.2.1:4000");
        assert_eq!(at("http://192.0.2.1/").brief(), "by http://192.0.2.1/");
        assert_eq!(Address::at_port_of(&seen, &at("192.0.2.1:4000")), at("10.0.0.7:4000,192.0.2.1:4000"));
    }
}
