//! A machine that is slower than this one, for experiments: each piece of work lasts at least as long as it would there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many samples a second a machine trains, as people write it: `500`, or `500,50@30s` for one that turns slow after 30 seconds.
///
/// ```
/// use nettorrent_net::emulated_speed::EmulatedSpeed;
/// use std::time::Duration;
/// let speed: EmulatedSpeed = "500,50@30s".parse()?;
/// assert_eq!(speed.duration(10.0, Duration::from_secs(29)), Duration::from_millis(20));
/// assert_eq!(speed.duration(10.0, Duration::from_secs(30)), Duration::from_millis(200));
/// # Ok::<(), nettorrent_net::emulated_speed::SpeedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EmulatedSpeed {
    /// From when on, and how many samples a second; the first begins at 0.
    steps: Vec<(Duration, f64)>,
}

/// Why a text is no speed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no speed: write samples a second, for example 500, or 500,50@30s for 50 from 30 seconds on")]
pub struct SpeedError(String);

impl EmulatedSpeed {
    /// How long work that is worth so many training samples lasts, if it begins this long after training did.
    pub fn duration(&self, n_samples: f64, at: Duration) -> Duration {
        let speed = self.steps.iter().rev().find(|(from, _)| *from <= at).map_or(f64::INFINITY, |(_, speed)| *speed);
        Duration::from_secs_f64(n_samples / speed)
    }
}

impl fmt::Display for EmulatedSpeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (from, speed)) in self.steps.iter().enumerate() {
            match index {
                0 => write!(out, "{speed}")?,
                _ => write!(out, ",{speed}@{}s", from.as_secs_f64())?,
            }
        }
        Ok(())
    }
}

impl From<EmulatedSpeed> for String {
    fn from(speed: EmulatedSpeed) -> Self {
        speed.to_string()
    }
}

impl TryFrom<String> for EmulatedSpeed {
    type Error = SpeedError;

    fn try_from(text: String) -> Result<Self, SpeedError> {
        text.parse()
    }
}

impl FromStr for EmulatedSpeed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let error = || SpeedError(text.to_owned());
        let mut steps: Vec<(Duration, f64)> = Vec::new();
        for step in text.split(',') {
            let (speed, from) = step.split_once('@').unwrap_or((step, "0s"));
            let speed: f64 = speed.trim().parse().map_err(|_| error())?;
            let from: f64 = from.trim().strip_suffix('s').and_then(|s| s.parse().ok()).ok_or_else(error)?;
            let from = Duration::try_from_secs_f64(from).map_err(|_| error())?;
            // Slow enough for anything, fast enough that no piece of work lasts for ever.
            let is_later = steps.last().map_or(from.is_zero(), |(before, _)| from > *before);
            if !((0.001..1e12).contains(&speed) && is_later) {
                return Err(error());
            }
            steps.push((from, speed));
        }
        Ok(Self { steps })
    }
}

#[cfg(test)]
mod tests {
    use super::EmulatedSpeed;

    #[test]
    fn speeds_are_written_as_they_are_read() {
        for text in ["500", "0.5", "500,50@30s", "500,50@0.5s,7.25@3600s"] {
            let speed: EmulatedSpeed = text.parse().unwrap();
            assert_eq!(speed.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_speed_is_refused() {
        for text in [
            "",
            "fast",
            "0",
            "-5",
            "inf",
            "NaN",
            "5@3s",
            "5,6",
            "5,6@0s",
            "5,6@3",
            "5,6@-1s",
            "5,6@9s,7@3s",
            "5,6@1e300s",
        ] {
            assert!(
                text.parse::<EmulatedSpeed>().is_err_and(|error| error.to_string().contains("500,50@30s")),
                "{text}"
            );
        }
    }
}
