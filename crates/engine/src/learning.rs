//! A network with the data that it is to learn and to be tested on.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::data::{Batch, Dataset, TargetKind, Targets};
use crate::evaluation::{beside, check_fit, evaluate};
use crate::job::{Augmentation, Job};
use crate::kernel::vectorised;
use crate::measure::{Measure, measure_of};
use crate::model::{BucketSink, Layout, Network, Score, Workspace};
use crate::rng::Rng;
use crate::train_error::TrainError;

/// What a job wants learnt.
pub struct Learning {
    network: Network,
    layout: Layout,
    metrics: Vec<String>,
    train_set: Box<dyn Dataset>,
    test_set: Box<dyn Dataset>,
    /// How many samples are tested at a time.
    batch: usize,
    /// How many training samples are computed at a time; `None` for the whole batch.
    micro_batch: Option<NonZeroUsize>,
    augment: Augmentation,
}

impl Learning {
    /// The network and the data of a job, if they fit each other.
    pub fn new(
        job: &Job,
        network: Network,
        train_set: Box<dyn Dataset>,
        test_set: Box<dyn Dataset>,
    ) -> Result<Self, TrainError> {
        check_fit(&network, train_set.as_ref())?;
        check_fit(&network, test_set.as_ref())?;
        let asks_at_positions = match train_set.target() {
            TargetKind::Positions { .. } => true,
            TargetKind::Numbers { n_positions, .. } => n_positions > 1,
            TargetKind::Class | TargetKind::Labels | TargetKind::Tokens => false,
        };
        if asks_at_positions && job.augment != Augmentation::None {
            let problem =
                "`augment` would shift the pictures and not what is asked at their pixels; remove it from the job";
            return Err(TrainError::Mismatch(problem.to_owned()));
        }
        let loss = job.loss.resolve(train_set.target())?;
        let metrics = loss.metrics(train_set.target()).iter().map(|&name| name.to_owned()).collect();
        let (layout, network) = (network.layout(), network.with_loss(loss));
        let micro_batch = NonZeroUsize::new(job.micro_batch);
        let (batch, augment) = (job.batch.min(micro_batch.map_or(usize::MAX, NonZeroUsize::get)), job.augment);
        Ok(Self { network, layout, metrics, train_set, test_set, batch, micro_batch, augment })
    }

    /// What people judge it by.
    pub fn measure(&self) -> Measure {
        measure_of(self.train_set.as_ref())
    }

    /// The names of what is measured beside the loss.
    pub fn metrics(&self) -> &[String] {
        &self.metrics
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What its flat vector holds.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The gradient of the mean loss of these training samples. Each bucket of the layout is handed over as soon as it is final.
    pub fn gradient_in_buckets(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        gradient: &mut [f32],
        workspace: &mut Workspace,
        on_bucket: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<Score, TrainError> {
        if self.in_pieces(indices) {
            let score = self.accumulate(values, indices, seed, gradient, workspace)?;
            let buckets = self.layout.buckets().iter().enumerate();
            buckets.for_each(|(number, bucket)| on_bucket(number, &gradient[bucket.clone()]));
            return Ok(score);
        }
        let batch = self.read_train(indices, Some(seed), workspace)?;
        let sink = BucketSink { buckets: self.layout.buckets(), on_bucket };
        Ok(self.network.gradient_in_buckets(values, &batch, seed, gradient, workspace, sink))
    }

    /// The same for those who have no use for buckets.
    pub fn whole_gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<Score, TrainError> {
        if self.in_pieces(indices) {
            return self.accumulate(values, indices, seed, gradient, workspace);
        }
        let batch = self.read_train(indices, Some(seed), workspace)?;
        Ok(self.network.gradient(values, &batch, seed, gradient, workspace))
    }

    /// Whether a batch is too large to be computed at once.
    fn in_pieces(&self, indices: &[usize]) -> bool {
        self.micro_batch.is_some_and(|most| indices.len() > most.get())
    }

    /// The gradient as the weighted mean of those of micro-batches, which take no more memory than one of them.
    fn accumulate(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<Score, TrainError> {
        gradient.fill(0.0);
        let (mut total, mut part) = (Score::default(), vec![0.0; gradient.len()]);
        let most = self.micro_batch.map_or(indices.len(), NonZeroUsize::get);
        for (number, micro_batch) in (0..).zip(indices.chunks(most)) {
            let seed = Rng::stream(seed, "micro-batch", number).next_u64();
            let batch = self.read_train(micro_batch, Some(seed), workspace)?;
            total += self.network.gradient(values, &batch, seed, &mut part, workspace);
            let share = micro_batch.len() as f32 / indices.len() as f32;
            vectorised(|| gradient.iter_mut().zip(&part).for_each(|(sum, part)| *sum += share * part));
        }
        Ok(total)
    }

    /// How well the network does on some of the training samples, as they are.
    pub fn score(&self, values: &[f32], indices: &[usize], workspace: &mut Workspace) -> Result<Score, TrainError> {
        let indices = indices.iter().copied();
        evaluate(&self.network, values, self.train_set.as_ref(), indices, self.batch, workspace, |_, _, _| true)
    }

    /// How well it does on some of the test samples. When `go_on` says no, this ends early: the score then counts fewer samples.
    pub fn test_while(
        &self,
        values: &[f32],
        samples: Range<usize>,
        workspace: &mut Workspace,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Score, TrainError> {
        assert!(samples.end <= self.test_labels().len(), "there are no test samples {samples:?}");
        evaluate(&self.network, values, self.test_set.as_ref(), samples, self.batch, workspace, |_, _, _| go_on())
    }

    /// The score of test samples, as [`evaluate`] tells it.
    pub fn beside_test(&self, score: Score) -> Score {
        beside(score, self.test_set.target())
    }

    /// Says which training samples will be read after the next ones: see [`Dataset::prefetch`].
    pub fn prefetch(&self, indices: &[usize]) {
        self.train_set.prefetch(indices);
    }

    /// Reads training samples; varied by this seed, if one is given and the job wants it.
    pub fn read_train(&self, indices: &[usize], seed: Option<u64>, workspace: &Workspace) -> Result<Batch, TrainError> {
        let mut batch = workspace.install(|| self.train_set.batch(indices))?;
        if let Some(seed) = seed {
            self.augment.apply(&mut batch, self.train_set.shape(), seed);
        }
        Ok(batch)
    }

    /// Where a training sample comes from, for people, if that is known.
    pub fn train_origin(&self, index: usize) -> Option<String> {
        self.train_set.origin(index)
    }

    /// What the network should say about some of the training samples.
    pub fn train_targets(&self, indices: &[usize]) -> Result<Targets, TrainError> {
        Ok(self.train_set.targets(indices)?)
    }

    /// What it should say about some of the test samples.
    pub fn test_targets(&self, samples: Range<usize>) -> Result<Targets, TrainError> {
        Ok(self.test_set.targets(&samples.collect::<Vec<usize>>())?)
    }

    /// Reads test samples.
    pub fn read_test(&self, samples: Range<usize>, workspace: &Workspace) -> Result<Batch, TrainError> {
        let indices: Vec<usize> = samples.collect();
        Ok(workspace.install(|| self.test_set.batch(&indices))?)
    }

    /// The label of every training sample.
    pub fn train_labels(&self) -> &[u32] {
        self.train_set.labels()
    }

    /// The label of every test sample.
    pub fn test_labels(&self) -> &[u32] {
        self.test_set.labels()
    }

    /// How many samples are tested at a time.
    pub fn batch(&self) -> usize {
        self.batch
    }
}

impl fmt::Debug for Learning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Learning({} numbers, {} samples)", self.layout.n_values(), self.train_set.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Learning;
    use crate::cpu_worker::CpuWorker;
    use crate::data::Split;
    use crate::data::source::{DataSpec, open};
    use crate::job::{Job, build_network};
    use crate::model::{Score, Workspace};
    use crate::task::{Task, Worker};
    use crate::train_error::TrainError;

    fn job(settings: &[&str]) -> Job {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Job::parse("the test's job", "model = \"digits-cnn\"\nbatch = 50\n", &settings).unwrap()
    }

    fn learning(job: &Job) -> Learning {
        let digits = DataSpec { name: Some("digits".into()), ..DataSpec::default() };
        let sets = [Split::Train, Split::Test].map(|part| open(&digits, None, part, job.seed).unwrap());
        let spec = job.model_spec(sets[0].shape(), sets[0].n_outputs()).unwrap();
        let network = build_network(&job.model, &spec).unwrap();
        let [train_set, test_set] = sets;
        Learning::new(job, network, train_set, test_set).unwrap()
    }

    fn workspace(n_threads: usize) -> Workspace {
        Workspace::new(n_threads).unwrap()
    }

    fn gradient(learning: &Learning, indices: &[usize], seed: u64) -> (Score, Vec<f32>) {
        let values = learning.init(1);
        let mut gradient = vec![f32::NAN; learning.n_values()];
        let score = learning.whole_gradient(&values, indices, seed, &mut gradient, &mut workspace(1)).unwrap();
        (score, gradient)
    }

    #[test]
    fn threads_share_a_task_and_get_the_same() {
        let task = learning(&job(&[]));
        let expected = gradient(&task, &[3, 1, 4], 7);
        std::thread::scope(|scope| {
            let peers = [(); 3].map(|()| scope.spawn(|| gradient(&task, &[3, 1, 4], 7)));
            peers.into_iter().for_each(|peer| assert_eq!(peer.join().unwrap(), expected));
        });
    }

    #[test]
    fn another_seed_varies_the_samples_in_another_way() {
        let plain = learning(&job(&["model=mlp:8"]));
        let varied = learning(&job(&["model=mlp:8", "augment={crop-flip={padding=2,flip=false}}"]));
        assert_eq!(gradient(&plain, &[0, 1], 1), gradient(&plain, &[0, 1], 2), "nothing here drops anything");
        assert_ne!(gradient(&varied, &[0, 1], 1), gradient(&plain, &[0, 1], 1));
        assert_ne!(gradient(&varied, &[0, 1], 1), gradient(&varied, &[0, 1], 2));
        assert_eq!(gradient(&varied, &[0, 1], 1), gradient(&varied, &[0, 1], 1));
    }

    #[test]
    fn samples_are_varied_only_by_a_seed() {
        let varied = learning(&job(&["augment={crop-flip={padding=2,flip=false}}"]));
        let read = |seed| varied.read_train(&[5, 2], seed, &workspace(1)).unwrap();
        assert_eq!(read(Some(1)), read(Some(1)));
        assert_ne!(read(Some(1)).inputs, read(Some(2)).inputs);
        let plain = learning(&job(&[])).read_train(&[5, 2], Some(1), &workspace(1)).unwrap();
        assert_eq!(read(None), plain);
        let tested = varied.read_test(3..5, &workspace(1)).unwrap();
        assert_eq!(tested.classes(), &varied.test_labels()[3..5]);
        assert!(matches!(varied.read_test(0..varied.n_test() + 1, &workspace(1)), Err(TrainError::Data(_))));
    }

    #[test]
    fn micro_batches_have_the_gradient_of_the_batch() {
        let samples: Vec<usize> = (0..50).collect();
        let (whole, pieces) = (learning(&job(&["model=mlp:8"])), learning(&job(&["model=mlp:8", "micro_batch=16"])));
        let ((score, expected), (found_score, found)) = (gradient(&whole, &samples, 1), gradient(&pieces, &samples, 1));
        assert_eq!((score.n, score.n_correct), (found_score.n, found_score.n_correct));
        assert!((score.loss() - found_score.loss()).abs() < 1e-6);
        let off = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-6, "{off}");

        let mut buckets = vec![f32::NAN; found.len()];
        let (mut space, mut kept) = (workspace(1), vec![0.0; found.len()]);
        let mut put = |number: usize, numbers: &[f32]| {
            buckets[pieces.layout().buckets()[number].clone()].copy_from_slice(numbers);
        };
        pieces.gradient_in_buckets(&pieces.init(1), &samples, 1, &mut kept, &mut space, &mut put).unwrap();
        assert_eq!(buckets, found);
        assert_eq!(gradient(&pieces, &samples[..16], 1), gradient(&whole, &samples[..16], 1), "one piece is the batch");
    }

    #[test]
    fn parts_of_a_test_add_up() {
        let learning = learning(&job(&[]));
        let (values, n) = (learning.init(1), learning.n_test());
        let test = |samples| learning.test_while(&values, samples, &mut workspace(1), || true).unwrap();
        let whole = test(0..n);
        let mut sum = test(0..n / 3);
        sum += test(n / 3..n);
        assert_eq!((whole.n, sum.n), (n, n));
        assert_eq!(whole.n_correct, sum.n_correct);
        assert!((whole.loss() - sum.loss()).abs() < 1e-6);
        assert_eq!(test(0..0), Score::default());
    }

    #[test]
    fn samples_that_are_not_there_are_an_error() {
        let learning = learning(&job(&[]));
        let (values, missing) = (learning.init(1), [0, learning.labels().len()]);
        let result = CpuWorker::new(Arc::new(learning), 1).unwrap().gradient(&values, &missing, 0, &mut |_, _| {});
        assert!(matches!(result, Err(TrainError::Data(_))));
    }
}
