//! The file of hosts: one a line, as ssh takes them, with what is special about each.

use std::path::Path;

use crate::error::LaunchError;

/// A machine on which a peer is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// As ssh takes it: `name`, `user@name`, or an alias of its configuration.
    pub name: String,
    /// Where the program is there; else it is looked for.
    pub program: Option<String>,
    /// Where the data is there, or its name; else what the job says.
    pub data: Option<String>,
    /// Where others reach it, if not at the address from which it calls: `ADDRESS:PORT`.
    pub address: Option<String>,
    /// At which address and port it listens.
    pub listen: Option<String>,
    /// Its number of compute threads.
    pub threads: Option<usize>,
}

/// Reads a file of hosts: `NAME [program=PATH] [data=NAME|PATH] [address=ADDRESS:PORT] [listen=ADDRESS:PORT] [threads=N]`, one a line; the
/// rest of a line behind a `#` is not looked at.
pub fn read_hosts(path: &Path) -> Result<Vec<Host>, LaunchError> {
    let text = std::fs::read_to_string(path).map_err(LaunchError::file("read", path))?;
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let host =
            parse(line).map_err(|problem| LaunchError::Hosts { path: path.to_owned(), line: at + 1, problem })?;
        hosts.extend(host);
    }
    if hosts.is_empty() { Err(LaunchError::NoHosts { path: path.to_owned() }) } else { Ok(hosts) }
}

fn parse(line: &str) -> Result<Option<Host>, String> {
    let line = line.split('#').next().unwrap_or_default();
    let words = shell_words::split(line).map_err(|error| error.to_string())?;
    let Some((name, settings)) = words.split_first() else { return Ok(None) };
    if name.starts_with('-') || name.contains('=') {
        return Err(format!("a line begins with the name of a host, not with `{name}`"));
    }
    let mut host = Host { name: name.clone(), ..Host::default() };
    for setting in settings {
        let (field, value) = setting.split_once('=').ok_or_else(|| format!("`{setting}` is no FIELD=VALUE"))?;
        let value = value.to_owned();
        match field {
            "program" => host.program = Some(value),
            "data" => host.data = Some(value),
            "address" => host.address = Some(value),
            "listen" => host.listen = Some(value),
            "threads" => host.threads = Some(value.parse().map_err(|_| format!("`{setting}`: not a number"))?),
            _ => return Err(format!("`{field}` is not known; there are program, data, address, listen and threads")),
        }
    }
    Ok(Some(host))
}

#[cfg(test)]
mod tests {
    use super::{Host, parse, read_hosts};

    #[test]
    fn a_line_names_a_host_and_what_is_special_about_it() {
        let host = parse("me@lab-3 data='/data/my set' threads=4 # the old one").unwrap().unwrap();
        let expected =
            Host { name: "me@lab-3".into(), data: Some("/data/my set".into()), threads: Some(4), ..Host::default() };
        assert_eq!(host, expected);
        assert_eq!(parse("  # nobody").unwrap(), None);
        // ssh would take it for an option.
        for bad in ["-oProxyCommand=ls", "data=x", "lab cores=4", "lab threads=many", "lab 'open"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_without_hosts_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, "# none\n\n").unwrap();
        assert!(read_hosts(&path).unwrap_err().to_string().contains("names no hosts"));
        std::fs::write(&path, "one\ntwo x\n").unwrap();
        assert!(read_hosts(&path).unwrap_err().to_string().contains("line 2"));
    }
}
