//! Frames out of and into a byte stream: few system calls for small ones, no copies of large ones.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes};
use nettorrent_swarm::wire::{Frame, FrameError, HEAD_LEN, Head, Kind, MAX_BODY_LEN};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

// Holds some hundred small frames, and is little to copy when what follows a head turns out to be large.
const BUFFER_LEN: usize = 16 << 10;
// After a large body another one is likely to come, so only a little is read with its head, as the buffer is a detour.
const HEAD_READ_LEN: usize = 1 << 10;
// What is missing of a body is read into place if it is at least this much. Less goes through the buffer, which catches the
// next frames by the same call.
const DIRECT_LEN: usize = 4 << 10;
// Bodies up to here are allocated at once. Longer ones grow as their bytes arrive, so that announcing much costs us little.
pub(crate) const FIRST_ALLOCATION: usize = 256 << 10;
// A head and a body for each frame; Linux takes 1024 slices.
const MAX_SLICES: usize = 128;

/// Why no further frame comes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream ended between frames.
    #[error("the stream has ended")]
    Ended,
    /// The stream ended in the middle of a frame.
    #[error("the stream ended in the middle of a frame, {n_missing} bytes before its end")]
    CutOff {
        /// How much of the head or body is missing.
        n_missing: usize,
    },
    /// What came is no frame.
    #[error(transparent)]
    Malformed(#[from] FrameError),
    /// The stream failed.
    #[error("{0}")]
    Failed(#[from] io::Error),
}

/// Reads frames from a stream.
pub struct FrameReader<R> {
    source: R,
    buffer: Box<[u8; BUFFER_LEN]>,
    start: usize,
    end: usize,
    expects_large: bool,
    max_body_len: usize,
    // Whether the other side owes us the rest of a frame; shared with who watches over stalled links.
    owed: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of bodies up to [`MAX_BODY_LEN`].
    pub fn new(source: R) -> Self {
        Self {
            source,
            buffer: Box::new([0; BUFFER_LEN]),
            start: 0,
            end: 0,
            expects_large: false,
            max_body_len: MAX_BODY_LEN,
            owed: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Refuses longer bodies from now on.
    pub(crate) fn set_max_body_len(&mut self, max_body_len: usize) {
        self.max_body_len = max_body_len.min(MAX_BODY_LEN);
    }

    /// Where the bytes come from.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// The same reader under another type of source; what is buffered stays.
    pub(crate) fn map_source<S>(self, map: impl FnOnce(R) -> S) -> FrameReader<S> {
        let Self { source, buffer, start, end, expects_large, max_body_len, owed } = self;
        FrameReader { source: map(source), buffer, start, end, expects_large, max_body_len, owed }
    }

    /// Whether we wait for the rest of a frame.
    pub(crate) fn owed(&self) -> Arc<AtomicBool> {
        self.owed.clone()
    }

    /// The next frame. Its body is nobody else's, so that it may be turned into a mutable one without a copy.
    ///
    /// What has been read of a frame is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Frame, ReadError> {
        let head = self.head().await?;
        self.body(head).await
    }

    async fn head(&mut self) -> Result<Head, ReadError> {
        loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some((head, _)) = buffered.split_first_chunk::<HEAD_LEN>() {
                let head = Head::from_bytes(head)?;
                if head.n_bytes as usize > self.max_body_len {
                    return Err(FrameError::TooLong { n_bytes: head.n_bytes }.into());
                }
                self.start += HEAD_LEN;
                return Ok(head);
            }
            let n_missing = HEAD_LEN - buffered.len();
            self.owed.store(n_missing < HEAD_LEN, Ordering::Relaxed);
            if self.fill().await? == 0 {
                let between_frames = n_missing == HEAD_LEN;
                return Err(if between_frames { ReadError::Ended } else { ReadError::CutOff { n_missing } });
            }
        }
    }

    /// The body that belongs to the head just read.
    async fn body(&mut self, head: Head) -> Result<Frame, ReadError> {
        let n_bytes = head.n_bytes as usize;
        let mut body = Vec::with_capacity(n_bytes.min(FIRST_ALLOCATION));
        loop {
            let buffered = &self.buffer[self.start..self.end];
            let taken = buffered.len().min(n_bytes - body.len());
            body.extend_from_slice(&buffered[..taken]);
            self.start += taken;

            let n_missing = n_bytes - body.len();
            self.owed.store(n_missing > 0, Ordering::Relaxed);
            if n_missing == 0 {
                return Ok(Frame { head, body: Bytes::from(body) });
            }
            if body.len() == body.capacity() {
                body.reserve_exact(n_missing.min(body.len()));
            }
            self.expects_large = n_missing >= DIRECT_LEN;
            let result = if self.expects_large {
                let room = n_missing.min(body.capacity() - body.len());
                self.source.read_buf(&mut (&mut body).limit(room)).await
            } else {
                self.fill().await
            };
            let n_read = match result {
                // TLS calls it an error when a stream ends without a goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                result => result?,
            };
            if n_read == 0 {
                return Err(ReadError::CutOff { n_missing });
            }
        }
    }

    /// Reads what is there into the rest of the buffer.
    async fn fill(&mut self) -> io::Result<usize> {
        // Less than a head, or nothing, is left: moving it to the front costs nothing.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room_end = if self.expects_large { self.end + HEAD_READ_LEN } else { BUFFER_LEN };
        self.expects_large = false;
        let n_read = self.source.read(&mut self.buffer[self.end..room_end]).await?;
        self.end += n_read;
        Ok(n_read)
    }
}

/// Frames on their way out: many of them go in one call.
#[derive(Default)]
pub(crate) struct Outgoing {
    frames: VecDeque<([u8; HEAD_LEN], Kind, Bytes)>,
    // How many of them are probes: the first ones, or those behind another frame that has begun to leave.
    n_probes: usize,
    // How much of the first frame is gone already.
    n_gone: usize,
    // What is still to go.
    n_bytes: usize,
}

/// What one call has brought out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes, with heads.
    pub(crate) n_bytes: usize,
    /// Frames whose last byte is out.
    pub(crate) n_frames: usize,
    /// The bodies of these frames.
    pub(crate) n_body_bytes: usize,
    /// Those of them that are a strategy's.
    pub(crate) n_strategy_bytes: usize,
}

impl Outgoing {
    /// Lines a frame up: behind all others, or before those that have not begun to leave if it is a [`Kind::Probe`].
    pub(crate) fn push(&mut self, frame: Frame) {
        self.n_bytes += frame.n_bytes();
        let kind = frame.head.kind;
        let entry = (frame.head.to_bytes(), kind, frame.body);
        if kind != Kind::Probe {
            self.frames.push_back(entry);
            return;
        }
        let other_has_begun = self.n_gone > 0 && self.frames.front().is_some_and(|(_, kind, _)| *kind != Kind::Probe);
        self.frames.insert(usize::from(other_has_begun) + self.n_probes, entry);
        self.n_probes += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How much is still to go, with heads.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Writes as much as the stream takes at once, but at most `most_bytes`.
    pub(crate) async fn write(
        &mut self,
        sink: &mut (impl AsyncWrite + Unpin),
        most_bytes: usize,
    ) -> io::Result<Written> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let n_slices = self.slices(&mut slices, most_bytes);
        let n_bytes = sink.write_vectored(&slices[..n_slices]).await?;
        if n_bytes == 0 && n_slices > 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(self.advance(n_bytes))
    }

    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; MAX_SLICES], most_bytes: usize) -> usize {
        let mut n_slices = 0;
        let mut room = most_bytes;
        // Only the first frame can be gone in part.
        let mut n_gone = self.n_gone;
        for (head, _, body) in &self.frames {
            for part in [&head[..], &body[..]] {
                let n_skipped = n_gone.min(part.len());
                n_gone -= n_skipped;
                let part = &part[n_skipped..];
                let part = &part[..part.len().min(room)];
                if part.is_empty() {
                    continue;
                }
                slices[n_slices] = IoSlice::new(part);
                n_slices += 1;
                room -= part.len();
                if n_slices == MAX_SLICES {
                    return n_slices;
                }
            }
            if room == 0 {
                break;
            }
        }
        n_slices
    }

    fn advance(&mut self, n_bytes: usize) -> Written {
        let mut written = Written { n_bytes, ..Written::default() };
        self.n_gone += n_bytes;
        self.n_bytes -= n_bytes;
        while let Some((_, kind, body)) = self.frames.front() {
            let n_frame = HEAD_LEN + body.len();
            if self.n_gone < n_frame {
                break;
            }
            self.n_gone -= n_frame;
            written.n_frames += 1;
            written.n_body_bytes += body.len();
            written.n_strategy_bytes += if *kind == Kind::Strategy { body.len() } else { 0 };
            self.n_probes -= usize::from(*kind == Kind::Probe);
            self.frames.pop_front();
        }
        written
    }
}

/// Writes one frame and sees it off; for handshakes, where frames come one by one.
pub(crate) async fn write_frame(sink: &mut (impl AsyncWrite + Unpin), frame: Frame) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    outgoing.push(frame);
    while !outgoing.is_empty() {
        outgoing.write(sink, usize::MAX).await?;
    }
    sink.flush().await
}

#[cfg(test)]
mod tests {
    use super::{FIRST_ALLOCATION, FrameReader, Outgoing, ReadError, Written};
    use bytes::Bytes;
    use nettorrent_swarm::wire::{Frame, HEAD_LEN, Kind};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    #[test]
    fn many_probes_cost_no_more_each_than_one() {
        let mut outgoing = Outgoing::default();
        outgoing.push(Frame::new(Kind::Strategy, Bytes::from_static(b"last")));
        // If each looked at all before it, that would take some hours.
        for _ in 0..2_000_000 {
            outgoing.push(Frame::new(Kind::Probe, Bytes::new()));
        }
        assert!(outgoing.frames.iter().take(2_000_000).all(|(_, kind, _)| *kind == Kind::Probe));
        while outgoing.frames.len() > 1 {
            outgoing.advance(HEAD_LEN);
        }
        outgoing.push(Frame::new(Kind::Probe, Bytes::new()));
        let kinds: Vec<Kind> = outgoing.frames.iter().map(|(_, kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Probe, Kind::Strategy]);
    }

    /// Gives and takes bytes by a few at a time.
    struct Chopped {
        bytes: Vec<u8>,
        at: usize,
        rng: SmallRng,
        most: usize,
    }

    impl AsyncRead for Chopped {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let most = self.most;
            let n = self.rng.random_range(1..=most).min(buffer.remaining()).min(self.bytes.len() - self.at);
            buffer.put_slice(&self.bytes[self.at..self.at + n]);
            self.at += n;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Chopped {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let most = self.most;
            let n = self.rng.random_range(1..=most).min(bytes.len());
            self.bytes.extend_from_slice(&bytes[..n]);
            Poll::Ready(Ok(n))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let most = self.most;
            let mut room = self.rng.random_range(1..=most);
            let before = self.bytes.len();
            for slice in slices {
                let n = room.min(slice.len());
                self.bytes.extend_from_slice(&slice[..n]);
                room -= n;
            }
            Poll::Ready(Ok(self.bytes.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_survive_however_the_stream_is_chopped() {
        for seed in 0..60 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let frames: Vec<Frame> = (0..rng.random_range(1..40))
                .map(|number| {
                    let longest = [10, 1000, 20_000, 600_000][rng.random_range(0..4)];
                    let body = vec![number as u8; rng.random_range(0..longest)];
                    let kind = if rng.random() { Kind::Strategy } else { Kind::Snapshot };
                    Frame::in_round(kind, number, 0, 0, Bytes::from(body))
                })
                .collect();
            let most = [1000, 30_000, 1 << 20][rng.random_range(0..3)];
            let mut stream = Chopped { bytes: Vec::new(), at: 0, rng, most };

            let mut outgoing = Outgoing::default();
            frames.iter().for_each(|frame| outgoing.push(frame.clone()));
            let mut written = Written::default();
            while !outgoing.is_empty() {
                let now = outgoing.write(&mut stream, 300_000).await.unwrap();
                assert!(now.n_bytes <= 300_000);
                written.n_bytes += now.n_bytes;
                written.n_frames += now.n_frames;
                written.n_body_bytes += now.n_body_bytes;
                written.n_strategy_bytes += now.n_strategy_bytes;
            }
            let n_body_bytes = frames.iter().map(|frame| frame.body.len()).sum::<usize>();
            let n_bytes = n_body_bytes + frames.len() * HEAD_LEN;
            let ours = frames.iter().filter(|frame| frame.head.kind == Kind::Strategy);
            let n_strategy_bytes = ours.map(|frame| frame.body.len()).sum();
            let expected = Written { n_bytes, n_frames: frames.len(), n_body_bytes, n_strategy_bytes };
            assert_eq!(written, expected, "seed {seed}");
            assert_eq!((outgoing.n_bytes(), stream.bytes.len()), (0, n_bytes), "seed {seed}");

            let mut reader = FrameReader::new(stream);
            for frame in &frames {
                assert!(reader.next().await.unwrap() == *frame, "seed {seed}");
            }
            assert!(matches!(reader.next().await, Err(ReadError::Ended)));
        }
    }

    #[tokio::test]
    async fn probes_go_before_all_that_has_not_begun_to_leave() {
        let frame = |kind, number: u8| Frame::new(kind, Bytes::from(vec![number; 1000]));
        let mut outgoing = Outgoing::default();
        (0..3).for_each(|number| outgoing.push(frame(Kind::Strategy, number)));
        let mut sent = Vec::new();
        outgoing.write(&mut sent, 500).await.unwrap();
        (3..5).for_each(|number| outgoing.push(frame(Kind::Probe, number)));
        outgoing.push(frame(Kind::Membership, 5));
        while !outgoing.is_empty() {
            outgoing.write(&mut sent, 700).await.unwrap();
        }
        let mut reader = FrameReader::new(&sent[..]);
        for number in [0, 3, 4, 1, 2, 5] {
            assert_eq!(reader.next().await.unwrap().body[0], number);
        }
    }

    #[tokio::test]
    async fn bodies_take_exactly_their_length() {
        for n_bytes in [1, 5000, FIRST_ALLOCATION, FIRST_ALLOCATION + 1, 4 << 20] {
            let frame = Frame::new(Kind::Strategy, Bytes::from(vec![1; n_bytes]));
            let bytes = [&frame.head.to_bytes()[..], &frame.body].concat();
            let body = FrameReader::new(&bytes[..]).next().await.unwrap().body;
            assert_eq!(Vec::from(body).capacity(), n_bytes);
        }
    }
}
