//! A language model is trained like anything else: every strategy lowers its loss, and all peers end with the same numbers.

use std::sync::Arc;

use nettorrent_engine::backend::Opening;
use nettorrent_engine::backends;
use nettorrent_engine::data::Split;
use nettorrent_engine::data::source::open;
use nettorrent_engine::job::Job;
use nettorrent_engine::measure::Measure;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Scenario, Simulation};
use nettorrent_swarm::Setup;
use nettorrent_swarm::strategies::STRATEGIES;

fn job(path: &str, settings: &[String]) -> Job {
    let text = format!(
        "model = \"gpt:1x16x2\"\nepochs = 6\nbatch = 12\nseed = 5\ndata.path = \"{path}\"\ndata.length = 8\n\
         optimizer = {{ kind = \"sgd\", lr = 0.3, momentum = 0.5 }}\n"
    );
    Job::parse("the test's job", &text, settings).unwrap()
}

#[test]
fn every_strategy_trains_a_transformer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.txt");
    std::fs::write(&file, "the quick brown fox jumps over the lazy dog. ".repeat(60)).unwrap();
    let path = file.display().to_string();
    let plain = job(&path, &[]);
    let [train_set, test_set] =
        [Split::Train, Split::Test].map(|part| open(&plain.data, None, part, plain.seed).unwrap());
    let spec = plain.model_spec(train_set.shape(), train_set.n_outputs()).unwrap();
    let backend = backends::find(&plain.backend).unwrap();
    let opening = Opening { job: &plain, spec: Some(&spec), python: None, train_set, test_set };
    let task: Arc<dyn Task> = (backend.open)(opening).unwrap().task;
    assert_eq!(task.measure(), Measure::Perplexity { n_tokens: 8 });
    let mut worker = task.clone().worker(1).unwrap();
    let mut loss = |values: &[f32]| worker.test(values, 0..task.n_test()).unwrap().loss();
    let before = loss(&task.init(plain.seed));
    for strategy in STRATEGIES {
        let setup = Setup::new(&job(&path, &[format!("swarm.strategy={}", strategy.name)]), task.clone()).unwrap();
        let outcome = Simulation::new(Arc::new(setup), 3, Scenario::lan()).unwrap().run().unwrap();
        assert!(outcome.failures.is_empty(), "{}", strategy.name);
        let first = &outcome.peers[0];
        assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.values == first.values), "{}", strategy.name);
        let after = loss(&first.values);
        assert!(after < 0.9 * before, "{}: the loss went from {before} to {after}", strategy.name);
    }
}
