//! Who falls silent is given up within the deadline, and nobody else is.

use std::time::Duration;

use nettorrent_net::membership::{Config, Note};

use crate::network::{DEADLINE, Network, State, id, member, millis};

#[test]
fn the_silent_are_given_up_within_the_deadline() {
    for (n_peers, n_seeds) in [(2, 100), (4, 100), (10, 40), (50, 12)] {
        let (mut detections, mut agreements) = (Vec::new(), Vec::new());
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            let delay = network.delay() * 200;
            network.run_for(delay);
            let silent = id(network.rng.below(n_peers as usize) as u32);
            let begin = network.now;
            network.kill(silent, State::Vanished);
            let agreement = network.converge(DEADLINE * 2, &format!("{n_peers} peers, seed {seed}"));
            // Some learn of the next view before they hear why.
            network.run_until(begin + DEADLINE);
            let losses = network.losses(silent, begin);
            assert_eq!(losses.len(), n_peers as usize - 1, "{n_peers} peers, seed {seed}");
            let last = losses.into_iter().max().unwrap();
            assert!(last <= DEADLINE, "{n_peers} peers, seed {seed}: {last:?}");
            detections.push(last);
            agreements.push(agreement);
        }
        let mean = |times: &[Duration]| times.iter().sum::<Duration>() / times.len() as u32;
        println!(
            "{n_peers} peers, one silent: given up by all after {:.2?} (at most {:.2?}), next view after {:.2?} (at most {:.2?})",
            mean(&detections),
            detections.iter().max().unwrap(),
            mean(&agreements),
            agreements.iter().max().unwrap()
        );
    }
}

#[test]
fn the_killed_are_given_up_at_once() {
    for (n_peers, n_seeds) in [(2, 20), (4, 20), (10, 20), (50, 5)] {
        let mut slowest = Duration::ZERO;
        for seed in 0..n_seeds {
            let mut network = Network::settled(n_peers, DEADLINE, seed);
            // The proposer is killed as well, together with the next.
            network.kill(id(0), State::Killed);
            if n_peers > 2 {
                network.kill(id(1), State::Killed);
            }
            slowest = slowest.max(network.converge(DEADLINE / 5, &format!("{n_peers} peers, seed {seed}")));
            assert_eq!(network.views.len(), 2, "two losses at a time make one view, seed {seed}");
        }
        println!("{n_peers} peers, killed: next view after at most {slowest:.2?}");
    }
}

#[test]
fn any_deadline_will_do() {
    for (deadline, latency) in
        [(millis(500), millis(3)), (millis(2_000), millis(10)), (Duration::from_secs(180), millis(300))]
    {
        for seed in 0..10 {
            let mut network = Network::new(Config { deadline, wait_for: 6, ..Config::default() }, seed);
            network.latency = latency;
            (0..6).for_each(|join_index| {
                network.start(member(join_index), if join_index == 0 { vec![] } else { vec![member(0)] });
            });
            network.converge(deadline, &format!("{deadline:?}, seed {seed}"));
            network.run_for(deadline);
            let begin = network.now;
            network.kill(id(3), State::Vanished);
            network.converge(deadline * 2, &format!("{deadline:?}, seed {seed}"));
            assert!(network.losses(id(3), begin).into_iter().all(|time| time <= deadline), "{deadline:?}, seed {seed}");
        }
    }
}

#[test]
fn pauses_of_a_third_of_the_deadline_are_forgiven() {
    for deadline in [millis(500), DEADLINE] {
        for seed in 0..18 {
            let n_peers = 2 + seed as u32 % 9;
            let mut network = Network::settled(n_peers, deadline, seed);
            network.latency = deadline / 200;
            for _ in 0..100 {
                let running = network.running();
                if !running.is_empty() {
                    let sleeper = running[network.rng.below(running.len())];
                    let length = (deadline / 3).mul_f32(network.rng.uniform().sqrt());
                    network.hang(sleeper, length);
                }
                let pause = deadline.mul_f32(network.rng.uniform() * 0.5);
                network.run_for(pause);
            }
            let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
            assert_eq!((lost, network.views.len()), (0, 1), "{deadline:?}, {n_peers} peers, seed {seed}");
        }
    }
}

#[test]
fn slow_links_are_no_silence() {
    for seed in 0..5 {
        let mut network = Network::settled(6, DEADLINE, seed);
        // A question and its answer take up to four times as long as foca is told to wait for them.
        network.latency = DEADLINE * 2 / 25;
        network.run_for(DEADLINE * 40);
        let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
        assert_eq!((lost, network.views.len()), (0, 1), "seed {seed}");
    }
}

#[test]
fn short_cuts_are_forgiven() {
    for seed in 0..60 {
        let n_peers = 2 + seed as u32 % 9;
        let mut network = Network::settled(n_peers, DEADLINE, seed);
        for _ in 0..10 {
            let peer = id(network.rng.below(n_peers as usize) as u32);
            network.node(peer).island = 1;
            network.run_for(DEADLINE / 3);
            network.mend();
            let pause = DEADLINE.mul_f32(0.5 + network.rng.uniform());
            network.run_for(pause);
        }
        let lost = network.n_notes(|note| matches!(note, Note::Lost { .. }));
        assert_eq!((lost, network.views.len()), (0, 1), "{n_peers} peers, seed {seed}");
    }
}
