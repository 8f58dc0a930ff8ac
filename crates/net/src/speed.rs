//! How fast a peer trains, over the last few seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// What the mean is taken over.
const WINDOW: Duration = Duration::from_secs(5);

/// Samples trained, and when.
#[derive(Debug, Default)]
pub struct Speed {
    counts: VecDeque<(Duration, u64)>,
}

impl Speed {
    /// So many samples were trained just now.
    pub fn count(&mut self, now: Duration, n_samples: u64) {
        self.counts.push_back((now, n_samples));
        while self.counts.len() > 2 && self.counts[1].0 + WINDOW < now {
            self.counts.pop_front();
        }
    }

    /// Samples in a second; 0 until there were two counts.
    pub fn per_second(&self, now: Duration) -> f64 {
        let Some((first, _)) = self.counts.front() else { return 0.0 };
        // What the first count stands for was trained before it.
        let n_samples: u64 = self.counts.iter().skip(1).map(|(_, n)| n).sum();
        let elapsed = now.saturating_sub(*first).as_secs_f64();
        if elapsed > 0.0 { n_samples as f64 / elapsed } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Speed;
    use std::time::Duration;

    #[test]
    fn it_is_what_was_trained_in_the_last_seconds() {
        let mut speed = Speed::default();
        assert_eq!(speed.per_second(Duration::from_secs(1)), 0.0);
        for second in 0..20 {
            speed.count(Duration::from_secs(second), if second < 10 { 1000 } else { 50 });
        }
        assert_eq!(speed.per_second(Duration::from_secs(19)), 50.0);
        assert!(speed.per_second(Duration::from_secs(40)) < 15.0, "it falls when nothing is trained");
    }
}
