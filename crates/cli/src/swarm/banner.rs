//! The beginning of a swarm's run, as people are told of it.

use std::path::Path;

use indicatif::HumanCount;
use nettorrent_engine::job::{GroupSpec, Groups, LayersSpec};
use nettorrent_session::live_log::Topology;
use nettorrent_session::{StartPoint, Training};

use super::progress_view::ProgressView;

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

/// Tells people what is trained, by whom and from where on.
pub(crate) fn announce(training: &Training, run: &Path, start: &StartPoint, view: &ProgressView) {
    let Training { job, task, .. } = training;
    let (s, strategy) = (if job.threads == 1 { "" } else { "s" }, &job.swarm.strategy);
    let peers = match view.topology() {
        Topology::Alone => format!("{} thread{s}", job.threads),
        Topology::Local(1) => format!("1 peer by {strategy}, {} thread{s}", job.threads),
        Topology::Local(n_peers) => format!("{n_peers} peers by {strategy}, {} thread{s} each", job.threads),
        Topology::OneOfMany => format!("with others by {strategy}, {} thread{s} here", job.threads),
    };
    view.say(&format!(
        "{} with {} parameters on {} samples, {peers}; the run is in {}",
        job.model,
        HumanCount(task.n_params() as u64),
        HumanCount((task.labels().len() - start.n_left_out) as u64),
        run.display()
    ));
    let layers = job.layers.as_ref().filter(|_| !training.is_alone());
    if let Some(LayersSpec { groups: Groups::Given(groups), in_flight, .. }) = layers {
        let in_flight = match in_flight {
            _ if groups.len() == 1 => String::new(),
            1 => "; 1 batch in flight".to_owned(),
            n => format!("; {n} batches in flight"),
        };
        view.say(&format!("{}{in_flight}.", layers_text(groups)));
    }
    if start.place.step > 0 {
        view.say(&format!("Going on after step {}.", start.place.step));
    }
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
