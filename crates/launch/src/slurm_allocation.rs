//! The nodes of the Slurm allocation that this process runs in, and what reaches them.

use std::env;

use crate::error::LaunchError;
use crate::hosts::Host;
use crate::shell::Shell;
use crate::slurm::{run, said};

/// Has a node run a line as a step of its own, beside all others. What the allocation's tasks were to be like, it is not to be.
const STEP: &str = "unset SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE; \
                    exec srun --overlap --cpu-bind=none --nodes=1 --ntasks=1 --nodelist=\"$1\" sh -c \"$2\"";

/// A Slurm allocation, from within.
#[derive(Debug)]
pub struct SlurmAllocation {
    /// Its nodes: each once, or as often as `--ntasks-per-node` said, and its processors are divided then.
    pub hosts: Vec<Host>,
    /// What reaches them.
    pub shell: Shell,
}

impl SlurmAllocation {
    /// The one that this process is in.
    pub fn of_this_process() -> Result<Self, LaunchError> {
        let nodes = env::var("SLURM_JOB_NODELIST").map_err(|_| LaunchError::NoAllocation)?;
        let output = run("scontrol", &["show", "hostnames", &nodes])?;
        if !output.status.success() {
            return Err(LaunchError::host("scontrol", said(&output)));
        }
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let variable = |name| env::var(name).unwrap_or_default();
        let n_tasks = variable("SLURM_NTASKS_PER_NODE").parse().unwrap_or(1);
        Ok(Self {
            hosts: hosts(names.split_whitespace(), n_tasks, &counts(&variable("SLURM_JOB_CPUS_PER_NODE"))),
            shell: Shell::of_words(["sh", "-c", STEP, "srun"].map(String::from).to_vec()),
        })
    }
}

fn hosts<'a>(names: impl Iterator<Item = &'a str>, n_tasks: usize, n_cpus: &[usize]) -> Vec<Host> {
    let of_node = |(k, name): (usize, &str)| {
        let threads = n_cpus.get(k).filter(|_| n_tasks > 1).map(|n_cpus| (n_cpus / n_tasks).max(1));
        let host = Host { name: name.to_owned(), threads, ..Host::default() };
        std::iter::repeat_n(host, n_tasks)
    };
    names.enumerate().flat_map(of_node).collect()
}

/// Slurm's lists of one number a node: `16(x2),8` is 16, 16 and 8.
fn counts(list: &str) -> Vec<usize> {
    let of_part = |part: &str| {
        let (count, times) = part.split_once("(x").unwrap_or((part, "1)"));
        Some(std::iter::repeat_n(count.parse().ok()?, times.strip_suffix(')')?.parse().ok()?))
    };
    list.split(',').filter_map(of_part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{counts, hosts};

    #[test]
    fn a_node_has_as_many_peers_as_it_was_to_have_tasks() {
        assert_eq!(counts("16(x2),8"), [16, 16, 8]);
        assert!(counts("").is_empty() && counts("many(x2),3(x").is_empty());
        let found = |n_tasks| -> Vec<(String, Option<usize>)> {
            let hosts = hosts(["a", "b"].into_iter(), n_tasks, &[16, 1]);
            hosts.into_iter().map(|host| (host.name, host.threads)).collect()
        };
        assert_eq!(found(1), [("a".to_owned(), None), ("b".to_owned(), None)]);
        let [a, b] = [("a".to_owned(), Some(8)), ("b".to_owned(), Some(1))];
        assert_eq!(found(2), [a.clone(), a, b.clone(), b]);
    }
}
