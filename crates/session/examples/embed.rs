//! A peer with a task of its own: is a point above a line? `embed` starts a swarm, `embed TICKET` joins it.
use std::sync::Arc;

use nettorrent_engine::fn_task::{FnTask, Sample};
use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::task::Task;
use nettorrent_history::Event;
use nettorrent_session::{Invited, Options, RunFolder, Session, StartState, Training};

fn point(k: usize) -> ([f32; 3], bool) {
    let (x, y) = ((k % 17) as f32 / 8.0 - 1.0, (k % 23) as f32 / 11.0 - 1.0);
    ([x, y, 1.0], x + 2.0 * y > 0.3)
}

/// Logistic regression: the loss of a point and its gradient.
fn judge(weights: &[f32], which: Sample, gradient: Option<&mut [f32]>) -> Score {
    let (Sample::Train(k) | Sample::Test(k)) = which;
    let (point, is_above) = point(k);
    let output: f32 = point.iter().zip(weights).map(|(x, weight)| x * weight).sum();
    let above = 1.0 / (1.0 + (-output).exp());
    if let Some(gradient) = gradient {
        let error = above - f32::from(u8::from(is_above));
        gradient.iter_mut().zip(point).for_each(|(slope, x)| *slope += error * x);
    }
    let right = if is_above { above } else { 1.0 - above };
    let metrics = [f64::from(1.0 - right), 0.0, 0.0, 0.0];
    Score { loss_sum: -f64::from(right.max(1e-9)).ln(), n_correct: usize::from(right > 0.5), n: 1, metrics }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let labels = (0..1000).map(|k| u32::from(point(k).1)).collect();
    let task = FnTask::new(Layout::of_tensors([("weights", [3].as_slice())]), labels, 200, judge);
    let task: Arc<dyn Task> = Arc::new(task.with_metrics(["mean error"]));
    let options = Options { wait_for: 2, ..Options::default() };
    let mut session = match std::env::args().nth(1) {
        Some(ticket) => {
            let invited = Invited::ask(&ticket.parse()?, &options).await?;
            let training = Training::custom_in(invited.package(), task)?;
            let run = RunFolder::create(None, &training.job, None)?;
            Session::join(invited, Arc::new(training), run, options).await?
        }
        None => {
            let training = Training::custom(task, Job { model: "above-a-line".into(), epochs: 5, ..Job::default() })?;
            let (run, start) = (RunFolder::create(None, &training.job, None)?, StartState::fresh(&training));
            let (session, ticket) = Session::start(Arc::new(training), start, run, options).await?;
            println!("join with: cargo run --release --example embed {ticket}");
            session
        }
    };
    session.follow(|line, _| {
        if let Event::Epoch(epoch) = &line.event {
            println!("epoch {}: test accuracy {}, metrics {:?}", epoch.epoch, epoch.test_accuracy, epoch.metrics);
        }
    });
    let outcome = session.run().await?;
    println!("{:?} after {} steps; the model is in {:?}", outcome.ending, outcome.step, outcome.checkpoint);
    Ok(())
}
