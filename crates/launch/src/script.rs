//! What a host is asked to do, as scripts for a POSIX shell.

use shell_words::quote;

use crate::hosts::Host;
use crate::package::{JOB_FILE, Package};

/// A peer's folder at its host, as a word of a script.
pub(crate) fn folder(run: &str, k: usize) -> String {
    format!("\"$HOME\"/nettorrent/{}", quote(&format!("{run}/peer-{k}")))
}

/// The peer that starts the swarm of so many. When its input ends, it is told to leave.
pub(crate) fn start(folder: &str, program: &str, host: &Host, package: &Package, n_peers: usize) -> String {
    let mut words = vec!["start".to_owned(), JOB_FILE.to_owned()];
    words.extend(["--wait-for".to_owned(), n_peers.to_string()]);
    words.extend(of_host(host, None));
    script(folder, package, "", &command(program, &words))
}

/// A peer that joins. The first line of its input is the ticket.
pub(crate) fn join(folder: &str, program: &str, host: &Host, package: &Package) -> String {
    let mut words = vec!["join".to_owned()];
    words.extend(package.python.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
    let data = package.data.as_ref().map(|path| path.display().to_string());
    words.extend(of_host(host, data));
    let ticket = "IFS= read -r NETTORRENT_TICKET\nexport NETTORRENT_TICKET\n";
    script(folder, package, ticket, &command(program, &words))
}

/// The newest checkpoint of a peer's run and what belongs to it, as an archive.
pub(crate) fn archive(folder: &str) -> String {
    // Numbers of steps are padded, so the last by name is the newest.
    format!(
        "set -eu\ncd {folder}/run\nset --\nfor name in checkpoints/step-*; do newest=$name; done\nfor name in \"$newest\" model.toml \
         tokenizer.json; do\n    if [ -e \"$name\" ]; then set -- \"$@\" \"$name\"; fi\ndone\nexec tar -cf - \"$@\""
    )
}

/// What is special about a host, as arguments; `data` is where the data is unless the host says otherwise.
fn of_host(host: &Host, data: Option<String>) -> Vec<String> {
    let mut words = ["--run", "run", "--json"].map(String::from).to_vec();
    let mut add =
        |name: &str, value: Option<String>| words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    add("--data", host.data.clone().or(data));
    add("--threads", host.threads.map(|threads| threads.to_string()));
    add("--address", host.address.clone());
    add("--listen", host.listen.clone());
    words
}

fn command(program: &str, words: &[String]) -> String {
    format!("{program} {}", shell_words::join(words))
}

/// Writes the files and runs a command until it ends, or until our input does: then it is told to leave.
fn script(folder: &str, package: &Package, first: &str, command: &str) -> String {
    let write = |(name, text): &(String, String)| format!("printf %s {} > {}\n", quote(text), quote(name));
    let files: String = package.files.iter().map(write).collect();
    format!(
        "set -eu\nmkdir -p {folder}\ncd {folder}\n{files}{first}exec 3<&0\n{command} </dev/null 3<&- &\npid=$!\n{{ cat <&3; kill -TERM $pid; }} \
         >/dev/null 2>&1 &\nwatch=$!\nstatus=0\nwait $pid || status=$?\nkill $watch 2>/dev/null || true\nexit $status"
    )
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;

    use super::{archive, folder, join, start};
    use crate::hosts::Host;
    use crate::package::Package;

    #[test]
    fn no_word_of_a_host_or_job_is_taken_for_a_command() {
        let mut job = Job::parse("a job", "", &[]).unwrap();
        job.model = "mlp:8'; touch hacked; '".to_owned();
        let package = Package::new(&job).unwrap();
        let host = Host { name: "lab".into(), data: Some("/a b; touch hacked".into()), ..Host::default() };
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder("it's a run", 0);
        for script in [start(&folder, "echo", &host, &package, 2), join(&folder, "echo", &host, &package)] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &script]).env("HOME", temporary.path()).stdin(std::process::Stdio::null());
            // The joiner finds no ticket; what comes before is what counts.
            let _ = command.output().unwrap();
            let written = temporary.path().join("nettorrent/it's a run/peer-0");
            let text = std::fs::read_to_string(written.join("job.toml")).unwrap();
            assert!(text.contains("touch hacked"), "{text}");
            assert!(!written.join("hacked").exists() && !temporary.path().join("hacked").exists());
        }
        assert!(archive(&folder).contains("tar -cf"));
    }
}
