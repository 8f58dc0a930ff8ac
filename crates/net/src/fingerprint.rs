//! What makes two jobs or two data sets the same: hashes that peers compare before they train together.

use nettorrent_engine::data::{DataError, Dataset, Targets};
use nettorrent_engine::model::NamedTensor;
use nettorrent_engine::task::Task;
use ring::digest::{Context, SHA256};

use crate::service::JobPackage;

/// How many samples of a data set are looked at. All labels are; reading every sample of a large folder of pictures would
/// take longer than the training that it is to protect.
const N_SAMPLES: usize = 1024;

/// A hash of a data set: its shape, its classes, all labels, and samples spread over the whole set.
pub fn of_data(data: &dyn Dataset) -> Result<[u8; 32], DataError> {
    let mut hash = Context::new(&SHA256);
    let mut add_number = |n: usize| hash.update(&(n as u64).to_le_bytes());
    add_number(data.shape().len());
    data.shape().iter().for_each(|&n| add_number(n));
    add_number(data.classes().len());
    add_number(data.len());
    for class in data.classes() {
        hash.update(&(class.len() as u64).to_le_bytes());
        hash.update(class.as_bytes());
    }
    for label in data.labels() {
        hash.update(&label.to_le_bytes());
    }
    let step = data.len().div_ceil(N_SAMPLES).max(1);
    let indices: Vec<usize> = (0..data.len()).step_by(step).collect();
    for some in indices.chunks(64) {
        let batch = data.batch(some)?;
        batch.inputs.iter().for_each(|number| hash.update(&number.to_le_bytes()));
        match batch.targets {
            Targets::Classes(classes) => classes.iter().for_each(|class| hash.update(&class.to_le_bytes())),
            Targets::Numbers(numbers) => numbers.iter().for_each(|number| hash.update(&number.to_le_bytes())),
        }
    }
    Ok(finish(hash))
}

/// A hash of what a task is: the tensors of its model, its labels and the number of its test samples. What is in the samples is not
/// known here.
pub fn of_task(task: &dyn Task) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    let layout = task.layout();
    for number in [layout.n_params(), layout.n_values(), layout.tensors().len(), task.labels().len(), task.n_test()] {
        hash.update(&(number as u64).to_le_bytes());
    }
    for NamedTensor { name, tensor, .. } in layout.tensors() {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&(tensor.shape.len() as u64).to_le_bytes());
        tensor.shape.iter().for_each(|&n| hash.update(&(n as u64).to_le_bytes()));
    }
    task.labels().iter().for_each(|label| hash.update(&label.to_le_bytes()));
    // They follow on what peers tell each other of tests.
    for name in task.metrics() {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    finish(hash)
}

/// A hash of a job: peers with another would train something else.
pub fn of_job(package: &JobPackage) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    for text in [&package.job, &package.model] {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    package.data.iter().for_each(|data| hash.update(data));
    finish(hash)
}

fn finish(hash: Context) -> [u8; 32] {
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
