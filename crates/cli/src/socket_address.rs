//! An address of this machine, as it is given on the command line.

use std::net::SocketAddr;

/// Reads `127.0.0.1:9100`.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write the address in numbers and a port, for example 127.0.0.1:9100 or [::1]:9100")
}

#[cfg(test)]
mod tests {
    use super::socket_address;

    #[test]
    fn what_is_no_address_is_answered_with_one() {
        assert_eq!(socket_address("[::1]:7700").map(|address| address.port()), Ok(7700));
        for text in ["localhost:9100", "127.0.0.1", ":9100", ""] {
            assert!(socket_address(text).is_err_and(|why| why.contains("127.0.0.1:9100")), "{text}");
        }
    }
}
