//! What computes while the network is served: a thread, or a machine that is simulated.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nettorrent_engine::task::Worker;
use nettorrent_swarm::{Done, Work};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::emulated_speed::EmulatedSpeed;
use crate::machine::{Machine, SimulatedMachine};
use crate::work_watch::WorkWatch;

/// For how long batches of a local phase are told together: to wake the thread that answers others for each of many short ones would
/// take a tenth of their time.
const TOLD_TOGETHER: Duration = Duration::from_millis(2);

/// Does a peer's work, one piece after the other. It ends, when it is dropped, after the piece it is at.
pub(crate) struct Compute {
    orders: Orders,
    watch: Arc<WorkWatch>,
}

/// Who does the work.
enum Orders {
    /// A thread.
    Thread(mpsc::Sender<Work>),
    /// A task that does it in place and waits for as long as it would take.
    Simulated(UnboundedSender<Work>),
}

/// Work that is done, or a part of it, and how long it has taken so far.
pub(crate) type Finding = (Done, Duration);

/// Where findings go: several at a time, since each message wakes the thread that answers others.
pub(crate) type Findings = UnboundedSender<Vec<Finding>>;

impl Compute {
    /// Starts what computes. What it finds goes to `findings`, when that machine would find it.
    pub(crate) fn start(worker: Box<dyn Worker>, machine: Machine, findings: Findings) -> std::io::Result<Self> {
        let watch = Arc::new(WorkWatch::default());
        let orders = match machine {
            Machine::Here => start_thread(worker, None, findings, watch.clone())?,
            Machine::Slowed(speed) => start_thread(worker, Some(speed), findings, watch.clone())?,
            Machine::Simulated(machine) => {
                let (work, orders) = unbounded_channel();
                tokio::spawn(simulate(worker, machine, orders, (findings, watch.clone())));
                Orders::Simulated(work)
            }
        };
        Ok(Self { orders, watch })
    }

    /// Whether it has been at something for far longer than usual, and longer than this, without finding anything.
    pub(crate) fn is_stuck(&self, least: Duration) -> bool {
        self.watch.is_stuck(Instant::now(), least)
    }

    /// Whether it is at something.
    pub(crate) fn is_busy(&self) -> bool {
        self.watch.is_busy()
    }

    /// Has something computed.
    pub(crate) fn order(&self, work: Work) {
        // Only a panic ends what computes, and it has told of it.
        match &self.orders {
            Orders::Thread(orders) => drop(orders.send(work)),
            Orders::Simulated(orders) => drop(orders.send(work)),
        }
    }
}

/// Starts a thread that does work as it comes, as late as if the machine had that speed.
fn start_thread(
    mut worker: Box<dyn Worker>,
    speed: Option<EmulatedSpeed>,
    findings: Findings,
    watch: Arc<WorkWatch>,
) -> std::io::Result<Orders> {
    let (orders, received) = mpsc::channel::<Work>();
    thread::Builder::new().name("compute".into()).spawn(move || {
        let mut first = None;
        for work in received {
            let first = *first.get_or_insert_with(Instant::now);
            watch.begin(Instant::now(), work.worth());
            let mut pieces = Pieces::new(first, &work, speed.as_ref(), (&findings, &watch));
            let computed = panic::catch_unwind(AssertUnwindSafe(|| {
                work.prefetch(worker.as_mut());
                work.run(worker.as_mut(), &mut |done| pieces.add(done));
            }));
            if let Err(payload) = computed {
                let problem = format!("computing panicked: {}", panic_text(payload.as_ref()));
                return pieces.tell(Done::Failed { problem });
            }
            pieces.tell_all();
            watch.end(Instant::now());
        }
    })?;
    Ok(Orders::Thread(orders))
}

/// Does work at once, and hands over what was found as the machine gets to it.
async fn simulate(
    mut worker: Box<dyn Worker>,
    machine: Arc<dyn SimulatedMachine>,
    mut orders: UnboundedReceiver<Work>,
    (findings, watch): (Findings, Arc<WorkWatch>),
) {
    while let Some(work) = orders.recv().await {
        let (worth, mut found, mut buckets) = (work.worth(), Vec::new(), Vec::new());
        watch.begin(Instant::now(), worth);
        work.run(worker.as_mut(), &mut |done| found.push(done));
        for done in found {
            if let Done::Bucket { .. } = done {
                buckets.push(done);
                continue;
            }
            let worth = if let Done::Stepped { stepped, .. } = &done { stepped.n_samples() as f64 } else { worth };
            let began = Instant::now();
            machine.work(worth).await;
            watch.go_on(Instant::now());
            for done in buckets.drain(..).chain([done]) {
                // If nobody listens any more, the peer is gone.
                let _ = findings.send(vec![(done, began.elapsed())]);
            }
        }
        watch.end(Instant::now());
    }
}

/// What comes of a work, on its way to the peer.
struct Pieces<'a> {
    /// When the first work of all began, and the present one; of a local phase, its batch.
    first: Instant,
    began: Instant,
    /// How many samples the work is worth.
    worth: f64,
    speed: Option<&'a EmulatedSpeed>,
    findings: &'a Findings,
    watch: &'a WorkWatch,
    /// Where a slower machine is emulated: what that would not have found yet.
    found: Vec<Done>,
    /// Batches that are yet to be told, and when others were told last.
    untold: Vec<Finding>,
    told: Instant,
}

impl<'a> Pieces<'a> {
    fn new(
        first: Instant,
        work: &Work,
        speed: Option<&'a EmulatedSpeed>,
        (findings, watch): (&'a Findings, &'a WorkWatch),
    ) -> Self {
        let (now, worth) = (Instant::now(), work.worth());
        Self { first, began: now, worth, speed, findings, watch, found: Vec::new(), untold: Vec::new(), told: now }
    }

    fn add(&mut self, done: Done) {
        if self.speed.is_some() && matches!(done, Done::Bucket { .. }) {
            return self.found.push(done);
        }
        let step = if let Done::Stepped { stepped, .. } = &done { Some(stepped.n_samples()) } else { None };
        if let Some(speed) = self.speed {
            let worth = step.map_or(self.worth, |n_samples| n_samples as f64);
            let lasts = speed.duration(worth, self.began - self.first);
            thread::sleep(lasts.saturating_sub(self.began.elapsed()));
            std::mem::take(&mut self.found).into_iter().for_each(|done| self.tell(done));
        }
        self.tell(done);
        if step.is_some() {
            self.began = Instant::now();
        }
    }

    fn tell(&mut self, done: Done) {
        let now = Instant::now();
        self.watch.go_on(now);
        let may_wait = matches!(&done, Done::Stepped { stepped, .. } if stepped.is_finite && stepped.end.is_none());
        self.untold.push((done, now - self.began));
        if !may_wait || now - self.told >= TOLD_TOGETHER {
            self.told = now;
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        // If nobody listens any more, the peer is gone, and so are we in a moment.
        if !self.untold.is_empty() {
            let _ = self.findings.send(std::mem::take(&mut self.untold));
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why")
}
