//! The shape of a link: how many bits it carries in a second, and how long these are on their way, as people write it:
//! `100mbit/20ms`. The simulator's links have one, and so have real ones that are slowed down for experiments.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A link's rate and its one-way delay.
///
/// ```
/// use nettorrent_swarm::link_spec::LinkSpec;
/// let shape: LinkSpec = "100mbit/20ms".parse()?;
/// assert_eq!(shape.bits_per_second, Some(100_000_000));
/// assert_eq!(shape.to_string(), "100mbit/20ms");
/// # Ok::<(), nettorrent_swarm::link_spec::LinkSpecError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkSpec {
    /// Bits that leave in a second; without a limit if `None`.
    pub bits_per_second: Option<u64>,
    /// How long they are on their way.
    pub delay: Duration,
}

/// Why a text says no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkSpecError {
    /// Neither a rate nor a delay.
    #[error("\"{0}\" is neither a rate nor a delay: write for example 100mbit, 1gbit/5ms or 20ms")]
    Neither(String),
    /// The first of two is no rate.
    #[error("\"{0}\" is no rate: write a number and bit, kbit, mbit or gbit, for example 100mbit")]
    Rate(String),
    /// The second of two is no delay.
    #[error("\"{0}\" is no delay: write a number and us, ms or s, for example 20ms")]
    Delay(String),
}

const RATES: [(&str, u64); 4] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
/// In nanoseconds.
const DELAYS: [(&str, u64); 3] = [("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// More than any card has.
const MOST_BITS: f64 = 1e13;
/// A thousand years: no number of nanoseconds that is counted with may come near the end of its range.
const MOST_NANOS: f64 = 9.0e18;

impl LinkSpec {
    /// How long this many bytes take to leave.
    pub fn nanos_for(&self, n_bytes: usize) -> u64 {
        // Bodies have at most a few million bytes, so this is far from the end of the range.
        self.bits_per_second.map_or(0, |rate| (n_bytes as u64 * 8_000_000_000).div_ceil(rate))
    }
}

impl FromStr for LinkSpec {
    type Err = LinkSpecError;

    fn from_str(text: &str) -> Result<Self, LinkSpecError> {
        let text = text.trim();
        match text.split_once('/') {
            Some((rate, delay)) => Ok(Self {
                bits_per_second: Some(parse_rate(rate).ok_or_else(|| LinkSpecError::Rate(shown(rate)))?),
                delay: parse_delay(delay).ok_or_else(|| LinkSpecError::Delay(shown(delay)))?,
            }),
            None => match (parse_rate(text), parse_delay(text)) {
                (Some(rate), _) => Ok(Self { bits_per_second: Some(rate), delay: Duration::ZERO }),
                (None, Some(delay)) => Ok(Self { bits_per_second: None, delay }),
                (None, None) => Err(LinkSpecError::Neither(shown(text))),
            },
        }
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.bits_per_second {
            // The largest unit that leaves no fraction, so that the text reads back as the same rate.
            let (unit, size) = RATES.into_iter().find(|(_, size)| rate % size == 0).unwrap_or(("bit", 1));
            write!(f, "{}{unit}", rate / size)?;
            if self.delay.is_zero() {
                return Ok(());
            }
            f.write_str("/")?;
        }
        f.write_str(&delay_text(self.delay))
    }
}

impl TryFrom<String> for LinkSpec {
    type Error = LinkSpecError;

    fn try_from(text: String) -> Result<Self, LinkSpecError> {
        text.parse()
    }
}

impl From<LinkSpec> for String {
    fn from(link: LinkSpec) -> Self {
        link.to_string()
    }
}

fn parse_rate(text: &str) -> Option<u64> {
    let rate = parse(text, &RATES)?.round();
    (1.0..=MOST_BITS).contains(&rate).then_some(rate as u64)
}

fn parse_delay(text: &str) -> Option<Duration> {
    let nanos = parse(text, &DELAYS)?.round();
    (0.0..=MOST_NANOS).contains(&nanos).then(|| Duration::from_nanos(nanos as u64))
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, size) = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?.trim_end(), size)))?;
    // `f64` also reads "inf" and "1e3", which nobody means.
    let plain = number.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
    number.parse::<f64>().ok().filter(|_| plain).map(|number| number * *size as f64)
}

fn delay_text(delay: Duration) -> String {
    let nanos = delay.as_nanos();
    let unit = DELAYS.into_iter().rev().find(|(_, size)| nanos.is_multiple_of(u128::from(*size)));
    match unit {
        Some((unit, size)) => format!("{}{unit}", nanos / u128::from(size)),
        None => format!("{}.{:03}us", nanos / 1000, nanos % 1000),
    }
}

/// Enough of a text to recognise it.
fn shown(text: &str) -> String {
    text.trim().chars().take(40).collect()
}

/// Writes a duration as `20ms` and reads it back, for serde.
pub mod as_text {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::delay_text(*delay))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_delay(&text).ok_or_else(|| D::Error::custom(super::LinkSpecError::Delay(super::shown(&text))))
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkSpec, LinkSpecError};
    use std::time::Duration;

    fn link(bits_per_second: impl Into<Option<u64>>, delay_nanos: u64) -> LinkSpec {
        LinkSpec { bits_per_second: bits_per_second.into(), delay: Duration::from_nanos(delay_nanos) }
    }

    #[test]
    fn links_are_read_and_written() {
        for (text, expected) in [
            ("100mbit/20ms", link(100_000_000, 20_000_000)),
            ("1gbit", link(1_000_000_000, 0)),
            ("2500mbit/1500us", link(2_500_000_000, 1_500_000)),
            ("56kbit/100ms", link(56_000, 100_000_000)),
            ("300bit/2s", link(300, 2_000_000_000)),
            ("1gbit/0.250us", link(1_000_000_000, 250)),
            ("20ms", link(None, 20_000_000)),
            ("0s", link(None, 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        assert_eq!(" 2.5 GBit / 1.5 MS ".parse(), Ok(link(2_500_000_000, 1_500_000)));
    }

    #[test]
    fn other_texts_are_explained() {
        for text in ["", "fast", "100", "mbit", "0mbit", "-1mbit", "infgbit", "1e3mbit", "1.2.3mbit", "99999gbit"] {
            let error = text.parse::<LinkSpec>().unwrap_err();
            assert_eq!(error, LinkSpecError::Neither(text.to_owned()));
            assert!(error.to_string().contains("write for example"));
        }
        assert_eq!("x/20ms".parse::<LinkSpec>(), Err(LinkSpecError::Rate("x".into())));
        assert_eq!("1gbit/".parse::<LinkSpec>(), Err(LinkSpecError::Delay(String::new())));
        assert_eq!("1gbit/1ms/1ms".parse::<LinkSpec>(), Err(LinkSpecError::Delay("1ms/1ms".into())));
        assert_eq!("1gbit/99999999999s".parse::<LinkSpec>(), Err(LinkSpecError::Delay("99999999999s".into())));
    }

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(link(8_000, 0).nanos_for(1000), 1_000_000_000);
        assert_eq!(link(3, 0).nanos_for(1), 2_666_666_667);
        assert_eq!(link(None, 5).nanos_for(1000), 0);
    }
}
