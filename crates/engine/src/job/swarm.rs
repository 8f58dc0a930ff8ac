//! How peers train together: the `[swarm]` section of a job.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Table;

use super::sharing::{Resplit, Warmup, WarmupRule};
use crate::data::split::SplitRule;
use crate::scale::Scale;

/// The shortest deadline: below it, a pause of the operating system looks like a peer that is gone.
const SHORTEST_DEADLINE: f64 = 0.2;

/// The longest, a day. Other times follow from it, and some are many times as long.
const LONGEST_DEADLINE: f64 = 86_400.0;
/// More epochs than any learning rate grows over.
const MOST_EPOCHS: f64 = 1e9;

/// How peers share the work, and what becomes of those who fall silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwarmSpec {
    /// How many processes `train` starts on this machine; 0 to train in one, without a swarm. Default: 0.
    pub peers: usize,
    /// How peers exchange what they learnt, by name. Default: `ring-all-reduce`.
    pub strategy: String,
    /// How samples are shared out: `class`, `equal`, `equal-spread`, `groups:NETWORKS:SETS`, `random` or `range`.
    /// Default: `random`.
    pub split: SplitRule,
    /// How often they are shared out anew: once a `run` or every `epoch`. Default: `epoch`.
    pub resplit: Resplit,
    /// How much each peer trains: as much as it can in the others' time (`speed`), or as much as any other (`equal`). With
    /// `speed`, samples move between peers, so it is for `split = "random"` with `resplit = "epoch"`. Default: `speed`.
    pub work: Work,
    /// After how many seconds a silent peer is given up. Default: 15.
    pub deadline: f64,
    /// Who trains on when members cannot be reached: those who are more than half of the last ones (`majority`; members that are
    /// known to have ended or left do not count), or whoever is left (`any`). The others wait, and go on by themselves when nobody
    /// has come back for four times the deadline. Default: `majority`.
    pub quorum: Quorum,
    /// How the updates of several peers are scaled. `global-batch`: a batch is shared by all peers, and N peers learn as one does.
    /// `linear`: a batch for each, and the learning rate grows with their number. `none`: a batch for each at one peer's rate.
    /// Default: `global-batch`.
    pub scale: Scale,
    /// For `linear`: over how many epochs it grows. Default: 1.
    pub scale_warmup: f64,
    /// What is otherwise in the first epochs. `dense`: gradients are averaged in every step, before the strategy takes over.
    /// `all-data`: samples are dealt out from one order of all of them (that of `split = "random"`), so that every peer sees every
    /// class, before `split` applies. `one-peer`: the first peer alone trains all samples; the others wait, and take its weights over
    /// at the end of each of these epochs. Default: `dense`.
    pub warmup: Warmup,
    /// How many epochs that are. All peers begin with the same weights, so none is needed. Default: 0.
    pub warmup_epochs: u64,
    /// The strategy's own settings; what there is, the strategy knows.
    // Last, because in TOML a table ends the fields of the one above it.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub options: Table,
}

impl Default for SwarmSpec {
    fn default() -> Self {
        Self {
            peers: 0,
            strategy: "ring-all-reduce".into(),
            split: SplitRule::default(),
            resplit: Resplit::default(),
            work: Work::default(),
            deadline: 15.0,
            quorum: Quorum::default(),
            scale: Scale::default(),
            scale_warmup: 1.0,
            warmup: Warmup::default(),
            warmup_epochs: 0,
            options: Table::new(),
        }
    }
}

/// How much each peer trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// As much as any other: the slowest sets the pace.
    Equal,
    /// As much as it can in the others' time; speeds are measured as training goes on.
    #[default]
    Speed,
}

/// Who trains on when members cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quorum {
    /// More than half of the last members, without those that are known to have ended or left.
    #[default]
    Majority,
    /// Whoever is left.
    Any,
}

/// A setting that makes no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("swarm.{setting} = {value}: {problem}")]
pub struct SwarmError {
    setting: &'static str,
    value: f64,
    problem: &'static str,
}

impl SwarmSpec {
    /// Refuses settings that make no sense. The strategy's name and options are the business of those who know them.
    pub fn check(&self) -> Result<(), SwarmError> {
        if !(SHORTEST_DEADLINE..=LONGEST_DEADLINE).contains(&self.deadline) {
            let problem = "must be a number of seconds from 0.2 to 86400";
            return Err(SwarmError { setting: "deadline", value: self.deadline, problem });
        }
        if !(0.0..=MOST_EPOCHS).contains(&self.scale_warmup) {
            let problem = "must be a number of epochs from 0 to 1e9";
            return Err(SwarmError { setting: "scale_warmup", value: self.scale_warmup, problem });
        }
        Ok(())
    }

    /// What is otherwise in the first epochs.
    pub fn warmup_rule(&self) -> WarmupRule {
        WarmupRule { kind: self.warmup, epochs: self.warmup_epochs }
    }

    /// The deadline as a time.
    pub fn deadline(&self) -> Duration {
        Duration::try_from_secs_f64(self.deadline).unwrap_or(Duration::from_secs(LONGEST_DEADLINE as u64))
    }

    /// The learning rate of `n_peers` together where `rate` is that of one, when `done` epochs are done.
    pub fn rate(&self, rate: f32, n_peers: usize, done: f64) -> f32 {
        self.scale.rate(rate, n_peers, done, self.scale_warmup)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SwarmSpec, Work};
    use crate::data::split::SplitRule;
    use crate::job::Job;
    use crate::job::{Resplit, Warmup};
    use crate::scale::Scale;

    fn parse(text: &str, settings: &[&str]) -> Result<Job, String> {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("job.toml", text, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_without_the_section_has_the_usual_one() {
        assert_eq!(parse("epochs = 3", &[]).unwrap().swarm, SwarmSpec::default());
        assert_eq!(SwarmSpec::default().check(), Ok(()));
    }

    #[test]
    fn the_section_is_read_and_written() {
        let text = "[swarm]\nstrategy = \"gossip\"\nsplit = \"groups:2:3\"\nresplit = \"run\"\nwork = \"equal\"\ndeadline = 1.5\n\
                    scale = \"linear\"\nscale_warmup = 2.5\nwarmup = \"all-data\"\nwarmup_epochs = 2\n[swarm.options]\nform = \"naive\"\nfan = 3\n[checkpoint]\nevery = 2\n";
        let job = parse(text, &[]).unwrap();
        let spec = &job.swarm;
        assert_eq!((spec.strategy.as_str(), spec.split), ("gossip", SplitRule::Groups { networks: 2, sets: 3 }));
        assert_eq!((spec.resplit, spec.scale, spec.scale_warmup), (Resplit::Run, Scale::Linear, 2.5));
        assert_eq!((spec.work, spec.warmup, spec.warmup_epochs), (Work::Equal, Warmup::AllData, 2));
        assert_eq!((spec.deadline(), job.checkpoint.every), (Duration::from_millis(1500), 2));
        assert_eq!(spec.options["form"].as_str(), Some("naive"));
        assert_eq!(parse(&toml::to_string(&job).unwrap(), &[]).unwrap(), job);
    }

    #[test]
    fn options_can_be_set_and_keep_their_types() {
        let settings = ["swarm.options.form=naive", "swarm.options.fan=3", "swarm.options.share=0.5"];
        let mut settings = settings.to_vec();
        settings.extend(["swarm.options.quiet=true", "swarm.strategy=gossip", "swarm.options.inner.depth=2"]);
        let job = parse("[swarm.options]\nform = \"ring\"\nkept = 1", &settings).unwrap();
        let options = &job.swarm.options;
        assert_eq!(job.swarm.strategy, "gossip");
        assert_eq!(options["form"].as_str(), Some("naive"));
        assert_eq!(options["fan"].as_integer(), Some(3));
        assert_eq!(options["share"].as_float(), Some(0.5));
        assert_eq!(options["quiet"].as_bool(), Some(true));
        assert_eq!(options["kept"].as_integer(), Some(1));
        assert_eq!(options["inner"]["depth"].as_integer(), Some(2));
        assert_eq!(parse(&toml::to_string(&job).unwrap(), &[]).unwrap(), job);
    }

    #[test]
    fn wrong_fields_are_answered() {
        for (text, settings, answer) in [
            ("[swarm]\nstrategi = \"x\"", &[][..], "line 2, column 1: unknown field `strategi`"),
            ("[swarm]\nstrategi = \"x\"", &[], "Did you mean `strategy`?"),
            ("[swarm]\nsplit = \"randm\"", &[], "Did you mean `random`?"),
            ("[swarm]\nresplit = \"epochs\"", &[], "Did you mean `epoch`?"),
            ("[swarm]\nscale = \"linar\"", &[], "Did you mean `linear`?"),
            ("[swarm]\nwarmup = \"one-pear\"", &[], "Did you mean `one-peer`?"),
            ("", &["swarm.warmup=some"], "one of `all-data`, `dense`, `one-peer`"),
            ("", &["swarm.warmup_epochs=-1"], "swarm.warmup_epochs"),
            ("[swarm]\noptions = 3", &[], "line 2"),
            ("", &["swarm.deadlin=3"], "--set swarm.deadlin=3: unknown field"),
            ("", &["swarm.deadline=0.1"], "swarm.deadline = 0.1: must be a number of seconds from 0.2 to 86400"),
            ("", &["swarm.deadline=nan"], "swarm.deadline"),
            ("", &["swarm.deadline=inf"], "swarm.deadline"),
            ("", &["swarm.deadline=-1.0"], "swarm.deadline"),
            ("", &["swarm.scale_warmup=-1.0"], "swarm.scale_warmup = -1: must be"),
            ("", &["swarm.strategy.form=naive"], "swarm.strategy.form"),
        ] {
            let message = parse(text, settings).unwrap_err();
            assert!(message.contains(answer), "{message}");
        }
        assert_eq!(parse("", &["swarm.deadline=3"]).unwrap().swarm.deadline(), Duration::from_secs(3));
    }
}
