//! What a host is asked to do, as scripts for a POSIX shell.

use shell_words::quote;

use crate::hosts::Host;
use crate::package::{JOB_FILE, Package};

/// A run's folder at any host, as a word of a script.
fn run_folder(run: &str) -> String {
    format!("\"$HOME\"/nettorrent/{}", quote(run))
}

/// A peer's folder at its host, as a word of a script.
pub(crate) fn folder(run: &str, k: usize) -> String {
    run_folder(&format!("{run}/peer-{k}"))
}

/// Removes all that a run has left at a host.
pub(crate) fn remove(run: &str) -> String {
    format!("rm -rf {}", run_folder(run))
}

/// A peer at its host. When its input ends, it is told to leave.
pub(crate) struct Peer<'a> {
    /// Its folder, as a word of a script.
    pub folder: &'a str,
    /// The program, as a word of a script.
    pub program: &'a str,
    pub host: &'a Host,
    pub package: &'a Package,
    /// What it sends as slowly as over.
    pub link: Option<&'a str>,
}

impl Peer<'_> {
    /// It trains by itself.
    pub(crate) fn train(&self) -> String {
        let words = [vec!["train".to_owned(), JOB_FILE.to_owned()], self.of_process(None)].concat();
        self.script("", &words)
    }

    /// It starts the swarm of so many.
    pub(crate) fn start(&self, n_peers: usize) -> String {
        let words = ["start", JOB_FILE, "--wait-for", &n_peers.to_string()].map(String::from).to_vec();
        self.script("", &[words, self.of_process(None), self.of_network()].concat())
    }

    /// It joins. The first line of its input is the ticket.
    pub(crate) fn join(&self) -> String {
        let mut words = vec!["join".to_owned()];
        words.extend(self.package.python.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
        let data = self.package.data.as_ref().map(|path| path.display().to_string());
        let ticket = "IFS= read -r NETTORRENT_TICKET\nexport NETTORRENT_TICKET\n";
        self.script(ticket, &[words, self.of_process(data), self.of_network()].concat())
    }

    /// `data` is where the data is unless the host says otherwise.
    fn of_process(&self, data: Option<String>) -> Vec<String> {
        let mut words = ["--run", "run", "--json"].map(String::from).to_vec();
        add(&mut words, "--data", self.host.data.clone().or(data));
        add(&mut words, "--threads", self.host.threads.map(|threads| threads.to_string()));
        words
    }

    fn of_network(&self) -> Vec<String> {
        let mut words = Vec::new();
        add(&mut words, "--address", self.host.address.clone());
        add(&mut words, "--listen", self.host.listen.clone());
        add(&mut words, "--link", self.link.map(str::to_owned));
        words
    }

    /// Writes the files and runs the program until it ends, or until our input does: then it is told to leave.
    fn script(&self, first: &str, words: &[String]) -> String {
        let Self { folder, program, package, .. } = self;
        let write = |(name, text): &(String, String)| format!("printf %s {} > {}\n", quote(text), quote(name));
        let files: String = package.files.iter().map(write).collect();
        let command = format!("{program} {}", shell_words::join(words));
        format!(
            "set -eu\nmkdir -p {folder}\ncd {folder}\n{files}{first}exec 3<&0\n{command} </dev/null 3<&- &\npid=$!\n{{ cat <&3; kill -TERM \
             $pid; }} >/dev/null 2>&1 &\nwatch=$!\nstatus=0\nwait $pid || status=$?\nkill $watch 2>/dev/null || true\nexit $status"
        )
    }
}

fn add(words: &mut Vec<String>, name: &str, value: Option<String>) {
    words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
}

/// The newest checkpoint of a peer's run and what belongs to it, as an archive.
pub(crate) fn archive(folder: &str) -> String {
    // Numbers of steps are padded, so the last by name is the newest.
    format!(
        "set -eu\ncd {folder}/run\nset --\nfor name in checkpoints/step-*; do newest=$name; done\nfor name in \"$newest\" model.toml \
         tokenizer.json; do\n    if [ -e \"$name\" ]; then set -- \"$@\" \"$name\"; fi\ndone\nexec tar -cf - \"$@\""
    )
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;

    use super::{Peer, archive, folder, remove};
    use crate::hosts::Host;
    use crate::package::Package;

    #[test]
    fn no_word_of_a_host_or_job_is_taken_for_a_command() {
        let mut job = Job::parse("a job", "", &[]).unwrap();
        job.model = "mlp:8'; touch hacked; '".to_owned();
        let package = Package::new(&job).unwrap();
        let host = Host { name: "lab".into(), data: Some("/a b; touch hacked".into()), ..Host::default() };
        let temporary = tempfile::tempdir().unwrap();
        let run = |script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).env("HOME", temporary.path()).stdin(std::process::Stdio::null());
            // The joiner finds no ticket; what comes before is what counts.
            let _ = command.output().unwrap();
        };
        let folder = folder("it's a run", 0);
        let peer = Peer { folder: &folder, program: "echo", host: &host, package: &package, link: Some("1mbit; ls") };
        for script in [peer.train(), peer.start(2), peer.join()] {
            run(&script);
            let written = temporary.path().join("nettorrent/it's a run/peer-0");
            let text = std::fs::read_to_string(written.join("job.toml")).unwrap();
            assert!(text.contains("touch hacked"), "{text}");
            assert!(!written.join("hacked").exists() && !temporary.path().join("hacked").exists());
        }
        assert!(archive(&folder).contains("tar -cf"));
        run(&remove("it's a run"));
        assert!(
            temporary.path().join("nettorrent").is_dir() && !temporary.path().join("nettorrent/it's a run").exists()
        );
    }
}
