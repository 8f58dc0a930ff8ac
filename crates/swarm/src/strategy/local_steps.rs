//! `local_steps`: how many batches a peer trains by itself between two exchanges.

use crate::sampling::rounds::RoundLength;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::options::OptionDoc;

const AUTO: &str = "auto";
const EPOCH: &str = "epoch";

/// What `local_steps` does.
pub const LOCAL_STEPS: OptionDoc = OptionDoc {
    name: "local_steps",
    about: "how many batches each peer trains by itself before each exchange; `\"epoch\"`: its share of the epoch; `\"auto\"`: as \
            many as may be without learning worse, at most 50, a 32nd of the epoch and a 128th of all steps so far",
};

/// How many batches a peer trains by itself before each exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum LocalSteps {
    /// As many as may be without learning worse.
    Auto,
    /// This many, at least one.
    Batches(u32),
    /// Its share of the epoch.
    Epoch,
}

impl TryFrom<Value> for LocalSteps {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::String(word) if word == AUTO => Ok(Self::Auto),
            Value::String(word) if word == EPOCH => Ok(Self::Epoch),
            Value::Integer(1..) => {
                Ok(Self::Batches(value.as_integer().and_then(|n| n.try_into().ok()).unwrap_or(u32::MAX)))
            }
            _ => {
                Err(format!("local_steps = {value}: must be a number of batches from 1 up, \"{EPOCH}\" or \"{AUTO}\""))
            }
        }
    }
}

impl From<LocalSteps> for Value {
    fn from(steps: LocalSteps) -> Self {
        match steps {
            LocalSteps::Auto => AUTO.into(),
            LocalSteps::Batches(n) => n.into(),
            LocalSteps::Epoch => EPOCH.into(),
        }
    }
}

impl From<LocalSteps> for RoundLength {
    fn from(steps: LocalSteps) -> Self {
        match steps {
            LocalSteps::Auto => Self::Auto,
            LocalSteps::Batches(n) => Self::Batches(n),
            LocalSteps::Epoch => Self::Epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::LocalSteps;

    #[test]
    fn a_number_and_two_words_are_read() {
        for (value, steps) in [
            (Value::from("auto"), LocalSteps::Auto),
            (Value::from("epoch"), LocalSteps::Epoch),
            (Value::from(7), LocalSteps::Batches(7)),
        ] {
            assert_eq!(LocalSteps::try_from(value.clone()), Ok(steps));
            assert_eq!(Value::from(steps), value);
        }
        for wrong in [Value::from(0), Value::from(-3), Value::from(1.5), Value::from("often")] {
            assert!(
                LocalSteps::try_from(wrong.clone()).is_err_and(|text| text.contains(&wrong.to_string())),
                "{wrong}"
            );
        }
    }
}
