//! tmp
use nettorrent_engine::data::Batch;
use nettorrent_engine::model::{Network, Phase, Workspace, zoo};
use nettorrent_engine::rng::Rng;
use std::sync::{Arc, Mutex};
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let net = Network::new(&zoo::describe(&args[1], None, None).unwrap()).unwrap();
    let threads: usize = args[2].parse().unwrap();
    let n = args.get(3).map_or(64, |a| a.parse().unwrap());
    let mut rng = Rng::new(1);
    let mut values = net.init(&mut rng);
    let len: usize = net.input().iter().product();
    let batch = Batch {
        inputs: (0..n * len).map(|_| rng.normal()).collect(),
        labels: (0..n).map(|_| rng.below(net.n_classes()) as u32).collect(),
    };
    let mut room = Workspace::new(threads).unwrap();
    let mut grad = vec![0.0; net.n_values()];
    let mut step = |s: u64, room: &mut Workspace| {
        let score = net.gradient(&values, &batch, s, &mut grad, room);
        nettorrent_engine::kernel::vectorised(|| values.iter_mut().zip(&grad).for_each(|(v, g)| *v -= 0.01 * g));
        score
    };
    for s in 0..3 {
        println!("{:?}", step(s, &mut room).loss());
    }
    let mut best = f64::MAX;
    for _ in 0..5 {
        let (w, c) = (std::time::Instant::now(), cpu_seconds());
        let mut k = 0;
        while w.elapsed().as_secs_f64() < 1.0 {
            step(5, &mut room);
            k += 1;
        }
        let cpu = (cpu_seconds() - c) / f64::from(k);
        let wall = w.elapsed().as_secs_f64() / f64::from(k);
        best = best.min(if threads == 1 { cpu } else { wall });
    }
    println!("{} samples/s", n as f64 / best);
    if threads == 1 {
        let t =
            Arc::new(Mutex::new((std::time::Instant::now(), std::collections::BTreeMap::<(usize, Phase), f64>::new())));
        let u = t.clone();
        room.probe = Some(Box::new(move |s, p| {
            let mut g = u.lock().unwrap();
            let now = std::time::Instant::now();
            let d = (now - g.0).as_secs_f64();
            *g.1.entry((s, p)).or_default() += d;
            g.0 = now;
        }));
        for _ in 0..5 {
            t.lock().unwrap().0 = std::time::Instant::now();
            step(5, &mut room);
        }
        let sum = net.summary();
        for ((s, p), v) in &t.lock().unwrap().1 {
            let v = v / 5.0;
            if args.len() > 4 {
                println!(
                    "{:20} {:10} {:?}  {:.2} ms {:.1} GFLOP/s",
                    sum[*s].name,
                    sum[*s].kind,
                    p,
                    v * 1e3,
                    2.0 * (n * sum[*s].n_multiplications) as f64 / v / 1e9
                );
            }
        }
    }
}
