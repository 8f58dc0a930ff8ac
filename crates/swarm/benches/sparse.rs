//! How fast deltas are found, written, read and applied, beside plain passes over the same memory:
//! `cargo bench -p nettorrent-swarm --bench sparse`.
//!
//! First comes a table of the best times of many rounds, in which all take turns: on a machine that others use as well, only
//! these and their ratios mean something. Then criterion measures each by itself. "GB/s" and criterion's "GiB/s" are of the
//! residual alone, whatever else is read or written; "M/s" and "Melem/s" are millions of deltas a second.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::rng::Rng;
use nettorrent_swarm::sparse::{Coding, Deltas};

const SIZES: [(&str, usize); 2] = [("1.2M", 1_200_000), ("25M", 25_000_000)];
const DENSITIES: [(&str, f32); 2] = [("0.1%", 0.001), ("1%", 0.01)];
const TAU: f32 = 1.0;

/// A residual in which this share of the elements is beyond τ.
fn residual(n: usize, density: f32) -> Vec<f32> {
    let mut rng = Rng::new(1);
    let mut number = || {
        let size = if rng.uniform() < density { 1.5 } else { rng.range(0.0, 0.9) };
        if rng.uniform() < 0.5 { -size } else { size }
    };
    (0..n).map(|_| number()).collect()
}

/// The best times of all, measured in turns.
fn table() {
    println!(
        "           GB/s   read   add  copy |  scan  with update (share of read, of add) | M/s decode  apply  both"
    );
    for (size, n) in SIZES {
        for (share, density) in DENSITIES {
            let best = best_times(n, density, 400_000_000 / n);
            let gigabytes = 4e-9 * n as f64;
            let [read, add, copy, scan, with_update] = [0, 1, 2, 3, 4].map(|i| gigabytes / best.seconds[i]);
            let millions = 1e-6 * best.n_deltas as f64;
            let [decode, apply] = [5, 6].map(|i| millions / best.seconds[i]);
            let both = millions / (best.seconds[5] + best.seconds[6]);
            println!(
                "{size:>5} {share:>4}      {read:6.1}{add:6.1}{copy:6.1} |{scan:6.1}{with_update:13.1} ({:.0} %, {:.0} %) \
                 |{decode:11.0}{apply:7.0}{both:6.0}",
                100.0 * scan / read,
                100.0 * with_update / add,
            );
        }
    }
}

struct Best {
    n_deltas: usize,
    /// Of reading, adding, copying, scanning without and with an update, decoding, applying.
    seconds: [f64; 7],
}

fn best_times(n: usize, density: f32, n_rounds: usize) -> Best {
    let mut residual = residual(n, density);
    let mut values = vec![1.0_f32; n];
    let update = vec![0.0_f32; n];
    let mut deltas = Deltas::new();
    let mut message = BytesMut::new();
    let mut seconds = [f64::INFINITY; 7];
    for _ in 0..n_rounds {
        let mut take = |i: usize, pass: &mut dyn FnMut()| {
            let began = now();
            pass();
            seconds[i] = began.elapsed().as_secs_f64().min(seconds[i]);
        };
        take(0, &mut || _ = black_box(largest(&residual)));
        take(1, &mut || add(&mut values, &update));
        take(2, &mut || values.copy_from_slice(black_box(&update)));
        take(3, &mut || {
            deltas.scan(&mut residual, TAU);
            message.clear();
            deltas.encode_into(Coding::Auto, &mut message);
        });
        deltas.add_to(&mut residual);
        take(4, &mut || {
            deltas.scan_with(&mut residual, &update, TAU);
            message.clear();
            deltas.encode_into(Coding::Auto, &mut message);
        });
        deltas.add_to(&mut residual);
        take(5, &mut || deltas.decode(&message, n).expect("the message is sound"));
        take(6, &mut || deltas.add_to(&mut values));
    }
    Best { n_deltas: deltas.len(), seconds }
}

/// Reads all.
fn largest(numbers: &[f32]) -> i32 {
    vectorised(|| numbers.iter().fold(0, |largest, x| x.to_bits().cast_signed().max(largest)))
}

fn add(numbers: &mut [f32], others: &[f32]) {
    vectorised(|| numbers.iter_mut().zip(others).for_each(|(x, y)| *x += y));
}

/// What this machine's memory can do.
fn yardsticks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("yardstick");
    for (name, n) in SIZES {
        let mut numbers = residual(n, 0.01);
        let others = vec![0.0_f32; n];
        group.throughput(Throughput::Bytes(4 * n as u64));
        group.bench_function(BenchmarkId::new("read", name), |b| {
            b.iter(|| largest(&numbers));
        });
        group.bench_function(BenchmarkId::new("read-modify-write", name), |b| {
            b.iter(|| vectorised(|| black_box(&mut numbers).iter_mut().for_each(|x| *x *= -1.0)));
        });
        group.bench_function(BenchmarkId::new("add", name), |b| {
            b.iter(|| add(&mut numbers, &others));
        });
        group.bench_function(BenchmarkId::new("copy", name), |b| {
            b.iter(|| black_box(&mut numbers).copy_from_slice(&others));
        });
    }
}

/// From the residual to the message.
fn scans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scan-and-encode");
    for (size, n) in SIZES {
        for (share, density) in DENSITIES {
            let mut residual = residual(n, density);
            let update = vec![0.0; n];
            let mut deltas = Deltas::new();
            let mut message = BytesMut::new();
            group.throughput(Throughput::Bytes(4 * n as u64));
            group.bench_function(BenchmarkId::new("plain", format!("{size}/{share}")), |b| {
                b.iter_custom(|n_times| {
                    timed(n_times, &mut residual, &mut deltas, |deltas, residual| {
                        deltas.scan(residual, TAU);
                        message.clear();
                        deltas.encode_into(Coding::Auto, &mut message);
                    })
                });
            });
            group.bench_function(BenchmarkId::new("with-update", format!("{size}/{share}")), |b| {
                b.iter_custom(|n_times| {
                    timed(n_times, &mut residual, &mut deltas, |deltas, residual| {
                        deltas.scan_with(residual, &update, TAU);
                        message.clear();
                        deltas.encode_into(Coding::Auto, &mut message);
                    })
                });
            });
        }
    }
}

/// How long a scan takes this many times; what it took out is put back in between, so that all find the same.
fn timed(
    n_times: u64,
    residual: &mut [f32],
    deltas: &mut Deltas,
    mut scan: impl FnMut(&mut Deltas, &mut [f32]),
) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..n_times {
        let began = now();
        scan(deltas, residual);
        total += began.elapsed();
        deltas.add_to(residual);
    }
    total
}

/// From the message to the replica.
fn readings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode-and-apply");
    for (size, n) in SIZES {
        for (share, density) in DENSITIES {
            let mut deltas = Deltas::new();
            let mut values = residual(n, density);
            deltas.scan(&mut values, TAU);
            let message = deltas.encode();
            group.throughput(Throughput::Elements(deltas.len() as u64));
            group.bench_function(BenchmarkId::new("decode", format!("{size}/{share}")), |b| {
                b.iter(|| deltas.decode(&message, n).expect("the message is sound"));
            });
            group.bench_function(BenchmarkId::new("apply", format!("{size}/{share}")), |b| {
                b.iter(|| deltas.add_to(&mut values));
            });
            group.bench_function(BenchmarkId::new("both", format!("{size}/{share}")), |b| {
                b.iter(|| {
                    deltas.decode(&message, n).expect("the message is sound");
                    deltas.add_to(&mut values);
                });
            });
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured here")]
fn now() -> Instant {
    Instant::now()
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = yardsticks, scans, readings
}

fn main() {
    table();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
