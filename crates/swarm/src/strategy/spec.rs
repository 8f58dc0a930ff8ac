//! What is known of a strategy before one is made.

use toml::Table;

use super::any::AnyStrategy;
use super::options::{OptionDoc, OptionError};

/// A strategy as the list knows it.
pub struct Spec {
    /// What a user calls it.
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub about: &'static str,
    /// What a round costs, in words: N peers, M bytes of parameters.
    pub cost: &'static str,
    /// Who described it first.
    pub paper: &'static str,
    /// Its options with their defaults, in the order in which they are explained.
    pub options: &'static [OptionDoc],
    /// The defaults as a table.
    pub defaults: fn() -> Table,
    /// Makes one with these options.
    pub build: fn(&Table) -> Result<AnyStrategy, OptionError>,
}
