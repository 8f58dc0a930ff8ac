//! The beginning of a swarm's run, as people and programs are told of it.

use indicatif::HumanCount;
use nettorrent_engine::job::{GroupSpec, Groups, LayersSpec};
use nettorrent_engine::task::Task;
use nettorrent_history::{Event, Start};
use nettorrent_swarm::Place;

use super::prepared_job::PreparedJob;
use super::progress_view::{ProgressView, Topology};
use crate::run_folder::RunFolder;

/// What begins.
pub(crate) struct Banner<'a> {
    pub prepared: &'a PreparedJob,
    pub run: &'a RunFolder,
    /// Where it goes on from.
    pub place: &'a Place,
    /// How the links are shaped, if they are.
    pub link: Option<&'a str>,
}

/// `Layers are shared out: 0 to 2 on a grid of 2x4, 3 to 7 on one peer`.
fn layers_text(groups: &[GroupSpec]) -> String {
    let mut first = 0;
    let each = groups.iter().map(|GroupSpec { layers, rows, columns }| {
        let last = first + layers - 1;
        let which = if last == first { first.to_string() } else { format!("{first} to {last}") };
        first += layers;
        let whose = if rows * columns == 1 { "one peer".to_owned() } else { format!("a grid of {rows}x{columns}") };
        format!("{which} on {whose}")
    });
    format!("Layers are shared out: {}", each.collect::<Vec<_>>().join(", "))
}

/// Tells people what is trained, by whom and from where on, and writes it down.
pub(crate) fn announce(banner: &Banner<'_>, progress_view: &mut ProgressView) -> anyhow::Result<()> {
    let Banner { prepared, run, place, link } = *banner;
    let (epoch, step) = (place.ledger.epoch, place.step);
    let PreparedJob { job, learning, .. } = prepared;
    let (n_params, n_train, n_test) = (learning.n_params(), learning.labels().len(), learning.n_test());
    let (s, strategy) = (if job.threads == 1 { "" } else { "s" }, &job.swarm.strategy);
    let company = match progress_view.company() {
        Topology::Processes(1) => format!("1 peer by {strategy}, {} thread{s}", job.threads),
        Topology::Processes(n_peers) => format!("{n_peers} peers by {strategy}, {} thread{s} each", job.threads),
        Topology::OneOfMany => format!("with others by {strategy}, {} thread{s} here", job.threads),
    };
    progress_view.say(&format!(
        "{} with {} parameters on {} samples, {company}; the run is in {}",
        job.model,
        HumanCount(n_params as u64),
        HumanCount(n_train as u64),
        run.path().display()
    ));
    if let Some(LayersSpec { groups: Groups::Given(groups), in_flight, .. }) = &job.layers {
        let in_flight = match in_flight {
            _ if groups.len() == 1 => String::new(),
            1 => "; 1 batch in flight".to_owned(),
            n => format!("; {n} batches in flight"),
        };
        progress_view.say(&format!("{}{in_flight}.", layers_text(groups)));
    }
    if step > 0 {
        progress_view.say(&format!("Going on after step {step}."));
    }
    let n_peers = match progress_view.company() {
        Topology::Processes(n_peers) => Some(n_peers),
        Topology::OneOfMany => None,
    };
    progress_view.write(Event::Start(Start {
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
    }))?;
    n_peers.map_or(Ok(()), |n_peers| progress_view.tell_dropped(n_peers))
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::GroupSpec;

    use super::layers_text;

    #[test]
    fn who_has_which_layers_is_said() {
        let groups =
            [(3, 2, 4), (1, 1, 1), (2, 1, 2)].map(|(layers, rows, columns)| GroupSpec { layers, rows, columns });
        let text = "Layers are shared out: 0 to 2 on a grid of 2x4, 3 on one peer, 4 to 5 on a grid of 1x2";
        assert_eq!(layers_text(&groups), text);
    }
}
