//! Messages that no honest peer sends.

/// A message that no honest peer sends. It costs its sender the link, and the receiver nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    /// What is wrong, in words.
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}
