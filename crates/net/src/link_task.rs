//! What runs for as long as a link lives: it reads, it writes, and it watches that both go on.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::task::{JoinError, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use crate::close_reason::CloseReason;
use crate::frames::{FrameReader, Outgoing};
use crate::inbox::LinkInbox;
use crate::link_state::{Closing, LinkState};
use crate::outflow::{Outflow, Stopwatch};
use crate::shaper::{Pace, Shaper};
use crate::sharing::Sharing;
use crate::traffic::Traffic;
use crate::transport::{BoxRead, BoxWrite};
use crate::wire::shut_down_gracefully;

// After so many bytes a link lets others have their turn: some 100 µs of work.
const TURN_BYTES: usize = 512 << 10;
// What a frame costs beside its bytes, so that many small ones end a turn too.
const FRAME_COST: usize = 4 << 10;
// How often within the time of a stall it is looked after.
const CHECKS_PER_STALL: u32 = 4;

/// One task for each direction, so that where there are threads to spare one can write while the other reads.
pub(crate) struct Task {
    pub(crate) state: Arc<LinkState>,
    pub(crate) sharing: Option<Arc<Sharing>>,
    pub(crate) inbox: LinkInbox,
    pub(crate) reader: FrameReader<BoxRead>,
    pub(crate) writer: BoxWrite,
}

impl Task {
    /// Runs until the link has ended, and says in the inbox why.
    pub(crate) async fn run(self, pace: Option<Pace>, card: Option<Arc<Shaper>>) {
        let Self { state, sharing, inbox, reader, mut writer } = self;
        let (stop, stopped) = oneshot::channel();
        let reading = Reading { state: state.clone(), sharing: sharing.clone(), inbox: inbox.clone(), card };
        let mut reading = tokio::spawn(reading.until(stopped, reader));
        let mut ended = None;
        let reason = {
            let writing = Writing { state: &state, sharing: sharing.as_deref(), writer: &mut writer };
            let writing = pin!(writing.write(pace));
            let closing = pin!(close(&state));
            let watching = pin!(watch(&state));
            tokio::select! {
                biased;
                end = &mut reading => {
                    let Some((reader, reason)) = brought(end) else { return };
                    ended = Some(reader);
                    reason.expect("nobody has stopped it")
                }
                reason = writing => reason,
                reason = closing => reason,
                reason = watching => reason,
            }
        };
        drop(stop);
        // Whatever it has read is in the inbox before the end is.
        let reader = match ended {
            Some(reader) => Some(reader),
            None => brought(reading.await).map(|(reader, _)| reader),
        };
        let Some(mut reader) = reader else { return };
        sharing.iter().for_each(|sharing| sharing.forget());
        state.finish();
        let is_friendly = matches!(reason, CloseReason::Ourselves | CloseReason::Theirs);
        inbox.closed(reason);
        if is_friendly {
            shut_down_gracefully(reader.source(), &mut writer).await;
        }
    }
}

/// What a task has brought; nothing, if the runtime has come to its end and so have we. If it panicked, so do we.
fn brought<T>(result: Result<T, JoinError>) -> Option<T> {
    match result.map_err(JoinError::try_into_panic) {
        Ok(brought) => Some(brought),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// The half that reads.
struct Reading {
    state: Arc<LinkState>,
    sharing: Option<Arc<Sharing>>,
    inbox: LinkInbox,
    card: Option<Arc<Shaper>>,
}

impl Reading {
    /// Reads until there is nothing more to read, or nobody wants to know; says why if it was the former.
    async fn until(
        self,
        stopped: oneshot::Receiver<()>,
        mut reader: FrameReader<BoxRead>,
    ) -> (FrameReader<BoxRead>, Option<CloseReason>) {
        let reason = tokio::select! {
            biased;
            reason = self.read(&mut reader) => Some(reason),
            _ = stopped => None,
        };
        (reader, reason)
    }

    async fn read(&self, reader: &mut FrameReader<BoxRead>) -> CloseReason {
        let mut turn = 0;
        if let Some(sharing) = &self.sharing {
            sharing.look(&self.state).await;
        }
        loop {
            let frame = match reader.next().await {
                Ok(frame) => frame,
                Err(error) => return error.into(),
            };
            self.state.traffic.add_received(&frame);
            turn += FRAME_COST + frame.body.len();
            if let Some(card) = &self.card {
                card.receive(frame.n_bytes()).await;
            }
            let frame = match &self.sharing {
                None => Some(frame),
                Some(sharing) => match sharing.hear(&self.state, frame).await {
                    Ok(frame) => frame,
                    Err(problem) => return problem.into(),
                },
            };
            // Who has closed the link wants nothing more from it; but we go on reading, since the other side may have to
            // write before it comes to read our last words.
            let frame = frame.filter(|_| !self.state.is_closing());
            if let Some(frame) = frame
                && self.inbox.frame(frame).await.is_err()
            {
                return CloseReason::NobodyReads;
            }
            if turn >= TURN_BYTES {
                turn = 0;
                yield_now().await;
            }
        }
    }
}

/// The half that writes.
struct Writing<'a> {
    state: &'a LinkState,
    sharing: Option<&'a Sharing>,
    writer: &'a mut BoxWrite,
}

impl Writing<'_> {
    async fn write(mut self, pace: Option<Pace>) -> CloseReason {
        let result = match pace {
            None => self.write_at_once().await,
            Some(pace) => self.write_paced(pace).await,
        };
        match result {
            Ok(()) => CloseReason::Ourselves,
            Err(error) => error.into(),
        }
    }

    /// Moves queued frames to those on their way.
    async fn take(&mut self, outgoing: &mut Outgoing) -> Option<Closing> {
        match self.sharing {
            None => self.state.take(outgoing),
            Some(sharing) => sharing.take(self.state, outgoing).await,
        }
    }

    /// Writes frames as they come; returns when the link is to be closed and all have been written.
    async fn write_at_once(&mut self) -> io::Result<()> {
        let state = self.state;
        let mut outgoing = Outgoing::default();
        let mut stopwatch = Stopwatch::default();
        let mut turn = 0;
        loop {
            let closing = self.take(&mut outgoing).await;
            if outgoing.is_empty() {
                self.writer.flush().await?;
                state.outflow.add(Outflow { n_bytes: 0, busy: stopwatch.stop() });
                if closing.is_some() && state.n_queued() == 0 {
                    return Ok(());
                }
                turn = 0;
                state.wait_for_frames().await;
                continue;
            }
            stopwatch.start();
            let written = outgoing.write(self.writer, TURN_BYTES).await?;
            state.count_sent(written);
            state.outflow.add(Outflow { n_bytes: written.n_bytes as u64, busy: stopwatch.lap() });
            turn += written.n_bytes;
            if turn >= TURN_BYTES {
                turn = 0;
                yield_now().await;
            }
        }
    }

    /// The same, but only as fast as the pace allows.
    async fn write_paced(&mut self, mut pace: Pace) -> io::Result<()> {
        let state = self.state;
        let mut outgoing = Outgoing::default();
        loop {
            let closing = self.take(&mut outgoing).await;
            if outgoing.is_empty() {
                self.writer.flush().await?;
                if closing.is_some() && state.n_queued() == 0 {
                    return Ok(());
                }
                state.wait_for_frames().await;
                continue;
            }
            let n_due = pace.due(Instant::now(), outgoing.n_bytes());
            state.outflow.add(pace.take_outflow());
            if n_due > 0 {
                let written = outgoing.write(self.writer, n_due).await?;
                pace.handed_over(written.n_bytes);
                state.count_sent(written);
                continue;
            }
            self.writer.flush().await?;
            let Some(next) = pace.next(outgoing.n_bytes()) else { continue };
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                // New frames are booked as they come, and not when an older one leaves.
                () = state.wait_for_frames(), if closing.is_none() => {}
            }
        }
    }
}

/// Cuts off who is too slow, now or when it takes too long to read our last words.
async fn close(state: &LinkState) -> CloseReason {
    match state.wait_for_closing().await {
        Closing::AfterSending => {
            sleep(state.limits.shutdown_timeout).await;
            CloseReason::Ourselves
        }
        Closing::TooSlow { n_queued } => CloseReason::TooSlow { n_queued, most: state.limits.max_queued_bytes },
    }
}

/// Notices when the other side stops in the middle of a frame, or does not take anything.
async fn watch(state: &LinkState) -> CloseReason {
    let mut before = (0, 0);
    let (mut quiet_reading, mut quiet_writing) = (0, 0);
    loop {
        sleep(state.limits.stall / CHECKS_PER_STALL).await;
        let Traffic { wire_received: received, wire_sent: sent, .. } = state.traffic.get();
        let waits_to_read = state.is_owed() && received == before.0;
        let waits_to_write = state.n_queued() > 0 && sent == before.1;
        quiet_reading = if waits_to_read { quiet_reading + 1 } else { 0 };
        quiet_writing = if waits_to_write { quiet_writing + 1 } else { 0 };
        if quiet_reading.max(quiet_writing) >= CHECKS_PER_STALL {
            return CloseReason::Stalled(state.limits.stall);
        }
        before = (received, sent);
    }
}
