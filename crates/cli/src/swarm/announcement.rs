//! The beginning of a swarm's run, as people and programs are told of it.

use indicatif::HumanCount;
use nettorrent_engine::task::Task;
use nettorrent_history::{Event, Start};
use nettorrent_swarm::Place;

use super::board::{Board, Company};
use super::material::Material;
use crate::run_folder::RunFolder;

/// What begins.
pub(crate) struct Announcement<'a> {
    pub material: &'a Material,
    pub run: &'a RunFolder,
    /// Where it goes on from.
    pub place: &'a Place,
    /// How the links are shaped, if they are.
    pub link: Option<&'a str>,
}

/// Tells people what is trained, by whom and from where on, and writes it down.
pub(crate) fn announce(announcement: &Announcement<'_>, board: &mut Board) -> anyhow::Result<()> {
    let Announcement { material, run, place, link } = *announcement;
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
    let n_peers = match board.company() {
        Company::Processes(n_peers) => Some(n_peers),
        Company::OneOfMany => None,
    };
    Ok(board.write(Event::Start(Start {
        run: run.path().to_owned(),
        model: job.model.clone(),
        n_params,
        n_train,
        n_test,
        threads: job.threads,
        seed: job.seed,
        strategy: Some(strategy.clone()),
        n_peers,
        link: link.map(str::to_owned),
        epochs: job.epochs,
        epoch,
        step,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }))?)
}
