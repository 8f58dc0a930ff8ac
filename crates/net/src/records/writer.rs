//! Seals what is written to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::key::{Key, Plain};
use super::rekeying::Rekeying;
use super::{ALERT, APPLICATION_DATA, CLOSE_NOTIFY, HANDSHAKE, HEADER_LEN, KEY_UPDATE, MAX_PLAIN_LEN, OVERHEAD, to_io};

/// After so many records comes a new key: half of rustls' limit for AES-GCM, and a third of the standard's (2^24.5). In full
/// records that is 128 GiB. ChaCha20 would not need it; one rule for all is simpler.
pub(crate) const RECORDS_PER_KEY: u64 = 1 << 23;

// Enough to make system calls cheap, and little enough to stay in the second-level cache.
const OUT_LEN: usize = 16 * (MAX_PLAIN_LEN + OVERHEAD);
// Slices from here on are sealed from where they lie, in records of their own; smaller ones are gathered into one.
const DIRECT_LEN: usize = 8 << 10;

/// A sink that seals what is written to it.
pub(crate) struct RecordWriter<W> {
    sink: W,
    key: Key,
    rekeying: Arc<Rekeying>,
    records_per_key: u64,
    // Sealed records lie up to `end`; those before `start` have been written.
    out: Vec<u8>,
    start: usize,
    end: usize,
    has_said_goodbye: bool,
}

impl<W: AsyncWrite + Unpin> RecordWriter<W> {
    /// A writer that takes a new key after so many records.
    pub(crate) fn new(sink: W, key: Key, rekeying: Arc<Rekeying>, records_per_key: u64) -> Self {
        Self { sink, key, rekeying, records_per_key, out: Vec::new(), start: 0, end: 0, has_said_goodbye: false }
    }

    /// Seals one record behind what is to be written, for which there must be room.
    fn seal(&mut self, plain: &Plain<'_>, kind: u8) -> io::Result<()> {
        self.end += self.key.seal(plain, kind, &mut self.out[self.end..]).map_err(to_io)?;
        Ok(())
    }

    /// Makes room for a record of any length, and for a key update before it, which it makes if it is time.
    fn prepare(&mut self) -> io::Result<()> {
        let needed = self.end + OVERHEAD + KEY_UPDATE.len() + OVERHEAD + MAX_PLAIN_LEN;
        if self.out.len() < needed {
            self.out.resize(needed, 0);
        }
        if self.rekeying.take_request() || self.key.n_used() >= self.records_per_key {
            // The last record under the old key says that the next is under a new one.
            self.seal(&Plain::At(&KEY_UPDATE), HANDSHAKE)?;
            self.key = self.rekeying.key_for_sending().map_err(to_io)?;
        }
        Ok(())
    }

    /// Seals what comes next in the slices; returns how much that was.
    fn seal_next(&mut self, slices: &mut Cursor<'_>) -> io::Result<usize> {
        let first = slices.first();
        if first.is_empty() {
            return Ok(0);
        }
        self.prepare()?;
        if first.len() >= DIRECT_LEN {
            let plain = &first[..first.len().min(MAX_PLAIN_LEN)];
            self.seal(&Plain::At(plain), APPLICATION_DATA)?;
            slices.advance(plain.len());
            return Ok(plain.len());
        }
        let n_plain = slices.gather(&mut self.out[self.end + HEADER_LEN..][..MAX_PLAIN_LEN]);
        self.seal(&Plain::InPlace(n_plain), APPLICATION_DATA)?;
        Ok(n_plain)
    }

    /// Writes what has been sealed.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.start < self.end {
            let n_written = ready!(Pin::new(&mut self.sink).poll_write(cx, &self.out[self.start..self.end]))?;
            if n_written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.start += n_written;
        }
        (self.start, self.end) = (0, 0);
        Poll::Ready(Ok(()))
    }

    #[cfg(test)]
    pub(super) fn sink(&mut self) -> &mut W {
        &mut self.sink
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for RecordWriter<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.has_said_goodbye {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_drain(cx))?;
        let mut slices = Cursor { slices, offset: 0 };
        let mut n_taken = 0;
        while self.end < OUT_LEN {
            match self.seal_next(&mut slices)? {
                0 => break,
                n_plain => n_taken += n_plain,
            }
        }
        // What the socket does not take now it takes before the next records, or when flushed.
        if let Poll::Ready(result) = self.poll_drain(cx) {
            result?;
        }
        Poll::Ready(Ok(n_taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.sink).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        if !self.has_said_goodbye {
            self.has_said_goodbye = true;
            self.prepare()?;
            self.seal(&Plain::At(&CLOSE_NOTIFY), ALERT)?;
            ready!(self.poll_drain(cx))?;
        }
        Pin::new(&mut self.sink).poll_shutdown(cx)
    }
}

/// A place within slices.
struct Cursor<'a> {
    slices: &'a [IoSlice<'a>],
    // Within the first of them.
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// What is next, as far as it lies together; empty at the end only.
    fn first(&mut self) -> &'a [u8] {
        while let Some(slice) = self.slices.first() {
            if self.offset < slice.len() {
                return &slice[self.offset..];
            }
            self.slices = &self.slices[1..];
            self.offset = 0;
        }
        &[]
    }

    fn advance(&mut self, n_bytes: usize) {
        self.offset += n_bytes;
    }

    /// Copies small slices together, as far as there is room; returns how much that was.
    fn gather(&mut self, room: &mut [u8]) -> usize {
        let mut n_gathered = 0;
        loop {
            let small = self.first();
            let n_taken = small.len().min(room.len() - n_gathered);
            if n_taken == 0 || small.len() >= DIRECT_LEN {
                return n_gathered;
            }
            room[n_gathered..n_gathered + n_taken].copy_from_slice(&small[..n_taken]);
            n_gathered += n_taken;
            self.advance(n_taken);
        }
    }
}
