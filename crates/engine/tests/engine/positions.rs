//! Networks that say something about every pixel: segmentation, and pictures made of pictures.

use std::path::Path;
use std::sync::Arc;

use nettorrent_engine::cpu_worker::CpuWorker;
use nettorrent_engine::data::{Dataset, Split, source};
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::Score;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::rng::Rng;
use nettorrent_engine::task::{Task, Worker};

const SIDE: usize = 16;
const N_SAMPLES: usize = 40;

/// A file of NumPy.
fn array(kind: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).expect("a header is short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), bytes].concat()
}

/// Noisy pictures of a bright rectangle, and where it is.
fn pictures() -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(3);
    let (mut pixels, mut masks) = (Vec::new(), Vec::new());
    for _ in 0..N_SAMPLES {
        let [top, left] = [rng.below(SIDE / 2), rng.below(SIDE / 2)];
        let [bottom, right] = [top + 3 + rng.below(SIDE / 2 - 2), left + 3 + rng.below(SIDE / 2 - 2)];
        for (y, x) in (0..SIDE * SIDE).map(|pixel| (pixel / SIDE, pixel % SIDE)) {
            let is_inside = (top..bottom).contains(&y) && (left..right).contains(&x);
            pixels.push(if is_inside { 120 } else { 40 } + rng.below(100) as u8);
            masks.push(u8::from(is_inside));
        }
    }
    (pixels, masks)
}

fn write(folder: &Path, x: &[u8], y: &[u8]) {
    std::fs::write(folder.join("x.npy"), x).expect("the folder can be written");
    std::fs::write(folder.join("y.npy"), y).expect("the folder can be written");
}

fn open(job: &Job, folder: &Path) -> [Box<dyn Dataset>; 2] {
    [Split::Train, Split::Test].map(|split| source::open(&job.data, Some(folder), split, 1).expect("arrays are here"))
}

fn job(model: &str) -> Job {
    let text = format!(
        "model = \"{model}\"\nbatch = 12\n[optimizer]\nkind = \"adam\"\nlr = 0.01\n[data]\ntest_fraction = 0.2\n"
    );
    Job::parse("the test's job", &text, &[]).expect("it is a job")
}

/// How a U-Net does on the test part before and after some steps.
fn train(folder: &Path, n_steps: usize) -> [Score; 2] {
    let job = job("unet-small:4");
    let [train_set, test_set] = open(&job, folder);
    let spec = job.model_spec(train_set.shape(), train_set.n_outputs()).expect("the zoo has it");
    let network = build_network(&job.model, &spec).expect("it can be built");
    let learning = Arc::new(Learning::new(&job, network, train_set, test_set).expect("it fits the data"));
    let mut worker = CpuWorker::new(learning.clone(), 2).expect("threads can be had");
    let mut values = learning.init(1);
    let mut optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
    let (n_train, n_test) = (learning.labels().len(), learning.n_test());
    let before = worker.test(&values, 0..n_test).expect("it can be tested");
    let mut rng = Rng::new(5);
    for step in 0..n_steps {
        let samples: Vec<usize> = (0..job.batch).map(|_| rng.below(n_train)).collect();
        worker.whole_gradient(&values, &samples, step as u64).expect("it has a gradient");
        worker.step(&mut optimizer, 0.01, &mut values);
    }
    [before, worker.test(&values, 0..n_test).expect("it can be tested")]
}

#[test]
fn a_u_net_learns_where_things_are() {
    let folder = tempfile::tempdir().expect("there is room");
    let (pixels, masks) = pictures();
    let shape = format!("({N_SAMPLES}, {SIDE}, {SIDE})");
    write(folder.path(), &array("|u1", &shape, &pixels), &array("|u1", &shape, &masks));
    let [before, after] = train(folder.path(), 80);
    let accuracy = |score: Score| score.metrics[0] / score.n as f64;
    assert!(after.loss() < 0.5 * before.loss(), "{before:?} {after:?}");
    // Pixels overlap in brightness: by themselves some nine of ten are told apart.
    assert!(accuracy(after) > 0.95, "{after:?}");
    assert_eq!((after.n, after.n_correct), (8, 0));
}

#[test]
fn a_u_net_learns_numbers_at_each_pixel() {
    let folder = tempfile::tempdir().expect("there is room");
    let (pixels, masks) = pictures();
    // Two numbers a pixel that are far from zero: the picture without its noise, and how dark it is.
    let numbers = masks.iter().flat_map(|&inside| [100.0 + f32::from(inside), -50.0 * f32::from(inside)]);
    let numbers: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    let (shape, deep) = (format!("({N_SAMPLES}, {SIDE}, {SIDE})"), format!("({N_SAMPLES}, {SIDE}, {SIDE}, 2)"));
    write(folder.path(), &array("|u1", &shape, &pixels), &array("<f4", &deep, &numbers));
    let [_, after] = train(folder.path(), 80);
    // R², beside guessing the mean.
    assert!(after.metrics[2] / after.n as f64 > 0.7, "{after:?}");
}

#[test]
fn what_does_not_fit_is_said() {
    let folder = tempfile::tempdir().expect("there is room");
    let (pixels, masks) = pictures();
    let shape = format!("({N_SAMPLES}, {SIDE}, {SIDE})");
    write(folder.path(), &array("|u1", &shape, &pixels), &array("|u1", &shape, &masks));
    let problem = |job: &Job| {
        let [train_set, test_set] = open(job, folder.path());
        let spec = job.model_spec(train_set.shape(), train_set.n_outputs()).expect("the zoo has it");
        let network = build_network(&job.model, &spec).expect("it can be built");
        let Err(error) = Learning::new(job, network, train_set, test_set) else { panic!("they do not fit") };
        error.to_string()
    };
    let dense = problem(&job("mlp:8"));
    assert!(dense.contains("each of the 256 positions") && dense.contains("unet-small"), "{dense}");
    let mut shifted = job("unet-small:4");
    shifted.augment = nettorrent_engine::job::Augmentation::CropFlip { padding: 1, flip: false };
    assert!(problem(&shifted).contains("`augment` would shift the pictures"));
}
