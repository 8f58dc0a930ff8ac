//! A machine that computes at a given speed, and gets stuck.

use std::pin::Pin;
use std::time::Duration;

use nettorrent_net::machine::SimulatedMachine;
use tokio::sync::watch;

/// A machine that trains samples at a steady speed, except while it is stuck.
#[derive(Debug)]
pub struct Worker {
    sample_s: f64,
    is_stuck: watch::Sender<bool>,
}

impl Worker {
    /// One that takes so long for a sample.
    pub fn new(sample_s: f64) -> Self {
        Self { sample_s, is_stuck: watch::Sender::new(false) }
    }

    /// Computes nothing from now on, or goes on.
    pub fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.send_replace(is_stuck);
    }
}

impl SimulatedMachine for Worker {
    fn work(&self, worth: f64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs_f64(self.sample_s * worth.max(0.01))).await;
            // Who asks is this worker, so the sender lives.
            let _ = self.is_stuck.subscribe().wait_for(|is_stuck| !is_stuck).await;
        })
    }
}
