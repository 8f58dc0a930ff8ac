//! Every network of the zoo, cut in several ways.

use nettorrent_engine::model::{LayerSpec, ModelSpec, Network, Part, PartSpec, zoo};
use nettorrent_engine::rng::Rng;

use super::grid::{Group, assert_as_whole, parts};

/// Samples and widths as small as the model allows.
fn small(name: &str) -> ModelSpec {
    let (order, input): (&str, &[usize]) = match name {
        "cifar-cnn" => ("cifar-cnn", &[12, 12, 3]),
        "digits-cnn" => ("digits-cnn", &[8, 8, 1]),
        // GPT-2 is the same with sizes of its own.
        _ if name.starts_with("gpt") => ("gpt:2x12x2", &[6]),
        "llama" => ("llama:2x12x2", &[6]),
        "lstm-lm" => ("lstm-lm:12", &[6]),
        "mlp" => ("mlp:23,17", &[4, 4, 1]),
        "mnist-cnn" => ("mnist-cnn", &[10, 10, 1]),
        "resnet20" => ("resnet20", &[16, 16, 3]),
        "resnet50" => ("resnet50", &[32, 32, 3]),
        "speech-attention" => ("speech-attention:12", &[6, 5]),
        "speech-dense" => ("speech-dense:31", &[6, 5]),
        "speech-rnn" => ("speech-rnn:12", &[6, 5]),
        "unet-small" => ("unet-small:4", &[8, 8, 3]),
        "vit-tiny" => ("vit-tiny", &[32, 32, 3]),
        other => panic!("say how small a {other} can be"),
    };
    zoo::describe(order, Some(input), Some(5)).expect("the zoo has it")
}

/// Whether a group may begin with this layer and be split.
fn begins(layer: &LayerSpec) -> bool {
    layer.outputs_to_split().is_some()
}

/// The layers with these first ones, as groups with these rows and columns where each can be had.
fn groups(spec: &ModelSpec, starts: &[usize], rows: usize, columns: usize) -> Vec<Group> {
    let ends = starts[1..].iter().copied().chain([spec.layers.len()]);
    let group = |(start, end): (usize, usize)| {
        let part = |columns| Part::new(spec, &PartSpec { layers: start..end, column: 0, columns });
        let columns = if part(columns).is_ok() { columns } else { 1 };
        let needs_all = part(1).expect("a whole group can be").needs_all_rows();
        Group { layers: start..end, rows: if needs_all { 1 } else { rows }, columns }
    };
    starts.iter().copied().zip(ends).map(group).collect()
}

/// Ways to cut a network: before every layer, before every one that can be split, in two, and not at all.
fn cuttings(spec: &ModelSpec) -> Vec<Vec<Group>> {
    let n = spec.layers.len();
    let every: Vec<usize> = (0..n).filter(|&i| spec.can_cut(i)).collect();
    let splittable: Vec<usize> = every.iter().copied().filter(|&i| i == 0 || begins(&spec.layers[i])).collect();
    let two = [0, every[every.len() / 2]];
    vec![
        groups(spec, &every, 1, 1),
        groups(spec, &every, 3, 2),
        groups(spec, &splittable, 2, 3),
        groups(spec, &splittable, 1, 5),
        groups(spec, if two[1] > 0 { &two } else { &two[..1] }, 4, 1),
        groups(spec, &[0], 2, 1),
    ]
}

fn check(name: &str, n: usize, tolerance: f32) {
    let spec = small(name);
    let cuttings = cuttings(&spec);
    let splits = cuttings.iter().flatten().filter(|group| group.columns > 1).count();
    assert!(splits > 0, "{name} is never split");
    for groups in cuttings {
        assert_as_whole(name, &spec, &groups, n, tolerance);
    }
}

#[test]
fn networks_without_norms() {
    for name in ["cifar-cnn", "digits-cnn", "mlp", "mnist-cnn", "speech-dense", "speech-rnn"] {
        // Numbers of samples that neither rows nor threads divide, and fewer than there are rows.
        for n in [7, 2] {
            check(name, n, 1e-5);
        }
    }
}

#[test]
fn residual_networks() {
    // Below many batch norms gradients are small differences of large sums.
    check("resnet20", 6, 1e-3);
}

#[test]
fn a_network_with_skip_connections() {
    // Its last batch norms see few numbers.
    check("unet-small", 6, 1e-3);
}

#[test]
fn a_large_residual_network() {
    // With fewer pixels or samples the last of its batch norms see so few numbers that rounding grows to per cents: between one
    // thread and two of the whole network, too.
    let spec = ModelSpec { input: vec![64, 64, 3], ..small("resnet50") };
    let n = spec.layers.len();
    let splits: Vec<usize> = [0, 4, 9, 20, n - 1].to_vec();
    assert_as_whole("resnet50", &spec, &groups(&spec, &splits, 2, 3), 24, 1e-3);
}

#[test]
fn all_of_the_zoo_is_looked_at() {
    for entry in zoo::ZOO {
        let spec = small(entry.name);
        let network = Network::new(&spec).expect("the network can be built");
        let whole = network.init(&mut Rng::new(5));
        for groups in cuttings(&spec) {
            let mut seen = vec![0_u8; whole.len()];
            for part in groups.iter().flat_map(|group| parts(&spec, group)) {
                let mine = part.init(&mut Rng::new(5));
                assert_eq!(mine.len(), part.n_values(), "{} {part:?}", entry.name);
                assert!(mine == part.take(&whole), "{} {part:?} begins otherwise than the whole", entry.name);
                let trained = part.take_params(&whole[..network.n_params()]);
                assert!(trained == mine[..part.n_params()], "{} {part:?}", entry.name);
                let mut at = 0;
                for span in part.spans() {
                    assert_eq!(span.mine, at, "{} {part:?}", entry.name);
                    at += span.len;
                    seen[span.whole..][..span.len].iter_mut().for_each(|seen| *seen += 1);
                }
                assert_eq!(at, part.n_values());
            }
            assert!(seen.iter().all(|&times| times == 1), "{} on {groups:?}", entry.name);
        }
    }
}
