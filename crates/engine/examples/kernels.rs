//! Prints GFLOP/s of the kernels on the shapes that matter.
use nettorrent_engine::kernel::{
    ConvShape, Filter, Matrix, MatrixMut, correlate, correlate_transposed, multiply, pack, packed_len,
};

/// Seconds this thread has spent on a processor: unlike the wall clock, it does not count what other programs took.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn time(name: &str, flops: f64, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = cpu_seconds();
        let mut n = 0;
        while cpu_seconds() - t < 0.05 {
            for _ in 0..4 {
                f();
            }
            n += 4;
        }
        best = best.min((cpu_seconds() - t) / f64::from(n));
    }
    println!("{name:40} {:7.1} GFLOP/s {:9.1} us", flops / best / 1e9, best * 1e6);
}

fn main() {
    for (name, h, cin, cout, k, s) in [
        ("conv1 28 1>32", 28, 1, 32, 3, 1),
        ("conv2 26 32>64", 26, 32, 64, 3, 1),
        ("conv2 dx 26 64>32", 28, 64, 32, 3, 1),
        ("r20 34 3>16", 34, 3, 16, 3, 1),
        ("r20 34 16>16", 34, 16, 16, 3, 1),
        ("r20 18 32>32", 18, 32, 32, 3, 1),
        ("r20 10 64>64", 10, 64, 64, 3, 1),
        ("r20 34 16>32 s2", 34, 16, 32, 3, 2),
        ("r50 58 64>64", 58, 64, 64, 3, 1),
        ("r50 9 512>512", 9, 512, 512, 3, 1),
        ("r50 230 3>64 7x7 s2", 230, 3, 64, 7, 2),
    ] {
        let o = (h - k) / s + 1;
        let shape = ConvShape {
            height: h,
            width: h,
            in_channels: cin,
            kernel_height: k,
            kernel_width: k,
            stride: s,
            out_height: o,
            out_width: o,
            out_channels: cout,
        };
        let x = vec![0.5; h * h * cin];
        let mut w = vec![0.1; k * k * cin * cout];
        let mut y = vec![0.0; o * o * cout];
        let mut packed = vec![0.0; packed_len(k * k * cin, cout)];
        pack(k * k * cin, cout, &mut packed, |i, c| w[i * cout + c]);
        let flops = 2.0 * (o * o * cout * k * k * cin) as f64;
        time(&format!("{name} fwd"), flops, || correlate(&shape, &x, Filter::Packed(&packed), None, &mut y));
        w.fill(0.0);
        time(&format!("{name} dw"), flops, || correlate_transposed(&shape, &x, &y, &mut w));
    }
    for (name, m, k, n) in [
        ("fc1", 64, 9216, 128),
        ("mlp1", 64, 784, 512),
        ("mlp2", 64, 512, 512),
        ("square", 1024, 1024, 1024),
        ("conv2 im2col", 576, 288, 64),
    ] {
        let x = vec![0.5; m * k];
        let w = vec![0.5; k * n];
        let mut y = vec![0.5; m * n];
        let (mut dx, mut dw) = (x.clone(), w.clone());
        let f = 2.0 * (m * n * k) as f64;
        time(&format!("{name} y=x*Wt"), f, || {
            multiply(Matrix::new(&x, m, k), Matrix::new(&w, n, k).transposed(), 0.0, &mut MatrixMut::new(&mut y, m, n))
        });
        time(&format!("{name} y=x*W"), f, || {
            multiply(Matrix::new(&x, m, k), Matrix::new(&w, k, n), 0.0, &mut MatrixMut::new(&mut y, m, n))
        });
        time(&format!("{name} dx=dy*W"), f, || {
            multiply(Matrix::new(&y, m, n), Matrix::new(&w, n, k), 0.0, &mut MatrixMut::new(&mut dx, m, k))
        });
        time(&format!("{name} dx=dy*Wt"), f, || {
            multiply(Matrix::new(&y, m, n), Matrix::new(&w, k, n).transposed(), 0.0, &mut MatrixMut::new(&mut dx, m, k))
        });
        let own = |inputs, outputs| ConvShape {
            height: 1,
            width: m,
            in_channels: inputs,
            kernel_height: 1,
            kernel_width: 1,
            stride: 1,
            out_height: 1,
            out_width: m,
            out_channels: outputs,
        };
        time(&format!("{name} OWN dw=xT*dy"), f, || correlate_transposed(&own(k, n), &x, &y, &mut dw));
        time(&format!("{name} OWN dw=dyT*x"), f, || correlate_transposed(&own(n, k), &y, &x, &mut dw));
        time(&format!("{name} dw=dyT*x"), f, || {
            multiply(Matrix::new(&y, m, n).transposed(), Matrix::new(&x, m, k), 0.0, &mut MatrixMut::new(&mut dw, n, k))
        });
        time(&format!("{name} dw=xT*dy"), f, || {
            multiply(Matrix::new(&x, m, k).transposed(), Matrix::new(&y, m, n), 0.0, &mut MatrixMut::new(&mut dw, k, n))
        });
    }
}
