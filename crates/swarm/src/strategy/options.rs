//! The options of strategies.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use nettorrent_engine::nearest::nearest;

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
    /// Peers of this strategy have no parameters in common that could be averaged over the steps.
    #[error(
        "`ema` is not for the strategy `{strategy}`, whose peers' parameters differ between the ends of epochs, so that they have no average in \
         common; set ema = 0, or use a strategy that makes them equal after every round, such as ring-all-reduce, local-sgd or diloco"
    )]
    Average {
        /// The strategy.
        strategy: &'static str,
    },
    /// The list has no such strategy.
    #[error("there is no strategy `{name}`; there are {}{}", .known.join(", "), meant(.nearest.as_deref()))]
    UnknownStrategy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
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

/// Reads a strategy's options from a table; unknown ones are answered with the nearest that exists.
pub(crate) fn read_options<T: DeserializeOwned + Default + Serialize>(
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
pub(crate) fn default_options<T: Default + Serialize>() -> Table {
    Table::try_from(T::default()).expect("options are plain tables")
}
