//! Cases: every strategy of the list, with its defaults and with other values of the options that it has.

use std::sync::Arc;

use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_engine::task::Task;
use nettorrent_sim::Toy;
use nettorrent_swarm::Setup;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategies::find;
use nettorrent_swarm::strategy::{AnyStrategy, Payload, Spec};
use toml::{Table, Value};

/// A strategy with some of its options set.
pub(crate) struct Case {
    spec: &'static Spec,
    pub(crate) options: Table,
}

/// Values worth trying, where a strategy has such an option. It may refuse some of them.
fn values() -> Vec<(&'static str, Vec<Value>)> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| Value::from(text)).collect();
    vec![
        (
            "aggregation",
            texts(&[
                "average",
                "clipped-mean",
                "krum",
                "median",
                "samples",
                "trimmed-mean",
                "weighted",
                "weighted-minmax",
            ]),
        ),
        ("bits", vec![Value::from(4), Value::from(8)]),
        ("codec", texts(&["bf16", "f16", "int8"])),
        ("adagrad", vec![Value::from(0.05)]),
        ("clip", vec![Value::from(5.0)]),
        ("coding", texts(&["bitmap", "list", "rice"])),
        ("density", vec![Value::from(0.1)]),
        ("form", texts(&["chunked", "fixed", "naive", "rotating"])),
        ("local_steps", vec![Value::from(1), Value::from(3)]),
        ("group", vec![Value::from(2), Value::from(3)]),
        ("outer_every", vec![Value::from(1), Value::from(2)]),
        ("outer_lr", vec![Value::from(1.0)]),
        ("outer_momentum", vec![Value::from(0.0)]),
        ("n_fetch", vec![Value::from(5)]),
        ("n_push", vec![Value::from(3)]),
        ("optimizer_state", texts(&["average", "reset"])),
        ("partitions", vec![Value::from(1), Value::from(5)]),
        ("patience", vec![Value::from(0.004)]),
        ("payload", texts(&["weights"])),
        ("flush_every", vec![Value::from(1), Value::from(5)]),
        ("shards", vec![Value::from(0), Value::from(2)]),
        ("validation", vec![Value::from(3)]),
        ("tau", vec![Value::from(0.01)]),
        ("staleness", vec![Value::from(0), Value::from(1), Value::from(40)]),
    ]
}

/// Tables of options that a strategy accepts: none, and one after the other of the values, alone and with weights.
fn variants(spec: &'static Spec) -> Vec<Table> {
    let defaults = (spec.defaults)();
    let mut tables = vec![Table::new()];
    for (key, values) in values() {
        for value in values.into_iter().filter(|_| defaults.contains_key(key)) {
            let alone = Table::from_iter([(key.to_owned(), value)]);
            let mut with_weights = alone.clone();
            with_weights.insert("payload".to_owned(), Value::from("weights"));
            tables.extend([alone, with_weights]);
        }
    }
    tables.retain(|table| (spec.build)(table).is_ok());
    // What says the same as one before says nothing new.
    let meaning = |table: &Table| defaults.clone().into_iter().chain(table.clone()).collect::<Table>();
    let mut distinct: Vec<Table> = Vec::new();
    for table in tables {
        if !distinct.iter().any(|other| meaning(other) == meaning(&table)) {
            distinct.push(table);
        }
    }
    distinct
}

/// Every strategy with every variant of its options.
pub(crate) fn all() -> Vec<Case> {
    let cases = |spec| variants(spec).into_iter().map(move |options| Case { spec, options });
    STRATEGIES.iter().flat_map(cases).collect()
}

/// Every strategy as it is if nothing is said.
pub(crate) fn defaults() -> Vec<Case> {
    STRATEGIES.iter().map(|spec| Case { spec, options: Table::new() }).collect()
}

impl Case {
    /// Any strategy of the list with any options.
    pub(crate) fn new(name: &str, options: Table) -> Self {
        Self { spec: find(name).unwrap(), options }
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.spec.name, self.options.to_string().replace('\n', " "))
    }

    pub(crate) fn strategy(&self) -> AnyStrategy {
        (self.spec.build)(&self.options).unwrap()
    }

    pub(crate) fn has_option(&self, name: &str) -> bool {
        (self.spec.defaults)().contains_key(name)
    }

    /// What an option is, said or not.
    pub(crate) fn option(&self, name: &str) -> Option<Value> {
        self.options.get(name).cloned().or_else(|| (self.spec.defaults)().get(name).cloned())
    }

    /// Whether parameters are kept in shards that go on whoever is where, so that nobody waits for anybody.
    pub(crate) fn has_keepers(&self) -> bool {
        self.has_option("n_push")
    }

    /// Whether whoever does not do best keeps its numbers to itself.
    pub(crate) fn sends_only_the_best(&self) -> bool {
        self.has_option("validation")
    }

    /// Whether peers' parameters move by what their own optimizers say.
    pub(crate) fn steps_are_its_own(&self) -> bool {
        !self.options.contains_key("adagrad")
    }

    /// Whether the result may depend on who is how fast, because somebody does not wait for everybody.
    pub(crate) fn depends_on_time(&self) -> bool {
        let patience = self.options.get("patience").and_then(Value::as_float);
        patience.is_some_and(|seconds| seconds > 0.0) || self.is_asynchronous()
    }

    /// Whether peers do not wait for each other after each batch.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.strategy().round_plan().payload == Payload::Updates
    }

    /// By which rule contributions become one, where that can be chosen.
    pub(crate) fn aggregation(&self) -> Option<String> {
        self.option("aggregation").and_then(|rule| rule.as_str().map(str::to_owned))
    }

    /// Whether that rule outvotes a few whose numbers are wrong.
    pub(crate) fn is_robust(&self) -> bool {
        self.aggregation()
            .is_some_and(|rule| ["clipped-mean", "krum", "median", "trimmed-mean"].contains(&rule.as_str()))
    }

    /// Whether every round ends with the mean gradient of all, exactly but for rounding.
    pub(crate) fn averages_gradients_exactly(&self) -> bool {
        let is_plain = |option: &str| !self.options.contains_key(option);
        self.strategy().round_plan().payload == Payload::Gradients && is_plain("codec") && is_plain("aggregation")
    }

    /// A job of the usual length on the usual toy.
    pub(crate) fn setup(&self, epochs: u64) -> Arc<Setup> {
        self.setup_for(Toy::new(7), Job { epochs, batch: 8, ..job() })
    }

    /// The same for peers that all train as much, whoever is slow.
    pub(crate) fn equal_setup(&self, epochs: u64) -> Arc<Setup> {
        self.setup_for(Toy::new(7), Job { epochs, batch: 8, ..equal_job() })
    }

    /// Any job on any task.
    pub(crate) fn setup_for(&self, task: impl Task + 'static, job: Job) -> Arc<Setup> {
        let swarm = SwarmSpec { strategy: self.spec.name.to_owned(), options: self.options.clone(), ..job.swarm };
        Arc::new(Setup::new(&Job { swarm, ..job }, Arc::new(task)).unwrap())
    }
}

/// The same for peers that each have a batch of their own, however fast they are.
pub(crate) fn equal_job() -> Job {
    Job { swarm: SwarmSpec { scale: Scale::None, work: Work::Equal, ..SwarmSpec::default() }, ..job() }
}

pub(crate) fn job() -> Job {
    let optimizer = OptimizerSpec { lr: 0.1, momentum: 0.5, ..OptimizerSpec::default() };
    Job { optimizer, seed: 3, ..Job::default() }
}

#[test]
fn every_value_is_tried_by_some_strategy() {
    for (key, values) in values() {
        for value in values {
            let is_accepted = |spec: &Spec| {
                (spec.defaults)().contains_key(key)
                    && (spec.build)(&Table::from_iter([(key.to_owned(), value.clone())])).is_ok()
            };
            assert!(STRATEGIES.iter().any(is_accepted), "no strategy takes {key} = {value}");
        }
    }
    assert!(all().len() > 3 * defaults().len());
}
