//! What an exchange costs.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

/// What a strategy's price depends on.
#[derive(Clone, Copy, Debug)]
pub struct CostQuestion<'a> {
    /// How many peers there are.
    pub n_peers: usize,
    /// The buckets of the vector that is exchanged; see [`super::OptimizerState::exchanged`].
    pub buckets: &'a [Range<usize>],
    /// How many of its numbers are trained; the rest are running statistics.
    pub n_params: usize,
    /// The number of the round, where the price depends on it.
    pub round: u32,
    /// How many peers each site has, in the order of their first peers, where the price depends on it; empty if all are in one.
    pub site_sizes: &'a [usize],
}

impl CostQuestion<'_> {
    /// How many peers each site has.
    pub fn sites(&self) -> Vec<usize> {
        if self.site_sizes.is_empty() { vec![self.n_peers] } else { self.site_sizes.to_vec() }
    }

    /// How many numbers the vector has.
    pub fn n_values(&self) -> usize {
        self.buckets.iter().map(Range::len).sum()
    }
}

/// What a round costs in bytes of bodies, exactly; the simulator's count is held against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// What all peers send together.
    pub total: u64,
    /// What the busiest sender sends.
    pub most_sent: u64,
    /// What the busiest receiver receives.
    pub most_received: u64,
    /// How many messages follow one another, each waiting for the one before: what the delay of a link is multiplied by.
    pub n_steps: u32,
}

impl Cost {
    /// How long a round's exchange takes over links of this rate and delay, if nothing overlaps.
    pub fn time(&self, bytes_per_s: f64, delay: Duration) -> Duration {
        let busiest = self.most_sent.max(self.most_received) as f64;
        Duration::from_secs_f64(busiest / bytes_per_s) + delay * self.n_steps
    }
}
