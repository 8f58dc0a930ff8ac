//! A network whose links are slow, break one way or both, and are reset.
//!
//! It behaves as TCP does: what is sent over a link that is cut waits and comes when the link is mended; a call over one waits too. Whoever
//! is killed hangs up.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nettorrent_engine::rng::Rng;
use nettorrent_net::address::Address;
use nettorrent_net::route::Route;
use nettorrent_net::transport::{ByteStream, Doing, Listener, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};

/// A process's number; it listens at the address of the same number.
pub type Host = u64;

/// What may be under way each way.
const STREAM_BYTES: usize = 256 << 10;
/// What travels together.
const CHUNK_BYTES: usize = 16 << 10;
/// How many may wait to be accepted.
const MAX_WAITING: usize = 64;
/// How long a chunk takes, at least and at most.
const DELAY_S: [f32; 2] = [0.000_2, 0.004];

/// A network; clones are the same one.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Tells whenever the state changes. (Not a `watch`, which wakes those who wait in a random order.)
    changed: Notify,
}

#[derive(Debug)]
struct State {
    listeners: BTreeMap<Host, mpsc::Sender<ByteStream>>,
    /// From whom nothing gets to whom, and how many causes that has.
    cuts: BTreeMap<(Host, Host), u32>,
    /// Those that neither send nor receive for now.
    suspended: BTreeSet<Host>,
    /// Those that are gone.
    dead: BTreeSet<Host>,
    /// How often links between two were reset.
    n_resets: BTreeMap<(Host, Host), u64>,
    rng: Rng,
}

impl State {
    fn is_blocked(&self, from: Host, to: Host) -> bool {
        self.cuts.contains_key(&(from, to)) || self.suspended.contains(&from) || self.suspended.contains(&to)
    }

    fn is_over(&self, from: Host, to: Host, n_resets: u64) -> bool {
        self.dead.contains(&from) || self.dead.contains(&to) || self.n_resets(from, to) != n_resets
    }

    fn n_resets(&self, a: Host, b: Host) -> u64 {
        self.n_resets.get(&(a.min(b), a.max(b))).copied().unwrap_or(0)
    }
}

impl Network {
    /// A network on which all is well; how long things take follows from the seed.
    pub fn new(seed: u64) -> Self {
        let state = State {
            listeners: BTreeMap::new(),
            cuts: BTreeMap::new(),
            suspended: BTreeSet::new(),
            dead: BTreeSet::new(),
            n_resets: BTreeMap::new(),
            rng: Rng::stream(seed, "network", 0),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), changed: Notify::new() }) }
    }

    /// The network as one host has it.
    pub fn of(&self, host: Host) -> Arc<dyn Transport> {
        Arc::new(Access { network: self.clone(), host })
    }

    /// From now on nothing gets from one to another.
    pub fn cut(&self, from: Host, to: Host) {
        self.change(|state| *state.cuts.entry((from, to)).or_default() += 1);
    }

    /// Takes back one [`cut`](Self::cut).
    pub fn mend(&self, from: Host, to: Host) {
        self.change(|state| match state.cuts.get_mut(&(from, to)) {
            Some(n) if *n > 1 => *n -= 1,
            _ => drop(state.cuts.remove(&(from, to))),
        });
    }

    /// Ends all connections between two.
    pub fn reset(&self, a: Host, b: Host) {
        self.change(|state| *state.n_resets.entry((a.min(b), a.max(b))).or_default() += 1);
    }

    /// A host neither sends nor receives, or does again.
    pub fn suspend(&self, host: Host, is_suspended: bool) {
        self.change(|state| match is_suspended {
            true => state.suspended.insert(host),
            false => state.suspended.remove(&host),
        });
    }

    /// A host is gone: its connections end, and nobody listens there any more.
    pub fn kill(&self, host: Host) {
        self.change(|state| {
            state.dead.insert(host);
            state.listeners.remove(&host);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        change(&mut self.state());
        self.inner.changed.notify_waiters();
    }

    /// Waits until the way is free; an error if the connection is over.
    async fn passable(&self, from: Host, to: Host, n_resets: u64) -> io::Result<()> {
        let is_over = |state: &State| state.is_over(from, to, n_resets);
        self.until(|state| is_over(state) || !state.is_blocked(from, to)).await;
        if is_over(&self.state()) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// Waits until the connection is over.
    async fn over(&self, from: Host, to: Host, n_resets: u64) {
        self.until(|state| state.is_over(from, to, n_resets)).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Whoever begins to listen before it looks misses nothing.
            let mut changed = pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    fn delay(&self) -> Duration {
        let [least, most] = DELAY_S;
        Duration::from_secs_f32(self.state().rng.range(least, most))
    }

    async fn connect(&self, from: Host, to: Host) -> io::Result<ByteStream> {
        let n_resets = self.state().n_resets(from, to);
        tokio::time::sleep(self.delay()).await;
        self.passable(from, to, n_resets).await?;
        self.passable(to, from, n_resets).await?;
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = self.state().listeners.get(&to).cloned().ok_or_else(refused)?;
        let (ours, there) = self.pipe(from, to, n_resets);
        listener.try_send(there).map_err(|_| refused())?;
        Ok(ours)
    }

    /// Two ends that are joined by this network.
    fn pipe(&self, from: Host, to: Host, n_resets: u64) -> (ByteStream, ByteStream) {
        let (ours, near) = tokio::io::duplex(STREAM_BYTES);
        let (theirs, far) = tokio::io::duplex(STREAM_BYTES);
        let ((near_read, near_write), (far_read, far_write)) = (tokio::io::split(near), tokio::io::split(far));
        tokio::spawn(self.clone().carry(near_read, far_write, (from, to), n_resets));
        tokio::spawn(self.clone().carry(far_read, near_write, (to, from), n_resets));
        (stream(ours, to), stream(theirs, from))
    }

    /// Carries bytes one way until either end closes or the connection is over.
    async fn carry(
        self,
        mut source: ReadHalf<DuplexStream>,
        mut sink: WriteHalf<DuplexStream>,
        (from, to): (Host, Host),
        n_resets: u64,
    ) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let n_read = tokio::select! {
                biased;
                () = self.over(from, to, n_resets) => return,
                n_read = source.read(&mut chunk) => n_read.unwrap_or(0),
            };
            tokio::time::sleep(self.delay()).await;
            if self.passable(from, to, n_resets).await.is_err() {
                return;
            }
            if n_read == 0 {
                // Whoever closed has nothing more to say; the other way may go on.
                let _ = sink.shutdown().await;
                return;
            }
            let sent = tokio::select! {
                biased;
                () = self.over(from, to, n_resets) => return,
                sent = sink.write_all(&chunk[..n_read]) => sent,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

fn stream(stream: DuplexStream, to: Host) -> ByteStream {
    let (read, write) = tokio::io::split(stream);
    ByteStream {
        read: Box::new(read),
        write: Box::new(write),
        address: Address::InProcess(to),
        route: Route::Memory.fixed(),
    }
}

/// One host's access to a network.
#[derive(Debug)]
struct Access {
    network: Network,
    host: Host,
}

impl Transport for Access {
    fn listen<'a>(&'a self, _: &'a Address) -> Doing<'a, Box<dyn Listener>> {
        Box::pin(async {
            let (sender, arrivals) = mpsc::channel(MAX_WAITING);
            self.network.change(|state| state.listeners.insert(self.host, sender));
            Ok(Box::new(Listening { network: self.network.clone(), host: self.host, arrivals }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
        Box::pin(async {
            let Address::InProcess(to) = *to else { return Err(io::ErrorKind::Unsupported.into()) };
            self.network.connect(self.host, to).await
        })
    }
}

struct Listening {
    network: Network,
    host: Host,
    arrivals: mpsc::Receiver<ByteStream>,
}

impl Listener for Listening {
    fn address(&self) -> Address {
        Address::InProcess(self.host)
    }

    fn reachable_at(&self) -> Vec<Address> {
        vec![self.address()]
    }

    fn accept(&mut self) -> Doing<'_, ByteStream> {
        Box::pin(async {
            match self.arrivals.recv().await {
                Some(stream) => Ok(stream),
                // The host is dead, and so is whoever listens.
                None => std::future::pending().await,
            }
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.network.change(|state| drop(state.listeners.remove(&self.host)));
    }
}
