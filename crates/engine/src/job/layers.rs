//! How a network is shared out among peers by its layers: the `[layers]` section of a job.
//!
//! ```toml
//! [layers]
//! in_flight = 4
//! groups = [{ layers = 3, rows = 2, columns = 4 }, { layers = 5 }]
//! ```
//!
//! `layers = "auto"` is short for `[layers]` with `groups = "auto"`.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Which peers hold which part of the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayersSpec {
    /// How many batches may be on their way through the layers at a time; with 1, training is exactly that of one peer. More
    /// keep all peers busy, and a gradient is then up to so many steps late. Default: 1.
    pub in_flight: usize,
    /// After how many batches each peer remembers its block as it is, to go back to when a peer is lost. Default: 100.
    pub mark_every: u32,
    /// Whether a block that nobody else has is also kept by a neighbour. Default: yes.
    pub copies: bool,
    /// For the planner: every peer's link, such as `100mbit/5ms`. Default: `1gbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// For the planner: how fast peers compute by each other, in their order; if there are fewer numbers than peers, they are
    /// taken in turn. Default: all alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speeds: Vec<f64>,
    /// `"auto"`, or the groups from the first layers to the last. Default: `"auto"`.
    // Last, because in TOML a table ends the fields of the one above it.
    pub groups: Groups,
}

/// The groups of layers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Groups {
    /// `"auto"`: a planner chooses.
    Auto(Auto),
    /// These.
    Given(Vec<GroupSpec>),
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
pub struct GroupSpec {
    /// How many of the description's layers (those of the outermost list) belong to it, counted from where the group before
    /// ends.
    pub layers: usize,
    /// Blocks of samples. Default: 1.
    #[serde(default = "one")]
    pub rows: usize,
    /// Blocks of the first layer's outputs. Default: 1.
    #[serde(default = "one")]
    pub columns: usize,
}

fn one() -> usize {
    1
}

impl Default for LayersSpec {
    fn default() -> Self {
        Self {
            in_flight: 1,
            mark_every: 100,
            copies: true,
            link: None,
            speeds: Vec::new(),
            groups: Groups::Auto(Auto::Auto),
        }
    }
}

/// A setting that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("layers.{setting}: {problem}")]
pub struct LayersError {
    setting: String,
    problem: &'static str,
}

impl LayersSpec {
    /// Refuses settings that make no sense. What fits the model and the peers is the business of those who know them.
    pub fn check(&self) -> Result<(), LayersError> {
        let error = |setting: String, problem| Err(LayersError { setting, problem });
        let at_least_one = "must be at least 1";
        if self.in_flight == 0 {
            return error("in_flight = 0".into(), at_least_one);
        }
        if self.mark_every == 0 {
            return error("mark_every = 0".into(), at_least_one);
        }
        if let Some(speed) = self.speeds.iter().find(|speed| !(**speed > 0.0 && speed.is_finite())) {
            return error(format!("speeds = {speed}"), "must be numbers above 0, such as 1.0 and 0.5");
        }
        let Groups::Given(groups) = &self.groups else { return Ok(()) };
        if groups.is_empty() {
            return error("groups = []".into(), "give at least one group, or \"auto\"");
        }
        for (number, group) in groups.iter().enumerate() {
            for (field, n) in [("layers", group.layers), ("rows", group.rows), ("columns", group.columns)] {
                if n == 0 {
                    return error(format!("groups[{number}].{field} = 0"), at_least_one);
                }
            }
        }
        Ok(())
    }
}

/// The section as a table.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    in_flight: usize,
    mark_every: u32,
    copies: bool,
    link: Option<String>,
    speeds: Vec<f64>,
    groups: Groups,
}

impl Default for Section {
    fn default() -> Self {
        let LayersSpec { in_flight, mark_every, copies, link, speeds, groups } = LayersSpec::default();
        Self { in_flight, mark_every, copies, link, speeds, groups }
    }
}

// By hand and not untagged, because an untagged value that is wrong is answered without its place and without what is wrong.
impl<'de> Deserialize<'de> for LayersSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = LayersSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a table")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<LayersSpec, E> {
                auto(word).map(|word| LayersSpec { groups: Groups::Auto(word), ..LayersSpec::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LayersSpec, A::Error> {
                let Section { in_flight, mark_every, copies, link, speeds, groups } =
                    Section::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LayersSpec { in_flight, mark_every, copies, link, speeds, groups })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Groups;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a list of groups")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Groups, E> {
                auto(word).map(Groups::Auto)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Groups, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Groups::Given)
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
    use super::{Auto, GroupSpec, Groups, LayersSpec};
    use crate::job::Job;

    fn parse(text: &str, settings: &[&str]) -> Result<Job, String> {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("job.toml", text, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_without_the_section_says_nothing_about_it() {
        let job = parse("epochs = 3", &[]).unwrap();
        assert_eq!(job.layers, None);
        assert!(!toml::to_string(&job).unwrap().contains("layers"));
    }

    #[test]
    fn one_word_is_enough() {
        let usual = Some(LayersSpec::default());
        assert_eq!(parse("layers = \"auto\"", &[]).unwrap().layers, usual);
        assert_eq!(parse("[layers]", &[]).unwrap().layers, usual);
        assert_eq!(parse("", &["layers=auto"]).unwrap().layers, usual);
        assert_eq!(LayersSpec::default().check(), Ok(()));
    }

    #[test]
    fn the_section_is_read_and_written() {
        let text = "[layers]\nin_flight = 4\nmark_every = 7\ncopies = false\nlink = \"100mbit/5ms\"\nspeeds = [1.0, 0.5]\n\
                    groups = [{ layers = 3, rows = 2, columns = 4 }, { layers = 5 }]\n[checkpoint]\nevery = 2\n";
        let job = parse(text, &[]).unwrap();
        let groups = vec![GroupSpec { layers: 3, rows: 2, columns: 4 }, GroupSpec { layers: 5, rows: 1, columns: 1 }];
        let expected = LayersSpec {
            in_flight: 4,
            mark_every: 7,
            copies: false,
            link: Some("100mbit/5ms".into()),
            speeds: vec![1.0, 0.5],
            groups: Groups::Given(groups),
        };
        assert_eq!((job.layers.as_ref(), job.checkpoint.every), (Some(&expected), 2));
        assert_eq!(parse(&toml::to_string(&job).unwrap(), &[]).unwrap(), job);
    }

    #[test]
    fn fields_can_be_set_whatever_was_there_before() {
        for text in ["", "layers = \"auto\"", "[layers]\ngroups = \"auto\""] {
            let job = parse(text, &["layers.in_flight=4", "layers.speeds=[1,0.5]"]).unwrap();
            let layers = job.layers.unwrap();
            assert_eq!((layers.in_flight, layers.speeds), (4, vec![1.0, 0.5]), "{text}");
            assert_eq!(layers.groups, Groups::Auto(Auto::Auto));
        }
        let job = parse("", &["layers=auto", "layers.in_flight=4"]).unwrap();
        assert_eq!(job.layers.unwrap().in_flight, 4);
        let job = parse("[layers]\nin_flight = 3", &["layers.groups=[{layers=2, rows=3}]"]).unwrap();
        let layers = job.layers.unwrap();
        assert_eq!(layers.groups, Groups::Given(vec![GroupSpec { layers: 2, rows: 3, columns: 1 }]));
        assert_eq!(layers.in_flight, 3);
    }

    #[test]
    fn wrong_fields_are_answered() {
        for (text, settings, answer) in [
            ("layers = \"atuo\"", &[][..], "line 1, column 10: unknown variant `atuo`"),
            ("layers = \"atuo\"", &[], "Did you mean `auto`?"),
            ("layers = 3", &[], "\"auto\" or a table"),
            ("[layers]\ninflight = 3", &[], "line 2, column 1: unknown field `inflight`"),
            ("[layers]\ninflight = 3", &[], "Did you mean `in_flight`?"),
            ("[layers]\ngroups = \"aut\"", &[], "Did you mean `auto`?"),
            ("[layers]\ngroups = 3", &[], "\"auto\" or a list of groups"),
            ("[layers]\ngroups = [{ layers = 2, row = 3 }]", &[], "Did you mean `rows`?"),
            ("[layers]\ngroups = [{ rows = 3 }]", &[], "missing field `layers`"),
            ("[layers]\ngroups = []", &[], "layers.groups = []: give at least one group"),
            ("", &["layers.in_fligt=3"], "--set layers.in_fligt=3: unknown field"),
            ("", &["layers.in_flight=0"], "layers.in_flight = 0: must be at least 1"),
            ("", &["layers.mark_every=0"], "layers.mark_every = 0"),
            ("", &["layers.speeds=[1.0, 0.0]"], "layers.speeds = 0: must be numbers above 0"),
            ("", &["layers.speeds=[nan]"], "layers.speeds"),
            ("", &["layers.groups=[{layers=2}, {layers=2, rows=0}]"], "layers.groups[1].rows = 0"),
            ("layers = \"auto\"", &["layers.in_flight.x=0"], "invalid type: map, expected usize"),
        ] {
            let message = parse(text, settings).unwrap_err();
            assert!(message.contains(answer), "{text} {settings:?}\n{message}");
        }
    }
}
