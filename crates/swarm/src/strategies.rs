//! THE LIST of strategies, sorted by name. A new one is a file in `strategies/` and a line in each of the two lists here.

mod best_peer;
mod diloco;
mod downpour;
mod gossip;
mod local_sgd;
mod manager_worker;
mod moshpit;
mod parameter_server;
mod partial_gradient;
mod ring_all_reduce;
mod ring_reduce;
mod step_wise;
mod threshold;
mod two_level;

use nettorrent_engine::nearest::nearest;

use toml::{Table, Value};

use crate::strategy::{AnyStrategy, OptionError, Spec};

/// All strategies.
pub static STRATEGIES: &[Spec] = &[
    best_peer::SPEC,
    diloco::SPEC,
    downpour::SPEC,
    gossip::SPEC,
    local_sgd::SPEC,
    manager_worker::SPEC,
    moshpit::SPEC,
    parameter_server::SPEC,
    partial_gradient::SPEC,
    ring_all_reduce::SPEC,
    ring_reduce::SPEC,
    step_wise::SPEC,
    threshold::SPEC,
    two_level::SPEC,
];

/// The strategy of this name.
pub fn find(name: &str) -> Result<&'static Spec, OptionError> {
    STRATEGIES.iter().find(|spec| spec.name == name).ok_or_else(|| {
        let known: Vec<&'static str> = STRATEGIES.iter().map(|spec| spec.name).collect();
        OptionError::UnknownStrategy { name: name.to_owned(), nearest: nearest(name, &known).map(str::to_owned), known }
    })
}

/// Refuses a strategy that is not there, and options that it does not have.
pub fn check(name: &str, options: &Table) -> Result<(), OptionError> {
    build(find(name)?, options).map(drop)
}

/// A strategy with these options. One that cannot follow a rule of aggregation says who can.
pub(crate) fn build(spec: &Spec, options: &Table) -> Result<AnyStrategy, OptionError> {
    let built = (spec.build)(options);
    let (Err(OptionError::Option { strategy, problem }), Some(rule)) = (&built, options.get(AGGREGATION)) else {
        return built;
    };
    let able: Vec<&str> = STRATEGIES.iter().filter(|spec| follows(spec, rule)).map(|spec| spec.name).collect();
    if able.is_empty() || able.contains(strategy) {
        return built;
    }
    let problem = format!("{problem}; aggregation = {rule} is for {}", able.join(", "));
    Err(OptionError::Option { strategy, problem })
}

/// The option that names the rule, wherever there is one.
const AGGREGATION: &str = "aggregation";

/// Whether a strategy can follow a rule of aggregation.
fn follows(spec: &Spec, rule: &Value) -> bool {
    (spec.build)(&Table::from_iter([(AGGREGATION.to_owned(), rule.clone())])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{STRATEGIES, build, check, find};
    use crate::strategy::OptionError;

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
    fn who_cannot_follow_a_rule_names_those_who_can() {
        let refusal = |name: &str, rule: &str| {
            let options = toml::Table::from_iter([("aggregation".to_owned(), rule.into())]);
            build(find(name).unwrap(), &options).err().map(|error| error.to_string())
        };
        let all = ["clipped-mean", "krum", "median", "trimmed-mean"];
        for name in ["diloco", "local-sgd", "manager-worker", "ring-all-reduce", "ring-reduce"] {
            assert_eq!(all.map(|rule| refusal(name, rule)), [const { None }; 4], "{name}");
        }
        for name in ["downpour", "gossip", "partial-gradient", "threshold"] {
            assert_eq!(refusal(name, "clipped-mean"), None, "{name}");
            let error = refusal(name, "median").unwrap();
            assert!(error.contains("is for diloco, local-sgd, manager-worker, parameter-server, ring-all-"), "{error}");
        }
        for name in ["best-peer", "step-wise"] {
            let error = refusal(name, "clipped-mean").unwrap();
            let able =
                "is for diloco, downpour, gossip, local-sgd, manager-worker, partial-gradient, ring-all-reduce, ";
            assert!(error.contains("there is no option `aggregation`") && error.contains(able), "{error}");
        }
        assert!(refusal("parameter-server", "krum").unwrap().contains("whole vectors"));
        assert!(!refusal("step-wise", "voting").unwrap().contains("is for"));
    }

    #[test]
    fn mistakes_are_answered_with_the_nearest_name() {
        let error = find("ring-allreduce").err().unwrap().to_string();
        assert!(error.contains("did you mean `ring-all-reduce`?"), "{error}");
        let table = toml::toml! { frm = "naive" };
        let Err(error) = (find("ring-all-reduce").unwrap().build)(&table) else { panic!("accepted") };
        assert!(matches!(&error, OptionError::Option { .. }), "{error}");
        assert!(error.to_string().contains("did you mean `form`?"), "{error}");
        assert_eq!(check("ring-all-reduce", &table).unwrap_err().to_string(), error.to_string());
        assert!(check("ring-allreduce", &toml::Table::new()).is_err());
        assert!(check("ring-all-reduce", &toml::Table::new()).is_ok());
    }
}
