//! The beginning of a swarm's run, as people and programs are told of it.

use indicatif::HumanCount;
use nettorrent_engine::task::Task;
use nettorrent_swarm::Place;

use super::board::{Board, Company};
use super::material::Material;
use crate::events::Event;
use crate::run_folder::RunFolder;

/// What begins.
pub(crate) struct Announcement<'a> {
    pub material: &'a Material,
    pub run: &'a RunFolder,
    /// Where it goes on from.
    pub place: &'a Place,
}

/// Tells people what is trained, by whom and from where on, and writes it down.
pub(crate) fn announce(announcement: &Announcement<'_>, board: &mut Board) -> anyhow::Result<()> {
    let Announcement { material, run, place } = *announcement;
    let (epoch, step) = (place.ledger.epoch, place.step);
    let Material { job, learning, .. } = material;
    let (n_params, n_train, n_test) = (learning.n_params(), learning.labels().len(), learning.n_test());
    let (s, strategy) = (if job.threads == 1 { "" } else { "s" }, &job.swarm.strategy);
    let company = match board.company() {
        Company::Processes(1) => format!("1 peer by {strategy}, {} thread{s}", job.threads),
        Company::Processes(n_peers) => format!("{n_peers} peers by {strategy}, {} thread{s} each", job.threads),
        Company::OneOfMany => format!("with others by {strategy}, {} thread{s} here", job.threads),
    };
    board.say(&format!(
        "{} with {} parameters on {} samples, {company}; the run is in {}",
        job.model,
        HumanCount(n_params as u64),
        HumanCount(n_train as u64),
        run.path().display()
    ));
    if step > 0 {
        board.say(&format!("Going on after step {step}."));
    }
    board.write(&Event::Start {
        run: run.path(),
        model: &job.model,
        n_params,
        n_train,
        n_test,
        threads: job.threads,
        seed: job.seed,
        epoch,
        step,
        version: env!("CARGO_PKG_VERSION"),
    })
}
