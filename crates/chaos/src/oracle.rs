//! What must hold in every world, whatever happened in it.

use std::collections::BTreeMap;

use nettorrent_net::report::Ending;

use crate::network::Host;
use crate::plan::Plan;
use crate::process::Fate;
use crate::training::EPOCHS;
use crate::world::Outcome;

/// Says what is wrong with an outcome; nothing if all is well.
pub fn violations(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let fates = &outcome.fates;
    let mut problems: Vec<String> = fates.iter().filter_map(|fate| own_problem(fate, outcome.n_samples)).collect();
    let finished = || fates.iter().filter(|fate| fate.told.ending == Some(Ending::Finished));
    // Of every slot, whoever holds it holds the same; a replica holds the only one there is. Only who was parted from the others to the
    // end may have trained on by itself.
    let mut models: BTreeMap<(u32, usize), (Host, Vec<u32>)> = BTreeMap::new();
    for fate in finished() {
        let blocks = fate.told.blocks.iter().map(|block| (block.slot, &block.values));
        let whole = fate.told.blocks.is_empty().then_some((0, &fate.told.values));
        for (slot, values) in blocks.chain(whole).filter(|(_, values)| !values.is_empty()) {
            let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
            let (first, model) = models.entry((fate.told.view, slot)).or_insert_with(|| (fate.host, bits.clone()));
            if *model != bits {
                problems.push(format!("{first} and {} finished with different models", fate.host));
            }
        }
    }
    if finished().next().is_some() && finished().all(|fate| fate.told.holds_nothing()) {
        problems.push("all who finished hold nothing".to_owned());
    }
    // Who joins is to take over what the others have, and not to train all of it once more.
    let stranger = |fate: &&Fate| fate.host >= plan.n_peers && !fate.told.has_met_others;
    problems.extend(
        finished().filter(stranger).map(|fate| format!("{} finished without ever having met anybody", fate.host)),
    );
    problems.extend(hung(plan, fates));
    let is_spoilt = |host: Host| plan.spoilt.iter().any(|hosts| hosts.contains(&host));
    let has_left = |fate: &&Fate| fate.told.ending == Some(Ending::Left) || fate.told.not_admitted.is_some();
    let came_late = |fate: &&Fate| matches!(fate.told.ending, Some(Ending::Failed(_))) && is_untrained(fate);
    let is_able = |fate: &&Fate| !fate.is_dead && !is_spoilt(fate.host) && !has_left(fate) && !came_late(fate);
    let mut able = fates.iter().filter(is_able);
    if able.next().is_some() && finished().next().is_none() {
        problems.push("nobody finished".to_owned());
    }
    problems
}

/// Who did not come to an end and has no excuse: where two cannot reach each other for ever, one of them has.
fn hung(plan: &Plan, fates: &[Fate]) -> Option<String> {
    let mut hanging: Vec<Host> = fates.iter().filter(|fate| fate.hangs).map(|fate| fate.host).collect();
    for excused in &plan.spoilt {
        if let Some(at) = hanging.iter().position(|host| excused.contains(host)) {
            hanging.remove(at);
        }
    }
    (!hanging.is_empty()).then(|| format!("{hanging:?} never ended"))
}

fn is_untrained(fate: &Fate) -> bool {
    fate.told.place.as_ref().is_none_or(|place| place.step == 0)
}

fn own_problem(fate: &Fate, n_expected: u64) -> Option<String> {
    let Fate { host, is_dead, told, .. } = fate;
    if *is_dead {
        return None;
    }
    let place = told.place.as_ref().filter(|_| told.ending.is_some())?;
    match &told.ending {
        // Who asks to be let in just when all is over can only be told so.
        Some(Ending::Failed(_)) if is_untrained(fate) => None,
        Some(Ending::Failed(problem)) => Some(format!("{host} failed: {problem}")),
        // Who stands by holds nothing, and knows only that the others are done.
        Some(Ending::Finished) if told.holds_nothing() => None,
        Some(Ending::Finished) => {
            let (epoch, n_samples) = (place.ledger.epoch, place.version.n_samples);
            let is_whole = epoch == EPOCHS && n_samples == n_expected;
            (!is_whole).then(|| format!("{host} finished after {epoch} epochs and {n_samples} samples"))
        }
        Some(Ending::Left) | None => None,
    }
}
