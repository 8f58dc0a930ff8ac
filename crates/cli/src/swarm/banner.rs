//! The beginning of a swarm's run, as people are told of it.

use std::path::Path;

use indicatif::HumanCount;
use nettorrent_engine::job::{PipelineSpec, StageSpec, Stages};
use nettorrent_session::live_log::Topology;
use nettorrent_session::{StartPoint, Training};

use super::progress_view::ProgressView;

/// `Layers are shared out: 0 to 2 on a grid of 2x4, 3 to 7 on one peer`.
fn layers_text(stages: &[StageSpec]) -> String {
    let mut first = 0;
    let each = stages.iter().map(|StageSpec { layers, batch_shards, tensor_shards }| {
        let last = first + layers - 1;
        let which = if last == first { first.to_string() } else { format!("{first} to {last}") };
        first += layers;
        let whose = if batch_shards * tensor_shards == 1 {
            "one peer".to_owned()
        } else {
            format!("a grid of {batch_shards}x{tensor_shards}")
        };
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
    let pipeline = job.pipeline.as_ref().filter(|_| !training.is_alone());
    if let Some(PipelineSpec { stages: Stages::Given(stages), in_flight, .. }) = pipeline {
        let in_flight = match in_flight {
            _ if stages.len() == 1 => String::new(),
            1 => "; 1 batch in flight".to_owned(),
            n => format!("; {n} batches in flight"),
        };
        view.say(&format!("{}{in_flight}.", layers_text(stages)));
    }
    if start.place.step > 0 {
        view.say(&format!("Going on after step {}.", start.place.step));
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::StageSpec;

    use super::layers_text;

    #[test]
    fn who_has_which_layers_is_said() {
        let stages = [(3, 2, 4), (1, 1, 1), (2, 1, 2)].map(|(layers, batch_shards, tensor_shards)| StageSpec {
            layers,
            batch_shards,
            tensor_shards,
        });
        let text = "Layers are shared out: 0 to 2 on a grid of 2x4, 3 on one peer, 4 to 5 on a grid of 1x2";
        assert_eq!(layers_text(&stages), text);
    }
}
