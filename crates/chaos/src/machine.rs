//! A machine that computes at a given speed, gets stuck, and keeps to itself what its peer has to say.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nettorrent_net::machine::SimulatedMachine;
use tokio::sync::watch;

/// A machine that trains samples at a steady speed, except while it is stuck, and sends what its peer says, except while it is mute.
#[derive(Debug)]
pub struct Worker {
    sample_s: f64,
    is_stuck: watch::Sender<bool>,
    is_mute: AtomicBool,
    /// The last view in which it was mute. What was not sent would be missed in what is sent after it, so there is nothing more in that
    /// view.
    muted: AtomicU32,
}

impl Worker {
    /// One that takes so long for a sample.
    pub fn new(sample_s: f64) -> Self {
        let (is_mute, muted) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { sample_s, is_stuck: watch::Sender::new(false), is_mute, muted }
    }

    /// Sends nothing of its peer from now on, or does so again from the next view on.
    pub fn set_mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Relaxed);
    }

    /// Computes nothing from now on, or goes on.
    pub fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.send_replace(is_stuck);
    }
}

impl SimulatedMachine for Worker {
    fn sends(&self, view: u32) -> bool {
        if self.is_mute.load(Ordering::Relaxed) {
            self.muted.fetch_max(view, Ordering::Relaxed);
        }
        view > self.muted.load(Ordering::Relaxed)
    }

    fn work(&self, worth: f64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs_f64(self.sample_s * worth.max(0.01))).await;
            // Who asks is this worker, so the sender lives.
            let _ = self.is_stuck.subscribe().wait_for(|is_stuck| !is_stuck).await;
        })
    }
}
