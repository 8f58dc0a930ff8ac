//! What must hold in every world, whatever happened in it.

use std::collections::BTreeMap;

use nettorrent_engine::checkpoint::{MODEL_FILE, load_weights, verify};
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{RunFolder, StartState, Training};
use nettorrent_swarm::Place;

use crate::network::Host;
use crate::plan::Plan;
use crate::process::Fate;
use crate::training::EPOCHS;
use crate::world::Outcome;

/// What a process has on its disk.
struct Saved {
    place: Place,
    model: Vec<u32>,
}

/// Says what is wrong with an outcome; nothing if all is well.
pub fn violations(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let fates = &outcome.fates;
    let mut problems: Vec<String> = fates.iter().filter_map(|fate| own_problem(plan, fate)).collect();
    let finished = || fates.iter().filter(|fate| has_finished(fate));
    // Who says that it has finished and writes has all of it on its disk, and so has everybody the same. Only who was parted from the
    // others to the end may have trained on by itself.
    let mut models: BTreeMap<u32, (Host, Vec<u32>)> = BTreeMap::new();
    for fate in finished().filter(|fate| fate.told.is_writer) {
        let host = fate.host;
        let Saved { place, model } = match saved(fate, &outcome.training) {
            Ok(saved) => saved,
            Err(problem) => {
                problems.push(format!("{host} says it has finished, and its disk says: {problem}"));
                continue;
            }
        };
        let (epoch, n_samples) = (place.ledger.epoch, place.version.n_samples);
        if (epoch, n_samples) != (EPOCHS, outcome.n_samples) {
            problems.push(format!("{host} finished after {epoch} epochs and {n_samples} samples"));
        }
        let (first, others) = models.entry(fate.told.view).or_insert_with(|| (host, model.clone()));
        if *others != model {
            problems.push(format!("{first} and {host} finished with different models"));
        }
    }
    // Of a pipeline only one has the whole. If its disk fails, another has it.
    if finished().next().is_some() && !finished().any(|fate| fate.told.is_writer) {
        problems.push("all who finished hold nothing".to_owned());
    }
    // Who joins is to take over what the others have, and not to train all of it once more.
    let stranger = |fate: &&Fate| fate.host >= plan.n_peers && !fate.told.has_met_others;
    problems.extend(
        finished().filter(stranger).map(|fate| format!("{} finished without ever having met anybody", fate.host)),
    );
    // Every world has samples to test with, and a test of none of them is no result.
    let has_made_up = |fate: &&Fate| !fate.told.untested.is_empty();
    let made_up = finished().filter(has_made_up);
    problems.extend(
        made_up.map(|fate| format!("{} tells of epochs that nobody tested: {:?}", fate.host, fate.told.untested)),
    );
    problems.extend(hung(plan, fates));
    let is_spoilt = |host: Host| plan.spoilt.iter().any(|hosts| hosts.contains(&host)) || plan.has_disk_fault(host);
    let has_left = |fate: &&Fate| fate.told.ending == Some(Ending::Left) || fate.told.not_admitted.is_some();
    let came_late = |fate: &&Fate| matches!(fate.told.ending, Some(Ending::Failed(_))) && is_untrained(fate);
    let is_able = |fate: &&Fate| !fate.is_dead && !is_spoilt(fate.host) && !has_left(fate) && !came_late(fate);
    let mut able = fates.iter().filter(is_able);
    // Where two who are to keep a pipeline's whole cannot, one after the other, what they held of it may be gone.
    let n_bad_disks = fates.iter().filter(|fate| plan.has_disk_fault(fate.host)).count();
    let is_lost = n_bad_disks > 1 && fates.iter().any(|fate| knows_no_end(plan, fate));
    if able.next().is_some() && finished().next().is_none() && !is_lost {
        problems.push("nobody finished".to_owned());
    }
    problems
}

/// Whether its exit code says so.
fn has_finished(fate: &Fate) -> bool {
    fate.told.exit == Some(Ok(Ending::Finished))
}

/// What is on the disk of a process at the step that it has reached.
fn saved(fate: &Fate, training: &Training) -> Result<Saved, String> {
    let run = RunFolder::open(&fate.folder).map_err(|error| error.to_string())?;
    let path = run.checkpoint_path(fate.told.step);
    verify(&path).map_err(|error| error.to_string())?;
    let start = StartState::from_checkpoint(&run, &path, training).map_err(|error| error.to_string())?;
    let values = load_weights(&path.join(MODEL_FILE), training.task.layout()).map_err(|error| error.to_string())?;
    Ok(Saved { place: start.place().clone(), model: values.into_iter().map(f32::to_bits).collect() })
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
    fate.told.step == 0
}

/// Whether all is trained, and whoever keeps a pipeline's whole is gone: whether it is saved is not for this one to know.
fn knows_no_end(plan: &Plan, fate: &Fate) -> bool {
    plan.parallelism.stages.is_some() && fate.told.epoch == EPOCHS
}

/// What is wrong with the end of a process by itself: what it says is what it has.
fn own_problem(plan: &Plan, fate: &Fate) -> Option<String> {
    let Fate { host, is_dead, told, .. } = fate;
    if *is_dead {
        return None;
    }
    match (&told.ending, &told.exit) {
        // Who asks to be let in just when all is over can only be told so.
        (Some(Ending::Failed(_)), Some(_)) if is_untrained(fate) => None,
        (Some(Ending::Failed(problem)), Some(_)) => {
            let is_excused = plan.has_disk_fault(*host) || knows_no_end(plan, fate);
            (!is_excused).then(|| format!("{host} failed: {problem}"))
        }
        (Some(Ending::Finished), Some(Ok(Ending::Finished))) if told.epoch != EPOCHS => {
            Some(format!("{host} finished after {} epochs", told.epoch))
        }
        (_, Some(Err(problem))) if !plan.has_disk_fault(*host) => {
            Some(format!("{host} has a sound disk, and says: {problem}"))
        }
        (Some(ending), Some(Ok(exit))) if ending != exit => Some(format!("{host}: {ending:?} became {exit:?}")),
        _ => None,
    }
}
