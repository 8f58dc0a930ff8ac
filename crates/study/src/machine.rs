//! The machines that a study runs on, as far as they tell.

use std::num::NonZero;

use nettorrent_launch::{LaunchError, Shell};

use crate::results::Machine;

/// What another machine is asked. Where there is no `/proc`, there is less to tell. `nproc` must not take a wish for a count.
const QUESTION: &str = r#"
echo "arch: $(uname -m)"
echo "cores: $(unset OMP_NUM_THREADS OMP_THREAD_LIMIT; nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"
echo "system: $(uname -s | tr A-Z a-z) $(uname -r)"
cat /proc/cpuinfo /proc/meminfo 2>/dev/null || true
"#;

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
            host: None,
        }
    }

    /// Another one.
    pub(crate) fn at(shell: &Shell, host: &str) -> Result<Self, LaunchError> {
        let answer = shell.run(host, QUESTION, &mut std::io::empty())?;
        Ok(Self { host: Some(host.to_owned()), ..Self::of_answer(&String::from_utf8_lossy(&answer)) })
    }

    fn of_answer(answer: &str) -> Self {
        let arch = || field(answer, "arch");
        Self {
            cpu: field(answer, "model name").or_else(arch).unwrap_or_default(),
            n_cores: field(answer, "cores").and_then(|text| text.parse().ok()).unwrap_or(1),
            memory_bytes: field(answer, "MemTotal").and_then(|text| kilobytes(&text)),
            system: field(answer, "system").unwrap_or_default(),
            host: None,
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
    use super::{Machine, QUESTION, field, kilobytes};

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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_machine_that_is_asked_tells_what_it_finds_itself() {
        let answer = std::process::Command::new("sh").args(["-c", QUESTION]).output().unwrap();
        let (asked, here) = (Machine::of_answer(&String::from_utf8(answer.stdout).unwrap()), Machine::here());
        // How many cores a container may use, it does not know.
        assert!(asked.n_cores >= here.n_cores, "{asked:?}");
        assert_eq!(Machine { n_cores: here.n_cores, ..asked }, here);
        let bare = Machine::of_answer("arch: arm64\ncores: 8\nsystem: darwin 24.1\n");
        assert_eq!((bare.cpu.as_str(), bare.n_cores, bare.memory_bytes), ("arm64", 8, None));
    }
}
