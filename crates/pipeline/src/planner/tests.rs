//! Plans whose best answer is known by hand, and small ones against all plans there are.

use nettorrent_engine::job::{Job, Stages};
use nettorrent_engine::model::{DenseSpec, LayerSpec, ModelSpec, zoo};
use nettorrent_engine::scale::Scale;

use super::{Candidate, Choice, PlanKind, Question, choose, estimate, resolve};
use crate::plan::{PipelinePlan, PlanError, Stage};
use crate::planner::profile::{most_batch_shards, most_tensor_shards};

/// Dense layers without bias, and nothing else.
fn dense(input: usize, outputs: &[usize]) -> ModelSpec {
    let layer = |&out: &usize| LayerSpec::Dense(DenseSpec { bias: false, ..DenseSpec::new(out) });
    ModelSpec { input: vec![input], layers: outputs.iter().map(layer).collect() }
}

fn question<'a>(spec: &'a ModelSpec, n_peers: usize, link: &str) -> Question<'a> {
    Question {
        spec,
        batch: 10,
        scale: Scale::None,
        in_flight: 1,
        n_peers,
        speeds: Vec::new(),
        link: link.parse().unwrap(),
        n_state_vectors: 1,
        multiplications_per_s: 3e6,
        copies: false,
        memory_limit: None,
    }
}

fn grids(choice: &Choice) -> Vec<(usize, usize, usize)> {
    choice.best.plan.stages.iter().map(|stage| (stage.layers.len(), stage.batch_shards, stage.tensor_shards)).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn where_links_are_free_every_peer_holds_everything() {
    let spec = dense(100, &[100, 100]);
    let choice = choose(&question(&spec, 6, "0s")).unwrap();
    assert_eq!((choice.best.kind, grids(&choice)), (PlanKind::DataParallel, vec![(2, 1, 1)]));
    // 10 samples of 20,000 multiplications, three times, at three million a second.
    let estimate = &choice.best.estimate;
    assert!(near(estimate.batch_s, 0.2), "{}", estimate.batch_s);
    assert!(near(estimate.samples_per_s, 6.0 * 10.0 / 0.2));
    assert_eq!((estimate.n_replicas, estimate.n_spare), (6, 0));
    assert_eq!(choice.runners_up.len(), 2, "a pipeline and a mixed plan are told too");
}

#[test]
fn on_slow_links_large_layers_stay_where_they_are() {
    // A batch of 10 x 100 numbers is little beside 10,000 parameters that replicas would have to average.
    let spec = dense(100, &[100, 100]);
    let asked = Question { in_flight: 8, ..question(&spec, 2, "320kbit") };
    let choice = choose(&asked).unwrap();
    assert_eq!((choice.best.kind, grids(&choice)), (PlanKind::Pipeline, vec![(1, 1, 1), (1, 1, 1)]));
    // Each computes 0.1 s; 4000 bytes each way take as long.
    assert!(near(choice.best.estimate.batch_s, 0.1), "{:?}", choice.best.estimate);
    let first = &choice.best.estimate.stages[0];
    assert_eq!((first.up_bytes, first.down_bytes, first.sum_bytes, first.n_params), (4000, 0, 0, 10_000));
    // Averaging 20,000 numbers: 80,000 bytes leave each peer, in 2 s, after 0.2 s of computing.
    let parallel = choice.runners_up.iter().find(|one| one.kind == PlanKind::DataParallel).unwrap();
    assert!(near(parallel.estimate.journey_s, 2.2), "{:?}", parallel.estimate);
    assert!(near(parallel.estimate.batch_s, 2.2), "with one stage there is one batch on its way");
    let one_by_one = Question { in_flight: 1, ..asked };
    let parallel_then = choose(&one_by_one).unwrap().runners_up.into_iter().find(|one| one.kind == parallel.kind);
    assert_eq!(parallel_then.unwrap().estimate, parallel.estimate);
}

#[test]
fn replicas_share_a_batch_unless_each_has_its_own() {
    let spec = dense(100, &[100, 100]);
    let plan = PipelinePlan { stages: vec![Stage { layers: 0..2, batch_shards: 1, tensor_shards: 1 }] };
    let told = |scale, n_peers| {
        let asked = Question { scale, ..question(&spec, n_peers, "0s") };
        estimate(&asked, &plan).unwrap().estimate
    };
    // Of 10 samples one of four trains three, at three million multiplications a second.
    let shared = told(Scale::GlobalBatch, 4);
    assert!(near(shared.batch_s, 3.0 * 0.02) && near(shared.samples_per_s, 10.0 / 0.06), "{shared:?}");
    assert!(shared.memory_bytes < told(Scale::None, 4).memory_bytes, "fewer samples are held");
    // Nobody is idle where there are more replicas than samples.
    assert!(near(told(Scale::GlobalBatch, 20).samples_per_s, 20.0 / 0.02));
    assert_eq!(told(Scale::GlobalBatch, 1), told(Scale::None, 1));
}

#[test]
fn with_one_batch_in_flight_it_takes_its_whole_journey() {
    let spec = dense(100, &[100, 100]);
    let plan = PipelinePlan {
        stages: vec![
            Stage { layers: 0..1, batch_shards: 1, tensor_shards: 1 },
            Stage { layers: 1..2, batch_shards: 1, tensor_shards: 1 },
        ],
    };
    let asked = question(&spec, 2, "320kbit/20ms");
    // Twice computing, and up and down 0.1 s of bytes and 0.02 s of delay.
    let candidate = estimate(&asked, &plan).unwrap();
    assert!(near(candidate.estimate.batch_s, 0.2 + 2.0 * 0.12), "{:?}", candidate.estimate);
    let two = Question { in_flight: 2, ..asked.clone() };
    assert!(near(estimate(&two, &plan).unwrap().estimate.batch_s, 0.22));
    let many = Question { in_flight: 20, ..asked };
    assert!(near(estimate(&many, &plan).unwrap().estimate.batch_s, 0.1));
}

#[test]
fn what_does_not_fit_one_peer_is_split_by_columns() {
    // 40,000 parameters: gradient, numbers, momentum and a snapshot of both make 800,000 bytes. Four tensor shards fit in a quarter and a bit.
    let spec = dense(100, &[400]);
    let whole = choose(&question(&spec, 4, "0s")).unwrap();
    assert_eq!(whole.best.kind, PlanKind::DataParallel);
    let asked = Question { memory_limit: Some(230_000), ..question(&spec, 4, "1gbit") };
    let choice = choose(&asked).unwrap();
    assert_eq!((choice.best.kind, grids(&choice)), (PlanKind::Mixed, vec![(1, 1, 4)]));
    assert!(choice.best.estimate.memory_bytes <= 230_000);
    assert!(choice.runners_up.is_empty(), "nothing else fits");
    let asked = Question { memory_limit: Some(1000), ..asked };
    let message = choose(&asked).unwrap_err().to_string();
    // 10,000 numbers five times, 10 x 100 inputs, 10 x 100 outputs and the gradient by these.
    assert!(message.contains("no plan for 4 peers fits in 1.0 kB") && message.contains("212.0 kB"), "{message}");
}

#[test]
fn many_inputs_and_few_samples_are_split_both_ways() {
    // The textbook's example: 100 samples by a layer of 50 x 200 on 10 x 10 peers.
    let spec = dense(50, &[200]);
    let plan = PipelinePlan { stages: vec![Stage { layers: 0..1, batch_shards: 10, tensor_shards: 10 }] };
    let asked = Question { batch: 100, ..question(&spec, 100, "1gbit") };
    let candidate = estimate(&asked, &plan).unwrap();
    let stage = &candidate.estimate.stages[0];
    assert_eq!(stage.n_params, 50 * 20);
    assert!(near(stage.compute_s, 3.0 * 10.0 * 50.0 * 20.0 / 3e6));
    // The sum over ten batch shards of 1000 numbers, and 10 x 20 scores to nine others.
    assert_eq!((stage.sum_bytes, stage.up_bytes), (2 * 9 * 4 * 100, 9 * 4 * 200));
    assert_eq!(candidate.kind, PlanKind::Mixed);
}

#[test]
fn slow_peers_get_fewer_layers() {
    let spec = dense(100, &[100, 100, 100]);
    let asked = Question { in_flight: 8, speeds: vec![1.0, 0.5], ..question(&spec, 2, "1mbit") };
    let choice = choose(&asked).unwrap();
    assert_eq!(grids(&choice), [(2, 1, 1), (1, 1, 1)]);
    assert!(near(choice.best.estimate.batch_s, 0.2), "{:?}", choice.best.estimate);
    let turned = Question { speeds: vec![0.5, 1.0], ..asked };
    assert_eq!(grids(&choose(&turned).unwrap()), [(1, 1, 1), (2, 1, 1)]);
}

#[test]
fn batch_norm_keeps_rows_together() {
    let spec = zoo::describe("resnet20", None, None).unwrap();
    let asked = Question { in_flight: 8, multiplications_per_s: 1e10, ..question(&spec, 40, "10mbit") };
    let choice = choose(&asked).unwrap();
    for candidate in choice.runners_up.iter().chain([&choice.best]) {
        let plan = PipelinePlan::new(&spec, &candidate.plan.stage_specs()).expect("what is chosen can be");
        assert_eq!(plan, candidate.plan);
    }
}

/// All ways to give these layers to grids of at most so many slots.
fn all_plans(question: &Question<'_>, start: usize, n_slots: usize) -> Vec<Vec<Stage>> {
    let n_layers = question.spec.layers.len();
    if start == n_layers {
        return vec![Vec::new()];
    }
    let mut plans = Vec::new();
    for end in start + 1..=n_layers {
        let layers = start..end;
        for batch_shards in 1..=most_batch_shards(question.spec, &layers, question.batch).min(n_slots) {
            for tensor_shards in 1..=most_tensor_shards(question.spec, &layers).min(n_slots / batch_shards) {
                for mut above in all_plans(question, end, n_slots - batch_shards * tensor_shards) {
                    above.insert(0, Stage { layers: layers.clone(), batch_shards, tensor_shards });
                    plans.push(above);
                }
            }
        }
    }
    plans
}

#[test]
fn of_all_small_plans_none_is_much_better_than_the_chosen() {
    for spec in [dense(30, &[60, 20, 10]), dense(200, &[10, 200]), dense(5, &[500, 5])] {
        for link in ["0s", "1gbit/100us", "10mbit", "1mbit/5ms", "100kbit"] {
            for (in_flight, n_peers) in [(1, 5), (4, 5), (3, 7)] {
                let speeds = if in_flight == 3 { vec![1.0, 0.7, 0.4] } else { Vec::new() };
                let asked = Question { in_flight, speeds, ..question(&spec, n_peers, link) };
                let judged = |stages: Vec<Stage>| estimate(&asked, &PipelinePlan { stages }).unwrap();
                let rate = |one: &Candidate| one.estimate.samples_per_s;
                let all = all_plans(&asked, 0, n_peers).into_iter().map(judged);
                let best = all.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
                let choice = choose(&asked).unwrap();
                let chosen = choice.best.estimate.samples_per_s;
                assert!(chosen <= rate(&best) * (1.0 + 1e-9), "it is one of them");
                let why = format!("{link}, {n_peers} peers: {chosen}, {:?} instead of {best:?}", grids(&choice));
                // Where peers are not alike, a peer that only shifts the others' places may help; that is not looked for.
                let least = if asked.speeds.is_empty() { 0.95 } else { 0.9 };
                assert!(chosen >= least * rate(&best), "{why}");
            }
        }
    }
}

#[test]
fn a_jobs_stages_are_chosen_once() {
    let spec = zoo::describe("digits-cnn", None, None).unwrap();
    let mut plain = Job::default();
    assert_eq!(resolve(&mut plain, &spec, 4), Ok(None));
    assert_eq!(plain, Job::default());
    let mut job = Job::parse("job", "", &["pipeline=auto".into(), "pipeline.link=1mbit".into()]).unwrap();
    let choice = resolve(&mut job, &spec, 4).unwrap().unwrap();
    let pipeline = job.pipeline.clone().unwrap();
    assert_eq!(pipeline.stages, Stages::Given(choice.best.plan.stage_specs()));
    assert_eq!(pipeline.link.as_deref(), Some("1mbit"), "all else stays");
    let again = resolve(&mut job, &spec, 4).unwrap().unwrap();
    assert_eq!(again.best, choice.best);
}

#[test]
fn what_makes_no_sense_is_answered() {
    let spec = dense(100, &[100]);
    let asked = question(&spec, 2, "1gbit");
    let wrong = |asked: Question<'_>| choose(&asked).unwrap_err().to_string();
    assert!(wrong(Question { n_peers: 0, ..asked.clone() }).contains("0 peers"));
    assert!(wrong(Question { speeds: vec![1.0, -1.0], ..asked.clone() }).contains("a speed of -1"));
    assert!(wrong(Question { speeds: vec![1.0; 3], ..asked.clone() }).contains("3 speeds for 2 peers"));
    assert!(wrong(Question { multiplications_per_s: 0.0, ..asked.clone() }).contains("multiplications"));
    let plan = |batch_shards| PipelinePlan { stages: vec![Stage { layers: 0..1, batch_shards, tensor_shards: 1 }] };
    assert_eq!(estimate(&asked, &plan(3)), Err(PlanError::Peers { n_slots: 3, n_peers: 2 }));
    let asked = Question { n_peers: 20, ..asked };
    assert!(estimate(&asked, &plan(11)).unwrap_err().to_string().contains("a batch has only 10 samples"));
    let mut job = Job::parse("job", "", &["pipeline.link=fast".into()]).unwrap();
    assert!(resolve(&mut job, &spec, 2).unwrap_err().to_string().contains("pipeline.link: \"fast\""));
}
