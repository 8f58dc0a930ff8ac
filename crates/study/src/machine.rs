//! The machine that a study runs on, as far as it tells.

use std::num::NonZero;

use crate::results::Machine;

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            n_cores: std::thread::available_parallelism().map_or(1, NonZero::get),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal").and_then(|text| kilobytes(&text)),
            system: match read("/proc/sys/kernel/osrelease").trim() {
                "" => std::env::consts::OS.to_owned(),
                release => format!("{} {release}", std::env::consts::OS),
            },
        }
    }
}

/// What stands after `name :` in the first line that begins so.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kilobytes(text: &str) -> Option<u64> {
    let number: u64 = text.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Machine, field, kilobytes};

    #[test]
    fn the_kernels_files_are_understood() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(field("MemTotal:  16 kB\n", "MemTotal").as_deref().and_then(kilobytes), Some(16384));
        assert_eq!(field("", "MemTotal"), None);
    }

    #[test]
    fn every_machine_has_a_core_and_a_name() {
        let machine = Machine::here();
        assert!(machine.n_cores > 0 && !machine.cpu.is_empty() && !machine.system.is_empty());
    }
}
