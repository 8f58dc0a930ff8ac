//! A checkpoint written by the parts of a network is that of the whole, and each part reads its own share of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use nettorrent_engine::checkpoint::{PieceWriter, Progress, load_part, save};
use nettorrent_engine::model::{ModelSpec, Network, Part, PartSpec, zoo};
use nettorrent_engine::optimizer::{Optimizer, OptimizerKind, OptimizerSpec};

/// One part for each layer and column: as many columns as are wanted, where the layer can be split.
fn parts(spec: &ModelSpec, columns: usize) -> Vec<Part> {
    let part = |k: usize, column, columns| Part::new(spec, &PartSpec { layers: k..k + 1, column, columns });
    let of_layer = |k| match (0..columns).map(|column| part(k, column, columns)).collect::<Result<Vec<_>, _>>() {
        Ok(split) => split,
        Err(_) => vec![part(k, 0, 1).expect("a whole layer can be a part")],
    };
    (0..spec.layers.len()).flat_map(of_layer).collect()
}

/// A vector of numbers that all differ.
fn vector(k: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (8 * i + k) as f32).collect()
}

/// An optimizer that remembers these.
fn remembering(vectors: Vec<Vec<f32>>) -> Optimizer {
    let spec = OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() };
    let mut optimizer = Optimizer::new(spec, vectors[0].len());
    let mut vectors = vectors.into_iter();
    assert!(optimizer.restore(99, |_| vectors.next()), "adam remembers two vectors");
    optimizer
}

fn bytes(folder: &Path) -> [Vec<u8>; 2] {
    ["model.safetensors", "state.safetensors"]
        .map(|name| fs::read(folder.join(name)).expect("a file of the checkpoint"))
}

#[test]
fn parts_write_the_checkpoint_of_the_whole_and_read_their_share() {
    for (model, columns) in [("digits-cnn", 3), ("mlp:50,30", 4), ("resnet20", 3), ("speech-rnn:20", 2)] {
        let root = tempfile::tempdir().unwrap();
        let spec = zoo::describe(model, None, None).unwrap();
        let network = Network::new(&spec).unwrap();
        let (n_params, n_values) = (network.n_params(), network.n_values());
        let values = vector(0, n_values);
        let vectors = [vector(1, n_params), vector(2, n_params)];
        let progress = Progress { step: 99, swarm_vectors: vec![vector(3, n_values).into()], ..Progress::default() };
        let (at_once, in_pieces) = (root.path().join("at-once"), root.path().join("in-pieces"));
        let optimizer = remembering(vectors.to_vec());
        save(&at_once, &network.layout(), &values, &optimizer, &progress).unwrap();

        let parts = parts(&spec, columns);
        assert!(parts.len() > spec.layers.len(), "{model}: some layer is split");
        let rule = OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() };
        let mut writer = PieceWriter::create(&in_pieces, &network.layout(), &rule, &progress, 1).unwrap();
        let of_part = |part: &Part| {
            let optimizer = remembering(vectors.iter().map(|vector| part.take_params(vector)).collect());
            (part.take(&values), optimizer, vec![Arc::new(part.take(&progress.swarm_vectors[0]))])
        };
        for part in &parts {
            let (values, optimizer, vectors) = of_part(part);
            writer.put(part, &values, &optimizer, &vectors).unwrap();
        }
        writer.finish().unwrap();
        assert!(bytes(&in_pieces) == bytes(&at_once), "{model}");

        for part in &parts {
            let (values, optimizer, swarm_vectors) = of_part(part);
            let mut restored = Optimizer::new(rule.clone(), part.n_params());
            let (found, place) = load_part(&in_pieces, &network.layout(), part, &mut restored).unwrap();
            assert!(found == values && restored == optimizer, "{model}");
            assert!(place == Progress { swarm_vectors, ..progress.clone() }, "{model}");
        }
    }
}

#[test]
fn a_checkpoint_without_one_of_its_parts_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("step-1");
    let spec = zoo::describe("digits-cnn", None, None).unwrap();
    let network = Network::new(&spec).unwrap();
    let rule = OptimizerSpec::default();
    let mut writer = PieceWriter::create(&folder, &network.layout(), &rule, &Progress::default(), 0).unwrap();
    let parts = parts(&spec, 2);
    let left_out = parts.iter().position(|part| part.n_values() > 0).unwrap();
    for part in parts.iter().enumerate().filter(|&(k, _)| k != left_out).map(|(_, part)| part) {
        let optimizer = Optimizer::new(rule.clone(), part.n_params());
        writer.put(part, &vec![0.0; part.n_values()], &optimizer, &[]).unwrap();
    }
    let problem = writer.finish().unwrap_err().to_string();
    assert!(problem.contains(&format!("{} of ", parts[left_out].n_values())), "{problem}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left of it");
}
