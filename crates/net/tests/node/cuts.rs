//! A network within the process whose links can be cut without anybody being told.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use nettorrent_net::address::Address;
use nettorrent_net::in_process::InProcess;
use nettorrent_net::transport::{BoxRead, BoxWrite, ByteStream, Doing, Listener, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who cannot send to whom, by address.
pub(crate) type Cuts = Arc<Mutex<BTreeSet<(Address, Address)>>>;

/// One peer's way to the others.
#[derive(Debug)]
pub(crate) struct CutNetwork {
    pub(crate) network: InProcess,
    pub(crate) cuts: Cuts,
    /// Where the peer listens.
    pub(crate) me: Address,
}

impl Transport for CutNetwork {
    fn listen<'a>(&'a self, at: &'a Address) -> Doing<'a, Box<dyn Listener>> {
        self.network.listen(at)
    }

    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
        Box::pin(async move {
            let cut = |from: &Address, to: &Address| Cut { cuts: self.cuts.clone(), way: (from.clone(), to.clone()) };
            let (there, back) = (cut(&self.me, to), cut(to, &self.me));
            if there.is_cut() || back.is_cut() {
                // What is sent to find a way is lost.
                return std::future::pending().await;
            }
            let ByteStream { read, write, address, route } = self.network.connect(to).await?;
            let (read, write) = (CutRead { cut: back, read }, CutWrite { cut: there, write });
            Ok(ByteStream { read: Box::new(read), write: Box::new(write), address, route })
        })
    }
}

struct Cut {
    cuts: Cuts,
    way: (Address, Address),
}

impl Cut {
    fn is_cut(&self) -> bool {
        self.cuts.lock().unwrap().contains(&self.way)
    }
}

struct CutRead {
    cut: Cut,
    read: BoxRead,
}

impl AsyncRead for CutRead {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let n_before = buf.filled().len();
            match Pin::new(&mut self.read).poll_read(cx, buf) {
                // What arrives over a link that is cut has not arrived.
                Poll::Ready(Ok(())) if self.cut.is_cut() && buf.filled().len() > n_before => buf.set_filled(n_before),
                other => return other,
            }
        }
    }
}

struct CutWrite {
    cut: Cut,
    write: BoxWrite,
}

impl AsyncWrite for CutWrite {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // The system takes it all the same.
        if self.cut.is_cut() { Poll::Ready(Ok(bytes.len())) } else { Pin::new(&mut self.write).poll_write(cx, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
