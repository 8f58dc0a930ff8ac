//! How large a job's numbers may be. What lies beyond is a slip, or a stranger's wish to use a machine up, and would end in an overflow
//! or in memory that is not there, far from where the number was written.

use crate::data::split::SplitRule;

use super::{Augmentation, Job, JobError, MOST_THREADS, Stages};

/// The most samples of a batch, seconds, peers and so on that anybody has meant.
const MOST_SAMPLES: u64 = 1 << 24;
const MOST_EPOCHS: u64 = 1_000_000_000;
const MOST_PEERS: u64 = 100_000;
const MOST_CHECKPOINTS: u64 = 10_000;
const MOST_PIXELS: u64 = 16_384;
const MOST_FRAMES: u64 = 6_000;
const MOST_LAYERS: u64 = 1_000_000;
const MOST_IN_FLIGHT: u64 = 1024;

/// Refuses numbers that are zero where there must be one, or larger than anybody means.
pub(super) fn check(job: &Job) -> Result<(), JobError> {
    let optional = |value: Option<usize>| value.map_or(1, |value| value as u64);
    let padding = match job.augment {
        Augmentation::CropFlip { padding, .. } => padding as u64,
        Augmentation::None => 0,
    };
    within("batch", job.batch as u64, 1, MOST_SAMPLES)?;
    within("micro_batch", job.micro_batch as u64, 0, MOST_SAMPLES)?;
    within("epochs", job.epochs, 1, MOST_EPOCHS)?;
    check_threads(job.threads)?;
    within("augment.crop-flip.padding", padding, 0, MOST_PIXELS)?;
    within("checkpoint.every", job.checkpoint.every, 0, MOST_EPOCHS)?;
    within("checkpoint.keep", job.checkpoint.keep as u64, 1, MOST_CHECKPOINTS)?;
    within("data.frames", optional(job.data.frames), 1, MOST_FRAMES)?;
    within("data.resize", optional(job.data.resize), 1, MOST_PIXELS)?;
    within("data.size", optional(job.data.size), 1, MOST_PIXELS)?;
    within("evaluate.every_batches", job.evaluate.every_batches, 0, MOST_EPOCHS)?;
    within("swarm.peers", job.swarm.peers as u64, 0, MOST_PEERS)?;
    within("swarm.warmup_epochs", job.swarm.warmup_epochs, 0, MOST_EPOCHS)?;
    if let SplitRule::Groups { networks, sets } = job.swarm.split {
        within("swarm.split: its networks", networks as u64, 0, MOST_PEERS)?;
        within("swarm.split: its sets", sets as u64, 0, MOST_PEERS)?;
    }
    let Some(pipeline) = &job.pipeline else { return Ok(()) };
    within("pipeline.in_flight", pipeline.in_flight as u64, 1, MOST_IN_FLIGHT)?;
    within("pipeline.speeds (their number)", pipeline.speeds.len() as u64, 0, MOST_PEERS)?;
    let Stages::Given(stages) = &pipeline.stages else { return Ok(()) };
    within("pipeline.stages (their number)", stages.len() as u64, 0, MOST_PEERS)?;
    for (number, stage) in stages.iter().enumerate() {
        within(&format!("pipeline.stages[{number}].layers"), stage.layers as u64, 1, MOST_LAYERS)?;
        within(&format!("pipeline.stages[{number}].batch_shards"), stage.batch_shards as u64, 1, MOST_PEERS)?;
        within(&format!("pipeline.stages[{number}].tensor_shards"), stage.tensor_shards as u64, 1, MOST_PEERS)?;
    }
    Ok(())
}

/// Refuses more threads than anybody means.
pub(super) fn check_threads(n_threads: usize) -> Result<(), JobError> {
    within("threads", n_threads as u64, 0, MOST_THREADS as u64)
}

fn within(field: &str, value: u64, least: u64, most: u64) -> Result<(), JobError> {
    match value {
        _ if value < least => Err(JobError::Setting(format!("{field} = {value}: must be at least {least}"))),
        _ if value > most => Err(JobError::Setting(format!("{field} = {value}: must be at most {most}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::job::Job;

    fn parse(setting: &str) -> Result<Job, String> {
        Job::parse("job.toml", "", &[setting.to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_that_nobody_means_are_refused_with_the_bound() {
        for (setting, answer) in [
            ("batch=9000000000", "batch = 9000000000: must be at most 16777216"),
            ("batch=0", "batch = 0: must be at least 1"),
            ("epochs=9223372036854775807", "epochs = 9223372036854775807: must be at most 1000000000"),
            ("threads=5000", "threads = 5000: must be at most 1024"),
            ("checkpoint.keep=4611686018427387904", "must be at most 10000"),
            ("checkpoint.every=4611686018427387904", "must be at most 1000000000"),
            ("augment={crop-flip={padding=4611686018427387904,flip=true}}", "padding = 4611686018427387904"),
            ("data.frames=1000000000", "data.frames = 1000000000: must be at most 6000"),
            ("data.size=1000000", "data.size = 1000000: must be at most 16384"),
            ("data.resize=1000000", "data.resize = 1000000: must be at most 16384"),
            ("evaluate.every_batches=4611686018427387904", "must be at most"),
            ("evaluate.every_seconds=1e300", "evaluate.every_seconds = 1"),
            ("swarm.deadline=1e300", "must be a number of seconds from 0.2 to 86400"),
            ("swarm.scale_warmup=1e300", "swarm.scale_warmup"),
            ("swarm.peers=1000000000", "must be at most 100000"),
            ("swarm.warmup_epochs=4611686018427387904", "must be at most"),
            ("schedule.every=1e300", "schedule.every"),
            ("schedule.factor=1e300", "schedule.factor"),
            ("schedule.warmup=1e300", "schedule.warmup"),
            ("swarm.split=groups:4611686018427387904:4611686018427387904", "swarm.split"),
            ("pipeline.in_flight=1000000", "pipeline.in_flight = 1000000: must be at most 1024"),
            ("pipeline.stages=[{layers=4611686018427387904}]", "stages[0].layers = 4611686018427387904"),
            ("pipeline.stages=[{layers=2,batch_shards=4611686018427387904}]", "stages[0].batch_shards"),
            ("pipeline.stages=[{layers=2,tensor_shards=4611686018427387904}]", "stages[0].tensor_shards"),
        ] {
            let message = parse(setting).map(|_| ()).expect_err(setting);
            assert!(message.contains(answer), "{setting}: {message}");
        }
    }
}
