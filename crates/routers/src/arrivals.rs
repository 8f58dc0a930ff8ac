//! Who comes over QUIC: each shakes hands by itself, so that nobody holds up the next.

use std::collections::VecDeque;
use std::time::Duration;

use iroh::Endpoint;
use iroh::endpoint::Incoming;
use nettorrent_net::transport::ByteStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::stream::byte_stream;

// Whoever takes longer from the first packet to the first byte is no peer.
const HANDSHAKE: Duration = Duration::from_secs(10);
// One more pushes the oldest out.
const MAX_HANDSHAKES: usize = 256;
// How many may wait to be taken; the endpoint takes them as they come.
const MAX_WAITING: usize = 64;

/// Accepts those who come, until it is dropped.
pub(crate) struct Arrivals {
    streams: mpsc::Receiver<ByteStream>,
    task: AbortHandle,
}

impl Arrivals {
    pub(crate) fn of(endpoint: Endpoint) -> Self {
        let (sender, streams) = mpsc::channel(MAX_WAITING);
        Self { streams, task: tokio::spawn(accept_all(endpoint, sender)).abort_handle() }
    }

    /// The next one; none when the endpoint is closed.
    pub(crate) async fn next(&mut self) -> Option<ByteStream> {
        self.streams.recv().await
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_all(endpoint: Endpoint, streams: mpsc::Sender<ByteStream>) {
    let mut under_way = UnderWay::default();
    while let Some(incoming) = endpoint.accept().await {
        under_way.make_room();
        let (endpoint, streams) = (endpoint.clone(), streams.clone());
        let task = tokio::spawn(async move {
            if let Ok(Some(stream)) = timeout(HANDSHAKE, shake(incoming, endpoint)).await {
                // If nobody takes it, it is hung up.
                let _ = streams.send(stream).await;
            }
        });
        under_way.tasks.push_back(task.abort_handle());
    }
}

/// Shakes hands; the one stream is there when the other side has said something.
async fn shake(incoming: Incoming, endpoint: Endpoint) -> Option<ByteStream> {
    let connection = incoming.accept().ok()?.await.ok()?;
    let halves = connection.accept_bi().await.ok()?;
    Some(byte_stream(halves, connection, &endpoint))
}

/// Handshakes, oldest first.
#[derive(Default)]
struct UnderWay {
    tasks: VecDeque<AbortHandle>,
}

impl UnderWay {
    fn make_room(&mut self) {
        self.tasks.retain(|task| !task.is_finished());
        if self.tasks.len() >= MAX_HANDSHAKES {
            self.tasks.pop_front().iter().for_each(AbortHandle::abort);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
