//! One GET request: for a whole file or for the rest of one.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::http::{HeaderName, Response, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body, Timeout};

use crate::error::AddressError;
use crate::options::{FetchOptions, ProxyChoice};

/// Makes requests under one set of timeouts.
pub(crate) struct Client {
    agent: Agent,
    connect_timeout: Duration,
    idle_timeout: Duration,
}

/// What is asked for: the bytes from `start` on.
pub(crate) struct Wanted<'a> {
    pub(crate) url: &'a str,
    pub(crate) start: u64,
    /// How long the whole file should be.
    pub(crate) n_bytes_expected: u64,
    /// Only give the rest if the file still is the one this tag was for, else all of it.
    pub(crate) only_if: Option<&'a str>,
}

/// What a server gives: the file's bytes from `start` on, which may be earlier than asked for.
pub(crate) struct Given {
    pub(crate) start: u64,
    pub(crate) entity_tag: Option<String>,
    pub(crate) body: Box<dyn Read>,
}

impl Client {
    pub(crate) fn new(options: &FetchOptions) -> Self {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::WebPki)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build();
        let mut config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("nettorrent/", env!("CARGO_PKG_VERSION")))
            // We judge statuses ourselves: 416 is an answer, not an error.
            .http_status_as_error(false)
            // What is hashed is the file as published, so it must not be recoded for transport.
            .accept_encoding("identity")
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.idle_timeout))
            .timeout_per_read(Some(options.idle_timeout));
        if options.proxy == ProxyChoice::Direct {
            config = config.proxy(None);
        }
        Self {
            agent: config.build().new_agent(),
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
        }
    }

    /// Asks for the file; follows redirects.
    pub(crate) fn get(&self, wanted: &Wanted<'_>) -> Result<Given, AddressError> {
        let mut request = self.agent.get(wanted.url);
        if wanted.start > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", wanted.start));
            if let Some(tag) = wanted.only_if {
                request = request.header(header::IF_RANGE, tag);
            }
        }
        let response = request.call().map_err(|error| self.explain(&error))?;
        let (start, n_bytes_total) = extent(&response)?;
        // Judged before the caller touches what it has: a login page must not wipe out half a file.
        if let Some(n_bytes) = n_bytes_total.filter(|n_bytes| *n_bytes != wanted.n_bytes_expected) {
            return Err(AddressError::WrongLength { n_bytes, n_bytes_expected: wanted.n_bytes_expected });
        }
        let start = start.ok_or(AddressError::Status(response.status().as_u16()))?;
        let entity_tag = header_text(&response, &header::ETAG).map(str::to_owned);
        Ok(Given { start, entity_tag, body: Box::new(response.into_body().into_reader()) })
    }

    /// What a failed read of a body means.
    pub(crate) fn explain_read(&self, error: &io::Error) -> AddressError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
            Some(inner) => self.explain(inner),
            None if is_timeout(error) => AddressError::Stalled(self.idle_timeout),
            None => AddressError::Transport(error.to_string()),
        }
    }

    fn explain(&self, error: &ureq::Error) -> AddressError {
        match error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => AddressError::Stalled(self.connect_timeout),
            ureq::Error::Timeout(_) => AddressError::Stalled(self.idle_timeout),
            ureq::Error::Io(inner) if is_timeout(inner) => AddressError::Stalled(self.idle_timeout),
            other => AddressError::Transport(other.to_string()),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Where a body starts in its file, if there is any, and how long the whole file is, if told.
type Extent = (Option<u64>, Option<u64>);

fn extent(response: &Response<Body>) -> Result<Extent, AddressError> {
    match response.status().as_u16() {
        200 => Ok((Some(0), response.body().content_length())),
        206 => {
            let text = header_text(response, &header::CONTENT_RANGE).unwrap_or_default();
            let extent = parse_content_range(text).filter(|(start, _)| start.is_some());
            extent.ok_or_else(|| AddressError::WrongRange(text.to_owned()))
        }
        // Nothing there from that byte on. Most servers say with it how long the file is.
        416 => {
            let text = header_text(response, &header::CONTENT_RANGE).unwrap_or_default();
            Ok(parse_content_range(text).unwrap_or((None, None)))
        }
        other => Err(AddressError::Status(other)),
    }
}

/// Reads `bytes START-END/TOTAL`, where the range or the total may be `*`.
fn parse_content_range(text: &str) -> Option<Extent> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let n_bytes_total = if total == "*" { None } else { Some(total.parse().ok()?) };
    if range == "*" {
        return Some((None, n_bytes_total));
    }
    let (start, _end) = range.split_once('-')?;
    Some((Some(start.parse().ok()?), n_bytes_total))
}

fn header_text<'a>(response: &'a Response<Body>, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::parse_content_range;

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((Some(5), Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((Some(5), None)));
        assert_eq!(parse_content_range("bytes */10"), Some((None, Some(10))));
        for wrong in ["", "bytes", "bytes 5", "bytes a-b/c", "rows 5-9/10"] {
            assert_eq!(parse_content_range(wrong), None, "{wrong:?}");
        }
    }
}
