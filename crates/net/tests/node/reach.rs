//! Members that live and cannot reach each other, or do not work, do not stop the others.

use std::time::Duration;

use nettorrent_net::membership::Note;

use crate::swarm::{Swarm, Told};

const DEADLINE: Duration = Duration::from_secs(1);

#[test]
fn two_members_that_cannot_reach_each_other_do_not_stop_the_others() {
    for strategy in ["ring-all-reduce", "threshold"] {
        Swarm::run(DEADLINE, strategy, async |mut swarm| {
            for _ in 0..3 {
                swarm.start(3).await;
            }
            swarm.until_trained(&[0, 1, 2]).await;
            swarm.cut(1, 2);
            swarm.until_trained(&[0, 1]).await;
            swarm.mend();
            swarm.until_trained(&[0, 1, 2]).await;
        });
    }
}

#[test]
fn a_newcomer_that_a_member_cannot_reach_waits_and_the_others_train() {
    Swarm::run(DEADLINE, "ring-all-reduce", async |mut swarm| {
        swarm.start(2).await;
        swarm.start(2).await;
        swarm.until_trained(&[0, 1]).await;
        swarm.cut(1, 2);
        swarm.start(1).await;
        let (lacking, newcomer) = (swarm.peers[1].id, swarm.peers[2].id);
        let mut n_rounds = 0;
        swarm
            .until(|at, told| match told {
                Told::View(members) => panic!("node {at} has a view of {members:?}"),
                Told::Round => {
                    n_rounds += usize::from(at == 0);
                    false
                }
                Told::Note(Note::LeftOut { member, other }) => at == 2 && (member.id, other.id) == (newcomer, lacking),
                Told::Note(_) | Told::GivenUp => false,
            })
            .await;
        assert!(n_rounds > 0, "the others have trained meanwhile");
        swarm.mend();
        swarm.until_trained(&[0, 1, 2]).await;
    });
}

#[test]
fn a_member_whose_computation_stands_still_does_not_stop_the_others() {
    for (strategy, stuck, others) in
        [("ring-all-reduce", 0, [1, 2]), ("gossip", 2, [0, 1]), ("manager-worker", 1, [0, 2])]
    {
        Swarm::run(DEADLINE, strategy, async |mut swarm| {
            for _ in 0..3 {
                swarm.start(3).await;
            }
            swarm.until_trained(&[0, 1, 2]).await;
            swarm.gates[stuck].shut();
            swarm.until_trained(&others).await;
            swarm.gates[stuck].open();
            swarm.until_trained(&[0, 1, 2]).await;
        });
    }
}

#[test]
fn a_member_that_answers_and_sends_nothing_does_not_stop_the_others() {
    for (strategy, silent, others) in
        [("ring-all-reduce", 0, [1, 2]), ("ring-all-reduce", 2, [0, 1]), ("diloco", 1, [0, 2]), ("gossip", 0, [1, 2])]
    {
        Swarm::run(DEADLINE, strategy, async |mut swarm| {
            for _ in 0..3 {
                swarm.start(3).await;
            }
            swarm.until_trained(&[0, 1, 2]).await;
            swarm.voices[silent].mute();
            swarm.until_trained(&others).await;
            swarm.voices[silent].unmute();
            swarm.until_trained(&[0, 1, 2]).await;
        });
    }
}

#[test]
fn a_newcomer_that_never_says_how_far_it_is_does_not_stop_the_others() {
    Swarm::run(DEADLINE, "ring-all-reduce", async |mut swarm| {
        swarm.start(2).await;
        swarm.start(2).await;
        swarm.until_trained(&[0, 1]).await;
        swarm.start(1).await;
        swarm.voices[2].mute();
        swarm.until(|_, told| matches!(told, Told::Note(Note::Withholds { .. }))).await;
        swarm.until_trained(&[0, 1]).await;
    });
}

#[test]
fn who_was_cut_off_and_trained_alone_takes_over_what_the_others_trained() {
    Swarm::run(DEADLINE, "ring-all-reduce", async |mut swarm| {
        for _ in 0..3 {
            swarm.start(3).await;
        }
        swarm.until_trained(&[0, 1, 2]).await;
        swarm.cut(0, 2);
        swarm.cut(1, 2);
        // The others get nothing done, so that it has trained more when they meet again.
        swarm.gates[0].shut();
        swarm.until_trained(&[2]).await;
        swarm.mend();
        swarm.gates[0].open();
        swarm.until(|at, told| at == 2 && matches!(told, Told::GivenUp)).await;
        swarm.until(|at, told| at == 2 && matches!(told, Told::Round)).await;
    });
}
