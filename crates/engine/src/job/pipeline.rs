//! How a network is shared out among peers by its layers: the `[pipeline]` section of a job.
//!
//! ```toml
//! [pipeline]
//! in_flight = 4
//! stages = [{ layers = 3, batch_shards = 2, tensor_shards = 4 }, { layers = 5 }]
//! ```
//!
//! `pipeline = "auto"` is short for `[pipeline]` with `stages = "auto"`.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Which peers hold which part of the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineSpec {
    /// How many batches may be on their way through the layers at a time; with 1, training is exactly that of one peer. More
    /// keep all peers busy, and a gradient is then up to so many steps late. Default: 1.
    pub in_flight: usize,
    /// After how many batches each peer remembers its block as it is, to go back to when a peer is lost. Default: 100.
    pub snapshot_every: u32,
    /// Whether a block that nobody else has is also kept by a neighbour. Default: yes.
    pub copies: bool,
    /// For the planner: every peer's link, such as `100mbit/5ms`. Default: `1gbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// For the planner: how fast peers compute by each other, in their order; if there are fewer numbers than peers, they are
    /// taken in turn. Default: all alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speeds: Vec<f64>,
    /// `"auto"`, or the stages from the first layers to the last. Default: `"auto"`.
    // Last, because in TOML a table ends the fields of the one above it.
    pub stages: Stages,
}

/// The stages of layers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Stages {
    /// `"auto"`: a planner chooses.
    Auto(Auto),
    /// These.
    Given(Vec<StageSpec>),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auto {
    /// It.
    Auto,
}

/// Consecutive layers and the grid of peers that share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// How many of the description's layers (those of the outermost list) belong to it, counted from where the stage before
    /// ends.
    pub layers: usize,
    /// Blocks of samples. Default: 1.
    #[serde(default = "one")]
    pub batch_shards: usize,
    /// Blocks of the first layer's outputs. Default: 1.
    #[serde(default = "one")]
    pub tensor_shards: usize,
}

fn one() -> usize {
    1
}

impl Default for PipelineSpec {
    fn default() -> Self {
        Self {
            in_flight: 1,
            snapshot_every: 100,
            copies: true,
            link: None,
            speeds: Vec::new(),
            stages: Stages::Auto(Auto::Auto),
        }
    }
}

/// A setting that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("pipeline.{setting}: {problem}")]
pub struct PipelineSpecError {
    setting: String,
    problem: &'static str,
}

impl PipelineSpec {
    /// Refuses settings that make no sense. What fits the model and the peers is the business of those who know them.
    pub fn check(&self) -> Result<(), PipelineSpecError> {
        let error = |setting: String, problem| Err(PipelineSpecError { setting, problem });
        if self.snapshot_every == 0 {
            return error("snapshot_every = 0".into(), "must be at least 1");
        }
        if let Some(speed) = self.speeds.iter().find(|speed| !(**speed > 0.0 && speed.is_finite())) {
            return error(format!("speeds = {speed}"), "must be numbers above 0, such as 1.0 and 0.5");
        }
        let Stages::Given(stages) = &self.stages else { return Ok(()) };
        if stages.is_empty() {
            return error("stages = []".into(), "give at least one stage, or \"auto\"");
        }
        Ok(())
    }
}

/// The section as a table.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    in_flight: usize,
    snapshot_every: u32,
    copies: bool,
    link: Option<String>,
    speeds: Vec<f64>,
    stages: Stages,
}

impl Default for Section {
    fn default() -> Self {
        let PipelineSpec { in_flight, snapshot_every, copies, link, speeds, stages } = PipelineSpec::default();
        Self { in_flight, snapshot_every, copies, link, speeds, stages }
    }
}

// By hand and not untagged, because an untagged value that is wrong is answered without its place and without what is wrong.
impl<'de> Deserialize<'de> for PipelineSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PipelineSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a table")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<PipelineSpec, E> {
                auto(word).map(|word| PipelineSpec { stages: Stages::Auto(word), ..PipelineSpec::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PipelineSpec, A::Error> {
                let Section { in_flight, snapshot_every, copies, link, speeds, stages } =
                    Section::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PipelineSpec { in_flight, snapshot_every, copies, link, speeds, stages })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Stages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a list of stages")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Stages, E> {
                auto(word).map(Stages::Auto)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Stages, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Stages::Given)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn auto<E: Error>(word: &str) -> Result<Auto, E> {
    if word == "auto" { Ok(Auto::Auto) } else { Err(E::unknown_variant(word, &["auto"])) }
}

#[cfg(test)]
mod tests {
    use super::{Auto, PipelineSpec, StageSpec, Stages};
    use crate::job::Job;

    fn parse(text: &str, settings: &[&str]) -> Result<Job, String> {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("job.toml", text, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_without_the_section_says_nothing_about_it() {
        let job = parse("epochs = 3", &[]).unwrap();
        assert_eq!(job.pipeline, None);
        assert!(!toml::to_string(&job).unwrap().contains("pipeline"));
    }

    #[test]
    fn one_word_is_enough() {
        let usual = Some(PipelineSpec::default());
        assert_eq!(parse("pipeline = \"auto\"", &[]).unwrap().pipeline, usual);
        assert_eq!(parse("[pipeline]", &[]).unwrap().pipeline, usual);
        assert_eq!(parse("", &["pipeline=auto"]).unwrap().pipeline, usual);
        assert_eq!(PipelineSpec::default().check(), Ok(()));
    }

    #[test]
    fn the_section_is_read_and_written() {
        let text = "[pipeline]\nin_flight = 4\nsnapshot_every = 7\ncopies = false\nlink = \"100mbit/5ms\"\nspeeds = [1.0, 0.5]\n\
                    stages = [{ layers = 3, batch_shards = 2, tensor_shards = 4 }, { layers = 5 }]\n[checkpoint]\nevery = 2\n";
        let job = parse(text, &[]).unwrap();
        let stages = vec![
            StageSpec { layers: 3, batch_shards: 2, tensor_shards: 4 },
            StageSpec { layers: 5, batch_shards: 1, tensor_shards: 1 },
        ];
        let expected = PipelineSpec {
            in_flight: 4,
            snapshot_every: 7,
            copies: false,
            link: Some("100mbit/5ms".into()),
            speeds: vec![1.0, 0.5],
            stages: Stages::Given(stages),
        };
        assert_eq!((job.pipeline.as_ref(), job.checkpoint.every), (Some(&expected), 2));
        assert_eq!(parse(&toml::to_string(&job).unwrap(), &[]).unwrap(), job);
    }

    #[test]
    fn fields_can_be_set_whatever_was_there_before() {
        for text in ["", "pipeline = \"auto\"", "[pipeline]\nstages = \"auto\""] {
            let job = parse(text, &["pipeline.in_flight=4", "pipeline.speeds=[1,0.5]"]).unwrap();
            let pipeline = job.pipeline.unwrap();
            assert_eq!((pipeline.in_flight, pipeline.speeds), (4, vec![1.0, 0.5]), "{text}");
            assert_eq!(pipeline.stages, Stages::Auto(Auto::Auto));
        }
        let job = parse("", &["pipeline=auto", "pipeline.in_flight=4"]).unwrap();
        assert_eq!(job.pipeline.unwrap().in_flight, 4);
        let job = parse("[pipeline]\nin_flight = 3", &["pipeline.stages=[{layers=2, batch_shards=3}]"]).unwrap();
        let pipeline = job.pipeline.unwrap();
        assert_eq!(pipeline.stages, Stages::Given(vec![StageSpec { layers: 2, batch_shards: 3, tensor_shards: 1 }]));
        assert_eq!(pipeline.in_flight, 3);
    }

    #[test]
    fn wrong_fields_are_answered() {
        for (text, settings, answer) in [
            ("pipeline = \"atuo\"", &[][..], "line 1, column 12: unknown variant `atuo`"),
            ("pipeline = \"atuo\"", &[], "Did you mean `auto`?"),
            ("pipeline = 3", &[], "\"auto\" or a table"),
            ("[pipeline]\ninflight = 3", &[], "line 2, column 1: unknown field `inflight`"),
            ("[pipeline]\ninflight = 3", &[], "Did you mean `in_flight`?"),
            ("[pipeline]\nstages = \"aut\"", &[], "Did you mean `auto`?"),
            ("[pipeline]\nstages = 3", &[], "\"auto\" or a list of stages"),
            ("[pipeline]\nstages = [{ layers = 2, batch_shard = 3 }]", &[], "Did you mean `batch_shards`?"),
            ("[pipeline]\nstages = [{ batch_shards = 3 }]", &[], "missing field `layers`"),
            ("[pipeline]\nstages = []", &[], "pipeline.stages = []: give at least one stage"),
            ("", &["pipeline.in_fligt=3"], "--set pipeline.in_fligt=3: unknown field"),
            ("", &["pipeline.in_flight=0"], "pipeline.in_flight = 0: must be at least 1"),
            ("", &["pipeline.snapshot_every=0"], "pipeline.snapshot_every = 0"),
            ("", &["pipeline.speeds=[1.0, 0.0]"], "pipeline.speeds = 0: must be numbers above 0"),
            ("", &["pipeline.speeds=[nan]"], "pipeline.speeds"),
            ("", &["pipeline.stages=[{layers=2}, {layers=2, batch_shards=0}]"], "pipeline.stages[1].batch_shards = 0"),
            ("pipeline = \"auto\"", &["pipeline.in_flight.x=0"], "invalid type: map, expected a whole number"),
        ] {
            let message = parse(text, settings).unwrap_err();
            assert!(message.contains(answer), "{text} {settings:?}\n{message}");
        }
    }
}
