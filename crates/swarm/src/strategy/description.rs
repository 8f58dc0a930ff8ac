//! A strategy with its usual options, described for people and programs.

use serde::Serialize;
use toml::Value;

use super::cost::{Cost, CostQuestion};
use super::round_plan::Payload;
use super::spec::Spec;

/// A strategy with its usual options.
#[derive(Debug, Serialize)]
pub struct Description {
    /// What a user calls it.
    pub name: &'static str,
    /// Whether peers train on while they exchange.
    pub is_asynchronous: bool,
    /// What it does, in a sentence or two.
    pub about: &'static str,
    /// Who described it first.
    pub paper: &'static str,
    /// Its options, in the order in which they are explained.
    pub options: Vec<DescribedOption>,
    /// What a round costs.
    pub cost: DescribedCost,
}

/// An option of a strategy.
#[derive(Debug, Serialize)]
pub struct DescribedOption {
    /// Its name in a job.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What it is if nobody says otherwise.
    pub default: Option<Value>,
}

/// What a round costs, for so many peers and parameters.
#[derive(Debug, Serialize)]
pub struct DescribedCost {
    /// In words: N peers, M bytes of parameters.
    pub formula: &'static str,
    /// How many peers there are.
    pub n_peers: usize,
    /// How many parameters the model has.
    pub n_params: usize,
    /// The first round's.
    pub round: Cost,
    /// Whether it may be less.
    pub is_bound: bool,
}

impl Spec {
    /// Describes the strategy, and what it costs so many peers that exchange so many parameters.
    pub fn describe(&self, n_peers: usize, n_params: usize) -> Description {
        let defaults = (self.defaults)();
        let strategy = (self.build)(&defaults).expect("defaults are right");
        let whole = 0..n_params;
        let buckets = std::slice::from_ref(&whole);
        let round = strategy.cost(&CostQuestion { n_peers, buckets, n_params, round: 0, site_sizes: &[] });
        let option = |name, about| DescribedOption { name, about, default: defaults.get(name).cloned() };
        Description {
            name: self.name,
            is_asynchronous: strategy.round_plan().payload == Payload::Updates,
            about: self.about,
            paper: self.paper,
            options: self.options.iter().map(|doc| option(doc.name, doc.about)).collect(),
            cost: DescribedCost {
                formula: self.cost,
                n_peers,
                n_params,
                round,
                is_bound: strategy.cost_is_upper_bound(),
            },
        }
    }
}
