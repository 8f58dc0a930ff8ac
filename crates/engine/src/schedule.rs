//! Learning-rate schedules: pure functions of the step, so that all peers who share a clock share the rate.

use serde::{Deserialize, Serialize};

/// How the learning rate changes in the course of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleSpec {
    /// The form. Default: `constant`.
    pub kind: ScheduleKind,
    /// For `step`: after how many epochs the rate falls, each time anew. Default: 30.
    pub every: f64,
    /// For `step`: what it is multiplied by then. Default: 0.1.
    pub factor: f64,
    /// For `cosine`: the share of the rate that is left at the end. Default: 0.
    pub floor: f64,
    /// For how many epochs the rate first rises in a straight line from nothing. Default: 0.
    pub warmup: f64,
}

/// The forms, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// Always the same.
    #[default]
    Constant,
    /// Falls along half a cosine wave to the floor.
    Cosine,
    /// Falls by a factor every so many epochs.
    Step,
}

impl Default for ScheduleSpec {
    fn default() -> Self {
        Self { kind: ScheduleKind::default(), every: 30.0, factor: 0.1, floor: 0.0, warmup: 0.0 }
    }
}

/// More epochs, and a larger factor, than anybody means.
const MOST: f64 = 1e9;

/// A setting that makes no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("schedule.{setting} = {value}: {problem}")]
pub struct ScheduleError {
    setting: &'static str,
    value: f64,
    problem: &'static str,
}

impl ScheduleSpec {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let error = |setting, value, problem| Err(ScheduleError { setting, value, problem });
        if !(self.every > 0.0 && self.every <= MOST) {
            return error("every", self.every, "must be a number of epochs above 0, and at most 1e9");
        }
        if !(self.factor > 0.0 && self.factor <= MOST) {
            return error("factor", self.factor, "must be above 0, and at most 1e9");
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return error("floor", self.floor, "must be a share between 0 and 1");
        }
        if !(0.0..=MOST).contains(&self.warmup) {
            return error("warmup", self.warmup, "must be a number of epochs from 0 to 1e9");
        }
        Ok(())
    }

    /// The rate for the next step, when `done` of `total` epochs are done. A step is `step` epochs long.
    ///
    /// ```
    /// use nettorrent_engine::schedule::{ScheduleKind, ScheduleSpec};
    /// let spec = ScheduleSpec { kind: ScheduleKind::Cosine, warmup: 1.0, ..ScheduleSpec::default() };
    /// assert_eq!(spec.rate(0.1, 0.0, 0.25, 10.0), 0.025); // the first of four steps of warm-up
    /// assert_eq!(spec.rate(0.1, 1.0, 0.25, 10.0), 0.1);
    /// assert!(spec.rate(0.1, 9.9, 0.25, 10.0) < 0.001);
    /// ```
    pub fn rate(&self, lr: f32, done: f64, step: f64, total: f64) -> f32 {
        if done < self.warmup {
            // The first step is not wasted: the line starts one step before the run.
            return (f64::from(lr) * ((done + step) / self.warmup).min(1.0)) as f32;
        }
        let share = match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Step => self.factor.powf((done / self.every).floor()),
            ScheduleKind::Cosine => {
                let progress = ((done - self.warmup) / (total - self.warmup).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
                self.floor + (1.0 - self.floor) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
            }
        };
        (f64::from(lr) * share) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::{ScheduleKind, ScheduleSpec};

    #[test]
    fn steps_fall_when_they_should() {
        let spec = ScheduleSpec { kind: ScheduleKind::Step, every: 2.0, factor: 0.5, ..ScheduleSpec::default() };
        let rates: Vec<f32> = (0..5).map(|epoch| spec.rate(1.0, f64::from(epoch), 0.1, 5.0)).collect();
        assert_eq!(rates, [1.0, 1.0, 0.5, 0.5, 0.25]);
    }

    #[test]
    fn cosine_ends_at_its_floor() {
        let spec = ScheduleSpec { kind: ScheduleKind::Cosine, floor: 0.1, ..ScheduleSpec::default() };
        assert_eq!(spec.rate(1.0, 0.0, 0.1, 4.0), 1.0);
        assert!((spec.rate(1.0, 2.0, 0.1, 4.0) - 0.55).abs() < 1e-6);
        assert!((spec.rate(1.0, 4.0, 0.1, 4.0) - 0.1).abs() < 1e-6);
    }

    #[test]
    fn settings_are_checked() {
        assert!(ScheduleSpec { every: 0.0, ..ScheduleSpec::default() }.check().is_err());
        assert!(ScheduleSpec { warmup: f64::NAN, ..ScheduleSpec::default() }.check().is_err());
        assert!(ScheduleSpec::default().check().is_ok());
    }
}
