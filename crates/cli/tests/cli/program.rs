//! Starts the program, listens to it, sends it signals.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_nettorrent");

/// Nothing listens there: whatever is sent through this proxy fails at once, so no test can reach the network.
const CLOSED_PROXY: &str = "http://127.0.0.1:9";

/// An empty folder to run the program in.
pub(crate) struct Place(TempDir);

/// How a process ended, and what it said.
pub(crate) struct Outcome {
    /// None if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file in the folder, and the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments);
        self.shelter(&mut command);
        command
    }

    /// Makes a command run in this folder and keeps it from the network and the user's own cache.
    pub(crate) fn shelter(&self, command: &mut Command) {
        command.current_dir(self.0.path()).env("NETTORRENT_CACHE", self.path("cache")).env_remove("RUST_BACKTRACE");
        command.env_remove("NETTORRENT_TICKET");
        for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"] {
            command.env(name, CLOSED_PROXY);
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().expect("the program starts"))
    }

    /// Trains a small language model on a text: the run is `text`, and `book.txt` is what it was trained on.
    pub(crate) fn train_text(&self) {
        self.write("book.txt", "To be, or not to be: that is the question.\n".repeat(100));
        let base = ["train", "--model", "gpt:1x16x2", "--data", "book.txt", "--set", "data.length=16"];
        self.succeed(&[&base[..], &["--epochs", "1", "--threads", "1", "--run", "text"]].concat());
    }

    /// Runs it and expects success.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}\n{}{}", outcome.stdout, outcome.stderr);
        outcome
    }

    /// Runs it and expects an error as people should see it; returns what it says.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        let stderr = outcome.stderr;
        assert_eq!(outcome.code, Some(1), "{arguments:?}\n{}{stderr}", outcome.stdout);
        assert!(stderr.starts_with("error: "), "{arguments:?}\n{stderr}");
        stderr
    }

    /// Starts it and leaves it running; its standard output is read line by line.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments))
    }
}

impl Outcome {
    /// Whatever happens, a panic is no answer.
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(!stdout.contains("panicked") && !stderr.contains("panicked"), "{stdout}{stderr}");
        Self { code: output.status.code(), stdout, stderr }
    }

    /// Standard output as one JSON value a line; anything else on it is a failure.
    pub(crate) fn json(&self) -> Vec<Value> {
        json_lines(&self.stdout)
    }
}

/// A process under way; it ends with the test, however the test ends.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts a command.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines }
    }

    /// Reads until a line comes that is wanted.
    pub(crate) fn wait_for_line(&mut self, is_wanted: impl Fn(&str) -> bool) -> String {
        for line in self.lines.by_ref() {
            let line = line.expect("UTF-8");
            if is_wanted(&line) {
                return line;
            }
        }
        let mut stderr = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
        panic!("the program ended before that line came: {stderr}");
    }

    /// Reads events until one of this kind comes.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        let is_wanted = |line: &str| parse(line)["event"] == kind;
        parse(&self.wait_for_line(is_wanted))
    }

    /// Sends these signals, one after the other.
    pub(crate) fn signal(&self, names: &[&str]) {
        // The second signal may come too late to find anybody.
        assert!(signal(self.child.id(), names) || names.len() > 1, "the program had ended before the signal");
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Outcome {
        let stdout: String = self.lines.by_ref().map(|line| line.expect("UTF-8") + "\n").collect();
        let mut stderr = Vec::new();
        self.child.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("a pipe");
        let status = self.child.wait().expect("our own child");
        Outcome::of(Output { status, stdout: stdout.into_bytes(), stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends signals to a process, by way of a shell; whether it was there.
pub(crate) fn signal(pid: u32, names: &[&str]) -> bool {
    let kills: Vec<String> = names.iter().map(|name| format!("kill -{name} {pid}")).collect();
    Command::new("sh").args(["-c", &kills.join("; ")]).status().expect("a shell").success()
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(parse).collect()
}

/// A run's events of one kind.
pub(crate) fn events(run: &Path, kind: &str) -> Vec<Value> {
    all_events(run).into_iter().filter(|event| event["event"] == kind).collect()
}

/// All that a run has told.
pub(crate) fn all_events(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.jsonl")).expect("the run's events");
    assert!(text.ends_with('\n'), "the last line is whole");
    json_lines(&text)
}

/// The folders of a run's checkpoints, oldest first.
pub(crate) fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).expect("the run's checkpoints");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let is_checkpoint = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().starts_with("step-");
    let mut paths: Vec<PathBuf> = paths.filter(is_checkpoint).collect();
    paths.sort();
    paths
}

pub(crate) fn newest_checkpoint(run: &Path) -> PathBuf {
    checkpoints(run).pop().expect("a checkpoint")
}

/// Both files of the newest checkpoint: two runs that end in the same state have the same bytes.
pub(crate) fn final_state(run: &Path) -> (Vec<u8>, Vec<u8>) {
    let read = |name: &str| fs::read(newest_checkpoint(run).join(name)).expect("a checkpoint's file");
    (read("model.safetensors"), read("state.safetensors"))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
