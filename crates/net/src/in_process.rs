//! Streams between peers of one process, through memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::address::Address;
use crate::route::Route;
use crate::transport::{ByteStream, Doing, Listener, Transport, wrong_transport};

// What may be under way each way.
const STREAM_BYTES: usize = 256 << 10;
// How many may wait to be accepted; further ones are turned away.
const MAX_WAITING: usize = 64;

/// A network within a process; clones are the same one. At number 0 nobody listens: who asks for it gets a free one.
#[derive(Clone, Debug, Default)]
pub struct InProcess {
    listeners: Arc<Mutex<Listeners>>,
}

type Listeners = BTreeMap<u64, mpsc::Sender<DuplexStream>>;

impl InProcess {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen_at(&self, at: &Address) -> io::Result<Listening> {
        let Address::InProcess(wanted) = *at else { return Err(wrong_transport(at)) };
        let mut listeners = self.listeners();
        let number = match wanted {
            0 => (1..).find(|number| !listeners.contains_key(number)).expect("memory ends before the numbers do"),
            taken if listeners.contains_key(&taken) => return Err(io::ErrorKind::AddrInUse.into()),
            free => free,
        };
        let (sender, arrivals) = mpsc::channel(MAX_WAITING);
        listeners.insert(number, sender);
        Ok(Listening { network: self.clone(), number, arrivals })
    }

    fn connect_to(&self, to: &Address) -> io::Result<ByteStream> {
        let Address::InProcess(number) = *to else { return Err(wrong_transport(to)) };
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        self.listeners().get(&number).ok_or_else(refused)?.try_send(theirs).map_err(|_| refused())?;
        Ok(ByteStream::within(ours, number))
    }
}

impl Transport for InProcess {
    fn listen<'a>(&'a self, at: &'a Address) -> Doing<'a, Box<dyn Listener>> {
        Box::pin(async { self.listen_at(at).map(|listening| Box::new(listening) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
        Box::pin(async { self.connect_to(to) })
    }
}

struct Listening {
    network: InProcess,
    number: u64,
    arrivals: mpsc::Receiver<DuplexStream>,
}

impl Listener for Listening {
    fn address(&self) -> Address {
        Address::InProcess(self.number)
    }

    fn reachable_at(&self) -> Vec<Address> {
        vec![self.address()]
    }

    fn accept(&mut self) -> Doing<'_, ByteStream> {
        Box::pin(async {
            let stream = self.arrivals.recv().await.expect("the network holds a sender for as long as this listens");
            // Who connects need not listen anywhere.
            Ok(ByteStream::within(stream, 0))
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.network.listeners().remove(&self.number);
    }
}

impl ByteStream {
    fn within(stream: DuplexStream, number: u64) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read: Box::new(read),
            write: Box::new(write),
            address: Address::InProcess(number),
            route: Route::Memory.fixed(),
        }
    }
}

impl From<DuplexStream> for ByteStream {
    fn from(stream: DuplexStream) -> Self {
        Self::within(stream, 0)
    }
}
