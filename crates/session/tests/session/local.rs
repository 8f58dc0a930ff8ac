//! Peers of one process: one that trains by itself, and several.

use std::path::Path;
use std::sync::Arc;

use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::data::Dataset;
use nettorrent_engine::data::in_memory::{InMemory, Samples};
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::rng::mix;
use nettorrent_engine::task::Task;
use nettorrent_history::{Event, History, LeftOut, Line};
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{Options, Outcome, RunFolder, Session, StartState, Training};

const N_SAMPLES: usize = 64;

fn job(settings: &[&str]) -> Job {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let text = "model = \"mlp:8\"\nbatch = 8\nepochs = 4\nthreads = 1\n[optimizer]\nlr = 0.2\nmomentum = 0.5\n";
    Job::parse("the test's job", text, &settings).expect("what the test sets up")
}

/// Two classes that the first of three features tells apart, but for samples in which it is another number.
fn task(job: &Job, changed: &[(usize, f32)]) -> Arc<dyn Task> {
    let set = |n: usize, changed: &[(usize, f32)]| -> Box<dyn Dataset> {
        let value = |i: usize| if i.is_multiple_of(3) { (i / 3 % 2) as f32 * 2.0 - 1.0 } else { (i % 7) as f32 / 7.0 };
        let mut values: Vec<f32> = (0..3 * n).map(value).collect();
        changed.iter().for_each(|&(index, value)| values[3 * index] = value);
        let labels = (0..n).map(|i| i as u32 % 2).collect();
        Box::new(
            InMemory::new(vec![3], vec!["a".into(), "b".into()], labels, Samples::Floats(values))
                .expect("what the test sets up"),
        )
    };
    let network = build_network(&job.model, &job.model_spec(&[3], 2).expect("what the test sets up"))
        .expect("what the test sets up");
    Arc::new(Learning::new(job, network, set(N_SAMPLES, changed), set(8, &[])).expect("what the test sets up"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Trains with so many peers, from the beginning or from a checkpoint, to the end or until `stop` says so.
fn train(
    path: &Path,
    training: Training,
    n_peers: usize,
    checkpoint: Option<&Path>,
    mut stop: impl FnMut(&Event) -> bool + 'static,
) -> Outcome {
    let training = Arc::new(training);
    let run = match checkpoint {
        Some(_) => RunFolder::open(path),
        None => RunFolder::create(Some(path), &training.job, None),
    };
    let run = run.expect("what the test sets up");
    let start = match checkpoint {
        Some(checkpoint) => StartState::from_checkpoint(&run, checkpoint, &training).expect("what the test sets up"),
        None => StartState::fresh(&training),
    };
    block_on(async {
        let mut session =
            Session::local(training, start, run, Options::default(), n_peers).await.expect("what the test sets up");
        let leave = session.leave();
        session.follow(move |line: &Line, _| {
            if stop(&line.event) {
                leave.leave();
            }
        });
        session.run().await.expect("what the test sets up")
    })
}

fn to_the_end(_: &Event) -> bool {
    false
}

fn model(outcome: &Outcome) -> Vec<u8> {
    std::fs::read(outcome.checkpoint.as_ref().expect("a checkpoint").join("model.safetensors")).expect("a model")
}

#[test]
fn one_peer_takes_the_steps_of_plain_sgd() {
    let job = job(&[
        "augment={crop-flip={padding=1,flip=true}}",
        "data.name=digits",
        "model=digits-cnn",
        "batch=50",
        "epochs=1",
    ]);
    let training = Training::alone(job.clone(), None).unwrap();
    let task = training.task.clone();
    let mut worker = task.clone().worker(1).unwrap();
    let (mut values, mut gradient) = (task.init(job.seed), vec![0.0; task.n_values()]);
    let mut optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
    let all: Vec<usize> = (0..task.labels().len()).collect();
    let batches = job.batch_rule().epoch_batches(&all, task.labels(), job.seed, 0).unwrap();
    for (step, samples) in batches.iter().enumerate() {
        let mut put =
            |bucket: usize, numbers: &[f32]| gradient[task.buckets()[bucket].clone()].copy_from_slice(numbers);
        worker.gradient(&values, samples, mix(job.seed ^ mix(step as u64)), &mut put).unwrap();
        let (done, step) = (step as f64 / batches.len() as f64, 1.0 / batches.len() as f64);
        optimizer.step_alone(job.schedule.rate(job.optimizer.lr, done, step, 1.0), &mut values, &gradient);
    }
    let folder = tempfile::tempdir().unwrap();
    let outcome = train(&folder.path().join("run"), training, 1, None, to_the_end);
    let learnt = load_weights(&outcome.checkpoint.unwrap().join("model.safetensors"), task.layout());
    assert!(learnt.unwrap() == values);
}

#[test]
fn peers_of_one_process_train_to_the_same_model_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut models = Vec::new();
    for run in ["once", "again"] {
        let path = folder.path().join(run);
        let job = job(&["swarm.work=equal"]);
        let training = Training::custom(task(&job, &[]), job).unwrap();
        let outcome = train(&path, training, 3, None, to_the_end);
        assert_eq!((outcome.ending.clone(), outcome.epoch), (Ending::Finished, 4));
        let history = History::read(&path.join("events.jsonl")).unwrap();
        let (_, last) = history.epochs.last().unwrap();
        assert_eq!((last.test_accuracy, last.peers.len()), (1.0, 3));
        models.push(model(&outcome));
    }
    assert!(models[0] == models[1]);
}

#[test]
fn an_average_is_what_is_tested_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut ends = Vec::new();
    for (name, settings) in [("plain", &[][..]), ("averaged", &["ema=0.95"])] {
        let path = folder.path().join(name);
        let job = job(settings);
        let training = Training::custom(task(&job, &[]), job.clone()).unwrap();
        let task = training.task.clone();
        let outcome = train(&path, training, 1, None, to_the_end);
        let checkpoint = outcome.checkpoint.unwrap();
        let saved = load_weights(&checkpoint.join("model.safetensors"), task.layout()).unwrap();
        let history = History::read(&path.join("events.jsonl")).unwrap();
        let tested = history.epochs.last().unwrap().1.test_loss;
        let of_saved = task.clone().worker(1).unwrap().test(&saved, 0..task.n_test()).unwrap().loss();
        assert!((tested - of_saved).abs() < 1e-9, "{name}: {tested} and {of_saved}");
        // Training goes on with the parameters themselves: they are as without an average.
        let training = Training::custom(task, job).unwrap();
        let run = RunFolder::open(&path).unwrap();
        let StartState::Whole(state) = StartState::from_checkpoint(&run, &checkpoint, &training).unwrap() else {
            panic!("one peer holds the whole")
        };
        ends.push((saved, state.values.to_vec(), state.average.map(|average| average.to_vec())));
    }
    let [plain, averaged] = &ends[..] else { panic!("two runs") };
    assert!(plain.0 == plain.1 && plain.2.is_none());
    assert!(averaged.1 == plain.1, "an average changes nothing that is trained");
    assert!(averaged.0 != averaged.1 && averaged.2.as_ref() == Some(&averaged.0));
}

fn left_out(path: &Path) -> Vec<usize> {
    let history = History::read(&path.join("events.jsonl")).expect("what the test sets up");
    let samples = |left_out: &LeftOut| left_out.samples.iter().map(|sample| sample.index).collect::<Vec<_>>();
    history.left_out.iter().flat_map(|(_, left_out)| samples(left_out)).collect()
}

#[test]
fn a_sample_that_gives_no_number_costs_that_sample() {
    let folder = tempfile::tempdir().unwrap();
    // The last two are on the wrong side, which shows as soon as the model knows the sides.
    for (k, bad) in [f32::NAN, f32::INFINITY, -1e38, -1e9].into_iter().enumerate() {
        for batch in ["batch=8", "batch=1", "batch=64"] {
            for n_peers in [1, 2] {
                let path = folder.path().join(format!("{k}-{batch}-{n_peers}"));
                let job = job(&[batch]);
                let training = Training::custom(task(&job, &[(5, bad)]), job).unwrap();
                let outcome = train(&path, training, n_peers, None, to_the_end);
                let what = format!("{bad}, {batch}, {n_peers} peers");
                assert_eq!(outcome.ending, Ending::Finished, "{what}");
                assert_eq!(left_out(&path), [5], "{what}");
                let history = History::read(&path.join("events.jsonl")).unwrap();
                assert!(history.rollbacks.is_empty(), "{what}");
                let n_samples = |epoch: &nettorrent_history::Epoch| epoch.peers.iter().map(|peer| peer.n_samples).sum();
                let last: u64 = n_samples(&history.epochs.last().unwrap().1);
                assert_eq!(last, N_SAMPLES as u64 - 1, "{what}");
                let accuracy = history.epochs.last().unwrap().1.test_accuracy;
                assert!(batch == "batch=64" || accuracy == 1.0, "{what}: {accuracy}");
            }
        }
    }
}

#[test]
fn a_run_without_some_samples_can_be_resumed_within_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(&["batch=1", "epochs=40"]);
    let training = || Training::custom(task(&job, &[(5, f32::NAN), (40, f32::NAN)]), job.clone()).unwrap();
    let unbroken = train(&folder.path().join("unbroken"), training(), 1, None, to_the_end);
    let path = folder.path().join("broken");
    let outcome = train(&path, training(), 1, None, |event| matches!(event, Event::Epoch(epoch) if epoch.epoch == 2));
    assert_eq!(outcome.ending, Ending::Left);
    let outcome = train(&path, training(), 1, outcome.checkpoint.as_deref(), to_the_end);
    assert_eq!((outcome.ending.clone(), outcome.step), (Ending::Finished, unbroken.step));
    assert!(model(&outcome) == model(&unbroken));
    let mut once = left_out(&path);
    once.sort_unstable();
    assert_eq!(once, [5, 40], "what was found before is remembered");
}

#[test]
fn all_samples_cannot_be_to_blame() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(&[]);
    let all: Vec<(usize, f32)> = (0..N_SAMPLES).map(|index| (index, f32::NAN)).collect();
    let training = Training::custom(task(&job, &all), job).unwrap();
    let outcome = train(&folder.path().join("run"), training, 1, None, to_the_end);
    let Ending::Failed(problem) = outcome.ending else { panic!("{:?}", outcome.ending) };
    assert!(problem.contains("gone back 4 times"), "{problem}");
}
