//! The options of `launch` for clusters: what starts peers that share a folder.

use anyhow::bail;
use clap::Args;
use nettorrent_launch::{Mpi, Scheduler, Slurm, SlurmOptions};

/// How a batch system is asked for peers.
#[derive(Args)]
#[command(next_help_heading = "Slurm")]
pub(super) struct SlurmArguments {
    /// Submit a batch job with a peer a node. It leaves with checkpoints before its time is up, and goes on when it is requeued. The run's
    /// folder has to be on a file system that all nodes share.
    #[arg(long)]
    slurm: bool,
    /// Peers a node: as many as it has GPUs, where each peer is to use one [default: 1].
    #[arg(long, value_name = "N", requires = "slurm", value_parser = clap::value_parser!(u64).range(1..=256))]
    tasks_per_node: Option<u64>,
    /// The job's time limit, such as 30:00 or 1-12:00:00 [default: the partition's].
    #[arg(long, value_name = "TIME", requires = "slurm")]
    time: Option<String>,
    /// The partition in which it is to run [default: the cluster's].
    #[arg(long, value_name = "NAME", requires = "slurm")]
    partition: Option<String>,
    /// Another option for sbatch, such as `--sbatch-option=--account=lab`; may be given several times.
    #[arg(long, value_name = "OPTION", requires = "slurm", allow_hyphen_values = true)]
    sbatch_option: Vec<String>,
}

/// How MPI is asked for peers.
#[derive(Args)]
#[command(next_help_heading = "MPI")]
pub(super) struct MpiArguments {
    /// Start a peer a rank with mpirun. The run's folder has to be on a file system that all ranks share.
    #[arg(long)]
    mpi: bool,
    /// The command that starts ranks; it is called with `-n N` and what to run [default: mpirun].
    #[arg(long, value_name = "COMMAND", requires = "mpi")]
    mpi_command: Option<String>,
}

/// What starts peers that share a folder, and how many, if that is asked for.
pub(super) fn scheduler(
    slurm: &SlurmArguments,
    mpi: &MpiArguments,
    (n_nodes, n_peers): (Option<u64>, Option<u64>),
) -> anyhow::Result<Option<(Box<dyn Scheduler>, usize)>> {
    if slurm.slurm {
        let Some(n_nodes) = n_nodes else { bail!("say with --nodes N how many nodes the job is to have") };
        let (n_nodes, tasks_per_node) = (n_nodes as usize, slurm.tasks_per_node.unwrap_or(1) as usize);
        let (time, partition, options) = (slurm.time.clone(), slurm.partition.clone(), slurm.sbatch_option.clone());
        let job = SlurmOptions { n_nodes, tasks_per_node, time, partition, options };
        return Ok(Some((Box::new(Slurm::new(job)), n_nodes * tasks_per_node)));
    }
    if mpi.mpi {
        let Some(n_peers) = n_peers else { bail!("say with --peers N how many ranks there are to be") };
        let command = mpi.mpi_command.as_deref().unwrap_or("mpirun");
        return Ok(Some((Box::new(Mpi::new(command)?), n_peers as usize)));
    }
    Ok(None)
}
