//! However deltas are written, the same is learnt; only the bytes are others.

use nettorrent_sim::{Scenario, Simulation};
use toml::{Table, Value};

use super::case::Case;

#[test]
fn every_coding_gives_the_same_training_and_its_own_bytes() {
    let runs = ["auto", "bitmap", "list", "rice"].map(|coding| {
        let case = Case::new("threshold", Table::from_iter([("coding".to_owned(), Value::from(coding))]));
        let outcome = Simulation::new(case.equal_setup(3), 4, Scenario::lan()).unwrap().run().unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let values: Vec<Vec<u32>> = outcome.peers.iter().map(|peer| bits(&peer.values)).collect();
        (coding, values, outcome.peers.iter().map(|peer| peer.traffic.payload_sent).sum::<u64>())
    });
    let (_, values, shortest) = &runs[0];
    for (coding, others, n_bytes) in &runs[1..] {
        assert!(values == others, "{coding}");
        assert!(n_bytes > shortest, "{coding}: {n_bytes} bytes, and {shortest} with the shortest for each message");
        let is_alone = runs.iter().filter(|run| run.2 == *n_bytes).count() == 1;
        assert!(is_alone, "{coding}: {n_bytes} bytes as with another");
    }
}

#[test]
fn an_unknown_coding_is_answered_with_those_that_exist() {
    let spec = nettorrent_swarm::strategies::find("threshold").unwrap();
    let error = (spec.build)(&toml::toml! { coding = "golomb" }).err().expect("it is refused").to_string();
    assert!(["golomb", "auto", "bitmap", "list", "rice"].iter().all(|name| error.contains(name)), "{error}");
}
