//! The options of `launch` for Kubernetes, and what is said when its objects are there.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_launch::{Kubernetes, Package};
use nettorrent_net::ticket::Secret;

use crate::output::say_line;

/// How Kubernetes is asked for peers.
#[derive(Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct KubernetesArguments {
    /// Have kubectl apply the manifests of a swarm with a pod a peer. They are named after --run, or after the model; what happens is in the
    /// pods' logs, and the run stays in the pods. --dry-run prints the manifests, with a new secret.
    #[arg(long, conflicts_with_all = ["copy", "json", "dashboard", "metrics", "threads"])]
    k8s: bool,
    /// The container image with the program and a shell, such as one that was built from deploy/Containerfile.
    #[arg(long, value_name = "IMAGE", requires = "k8s")]
    image: Option<String>,
    /// The namespace [default: kubectl's].
    #[arg(long, value_name = "NAME", requires = "k8s")]
    namespace: Option<String>,
    /// The memory that a pod asks for, and its limit [default: 1Gi].
    #[arg(long, value_name = "QUANTITY", requires = "k8s")]
    memory: Option<String>,
    /// The size of a pod's volume, for its run and its data [default: 5Gi].
    #[arg(long, value_name = "QUANTITY", requires = "k8s")]
    storage: Option<String>,
}

impl KubernetesArguments {
    /// Whether it is asked at all.
    pub(super) fn is_asked(&self) -> bool {
        self.k8s
    }

    /// The swarm that is wanted, under a name that comes of this.
    pub(super) fn swarm(&self, name: &str, n_peers: Option<u64>, n_cpus: Option<u64>) -> anyhow::Result<Kubernetes> {
        let Some(n_peers) = n_peers else { bail!("say with --peers N how many pods there are to be") };
        let image = self.image.clone().context("say with --image IMAGE which container image has the program")?;
        let or = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
        Ok(Kubernetes {
            name: Kubernetes::name_of(name),
            n_peers: n_peers as usize,
            image,
            namespace: self.namespace.clone(),
            n_cpus: n_cpus.unwrap_or(1) as usize,
            memory: or(&self.memory, "1Gi"),
            storage: or(&self.storage, "5Gi"),
            secret: Secret::random_text().to_string(),
        })
    }
}

/// Has the swarm's objects made, and says how to go on.
pub(super) fn apply(swarm: &Kubernetes, package: &Package) -> anyhow::Result<ExitCode> {
    // The pods are there, whether or not that can be written here.
    swarm.apply(package)?.lines().for_each(say_line);
    say_line(&format!("{} pods are to train. Go on with:", swarm.n_peers));
    for (purpose, command) in swarm.next_commands() {
        say_line(&format!("  {command}    # {purpose}"));
    }
    Ok(ExitCode::SUCCESS)
}
