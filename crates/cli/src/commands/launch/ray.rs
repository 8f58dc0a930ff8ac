//! The options of `launch` for Ray.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use nettorrent_launch::Ray;

/// How a Ray cluster is asked for peers.
#[derive(Args)]
#[command(next_help_heading = "Ray")]
pub(super) struct RayArguments {
    /// Start a peer on each node of a Ray cluster, in an actor. It takes a Python that has Ray here, `python3` or what NETTORRENT_PYTHON
    /// names; nodes need only Ray.
    #[arg(long)]
    ray: bool,
    /// Where the cluster is, as `ray.init` takes it [default: the one that this machine belongs to].
    #[arg(long, value_name = "ADDRESS", requires = "ray")]
    address: Option<String>,
    /// The GPUs of each peer, for models in Python.
    #[arg(long, value_name = "N", requires = "ray", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1024))]
    gpus: u64,
}

impl RayArguments {
    /// The cluster, if it is asked for.
    pub(super) fn cluster(&self, n_nodes: Option<u64>, n_cpus: Option<u64>) -> Option<Ray> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.ray.then(|| Ray {
            address: self.address.clone().unwrap_or_else(|| "auto".to_owned()),
            n_peers: n_nodes.map(|n| n as usize),
            n_cpus: n_cpus.map(|n| n as usize),
            n_gpus: self.gpus as usize,
            group: format!("nettorrent-{}-{}", now.as_millis(), std::process::id()),
        })
    }
}
