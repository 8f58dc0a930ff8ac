//! What a token is, as a job says it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Tokens {
    /// A byte.
    Bytes,
    /// A character of the training text.
    Characters,
    /// What this tokenizer.json says.
    File(PathBuf),
    /// One of so many tokens of a byte-pair encoding that is trained on the training text.
    Train(usize),
}

/// The same as it is written in a job.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Named(String),
    Trained(Trained),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trained {
    train: usize,
}

impl From<Written> for Tokens {
    fn from(written: Written) -> Self {
        match written {
            Written::Named(name) if name == "bytes" => Self::Bytes,
            Written::Named(name) if name == "characters" => Self::Characters,
            Written::Named(path) => Self::File(path.into()),
            Written::Trained(Trained { train }) => Self::Train(train),
        }
    }
}

impl From<Tokens> for Written {
    fn from(tokens: Tokens) -> Self {
        match tokens {
            Tokens::Bytes => Self::Named("bytes".to_owned()),
            Tokens::Characters => Self::Named("characters".to_owned()),
            Tokens::File(path) => Self::Named(path.to_string_lossy().into_owned()),
            Tokens::Train(train) => Self::Trained(Trained { train }),
        }
    }
}
