//! Who may look: whoever is on this machine; from elsewhere, who knows the token.

use std::net::{IpAddr, SocketAddr};

use data_encoding::BASE32_NOPAD;
use ring::rand::{SecureRandom, SystemRandom};

/// What a request has to bring.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Only requests to this machine by one of its own names are served, whatever the port, for there may be a tunnel: another
    /// site's page cannot make a browser ask us under that site's name.
    Loopback,
    /// Requests that name the token.
    Token(String),
}

impl Access {
    pub(crate) fn to(address: SocketAddr) -> Self {
        if address.ip().is_loopback() {
            return Self::Loopback;
        }
        let mut secret = [0; 20];
        SystemRandom::new().fill(&mut secret).expect("the operating system has randomness");
        Self::Token(BASE32_NOPAD.encode(&secret).to_lowercase())
    }

    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Loopback => None,
            Self::Token(token) => Some(token),
        }
    }

    /// What those are told who are turned away.
    pub(crate) fn refusal(&self) -> &'static str {
        match self {
            Self::Loopback => "This page is for this machine only: open it at localhost or 127.0.0.1.\n",
            Self::Token(_) => {
                "This page needs the token that was printed when it was started: open the whole address from there.\n"
            }
        }
    }

    /// Whether a request with this `Host` and this query may be answered.
    pub(crate) fn admits(&self, host: Option<&str>, query: Option<&str>) -> bool {
        match self {
            Self::Loopback => host.is_some_and(is_own_name),
            Self::Token(token) => {
                let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
                given.is_some_and(|given| is_same(given.as_bytes(), token.as_bytes()))
            }
        }
    }
}

/// Whether a host, with or without a port, is this machine as only itself calls it.
fn is_own_name(host: &str) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = if port.parse::<u16>().is_ok() { name } else { host };
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse().is_ok_and(is_loopback)
}

/// Compares without telling by the time it takes how much was right.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |differences, (a, b)| differences | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::Access;

    #[test]
    fn this_machine_is_known_by_its_names_and_others_by_the_token() {
        let near = Access::to("127.0.0.1:7700".parse().unwrap());
        for own in ["localhost:7700", "127.0.0.1:7700", "127.0.0.2", "[::1]:80", "[::1]", "LOCALHOST"] {
            assert!(near.admits(Some(own), None), "{own}");
        }
        for other in ["evil.example:7700", "localhost.evil.example", "10.0.0.1:7700", "[::2]", "", ":7700"] {
            assert!(!near.admits(Some(other), None), "{other}");
        }
        assert!(!near.admits(None, None));
        let far = Access::to("0.0.0.0:7700".parse().unwrap());
        let token = far.token().unwrap().to_owned();
        assert_eq!(token.len(), 32);
        assert!(far.admits(Some("anything"), Some(&format!("a=b&token={token}"))));
        for query in [None, Some("token="), Some(&token[1..]), Some("token=aaaa")] {
            assert!(!far.admits(Some("localhost:7700"), query), "{query:?}");
        }
    }
}
