//! How fast the inner loops are, on the shapes that the zoo's networks have: `cargo bench -p nettorrent-engine`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nettorrent_engine::data::Batch;
use nettorrent_engine::kernel::{
    Before, ConvShape, LineAligned, Matrix, MatrixMut, correlate, correlate_transposed, multiply, pack, packed_len,
};
use nettorrent_engine::model::layers::{Activation, ActivationKind, RowNorm, RowNormKind};
use nettorrent_engine::model::{Backward, Context, Layer, Mode, Network, Scratch, Tensor, Workspace, zoo};
use nettorrent_engine::rng::Rng;

#[global_allocator]
static ALLOCATOR: LineAligned = LineAligned;

/// A square image with its border, and a square filter.
fn square(side: usize, in_channels: usize, out_channels: usize, kernel: usize, stride: usize) -> ConvShape {
    let out = (side - kernel) / stride + 1;
    ConvShape {
        height: side,
        width: side,
        in_channels,
        kernel_height: kernel,
        kernel_width: kernel,
        stride,
        out_height: out,
        out_width: out,
        out_channels,
        ..ConvShape::POINT
    }
}

/// One unit of throughput is one floating-point operation: criterion's "Gelem/s" are GFLOP/s.
fn convolutions(criterion: &mut Criterion) {
    let shapes = [
        ("mnist-cnn/0", square(28, 1, 32, 3, 1)),
        ("mnist-cnn/2", square(26, 32, 64, 3, 1)),
        ("resnet20/layer1", square(34, 16, 16, 3, 1)),
        ("resnet20/layer2", square(18, 32, 32, 3, 1)),
        ("resnet20/layer3", square(10, 64, 64, 3, 1)),
        ("resnet50/conv1", square(230, 3, 64, 7, 2)),
        ("resnet50/layer1", square(58, 64, 64, 3, 1)),
        ("resnet50/layer4", square(9, 512, 512, 3, 1)),
    ];
    let mut group = criterion.benchmark_group("convolution");
    for (name, shape) in shapes {
        let image = vec![0.5; shape.image_len()];
        let mut filter = vec![0.5; shape.n_inputs() * shape.out_channels];
        let mut packed = vec![0.0; packed_len(shape.n_inputs(), shape.out_channels)];
        pack(shape.n_inputs(), shape.out_channels, &mut packed, |i, o| filter[i * shape.out_channels + o]);
        let mut output = vec![0.5; shape.output_len()];
        group.throughput(Throughput::Elements(2 * (shape.output_len() * shape.n_inputs()) as u64));
        group.bench_function(BenchmarkId::new("forward", name), |b| {
            b.iter(|| correlate(&shape, &image, &packed, None, &mut output));
        });
        group.bench_function(BenchmarkId::new("weight-gradient", name), |b| {
            b.iter(|| correlate_transposed(&shape, &image, &output, Before::Kept, &mut filter));
        });
    }
}

fn products(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("product");
    for (name, rows, inputs, outputs) in
        [("mnist-cnn/7", 64, 9216, 128), ("mlp/1", 64, 784, 512), ("square", 512, 512, 512)]
    {
        let (x, weights) = (vec![0.5; rows * inputs], vec![0.5; inputs * outputs]);
        let mut y = vec![0.0; rows * outputs];
        group.throughput(Throughput::Elements(2 * (rows * inputs * outputs) as u64));
        group.bench_function(BenchmarkId::new("forward", name), |b| {
            b.iter(|| {
                let weights = Matrix::new(&weights, outputs, inputs).transposed();
                multiply(Matrix::new(&x, rows, inputs), weights, 0.0, &mut MatrixMut::new(&mut y, rows, outputs));
            });
        });
    }
}

/// One unit of throughput is one number.
fn rows(criterion: &mut Criterion) {
    use ActivationKind::{Gelu, GeluTanh, Sigmoid, Silu, Tanh};
    let (n, features) = (16 * 1024, 512);
    let norm = |kind| RowNorm { kind, features, epsilon: 1e-5, axes: vec![(features, 1)] };
    let layers: [(&str, Box<dyn Layer>); 7] = [
        ("gelu", Box::new(Activation(Gelu))),
        ("gelu-tanh", Box::new(Activation(GeluTanh))),
        ("layer-norm", Box::new(norm(RowNormKind::Layer))),
        ("rms-norm", Box::new(norm(RowNormKind::Rms))),
        ("sigmoid", Box::new(Activation(Sigmoid))),
        ("silu", Box::new(Activation(Silu))),
        ("tanh", Box::new(Activation(Tanh))),
    ];
    let mut rng = Rng::new(1);
    let x: Vec<f32> = (0..n).map(|_| rng.normal()).collect();
    let (mut y, mut dx, params) = (vec![0.0; n], vec![0.0; n], vec![0.5; 2 * features]);
    let mut group = criterion.benchmark_group("rows");
    group.throughput(Throughput::Elements(n as u64));
    for (name, layer) in layers {
        let n_params = layer.tensors().iter().map(Tensor::len).sum();
        let context = Context {
            params: &params[..n_params],
            buffers: &[],
            prepared: &[],
            mode: Mode::Test,
            n: 1,
            first: 0,
            batch_len: 1,
            before: Before::Kept,
            sums: &[],
            gradient_sums: &[],
        };
        let mut scratch = Scratch::default();
        group.bench_function(BenchmarkId::new("forward", name), |b| {
            b.iter(|| layer.forward(&context, &x, &mut y, &mut scratch));
        });
        let back = Backward { x: &x, y: &y, dy: &x, dx: &[] };
        group.bench_function(BenchmarkId::new("input-gradient", name), |b| {
            b.iter(|| layer.input_gradient(&context, back, &mut dx, &mut scratch));
        });
    }
}

/// One unit of throughput is one sample.
fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gradient");
    group.sample_size(10);
    for name in ["digits-cnn", "mlp", "mnist-cnn", "resnet20"] {
        let spec = zoo::describe(name, None, None).expect("it is in the zoo");
        let network = Network::new(&spec).expect("the zoo's networks are right");
        let mut rng = Rng::new(1);
        let n = 64;
        let batch = Batch::random(&network, n, &mut rng);
        let values = network.init(&mut rng);
        let mut gradient = vec![0.0; network.n_values()];
        let mut workspace = Workspace::new(1).expect("one thread is always there");
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(name, |b| b.iter(|| network.gradient(&values, &batch, 1, &mut gradient, &mut workspace)));
    }
}

criterion_group!(kernels, convolutions, products, rows, steps);
criterion_main!(kernels);
