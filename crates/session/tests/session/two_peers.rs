//! Peers of programs that embed this library.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use nettorrent_engine::fn_task::{FnTask, Sample};
use nettorrent_engine::job::{Job, PipelineSpec};
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::task::Task;
use nettorrent_history::{Event, History, PeerHistory};
use nettorrent_net::ticket::Ticket;
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{Invited, Options, Outcome, RunFolder, Session, SessionError, StartState, Training};

/// Finds the means of two kinds of numbers.
fn task(n_train: usize) -> Arc<dyn Task> {
    let sample = |values: &[f32], which: Sample, gradient: Option<&mut [f32]>| {
        let (Sample::Train(k) | Sample::Test(k)) = which;
        let (kind, number) = (k % 2, (k % 2) as f32 * 3.0 + (k % 5) as f32 / 10.0);
        let off = values[kind] - number;
        if let Some(gradient) = gradient {
            gradient[kind] += off;
        }
        let metrics = [f64::from(off.abs()), k as f64, 0.0, 0.0];
        Score { loss_sum: f64::from(off * off / 2.0), n_correct: usize::from(off.abs() < 0.5), n: 1, metrics }
    };
    let labels = (0..n_train as u32).map(|k| k % 2).collect();
    let task = FnTask::new(Layout::of_tensors([("means", [2].as_slice())]), labels, 20, sample);
    Arc::new(task.with_metrics(["distance", "index"]))
}

fn options(wait_for: usize) -> Options {
    Options { wait_for, listen: ([127, 0, 0, 1], 0).into(), ..Options::default() }
}

async fn start(path: &Path, wait_for: usize) -> (Session, Ticket) {
    let optimizer = OptimizerSpec { lr: 0.5, ..OptimizerSpec::default() };
    let job = Job { model: "means".into(), epochs: 3, batch: 10, optimizer, ..Job::default() };
    let training = Arc::new(Training::custom(task(200), job).expect("a peer that can start"));
    let run = RunFolder::create(Some(path), &training.job, None).expect("a peer that can start");
    let start = StartState::fresh(&training);
    Session::start(training, start, run, options(wait_for)).await.expect("a peer that can start")
}

async fn join(path: &Path, ticket: &Ticket, task: Arc<dyn Task>) -> Result<Session, SessionError> {
    let invited = Invited::ask(ticket, &options(1)).await?;
    let training = Arc::new(Training::custom_in(invited.package(), task)?);
    let run = RunFolder::create(Some(path), &training.job, None)?;
    Session::join(invited, training, run, options(1)).await
}

fn model(outcome: &Outcome) -> Vec<u8> {
    std::fs::read(outcome.checkpoint.as_ref().expect("a checkpoint").join("model.safetensors")).expect("a model")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

#[test]
fn two_embedded_peers_train_a_task_of_their_own_to_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    block_on(async {
        let (mut starter, ticket) = start(&first, 2).await;
        let mut events = starter.events();
        // Who is asked answers only while it runs.
        let joins = async { join(&second, &ticket, task(200)).await.unwrap().run().await };
        let (started, joined) = tokio::join!(starter.run(), joins);
        let outcomes = [started.unwrap(), joined.unwrap()];
        assert!(outcomes.iter().all(|outcome| outcome.ending == Ending::Finished && outcome.epoch == 3));
        assert_eq!(model(&outcomes[0]), model(&outcomes[1]));
        let mut n_epochs = 0;
        while let Some(line) = events.recv().await {
            n_epochs += usize::from(matches!(line.event, Event::Epoch(_)));
        }
        assert_eq!(n_epochs, 3);
    });
    for path in [first, second] {
        let history = History::read(&path.join("events.jsonl")).unwrap();
        let accuracies: Vec<f64> = history.epochs.iter().map(|(_, epoch)| epoch.test_accuracy).collect();
        assert!(accuracies.len() == 3 && accuracies[2] == 1.0, "{accuracies:?}");
        // Each peer has tested a part, and both write down the mean over all 20 samples.
        let metrics = &history.epochs[2].1.metrics;
        assert!(metrics["index"] == 9.5 && metrics["distance"] < 0.5, "{metrics:?}");
    }
}

#[test]
fn who_has_another_task_is_told_so_and_who_waits_can_leave() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let (mut starter, ticket) = start(&folder.path().join("first"), 2).await;
        let leave = starter.leave();
        let has_started = Rc::new(Cell::new(false));
        let seen = has_started.clone();
        starter.follow(move |line, _| seen.set(seen.get() || matches!(line.event, Event::Start(_))));
        let (outcome, refused) = tokio::join!(starter.run(), async {
            let refused = join(&folder.path().join("second"), &ticket, task(100)).await.err();
            leave.leave();
            refused
        });
        assert!(matches!(refused, Some(SessionError::OtherTask(_))), "{refused:?}");
        assert!(has_started.get());
        assert_eq!(outcome.unwrap().ending, Ending::Left);
    });
}

#[test]
fn the_starter_s_folder_tells_of_all_peers_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|name| folder.path().join(name));
    block_on(async {
        let (starter, ticket) = start(&first, 3).await;
        let joins = |path: PathBuf| {
            let ticket = ticket.clone();
            async move { join(&path, &ticket, task(200)).await.unwrap().run().await }
        };
        let (started, second, third) = tokio::join!(starter.run(), joins(second.clone()), joins(third.clone()));
        assert!([started, second, third].into_iter().all(|outcome| outcome.unwrap().ending == Ending::Finished));
    });
    let history = |path: &Path| History::read(&path.join("events.jsonl")).expect("events").peers;
    let [starter, others @ ..] = [&first, &second, &third].map(|path| history(path));
    assert_eq!(starter.len(), 3);
    for other in &others {
        let [(peer, own)] = other.iter().collect::<Vec<_>>()[..] else { panic!("who joins tells of itself alone") };
        let heard = &starter[peer];
        let sent_bytes = |peer: &PeerHistory| peer.times.iter().map(|(_, times)| times.sent_bytes).sum::<u64>();
        assert!(sent_bytes(own) > 0 && sent_bytes(heard) == sent_bytes(own), "all that {peer} did is told");
        assert!(!heard.resources.is_empty(), "{peer}");
    }
}

#[test]
fn a_task_of_ones_own_cannot_be_cut_into_stages() {
    let job = Job { model: "means".into(), pipeline: Some(PipelineSpec::default()), ..Job::default() };
    let error = Training::custom(task(200), job).err().expect("it has no parts").to_string();
    assert!(error.starts_with("the task `means` cannot be cut into stages"), "{error}");
}
