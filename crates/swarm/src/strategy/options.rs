//! The strategies by name, and their options.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::Strategy;
use crate::strategies::STRATEGIES;
use nettorrent_engine::nearest::nearest;

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
    pub build: fn(&Table) -> Result<Box<dyn Strategy>, OptionError>,
}

/// What an option does.
pub struct OptionDoc {
    /// Its name in `[swarm.options]`.
    pub name: &'static str,
    /// What it does and which values it takes.
    pub about: &'static str,
}

/// Why a strategy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The list has no such strategy.
    #[error("there is no strategy `{name}`; there are {}{}", names().join(", "), meant(.nearest.as_deref()))]
    UnknownStrategy {
        /// What was asked for.
        name: String,
        /// What was perhaps meant.
        nearest: Option<String>,
    },
    /// An option is unknown or has an impossible value.
    #[error("swarm.options of {strategy}: {problem}")]
    Option {
        /// Whose option.
        strategy: &'static str,
        /// What is wrong.
        problem: String,
    },
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn names() -> Vec<&'static str> {
    STRATEGIES.iter().map(|spec| spec.name).collect()
}

/// The strategy of this name.
pub fn find(name: &str) -> Result<&'static Spec, OptionError> {
    STRATEGIES.iter().find(|spec| spec.name == name).ok_or_else(|| OptionError::UnknownStrategy {
        name: name.to_owned(),
        nearest: nearest(name, &names()).map(str::to_owned),
    })
}

/// Reads a strategy's options from a table; unknown ones are answered with the nearest that exists.
pub fn read_options<T: DeserializeOwned + Default + Serialize>(
    strategy: &'static str,
    table: &Table,
) -> Result<T, OptionError> {
    let mut options = default_options::<T>();
    let known: Vec<&str> = options.keys().map(String::as_str).collect();
    let error = |problem: String| OptionError::Option { strategy, problem };
    if let Some(name) = table.keys().find(|name| !known.contains(&name.as_str())) {
        let list = if known.is_empty() { "it has none".to_owned() } else { format!("there are {}", known.join(", ")) };
        return Err(error(format!("there is no option `{name}`; {list}{}", meant(nearest(name, &known)))));
    }
    // A group of options that several strategies share has defaults of its own, which are not those of every strategy.
    options.extend(table.clone());
    options.try_into().map_err(|e: toml::de::Error| error(e.message().to_owned()))
}

/// A strategy's options as they are if nothing is said.
pub fn default_options<T: Default + Serialize>() -> Table {
    Table::try_from(T::default()).expect("options are plain tables")
}

#[cfg(test)]
mod tests {
    use super::{OptionError, find};
    use crate::strategies::STRATEGIES;

    #[test]
    fn every_option_is_explained_and_has_a_default() {
        for spec in STRATEGIES {
            let defaults = (spec.defaults)();
            let mut explained: Vec<&str> = spec.options.iter().map(|option| option.name).collect();
            explained.sort_unstable();
            assert!(defaults.keys().eq(&explained), "{}: {defaults:?}", spec.name);
            assert!((spec.build)(&defaults).is_ok(), "{}", spec.name);
        }
    }

    #[test]
    fn mistakes_are_answered_with_the_nearest_name() {
        let error = find("ring-allreduce").err().unwrap().to_string();
        assert!(error.contains("did you mean `ring-all-reduce`?"), "{error}");
        let table = toml::toml! { frm = "naive" };
        let Err(error) = (find("ring-all-reduce").unwrap().build)(&table) else { panic!("accepted") };
        assert!(matches!(&error, OptionError::Option { .. }), "{error}");
        assert!(error.to_string().contains("did you mean `form`?"), "{error}");
    }
}
