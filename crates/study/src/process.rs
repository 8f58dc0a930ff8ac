//! A process of the program: started, waited for, and asked to stop.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether the process is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a process that was asked to stop may take to save what it has.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many of the last lines of what it complains of are kept.
const MOST_LINES: usize = 20;

/// How a process came to its end.
pub(crate) enum Ending {
    /// By itself.
    Ended(ExitStatus),
    /// It took too long, and was asked to.
    TimedOut,
    /// Somebody wanted it to.
    Stopped,
}

/// What a process left behind.
pub(crate) struct Ended {
    pub ending: Ending,
    pub stdout: String,
    /// The last lines of what it complained of.
    pub complaints: Vec<String>,
}

/// Runs a process to its end. It is asked to stop when its time is over, or when `look`, which is called often, says so.
pub(crate) fn run(
    command: &mut Command,
    timeout: Option<Duration>,
    look: &mut dyn FnMut() -> Wish,
) -> std::io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C goes to all processes of a terminal; this one is to hear of it from us, once.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let began = Instant::now();
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (sender, silent) = channel::<()>();
    let output = thread::spawn(move || {
        let mut text = Vec::new();
        // A process that is gone has said all it had to say.
        let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut text));
        drop(sender);
        text
    });
    let complaints = thread::spawn(move || stderr.map(last_lines).unwrap_or_default());
    let mut wanted = None;
    while let Err(RecvTimeoutError::Timeout) = silent.recv_timeout(LOOK_EVERY) {
        let is_late = timeout.is_some_and(|timeout| began.elapsed() > timeout);
        if wanted.is_none() && (look() == Wish::Stop || is_late) {
            wanted = Some((if is_late { Ending::TimedOut } else { Ending::Stopped }, Instant::now()));
            ask_to_stop(&mut child);
        }
        if wanted.as_ref().is_some_and(|(_, since)| since.elapsed() > PATIENCE) {
            child.kill()?;
        }
    }
    let status = child.wait()?;
    let text = output.join().expect("reading does not panic");
    Ok(Ended {
        ending: wanted.map_or(Ending::Ended(status), |(ending, _)| ending),
        stdout: String::from_utf8_lossy(&text).into_owned(),
        complaints: complaints.join().expect("reading does not panic"),
    })
}

/// What whoever looks wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    GoOn,
    Stop,
}

fn last_lines(source: impl Read) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(source).lines().map_while(Result::ok) {
        if lines.len() == MOST_LINES {
            lines.remove(0);
        }
        lines.push(line);
    }
    lines
}

/// As Ctrl-C would: then it saves, and takes its own processes with it. But by the signal that a shell does not have its
/// background jobs ignore.
#[cfg(unix)]
fn ask_to_stop(child: &mut Child) {
    // It is our child that was not waited for, so the number is still its own. If it is gone by itself, all is well.
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
}

/// Elsewhere there is no way to ask.
#[cfg(not(unix))]
fn ask_to_stop(child: &mut Child) {
    let _ = child.kill();
}

impl Ended {
    /// Why it failed, if it did not end well by itself.
    pub(crate) fn problem(&self) -> Option<String> {
        let Ending::Ended(status) = &self.ending else { return None };
        if status.success() {
            return None;
        }
        let error = self.complaints.iter().rev().find_map(|line| line.strip_prefix("error: "));
        let line = error.or(self.complaints.last().map(String::as_str));
        Some(line.map_or_else(|| status.to_string(), str::to_owned))
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Ending, Wish, run};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_went_wrong_is_told() {
        let ended = run(
            &mut shell("echo out; echo first >&2; echo 'error: no luck' >&2; echo more >&2; exit 3"),
            None,
            &mut || Wish::GoOn,
        );
        let ended = ended.unwrap();
        assert_eq!((ended.problem().as_deref(), ended.stdout.as_str()), (Some("no luck"), "out\n"));
        let ended = run(&mut shell("exit 3"), None, &mut || Wish::GoOn).unwrap();
        assert!(ended.problem().unwrap().contains('3'));
        assert_eq!(run(&mut shell("echo hm >&2"), None, &mut || Wish::GoOn).unwrap().problem(), None);
    }

    #[test]
    fn a_process_is_asked_to_stop_when_somebody_wants_it_or_its_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let patient = "trap 'echo stopped; exit 0' TERM; touch \"$0\"; while :; do sleep 0.05; done";
        let mut command = shell(patient);
        let mut look = || if ready.exists() { Wish::Stop } else { Wish::GoOn };
        let ended = run(command.arg(&ready), None, &mut look).unwrap();
        assert!(matches!(ended.ending, Ending::Stopped));
        assert_eq!((ended.stdout.as_str(), ended.problem()), ("stopped\n", None));
        let ended = run(command.arg(&ready), Some(Duration::ZERO), &mut || Wish::GoOn).unwrap();
        assert!(matches!(ended.ending, Ending::TimedOut));
    }
}
