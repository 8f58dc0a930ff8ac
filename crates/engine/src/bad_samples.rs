//! Finds the samples of a batch that spoil it: those which alone give no finite loss or gradient, or an enormous loss.

use crate::kernel::is_finite;
use crate::task::Worker;
use crate::train_error::TrainError;

/// A sample whose loss is so many times that of the others is to blame for what became of the batch.
const ENORMOUS: f64 = 1000.0;
/// Only if at most one in so many is like that: where many are, it is what the data are like.
const RARE: usize = 8;
/// Parameters that give ordinary samples a loss so many times the usual one are themselves to blame.
const BROKEN: f64 = 100.0;

/// Those of the training samples `indices` that are to blame when their batch has no finite loss or gradient, or an enormous
/// loss: each is tried alone. `usual_loss` is what a sample's loss is when training begins.
///
/// A sample is to blame if its loss or its gradient is not finite (so is one whose numbers are not, even where a relu hides
/// that from the loss), or if it is one of few whose loss is a thousand times both the usual one and that of three quarters of
/// the others. If more than half of them look bad, or even the others have an enormous loss, the parameters are to blame and no sample is.
/// So it helps to examine some samples of other batches too.
///
/// # Panics
/// If `values` has not the length of the task's flat vector.
pub fn find_bad_samples(
    worker: &mut dyn Worker,
    values: &[f32],
    indices: &[usize],
    usual_loss: f64,
) -> Result<Vec<usize>, TrainError> {
    let mut losses = Vec::with_capacity(indices.len());
    for index in indices {
        losses.push(loss_alone(worker, values, *index)?);
    }
    let mut sorted = losses.clone();
    sorted.sort_by(f64::total_cmp);
    let Some(&most) = sorted.get(sorted.len() * 3 / 4) else { return Ok(Vec::new()) };
    let n_finite = losses.iter().filter(|loss| loss.is_finite()).count();
    // Where samples without a finite loss reach into the upper quarter, the best half must do for the comparison.
    let typical = if most.is_finite() { most } else { sorted[sorted.len().saturating_sub(1) / 2] };
    if 2 * n_finite < losses.len() || typical.is_nan() || typical > BROKEN * usual_loss {
        return Ok(Vec::new());
    }
    let limit = ENORMOUS * typical.max(usual_loss);
    let n_enormous = losses.iter().filter(|loss| loss.is_finite() && **loss > limit).count();
    let limit = if n_enormous * RARE > losses.len() { f64::MAX } else { limit };
    Ok(indices.iter().zip(losses).filter(|(_, loss)| *loss > limit).map(|(&index, _)| index).collect())
}

/// The loss of one sample; infinite if it, or the gradient, is not finite.
fn loss_alone(worker: &mut dyn Worker, values: &[f32], index: usize) -> Result<f64, TrainError> {
    let loss = worker.score(values, &[index])?.loss();
    // Varied samples may differ from what was trained, but a number that is not finite stays one.
    let mut is_gradient_finite = true;
    let varied = worker.gradient(values, &[index], 0, &mut |_, bucket| is_gradient_finite &= is_finite(bucket))?.loss();
    let is_finite = loss.is_finite() && varied.is_finite() && is_gradient_finite;
    Ok(if is_finite { loss.max(varied) } else { f64::INFINITY })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::find_bad_samples;
    use crate::cpu_worker::CpuWorker;
    use crate::data::Dataset;
    use crate::data::in_memory::{InMemory, Samples};
    use crate::job::{Job, build_network};
    use crate::learning::Learning;
    use crate::task::Task;

    /// Two classes of three features, in which some samples hold another number.
    fn learning(model: &str, changed: &[(usize, f32)]) -> Arc<Learning> {
        let job = Job::parse("the test's job", &format!("model = \"{model}\""), &[]).unwrap();
        let set = |n: usize, changed: &[(usize, f32)]| -> Box<dyn Dataset> {
            let mut values: Vec<f32> = (0..3 * n).map(|i| (i % 7) as f32 / 7.0).collect();
            changed.iter().for_each(|&(index, value)| values[3 * index] = value);
            let labels = (0..n).map(|i| i as u32 % 2).collect();
            Box::new(InMemory::new(vec![3], vec!["a".into(), "b".into()], labels, Samples::Floats(values)).unwrap())
        };
        let network = build_network(model, &job.model_spec(&[3], 2).unwrap()).unwrap();
        Arc::new(Learning::new(&job, network, set(64, changed), set(4, &[])).unwrap())
    }

    fn find(learning: &Arc<Learning>, values: &[f32], indices: &[usize]) -> Vec<usize> {
        let mut worker = CpuWorker::new(learning.clone(), 1).unwrap();
        find_bad_samples(&mut worker, values, indices, 2_f64.ln()).unwrap()
    }

    #[test]
    fn samples_without_finite_numbers_are_found_even_behind_a_relu() {
        for model in ["mlp:8", "mlp:8,8"] {
            let changed = [(3, f32::NAN), (9, f32::INFINITY), (20, f32::NEG_INFINITY)];
            let learning = learning(model, &changed);
            let values = learning.init(1);
            let all: Vec<usize> = (0..64).collect();
            assert_eq!(find(&learning, &values, &all), [3, 9, 20], "{model}");
            assert_eq!(find(&learning, &values, &[9, 2, 1, 3, 5]), [9, 3], "in the order that was asked for");
            assert_eq!(find(&learning, &values, &(41..64).collect::<Vec<usize>>()), [0; 0]);
            assert_eq!(find(&learning, &values, &[]), [0; 0]);
        }
    }

    #[test]
    fn one_that_is_enormously_wrong_is_found() {
        for value in [f32::MAX, 1e9] {
            let learning = learning("mlp:8", &[(40, value), (41, value)]);
            let found = find(&learning, &learning.init(1), &(0..64).collect::<Vec<usize>>());
            assert!(found == [40] || found == [41], "they are of different classes: {found:?}");
        }
    }

    #[test]
    fn half_a_batch_may_be_bad_but_not_more() {
        let changed: Vec<(usize, f32)> = (0..32).map(|index| (index, f32::NAN)).collect();
        let learning = learning("mlp:8", &changed);
        let values = learning.init(1);
        let bad: Vec<usize> = (0..32).collect();
        assert_eq!(find(&learning, &values, &(0..64).collect::<Vec<usize>>()), bad);
        assert_eq!(find(&learning, &values, &(0..60).collect::<Vec<usize>>()), [0; 0]);
        assert_eq!(find(&learning, &values, &[1]), [0; 0], "alone it cannot be told from broken parameters");
    }

    #[test]
    fn broken_parameters_are_no_samples_fault() {
        let learning = learning("mlp:8", &[]);
        let all: Vec<usize> = (0..64).collect();
        for broken in [f32::NAN, 1e30, 1e6] {
            let values: Vec<f32> = learning.init(1).iter().map(|value| value * broken).collect();
            assert_eq!(find(&learning, &values, &all), [0; 0], "{broken}");
        }
        // One that is surely wrong is not enormous beside the others.
        let values: Vec<f32> = learning.init(1).iter().map(|value| value * 5.0).collect();
        assert_eq!(find(&learning, &values, &all), [0; 0]);
    }
}
