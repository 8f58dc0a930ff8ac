//! Hostile peers that learn the digits with honest ones: what a rule of aggregation withstands, and what spoils those who have none.

use std::sync::Arc;

use nettorrent_engine::backend::Opening;
use nettorrent_engine::backends;
use nettorrent_engine::data::Split;
use nettorrent_engine::data::source::open;
use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Attack, Scenario, Simulation};
use nettorrent_swarm::Setup;

const N_PEERS: usize = 8;
const N_HOSTILE: usize = 2;

/// The digits and a small network.
struct Digits {
    task: Arc<dyn Task>,
}

fn job(settings: &[String]) -> Job {
    let text = "model = \"mlp:16\"\nepochs = 4\nbatch = 32\nseed = 5\ndata.name = \"digits\"\ndata.take = 2000\n\
                optimizer = { kind = \"sgd\", lr = 0.2, momentum = 0.5 }\n";
    Job::parse("the test's job", text, settings).unwrap()
}

impl Digits {
    fn new() -> Self {
        let job = job(&[]);
        let part = |split| open(&job.data, None, split, job.seed).unwrap();
        let (train_set, test_set) = (part(Split::Train), part(Split::Test));
        let spec = job.model_spec(train_set.shape(), train_set.n_outputs()).unwrap();
        let backend = backends::find(&job.backend).unwrap();
        let opened =
            (backend.open)(Opening { job: &job, spec: Some(&spec), python: None, train_set, test_set }).unwrap();
        Self { task: opened.task }
    }

    /// What an honest peer's model is worth in the end.
    fn accuracy(&self, strategy: &str, rule: Option<&str>, attack: Option<&str>) -> f64 {
        let mut settings = vec![format!("swarm.strategy={strategy}")];
        settings.extend(rule.map(|rule| format!("swarm.options.aggregation={rule}")));
        // As many are left out at each end as may be hostile.
        settings.extend(rule.filter(|rule| *rule == "trimmed-mean").map(|_| "swarm.options.trim=0.25".to_owned()));
        let setup = Arc::new(Setup::new(&job(&settings), self.task.clone()).unwrap());
        let attack = attack.map(|attack| attack.parse::<Attack>().unwrap());
        let attackers = if attack.is_some() { N_HOSTILE } else { 0 };
        let scenario = Scenario { attack, attackers, ..Scenario::lan() };
        let outcome = Simulation::new(setup, N_PEERS, scenario).unwrap().run().unwrap();
        let mut worker = self.task.clone().worker(1).unwrap();
        worker.test(&outcome.peers[0].values, 0..self.task.n_test()).map_or(0.0, |score| score.accuracy())
    }
}

/// By which rules strategies are tried.
const RULES: &[(&str, &[&str])] = &[
    ("diloco", &["clipped-mean", "krum", "median", "trimmed-mean"]),
    ("downpour", &["clipped-mean"]),
    ("gossip", &["clipped-mean"]),
    ("local-sgd", &["clipped-mean", "krum", "median", "trimmed-mean"]),
    ("manager-worker", &["clipped-mean", "krum", "median", "trimmed-mean"]),
    ("parameter-server", &["median", "trimmed-mean"]),
    ("partial-gradient", &["clipped-mean"]),
    ("ring-all-reduce", &["clipped-mean", "krum", "median", "trimmed-mean"]),
    ("ring-reduce", &["clipped-mean", "krum", "median", "trimmed-mean"]),
    ("threshold", &["clipped-mean"]),
];

/// Attacks that spoil a mean, and how much of the accuracy without them a rule keeps at least.
const WITHSTOOD: [(&str, f64); 3] = [("scaled:10", 0.1), ("scaled:100", 0.1), ("scaled:-10", 0.2)];

#[test]
fn two_of_eight_spoil_a_mean_and_not_a_rule_that_is_said_to_withstand_them() {
    let digits = Digits::new();
    for (strategy, rules) in RULES {
        let honest = digits.accuracy(strategy, None, None);
        assert!(honest > 0.9, "{strategy} without attackers: {honest}");
        for (attack, most_lost) in WITHSTOOD {
            let spoilt = digits.accuracy(strategy, None, Some(attack));
            assert!(spoilt < honest - 0.15, "{strategy} withstands {attack} without a rule: {spoilt}");
            for rule in *rules {
                let kept = digits.accuracy(strategy, Some(rule), Some(attack));
                assert!(kept > honest - most_lost, "{strategy} with {rule} and {attack}: {kept} of {honest}");
                assert!(kept > spoilt + 0.05, "{strategy} with {rule} and {attack}: {kept}, without the rule {spoilt}");
            }
        }
    }
}

#[test]
fn a_little_of_those_who_collude_is_withstood_by_krum_alone() {
    let digits = Digits::new();
    let accuracy = |rule| digits.accuracy("ring-all-reduce", rule, Some("a-little"));
    let krum = accuracy(Some("krum"));
    assert!(krum > 0.8, "{krum}");
    // If one of these gets better, the page on robust aggregation says too little of it.
    for rule in [None, Some("clipped-mean"), Some("median"), Some("trimmed-mean")] {
        let spoilt = accuracy(rule);
        assert!(spoilt < 0.7, "{rule:?}: {spoilt}");
    }
}

#[test]
fn the_same_attack_gives_the_same_numbers() {
    let digits = Digits::new();
    let accuracy = || digits.accuracy("local-sgd", Some("median"), Some("a-little"));
    assert_eq!(accuracy().to_bits(), accuracy().to_bits());
}
