//! Who may look: whoever is on this machine; from elsewhere, who knows the token.

use std::net::SocketAddr;

use data_encoding::BASE32_NOPAD;

/// What a request has to bring.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Only requests to this machine by one of its own names are served: another site's page cannot make a browser ask us
    /// under that site's name.
    Loopback { port: u16 },
    /// Requests that name the token.
    Token(String),
}

impl Access {
    pub(crate) fn to(address: SocketAddr) -> Self {
        if address.ip().is_loopback() {
            return Self::Loopback { port: address.port() };
        }
        let mut secret = [0; 20];
        aws_lc_rs::rand::fill(&mut secret).expect("the operating system has randomness");
        Self::Token(BASE32_NOPAD.encode(&secret).to_lowercase())
    }

    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Loopback { .. } => None,
            Self::Token(token) => Some(token),
        }
    }

    /// Whether a request with this `Host` and this query may be answered.
    pub(crate) fn admits(&self, host: Option<&str>, query: Option<&str>) -> bool {
        match self {
            Self::Loopback { port } => {
                let names = ["localhost", "127.0.0.1", "[::1]"];
                host.is_some_and(|host| names.iter().any(|name| *host == format!("{name}:{port}") || host == *name))
            }
            Self::Token(token) => {
                let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
                given.is_some_and(|given| is_same(given.as_bytes(), token.as_bytes()))
            }
        }
    }
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
        assert!(near.admits(Some("localhost:7700"), None) && near.admits(Some("127.0.0.1:7700"), None));
        assert!(!near.admits(Some("evil.example:7700"), None) && !near.admits(Some("127.0.0.1:80"), None));
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
