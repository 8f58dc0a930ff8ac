//! Opens what is read from it.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{AlertDescription, Error, InvalidMessage};
use tokio::io::{AsyncRead, ReadBuf};

use super::key::{Key, n_sealed};
use super::rekeying::Rekeying;
use super::{
    ALERT, APPLICATION_DATA, CLOSE_NOTIFY, HANDSHAKE, HEADER_LEN, KEY_UPDATE, KEY_UPDATE_REQUESTED, MAX_SEALED_LEN,
    to_io,
};

// Room for the longest record; idle links, of which there may be hundreds, need no more than this.
const MIN_IN_LEN: usize = HEADER_LEN + MAX_SEALED_LEN;
// As much as can be had by one call, and little enough to stay in the second-level cache.
const MAX_IN_LEN: usize = 16 * MIN_IN_LEN;
// Records that carry no data, one after the other: whoever sends more wants to keep us busy. rustls allows as many.
const MAX_WITHOUT_DATA: u32 = 32;

/// A source of what it opens.
pub(crate) struct RecordReader<R> {
    source: R,
    key: Key,
    rekeying: Arc<Rekeying>,
    // First opened bytes that nobody has taken yet, then records that have not been opened.
    buffer: Vec<u8>,
    opened: Range<usize>,
    sealed: Range<usize>,
    n_without_data: u32,
    has_heard_goodbye: bool,
    // Why nothing can be opened any more.
    failure: Option<Error>,
}

/// What the next record is.
enum Next {
    Opened,
    NotThere,
    Goodbye,
}

impl<R: AsyncRead + Unpin> RecordReader<R> {
    /// A reader that begins with records that have been received during the handshake already.
    pub(crate) fn new(source: R, key: Key, rekeying: Arc<Rekeying>, early: Vec<u8>) -> Self {
        let mut buffer = early;
        let received = buffer.len();
        buffer.resize(received.max(MIN_IN_LEN), 0);
        Self {
            source,
            key,
            rekeying,
            buffer,
            opened: 0..0,
            sealed: 0..received,
            n_without_data: 0,
            has_heard_goodbye: false,
            failure: None,
        }
    }

    /// Opens the next record, if it has come whole. What cannot be opened is the end: nothing behind it is looked at.
    fn open_next(&mut self) -> Result<Next, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.has_heard_goodbye {
            return Ok(Next::Goodbye);
        }
        self.try_open_next().inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn try_open_next(&mut self) -> Result<Next, Error> {
        let bytes = &mut self.buffer[self.sealed.clone()];
        let Some((header, rest)) = bytes.split_first_chunk_mut::<HEADER_LEN>() else { return Ok(Next::NotThere) };
        let n_sealed = n_sealed(*header)?;
        let Some(record) = rest.get_mut(..n_sealed) else { return Ok(Next::NotThere) };
        let opened = self.key.open(*header, record)?;
        let start = self.sealed.start + HEADER_LEN;
        let plain = start..start + opened.n_plain;
        self.sealed.start = start + n_sealed;
        self.n_without_data += 1;
        match opened.kind {
            APPLICATION_DATA if !plain.is_empty() => {
                self.n_without_data = 0;
                self.opened = plain;
            }
            APPLICATION_DATA => {}
            ALERT => self.heed_alert(plain)?,
            HANDSHAKE => self.heed_key_update(plain)?,
            _ => return Err(InvalidMessage::InvalidContentType.into()),
        }
        if self.n_without_data > MAX_WITHOUT_DATA {
            return Err(Error::General("too many records without data".into()));
        }
        Ok(if self.has_heard_goodbye { Next::Goodbye } else { Next::Opened })
    }

    fn heed_alert(&mut self, alert: Range<usize>) -> Result<(), Error> {
        match &self.buffer[alert] {
            alert if *alert == CLOSE_NOTIFY => {
                self.has_heard_goodbye = true;
                Ok(())
            }
            [_, description] => Err(Error::AlertReceived(AlertDescription::from(*description))),
            _ => Err(InvalidMessage::MessageTooShort.into()),
        }
    }

    /// Handshakes go on with nothing but new keys: our configuration offers no tickets, and certificates are asked for at the
    /// beginning only. A key update must be all of its record, since what follows it is under the new key.
    fn heed_key_update(&mut self, update: Range<usize>) -> Result<(), Error> {
        match &self.buffer[update] {
            update if *update == KEY_UPDATE => {}
            update if *update == KEY_UPDATE_REQUESTED => self.rekeying.request(),
            _ => return Err(InvalidMessage::UnexpectedMessage("a handshake that goes on").into()),
        }
        self.key = self.rekeying.key_for_receiving()?;
        Ok(())
    }

    /// Reads more, of which there is none if the other side is gone without a goodbye: that is an error, or whoever can cut
    /// the connection could make half a conversation look like a whole one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Less than a record is left.
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        self.opened = 0..0;
        let mut room = ReadBuf::new(&mut self.buffer[self.sealed.end..]);
        ready!(Pin::new(&mut self.source).poll_read(cx, &mut room))?;
        let (n_read, is_full) = (room.filled().len(), room.remaining() == 0);
        if n_read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.sealed.end += n_read;
        // Much is coming, so let more come at once.
        if is_full && self.buffer.len() < MAX_IN_LEN {
            self.buffer.resize(MAX_IN_LEN, 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for RecordReader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let n_taken = self.opened.len().min(buffer.remaining());
            buffer.put_slice(&self.buffer[self.opened.start..self.opened.start + n_taken]);
            self.opened.start += n_taken;
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let has_read = buffer.filled().len() > before;
            match self.open_next() {
                Ok(Next::Opened) => {}
                Ok(Next::Goodbye) => return Poll::Ready(Ok(())),
                // What is behind the bytes that there are, be it a failure, the next call finds again.
                Ok(Next::NotThere) | Err(_) if has_read => return Poll::Ready(Ok(())),
                Ok(Next::NotThere) => ready!(self.poll_fill(cx))?,
                Err(error) => return Poll::Ready(Err(to_io(error))),
            }
        }
    }
}
