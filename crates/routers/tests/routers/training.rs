//! Two peers that meet at a relay and nowhere else train to the same model.

use std::path::Path;
use std::sync::Arc;

use nettorrent_engine::fn_task::{FnTask, Sample};
use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::task::Task;
use nettorrent_net::transport::Transport;
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{Invited, Options, Outcome, RunFolder, Session, StartState, Training};

use crate::{ANY_PORT, relay, run};

/// Finds the mean of some numbers.
fn task() -> Arc<dyn Task> {
    let sample = |values: &[f32], which: Sample, gradient: Option<&mut [f32]>| {
        let (Sample::Train(k) | Sample::Test(k)) = which;
        let off = values[0] - (k % 5) as f32;
        if let Some(gradient) = gradient {
            gradient[0] += off;
        }
        Score { loss_sum: f64::from(off * off / 2.0), n_correct: 0, n: 1, metrics: [0.0; 4] }
    };
    Arc::new(FnTask::new(Layout::of_tensors([("mean", [1].as_slice())]), vec![0; 200], 20, sample))
}

fn options(wait_for: usize, transport: Arc<dyn Transport>) -> Options {
    Options { wait_for, transport, listen: ANY_PORT.into(), ..Options::default() }
}

fn model(outcome: &Outcome) -> Vec<u8> {
    std::fs::read(outcome.checkpoint.as_ref().expect("a checkpoint").join("model.safetensors")).expect("a model")
}

fn events(run: &Path) -> String {
    std::fs::read_to_string(run.join("events.jsonl")).unwrap()
}

#[test]
fn peers_that_meet_at_a_relay_only_train_to_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    run(async {
        let (_relay, at_it) = relay().await;
        let optimizer = OptimizerSpec { lr: 0.1, ..OptimizerSpec::default() };
        let job = Job { model: "mean".into(), epochs: 3, batch: 10, optimizer, ..Job::default() };
        let training = Arc::new(Training::custom(task(), job).unwrap());
        let folder = RunFolder::create(Some(&first), &training.job, None).unwrap();
        let start = StartState::fresh(&training);
        let hidden = options(2, Arc::new(at_it().hidden()));
        let (starter, ticket) = Session::start(training, start, folder, hidden).await.unwrap();
        let joins = async {
            let options = options(1, Arc::new(at_it().hidden()));
            let invited = Invited::ask(&ticket, &options).await.unwrap();
            let training = Arc::new(Training::custom_in(invited.package(), task()).unwrap());
            let folder = RunFolder::create(Some(&second), &training.job, None).unwrap();
            Session::join(invited, training, folder, options).await.unwrap().run().await.unwrap()
        };
        let (started, joined) = tokio::join!(starter.run(), joins);
        let outcomes = [started.unwrap(), joined];
        assert!(outcomes.iter().all(|outcome| outcome.ending == Ending::Finished && outcome.epoch == 3));
        assert_eq!(model(&outcomes[0]), model(&outcomes[1]));
    });
    // Nobody was given up on the way: the last words arrived, too.
    for events in [events(&first), events(&second)] {
        assert!(!events.contains("\"event\":\"loss\""), "{events}");
    }
}
