//! How runs end whose disk fails: what is said of them is what is on the disk.

use std::path::Path;
use std::sync::Arc;

use nettorrent_engine::fn_task::{FnTask, Sample};
use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_history::{History, Reason};
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{Options, Outcome, RunFolder, Session, SessionError, StartState, Training};

const EPOCHS: u64 = 4;

/// Finds the mean of some numbers; a process that trains by itself, which waits for its checkpoints, classifies digits.
fn training(kind: Kind) -> Arc<Training> {
    if kind == Kind::Alone {
        let settings = ["data.name=digits", "model=mlp:8", "batch=500", "epochs=4", "threads=1"].map(str::to_owned);
        let job = Job::parse("the test's job", "", &settings).expect("what the test sets up");
        return Arc::new(Training::alone(job, None).expect("what the test sets up"));
    }
    let sample = |values: &[f32], which: Sample, gradient: Option<&mut [f32]>| {
        let (Sample::Train(k) | Sample::Test(k)) = which;
        let off = values[0] - (k % 5) as f32;
        gradient.into_iter().for_each(|gradient| gradient[0] += off);
        Score {
            loss_sum: f64::from(off * off / 2.0),
            n_correct: usize::from(off.abs() < 2.0),
            n: 1,
            ..Score::default()
        }
    };
    let task = FnTask::new(Layout::of_tensors([("mean", [1].as_slice())]), vec![0; 40], 10, sample);
    let job = Job { model: "mean".into(), epochs: EPOCHS, batch: 10, ..Job::default() };
    Arc::new(Training::custom(Arc::new(task), job).expect("what the test sets up"))
}

/// Who trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One process by itself.
    Alone,
    /// Peers of one process, who share a folder.
    Local(usize),
    /// A peer that others could join.
    Starter,
}

const KINDS: [Kind; 4] = [Kind::Alone, Kind::Local(1), Kind::Local(2), Kind::Starter];

/// Trains in this folder, in which `spoil` has made something fail.
fn train(path: &Path, kind: Kind, spoil: impl FnOnce(&RunFolder)) -> (Result<Outcome, SessionError>, History) {
    let training = training(kind);
    let run = RunFolder::create(Some(path), &training.job, None).expect("what the test sets up");
    let start = StartState::fresh(&training);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        let options = Options { listen: ([127, 0, 0, 1], 0).into(), ..Options::default() };
        let session = match kind {
            Kind::Alone => Session::local(training, start, run.clone(), options, 1).await,
            Kind::Local(n_peers) => Session::local(training, start, run.clone(), options, n_peers).await,
            Kind::Starter => Session::start(training, start, run.clone(), options).await.map(|(session, _)| session),
        };
        let session = session.expect("what the test sets up");
        spoil(&run);
        session.run().await
    });
    (outcome, History::read(&path.join("events.jsonl")).expect("events"))
}

/// The steps after which the epochs of such a run end.
fn steps(path: &Path, kind: Kind) -> Vec<u64> {
    let (outcome, history) = train(path, kind, |_| ());
    assert_eq!(outcome.expect("a run that ends well").ending, Ending::Finished);
    let steps: Vec<u64> = history.epochs.iter().map(|(_, epoch)| epoch.step).collect();
    assert_eq!(steps.len() as u64, EPOCHS);
    steps
}

/// Puts something in the way of the checkpoint after a step: it cannot be written, not even by root.
fn block(run: &RunFolder, step: u64) {
    let path = run.checkpoint_path(step);
    let name = format!(".{}.{}.partial", path.file_name().expect("a name").to_string_lossy(), std::process::id());
    std::fs::write(path.with_file_name(name), "in the way").expect("a file");
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_told_and_later_ones_make_up_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for (k, kind) in KINDS.into_iter().enumerate() {
        let steps = steps(&folder.path().join(format!("{k}-whole")), kind);
        let path = folder.path().join(format!("{k}"));
        let (outcome, history) = train(&path, kind, |run| steps[..3].iter().for_each(|&step| block(run, step)));
        let outcome = outcome.unwrap();
        assert!(outcome.ending == Ending::Finished && outcome.is_kept, "{kind:?}");
        let failed: Vec<_> = history.failed_checkpoints.iter().map(|(_, failed)| (failed.epoch, failed.step)).collect();
        let expected = [(1, steps[0]), (2, steps[1]), (3, steps[2])];
        // Who does not wait for the disk may have left some out for later ones.
        assert!(
            failed == expected || kind != Kind::Alone && failed.iter().all(|one| expected.contains(one)),
            "{failed:?}"
        );
        if kind == Kind::Alone {
            let next_done = history.epochs[1..].iter().map(|(at_s, _)| at_s);
            let mut told = history.failed_checkpoints.iter().map(|(at_s, _)| at_s);
            assert!(told.by_ref().zip(next_done).all(|(told, done)| told < done), "it is told at once, not at the end");
        }
        let kept: Vec<u64> = history.checkpoints.iter().map(|(_, checkpoint)| checkpoint.epoch).collect();
        assert_eq!(kept, [EPOCHS], "{kind:?}");
        assert_eq!(history.stop.unwrap().1.reason, Reason::Finished, "{kind:?}");
    }
}

#[test]
fn a_run_whose_last_checkpoint_is_not_on_the_disk_is_not_finished() {
    let folder = tempfile::tempdir().unwrap();
    for (k, kind) in KINDS.into_iter().enumerate() {
        let steps = steps(&folder.path().join(format!("{k}-whole")), kind);
        let path = folder.path().join(format!("{k}"));
        let (outcome, history) = train(&path, kind, |run| block(run, steps[3]));
        let Err(error @ SessionError::NotKept { .. }) = outcome else { panic!("{kind:?} is said to have ended well") };
        let newest = RunFolder::open(&path).unwrap().checkpoints().unwrap().pop();
        assert!(newest.is_some() || kind != Kind::Alone, "{kind:?}: earlier ones are there");
        let newest = newest.map_or("there is no checkpoint".to_owned(), |newest| {
            format!("the newest checkpoint is {}", newest.display())
        });
        let text = error.to_string();
        for part in ["all epochs are trained", "cannot write", &newest] {
            assert!(text.contains(part), "{kind:?}: {text}");
        }
        assert_eq!(history.stop.unwrap().1.reason, Reason::Failed(text), "{kind:?}");
        // It fails when the epoch is done and again at the end, which is one piece of news.
        assert_eq!(history.failed_checkpoints.len(), 1, "{kind:?}");
        assert_eq!(history.epochs.len() as u64, EPOCHS, "it went on to the end");
    }
}
