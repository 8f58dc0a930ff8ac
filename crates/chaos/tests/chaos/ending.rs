//! A joiner that comes just when the blocks of a pipeline have done everything.

use std::time::Duration;

use nettorrent_chaos::oracle::violations;
use nettorrent_chaos::plan::{Action, Plan};
use nettorrent_chaos::world;

/// Everybody learns in one moment that all is done and that there is somebody new: what they hold is the end, and not to be handed over.
#[test]
fn who_has_done_everything_keeps_it_when_somebody_joins() {
    for seed in [12, 13] {
        let calm = Plan { actions: Vec::new(), spoilt: Vec::new(), n_peers: 4, ..Plan::new(seed) };
        let took = world::run(&calm).took;
        for k in 0..60 {
            let at = took.saturating_sub(Duration::from_millis(300 - 5 * k));
            let plan = Plan { actions: vec![(at, Action::Join(calm.n_peers))], ..calm.clone() };
            let violations = violations(&plan, &world::run(&plan));
            assert!(violations.is_empty(), "{plan}{violations:?}");
        }
    }
    // It was found with this one.
    let at = Duration::from_millis(8450);
    let plan = Plan { actions: vec![(at, Action::Join(4))], spoilt: Vec::new(), n_peers: 4, ..Plan::new(12) };
    let violations = violations(&plan, &world::run(&plan));
    assert!(violations.is_empty(), "{plan}{violations:?}");
}
