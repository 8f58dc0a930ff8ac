//! What people are told of some events, in words.

use std::fmt;

use nettorrent_swarm::record::LossCause;

use crate::event::{
    BadSample, CheckpointFailed, Differs, Dropped, Joined, LeftOut, LogFailed, Loss, Rollback, StateReceived,
};

/// So many samples are named in a line; the events have them all.
const MOST_NAMED: usize = 5;

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { split, n_trained, n_dropped, .. } = self;
        let [n_trained, n_all] = [*n_trained, n_trained + n_dropped].map(|n| grouped(n as u64));
        write!(f, "An epoch trains {n_trained} of {n_all} samples: `{split}` drops {}; ", grouped(*n_dropped as u64))?;
        f.write_str("`equal-spread` trains all.")
    }
}

/// `3823` as `3,823`.
fn grouped(n: u64) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", grouped(n / 1000), n % 1000) }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_samples = self.samples.len();
        let plural = if n_samples == 1 { "" } else { "s" };
        let names: Vec<String> = self.samples.iter().take(MOST_NAMED).map(ToString::to_string).collect();
        let names = names.join("; ");
        write!(f, "Left out {n_samples} training sample{plural} without a finite loss and gradient: {names}")?;
        match n_samples.saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            n_more => write!(f, "; and {n_more} more"),
        }
    }
}

impl fmt::Display for StateReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, n_bytes, seconds, donors } = self;
        let indices: Vec<String> = donors.iter().map(|donor| donor.join_index().to_string()).collect();
        let plural = if donors.len() == 1 { "" } else { "s" };
        let (megabytes, indices) = (*n_bytes as f64 / 1e6, indices.join(", "));
        write!(f, "{peer} has received the state: {megabytes:.1} MB in {seconds:.1} s from peer{plural} {indices}")
    }
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, admission_s, round_s } = self;
        write!(f, "{peer} has joined: let in after {admission_s:.2} s, first round trained after {round_s:.2} s")
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, cause, detection_s, recovery_s, .. } = self;
        write!(f, "{lost} is gone ({}): noticed {detection_s:.2} s after its last sign of life; ", cause_text(*cause))?;
        match recovery_s {
            Some(recovery_s) => write!(f, "training went on {recovery_s:.2} s later"),
            None => f.write_str("the run ended before another round"),
        }
    }
}

/// Why a member was lost, in a word or two.
pub fn cause_text(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Silent => "silent",
        LossCause::Ended => "its process ended",
        LossCause::Disconnected => "its link broke",
        LossCause::CutOff => "cut off for what it sent",
        LossCause::Unreachable => "not reachable for all",
        LossCause::Stuck => "its computation stood still",
        LossCause::Left => "it left",
        LossCause::Removed => "removed by the owner",
        LossCause::Told => "others say so",
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, from, epoch, is_outvoted, .. } = self;
        write!(f, "{who} has other parameters than {from}")?;
        epoch.iter().try_for_each(|epoch| write!(f, " after epoch {epoch}"))?;
        f.write_str(", though both say that they trained the same: the memory or the program of ")?;
        match is_outvoted {
            true => write!(f, "{who} may be at fault. When the members change, it takes over the others' state."),
            false => f.write_str("one of them may be at fault."),
        }
    }
}

impl fmt::Display for BadSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample {}", self.index)?;
        self.origin.iter().try_for_each(|origin| write!(f, " ({origin})"))
    }
}

impl fmt::Display for CheckpointFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, step, problem } = self;
        write!(f, "The checkpoint of step {step} (epoch {epoch}) is not on the disk: {problem}. ")?;
        f.write_str("Training does not need it, and later ones are tried all the same.")
    }
}

impl fmt::Display for LogFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_lines, problem } = self;
        let plural = if *n_lines == 1 { "" } else { "s" };
        write!(f, "{n_lines} event{plural} could not be written down: {problem}. Training does not need them.")
    }
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, from_step, step, lr_factor, .. } = self;
        write!(f, "Training diverged at step {from_step}: {why}. It goes back to step {step} and on ")?;
        if self.is_rate_halved {
            write!(f, "with half the learning rate ({lr_factor} of the job's).")
        } else {
            f.write_str("without the samples that are to blame.")
        }
    }
}
