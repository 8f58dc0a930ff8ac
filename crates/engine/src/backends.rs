//! THE LIST of compute backends, sorted by name. A new one is a file in `backends/` and a line in each of the two lists here.

mod cpu;
#[cfg(unix)]
mod python;

use crate::backend::{Backend, BackendError};
use crate::nearest::nearest;

/// All backends.
pub static BACKENDS: &[Backend] = &[
    cpu::BACKEND,
    #[cfg(unix)]
    python::BACKEND,
];

/// The backend of this name.
pub fn find(name: &str) -> Result<&'static Backend, BackendError> {
    BACKENDS.iter().find(|backend| backend.name == name).ok_or_else(|| {
        let known: Vec<&'static str> = BACKENDS.iter().map(|backend| backend.name).collect();
        BackendError::Unknown { name: name.to_owned(), nearest: nearest(name, &known), known }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{BACKENDS, find};
    use crate::backend::Opening;
    use crate::data::Split;
    use crate::data::source::open;
    use crate::job::Job;
    use crate::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
    use crate::model::Score;
    use crate::optimizer::Optimizer;
    use crate::task::Task;

    #[test]
    fn the_list_is_sorted_and_has_the_default() {
        assert!(BACKENDS.is_sorted_by(|one, other| one.name < other.name));
        assert_eq!(find(&Job::default().backend).unwrap().name, "cpu");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_and_the_list() {
        let error = find("cup").err().unwrap().to_string();
        assert_eq!(error, "there is no backend `cup`; did you mean `cpu`? (known: cpu, python)");
        assert_eq!(find("quantum").err().unwrap().to_string(), "there is no backend `quantum` (known: cpu, python)");
    }

    struct Batches(u64);

    impl LocalPhase for Batches {
        fn next_batch(&mut self) -> Option<LocalBatch<'_>> {
            self.0 += 1;
            (self.0 <= 3).then_some(LocalBatch { samples: &[3, 1, 4, 15], seed: self.0, next: &[3, 1, 4, 15] })
        }

        fn lr(&self) -> f32 {
            0.1
        }

        fn on_step(&mut self, score: Score) {
            assert_eq!(score.n, 4);
        }
    }

    /// What every backend promises that needs nothing but this program; that of Python is tested with Python.
    #[test]
    fn all_backends_compute_gradients_scores_tests_and_local_steps() {
        for backend in BACKENDS.iter().filter(|backend| backend.name != "python") {
            let job = Job { model: "mlp:16".into(), ..Job::default() };
            let [train_set, test_set] =
                [Split::Train, Split::Test].map(|part| open(&job.data, None, part, job.seed).unwrap());
            let spec = job.model_spec(train_set.shape(), train_set.n_outputs()).unwrap();
            let opened =
                (backend.open)(Opening { job: &job, spec: Some(&spec), python: None, train_set, test_set }).unwrap();
            let task: Arc<dyn Task> = opened.task;
            let (layout, mut values) = (task.layout(), task.init(1));
            assert_eq!(values.len(), layout.n_values(), "{}", backend.name);
            let mut worker = task.clone().worker(1).unwrap();
            assert_eq!(worker.layout().n_values(), layout.n_values());
            assert!(opened.parts.is_none() || worker.workspace().is_some(), "parts need threads");
            let mut lens = Vec::new();
            let score = worker.gradient(&values, &[0, 1, 2], 1, &mut |k, bucket| lens.push((k, bucket.len()))).unwrap();
            let expected: Vec<(usize, usize)> =
                layout.buckets().iter().map(ExactSizeIterator::len).enumerate().collect();
            assert_eq!((lens, score.n), (expected, 3), "{}: all buckets, in order", backend.name);
            assert_eq!(worker.score(&values, &[5, 6]).unwrap().n, 2);
            assert_eq!(worker.test(&values, 2..9).unwrap().n, 7);
            let before = worker.score(&values, &[3, 1, 4, 15]).unwrap().loss();
            let mut optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
            let end = worker.local_steps(&mut values, &mut optimizer, &mut Batches(0)).unwrap();
            assert_eq!((end, optimizer.state().0), (PhaseEnd::Over, 3), "{}: all steps are counted", backend.name);
            assert!(worker.score(&values, &[3, 1, 4, 15]).unwrap().loss() < before, "{} learns", backend.name);
        }
    }
}
