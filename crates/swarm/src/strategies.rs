//! THE LIST of strategies, sorted by name. A new one is a file in `strategies/` and a line in each of the two lists here.

mod best_peer;
mod diloco;
mod downpour;
mod gossip;
mod local_sgd;
mod manager_worker;
mod parameter_server;
mod partial_gradient;
mod ring_all_reduce;
mod ring_reduce;
mod step_wise;
mod threshold;

use nettorrent_engine::nearest::nearest;

use crate::strategy::{OptionError, Spec};

/// All strategies.
pub static STRATEGIES: &[Spec] = &[
    best_peer::SPEC,
    diloco::SPEC,
    downpour::SPEC,
    gossip::SPEC,
    local_sgd::SPEC,
    manager_worker::SPEC,
    parameter_server::SPEC,
    partial_gradient::SPEC,
    ring_all_reduce::SPEC,
    ring_reduce::SPEC,
    step_wise::SPEC,
    threshold::SPEC,
];

/// The strategy of this name.
pub fn find(name: &str) -> Result<&'static Spec, OptionError> {
    STRATEGIES.iter().find(|spec| spec.name == name).ok_or_else(|| {
        let known: Vec<&'static str> = STRATEGIES.iter().map(|spec| spec.name).collect();
        OptionError::UnknownStrategy { name: name.to_owned(), nearest: nearest(name, &known).map(str::to_owned), known }
    })
}

#[cfg(test)]
mod tests {
    use super::{STRATEGIES, find};
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
    fn mistakes_are_answered_with_the_nearest_name() {
        let error = find("ring-allreduce").err().unwrap().to_string();
        assert!(error.contains("did you mean `ring-all-reduce`?"), "{error}");
        let table = toml::toml! { frm = "naive" };
        let Err(error) = (find("ring-all-reduce").unwrap().build)(&table) else { panic!("accepted") };
        assert!(matches!(&error, OptionError::Option { .. }), "{error}");
        assert!(error.to_string().contains("did you mean `form`?"), "{error}");
    }
}
