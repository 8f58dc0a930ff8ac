//! Turns what a node reports into what its host is told, and has checkpoints written.

use std::time::Duration;

use bytes::Bytes;
use nettorrent_history::{PeerProgress, Times, Wait};
use nettorrent_net::membership::{Note, Why};
use nettorrent_net::report::Report;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{Peer, PeerId, Phase, Place};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::checkpoint_writer::{CheckpointWriter, Kept, Written};
use crate::monitor::Monitor;
use crate::peer_event::PeerEvent;
use crate::resources::resources;
use crate::telemetry::{self, Telemetry};
use crate::training::Training;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Whose checkpoints are kept where.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The peers have one folder: the first of those who are there writes.
    IfFirst,
    /// The folder is this peer's own.
    Always,
}

/// Has a peer's state written; the epochs of one are returned that is left out for it, because the disk is slow. In a pipeline nobody has
/// it whole: there the blocks come one by one.
pub(crate) fn keep_state(checkpoint_writer: &CheckpointWriter, peer: &dyn Peer) -> Option<u64> {
    peer.state().and_then(|state| checkpoint_writer.keep(state))
}

pub(crate) fn written_event(peer: PeerId, written: Written) -> PeerEvent {
    match written {
        Written::Kept(Kept { path, epoch, step }) => PeerEvent::Checkpoint { path, epoch, step },
        Written::Failed { epoch, step, problem } => {
            PeerEvent::CheckpointFailed { epoch, step, problem: problem.to_string() }
        }
        Written::NotMoved(problem) => PeerEvent::Note { peer, text: problem.to_string(), is_routine: false },
        Written::SetAside(path) => {
            let text =
                format!("a checkpoint of a state from which training did not go on was set aside: {}", path.display());
            PeerEvent::Note { peer, text, is_routine: false }
        }
    }
}

/// Turns what a node reports into events, and has checkpoints written.
pub(crate) struct Reporter<'a> {
    id: PeerId,
    training: &'a Training,
    checkpoint_writer: &'a CheckpointWriter,
    keep: Keep,
    monitor: Option<&'a Monitor>,
    /// What others are told.
    telemetry: Option<Outlet>,
    sums: PeerProgress,
    told: Instant,
    ahead: Ahead,
    epoch_told: u64,
    epoch_kept: u64,
    /// Of how many epochs the test is known.
    n_tested: u64,
    /// How often the swarm has gone back.
    n_rollbacks: u32,
    /// Whether it is told that checkpoints are left out.
    has_left_out: bool,
    /// The step of the last checkpoint of a pipeline that was to be gathered here, and whether all of it was.
    gathered: Option<(u64, bool)>,
}

/// Where what others are to know goes.
struct Outlet {
    telemetry: Telemetry,
    outlet: mpsc::UnboundedSender<Bytes>,
}

impl Outlet {
    /// Sends a message. If the node is gone, nobody hears it.
    fn send(&self, message: Vec<u8>) {
        let _ = self.outlet.send(message.into());
    }
}

/// Samples that were trained for a round.
#[derive(Clone, Copy, Default)]
struct Ahead {
    round: u32,
    n_samples: u64,
}

impl<'a> Reporter<'a> {
    /// For a peer that begins at a place. What others are to know goes to `outlet`.
    pub(crate) fn new(
        id: PeerId,
        training: &'a Training,
        (checkpoint_writer, keep): (&'a CheckpointWriter, Keep),
        monitor: Option<&'a Monitor>,
        outlet: mpsc::UnboundedSender<Bytes>,
        place: &Place,
    ) -> Self {
        let (epoch, n_rollbacks) = (place.ledger.epoch, place.n_rollbacks);
        // Where all have one folder, who started them hears each of them.
        let telemetry = (keep == Keep::Always).then(|| Outlet { telemetry: Telemetry::new(), outlet });
        let (sums, told, ahead) = (nothing(id), Instant::now(), Ahead::default());
        let (epoch_told, epoch_kept, n_tested) = (epoch, epoch, epoch);
        Self {
            id,
            training,
            checkpoint_writer,
            keep,
            monitor,
            telemetry,
            sums,
            told,
            ahead,
            epoch_told,
            epoch_kept,
            n_tested,
            n_rollbacks,
            gathered: None,
            has_left_out: false,
        }
    }

    pub(crate) fn on_report(&mut self, report: &Report<'_>, peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        for sample in self.monitor.into_iter().flat_map(Monitor::news) {
            self.tell_all(PeerEvent::Resources(resources(self.id, &sample)), tell);
        }
        // Epochs that were kept may be trained again, too, because nobody is left who has their end. Only who trains shows that: a peer
        // that has yet to take its layers over is nowhere.
        let trains = matches!(report, Report::Record { record, .. } if is_progress(&record.event));
        if peer.place().n_rollbacks != self.n_rollbacks || trains && peer.place().ledger.epoch < self.epoch_kept {
            self.go_back(peer);
        }
        if let Report::Record { record, waits } = report {
            self.count(&record.event, waits, peer, tell);
            self.keep_epoch(peer, tell);
        }
        let is_tested = match report {
            Report::Record { record: Record { event: Event::Epoch { epoch, .. }, .. }, .. } => {
                self.n_tested = *epoch;
                true
            }
            _ => false,
        };
        // That an epoch is over or tested is told at once: others want to know how long it took, and what was done in it.
        if is_tested || self.told.elapsed() >= TELL_EVERY || peer.place().ledger.epoch != self.epoch_told {
            self.tell_progress(peer, tell);
        }
        self.pass_on(report, peer, tell);
        for written in self.checkpoint_writer.news() {
            tell(written_event(self.id, written));
        }
        self.send_telemetry(peer);
    }

    /// Tells what is not only added up, and has written what belongs on the disk.
    fn pass_on(&mut self, report: &Report<'_>, peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        match report {
            Report::Saved(block) => {
                self.gathered = Some((block.state.place.step, block.is_last));
                self.checkpoint_writer.keep_block((*block).clone());
            }
            Report::Tick => {}
            Report::Telemetry { from, bytes } => {
                telemetry::read(*from, bytes).into_iter().for_each(|events| tell(PeerEvent::Heard(events)));
            }
            Report::Ending => self.tell_rest(peer, tell),
            Report::Record { record, .. } if is_progress(&record.event) => {}
            Report::Record { record, .. } => self.tell_all(PeerEvent::Record((*record).clone()), tell),
            Report::Note(note) => {
                let is_told = matches!(note, Note::Lost { why: Why::Told { .. }, .. });
                let is_routine = is_told || matches!(note, Note::Joined { .. } | Note::Left(_));
                tell(PeerEvent::Note { peer: self.id, text: note.to_string(), is_routine });
            }
            // Where all have one folder, nobody else can come.
            Report::Ticket(ticket) if self.keep == Keep::Always => {
                self.checkpoint_writer.keep_ticket((*ticket).clone());
            }
            Report::Ticket(_) => {}
            Report::Folder(news) => {
                tell(PeerEvent::Note { peer: self.id, text: news.text.clone(), is_routine: !news.is_warning });
            }
            Report::Refused(text) | Report::Keys(text) | Report::Route(text) => {
                tell(PeerEvent::Note { peer: self.id, text: text.clone(), is_routine: false });
            }
        }
    }

    /// Sends what the first member is to hear, if that is due.
    fn send_telemetry(&mut self, peer: &dyn Peer) {
        let Some(outlet) = &mut self.telemetry else { return };
        if peer.view().rank(self.id) == Some(0) {
            outlet.telemetry.forget();
        }
        if let Some(message) = outlet.telemetry.due() {
            outlet.send(message);
        }
    }

    /// Tells what others are to know too.
    fn tell_all(&mut self, event: PeerEvent, tell: &mut dyn FnMut(PeerEvent)) {
        self.telemetry.iter_mut().for_each(|outlet| outlet.telemetry.add(&event));
        tell(event);
    }

    /// Adds a batch or a round up, after telling of those before it if they belong to another epoch.
    fn count(&mut self, event: &Event, waits: &[(PeerId, Duration)], peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        if let Some(epoch) = epoch_of(event) {
            if self.sums.trained_in != epoch && !is_empty(&self.sums) {
                self.tell_progress(peer, tell);
            }
            self.sums.trained_in = epoch;
        }
        if let Event::Batch { round, n_samples, .. } = *event {
            let before = if self.ahead.round == round { self.ahead.n_samples } else { 0 };
            self.ahead = Ahead { round, n_samples: before + n_samples };
        }
        add(&mut self.sums, event, waits);
    }

    /// Samples of the round that goes on. The batches of a pipeline are all its peers', not each one's.
    fn n_ahead(&self, peer: &dyn Peer) -> u64 {
        let is_open = self.ahead.round == peer.place().version.round && self.training.job.pipeline.is_none();
        if is_open { self.ahead.n_samples } else { 0 }
    }

    fn tell_progress(&mut self, peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        let (status, elapsed) = (peer.status(), self.told.elapsed());
        (self.told, self.epoch_told) = (Instant::now(), status.epoch);
        // What follows before the next batch belongs to the same epoch.
        let next = PeerProgress { trained_in: self.sums.trained_in, ..nothing(self.id) };
        let sums = std::mem::replace(&mut self.sums, next);
        let progress = PeerProgress {
            epoch: status.epoch,
            n_tested: self.n_tested,
            step: peer.place().step,
            n_samples_all: peer.place().version.n_samples,
            n_ahead: self.n_ahead(peer),
            times: Times { elapsed_s: elapsed.as_secs_f64(), ..sums.times },
            phase: status.phase,
            waits_for: status.waits_for,
            ..sums
        };
        self.tell_all(PeerEvent::Progress(progress), tell);
    }

    /// The last rounds may have ended with others in one step, after that was told: nothing follows that would tell of them. Others
    /// hear of all that they have not heard yet.
    fn tell_rest(&mut self, peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        if !is_empty(&self.sums) {
            self.tell_progress(peer, tell);
        }
        if self.telemetry.is_some() {
            for sample in self.monitor.map(Monitor::look).unwrap_or_default() {
                self.tell_all(PeerEvent::Resources(resources(self.id, &sample)), tell);
            }
        }
        if let Some(outlet) = &mut self.telemetry {
            while let Some(message) = outlet.telemetry.rest() {
                outlet.send(message);
            }
        }
    }

    /// Whether this peer writes checkpoints: into a folder of its own what it holds, and else what the first member does. Of a
    /// pipeline nobody else has the whole.
    pub(crate) fn writes(&self, peer: &dyn Peer) -> bool {
        let has_all = self.training.pipelines.is_none();
        self.keep == Keep::Always && has_all || peer.view().rank(self.id) == Some(0)
    }

    /// Whether what the peer came to is to be on this peer's disk. The whole of a pipeline is on that of whoever gathered it last.
    pub(crate) fn has_kept(&self, peer: &dyn Peer) -> bool {
        match self.training.pipelines {
            Some(_) => self
                .gathered
                .is_some_and(|(step, is_whole)| step == peer.place().step && (is_whole || self.writes(peer))),
            None => self.writes(peer),
        }
    }

    /// The swarm goes on from an earlier state: what was kept of later ones is void.
    fn go_back(&mut self, peer: &dyn Peer) {
        let place = peer.place();
        self.n_rollbacks = place.n_rollbacks;
        self.epoch_kept = self.epoch_kept.min(place.ledger.epoch);
        self.n_tested = self.n_tested.min(place.ledger.epoch);
        if self.writes(peer) {
            self.checkpoint_writer.set_aside_after(place.step);
        }
    }

    /// Has an epoch's end written, if this peer is the one to write it.
    fn keep_epoch(&mut self, peer: &dyn Peer, tell: &mut dyn FnMut(PeerEvent)) {
        let epoch = peer.place().ledger.epoch;
        if epoch <= self.epoch_kept {
            return;
        }
        self.epoch_kept = epoch;
        let every = self.training.job.checkpoint.every;
        let is_due = every > 0 && epoch.is_multiple_of(every);
        if is_due && self.writes(peer) && peer.is_healthy() {
            if let Some(epoch) = keep_state(self.checkpoint_writer, peer).filter(|_| !self.has_left_out) {
                self.has_left_out = true;
                let text = format!(
                    "the disk is slower than the epochs: of checkpoints that wait, only the newest is written (first left out: epoch {epoch})"
                );
                tell(PeerEvent::Note { peer: self.id, text, is_routine: false });
            }
            if self.training.is_alone() {
                // Nobody else is to be answered meanwhile, and what is told of the epoch next is on the disk.
                self.checkpoint_writer.wait();
            }
        }
    }
}

fn nothing(peer: PeerId) -> PeerProgress {
    PeerProgress {
        epoch: 0,
        n_tested: 0,
        step: 0,
        n_samples_all: 0,
        n_ahead: 0,
        trained_in: 0,
        n_samples: 0,
        loss_sum: 0.0,
        n_correct: 0,
        lr: 0.0,
        times: Times::of(peer),
        phase: Phase::Agreeing,
        waits_for: Vec::new(),
    }
}

/// Whether nothing was added up.
fn is_empty(sums: &PeerProgress) -> bool {
    let Times { compute_s, wait_s, sent_bytes, received_bytes, .. } = sums.times;
    (sums.n_samples, sent_bytes, received_bytes) == (0, 0, 0) && compute_s + wait_s == 0.0
}

fn add(sums: &mut PeerProgress, event: &Event, waits: &[(PeerId, Duration)]) {
    match *event {
        Event::Batch { n_samples, loss, n_correct, lr, compute_s, .. } => {
            sums.n_samples += n_samples;
            sums.loss_sum += loss * n_samples as f64;
            sums.n_correct += n_correct;
            sums.lr = lr;
            sums.times.compute_s += compute_s;
        }
        Event::Round { wait_s, encode_s, decode_s, send_s, sent_bytes, received_bytes, .. }
        | Event::Synced { wait_s, encode_s, decode_s, send_s, sent_bytes, received_bytes, .. } => {
            let waits = waits.iter().map(|&(peer, time)| Wait { peer, seconds: time.as_secs_f64() }).collect();
            sums.times += &Times {
                wait_s,
                encode_s,
                decode_s,
                send_s,
                sent_bytes,
                received_bytes,
                waits,
                ..Times::of(sums.times.peer)
            };
        }
        Event::View { .. }
        | Event::Epoch { .. }
        | Event::Evaluation { .. }
        | Event::Replica { .. }
        | Event::Ended { .. }
        | Event::GivenUp { .. }
        | Event::StateReceived { .. }
        | Event::Differs { .. }
        | Event::LateDonor { .. }
        | Event::Joined { .. }
        | Event::Lost { .. }
        | Event::LeftOut { .. }
        | Event::RolledBack { .. }
        | Event::Finished { .. } => {}
    }
}

/// The epoch that a batch or a round belongs to, counted from 0.
fn epoch_of(event: &Event) -> Option<u64> {
    match *event {
        Event::Batch { epoch, .. } | Event::Round { epoch, .. } => Some(epoch),
        Event::Synced { epoch, .. } => epoch.checked_sub(1),
        _ => None,
    }
}

/// Whether it is only added up and told now and then.
fn is_progress(event: &Event) -> bool {
    matches!(event, Event::Batch { .. } | Event::Round { .. } | Event::Synced { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use nettorrent_engine::job::Job;
    use nettorrent_engine::optimizer::Optimizer;
    use nettorrent_net::report::Report;
    use nettorrent_swarm::{PeerId, Place, SavedBlock, State};
    use tokio::sync::{Notify, mpsc};

    use super::{Keep, Reporter};
    use crate::checkpoint_writer::CheckpointWriter;
    use crate::disk::Disk;
    use crate::run_folder::RunFolder;
    use crate::start_state::StartState;
    use crate::training::Training;

    /// Reports a block, which is not written before that has returned.
    fn report_a_block() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ["model=mlp:8", "pipeline.stages=[{layers=4}]"].map(str::to_owned);
        let training = Training::from_job(Job::parse("the test's job", "", &settings).unwrap(), 1).unwrap();
        let run = RunFolder::create(Some(&folder.path().join("run")), &training.job, None).unwrap();
        let part = training.pipelines.as_ref().unwrap().part(0).clone();
        let (values, optimizer) =
            (vec![0.0; part.n_values()], Optimizer::new(training.job.optimizer.clone(), part.n_params()));
        let state = Arc::new(State::new(Arc::new(values), optimizer, Place::default(), Vec::new()));
        let block = SavedBlock { part, state, is_first: true, is_last: false };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let has_returned = Arc::new(Notify::new());
        let may_end = has_returned.clone();
        let on_block = async move |_| may_end.notified().await;
        let writer = CheckpointWriter::start(run, Disk::Here, &training, on_block).unwrap();
        let (outlet, _messages) = mpsc::unbounded_channel();
        let (id, place) = (PeerId(0), Place::default());
        let peer = StartState::fresh(&training).into_peer(id, &training);
        let mut reporter = Reporter::new(id, &training, (&writer, Keep::IfFirst), None, outlet, &place);
        reporter.on_report(&Report::Saved(&block), &*peer, &mut |_| ());
        has_returned.notify_one();
        runtime.block_on(writer.finish()).unwrap();
    }

    #[test]
    fn who_trains_does_not_wait_for_a_block_to_be_written() {
        let (reports, reported) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            report_a_block();
            reports.send(())
        });
        reported.recv_timeout(Duration::from_secs(60)).expect("an end, not a wait for the disk");
    }
}
