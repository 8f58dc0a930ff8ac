//! `status`: who is there, how far each is, and whom it waits for.

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanCount;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::observer::Observer;
use nettorrent_net::service::{Awaited, PeerStatus};
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::{PeerId, Phase};

/// Arguments of `status`.
#[derive(Args)]
pub(crate) struct StatusArguments {
    /// The swarm's ticket.
    ticket: Ticket,
    /// Look for peers on the local network by mDNS, too.
    #[arg(long)]
    discover: bool,
    /// The swarm does not encrypt.
    #[arg(long)]
    plain: bool,
    /// Print a list in JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// More names than this help nobody.
const MOST_NAMES: usize = 4;

/// Runs `status`.
pub(crate) fn status(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    let encryption = if arguments.plain { Encryption::Off } else { Encryption::On };
    let peers = block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        anyhow::Ok(Observer::connect(&arguments.ticket, encryption, arguments.discover).await?.status().await)
    })??;
    if arguments.json {
        let list: Vec<serde_json::Value> = peers.iter().map(|(peer, status)| json(*peer, status)).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
    } else {
        let hosts = peers.values().flatten().map(|status| status.host.chars().count());
        let width = hosts.max().unwrap_or(0);
        peers.iter().for_each(|(peer, status)| println!("{}", line(*peer, status, width)));
    }
    Ok(ExitCode::SUCCESS)
}

fn json(peer: PeerId, status: &Result<PeerStatus, String>) -> serde_json::Value {
    match status {
        Ok(status) => serde_json::to_value(status).expect("a status is plain data"),
        Err(problem) => serde_json::json!({ "peer": peer, "problem": problem }),
    }
}

/// A peer in one line, with so much room for the name of its machine.
fn line(peer: PeerId, status: &Result<PeerStatus, String>, width: usize) -> String {
    let name = peer.to_string();
    let status = match status {
        Ok(status) => status,
        Err(problem) => return format!("{name:<9} does not answer: {problem}"),
    };
    let digits = status.epochs.to_string().len();
    format!(
        "{name:<9} {:<width$}  epoch {:>digits$}/{}  round {:>7}  {:>7} samples/s  {}",
        status.host,
        (status.epoch + 1).min(status.epochs),
        status.epochs,
        HumanCount(u64::from(status.round)).to_string(),
        HumanCount(status.samples_per_s as u64).to_string(),
        doing(status),
    )
}

/// What a peer does and for how long; if it waits, for whom, where that is, and in which step.
fn doing(status: &PeerStatus) -> String {
    let doing = match status.phase {
        Phase::Agreeing => "synchronizing state",
        Phase::Training => "computes",
        Phase::Exchanging => "exchanges",
        Phase::Syncing => "final sync",
        Phase::Testing => "tests",
        Phase::Finished => "has finished",
    };
    let PeerStatus { waits_for, since_s, step, .. } = status;
    if waits_for.is_empty() {
        return format!("{doing} ({since_s:.1} s)");
    }
    let name = |Awaited { peer, address }: &Awaited| match address {
        Some(address) => format!("{peer} ({address})"),
        None => peer.to_string(),
    };
    let mut names: Vec<String> = waits_for.iter().take(MOST_NAMES).map(name).collect();
    if waits_for.len() > MOST_NAMES {
        names.push(format!("{} more", waits_for.len() - MOST_NAMES));
    }
    format!("{doing}, waits {since_s:.1} s for {} in step {step}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{doing, json};
    use nettorrent_net::service::{Awaited, PeerStatus};
    use nettorrent_swarm::{PeerId, Phase};

    fn status(phase: Phase, waits_for: Vec<Awaited>) -> PeerStatus {
        PeerStatus {
            peer: PeerId::new(0, 7),
            host: "here".to_owned(),
            phase,
            epoch: 1,
            epochs: 6,
            round: 117,
            samples_per_s: 100.0,
            step: 118,
            waits_for,
            since_s: 3.21,
            members: Vec::new(),
        }
    }

    fn awaited(join_index: u32, address: Option<&str>) -> Awaited {
        Awaited { peer: PeerId::new(join_index, 9), address: address.map(|text| text.parse().expect("an address")) }
    }

    #[test]
    fn who_waits_says_for_whom_and_where_and_in_which_step() {
        assert_eq!(doing(&status(Phase::Training, Vec::new())), "computes (3.2 s)");
        let two = vec![awaited(2, Some("10.0.0.7:4123")), awaited(3, None)];
        let expected = "exchanges, waits 3.2 s for peer 2 (10.0.0.7:4123), peer 3 in step 118";
        assert_eq!(doing(&status(Phase::Exchanging, two)), expected);
        let many = (1..=10).map(|join_index| awaited(join_index, None)).collect();
        let expected = "tests, waits 3.2 s for peer 1, peer 2, peer 3, peer 4, 6 more in step 118";
        assert_eq!(doing(&status(Phase::Testing, many)), expected);
    }

    #[test]
    fn programs_are_told_the_same() {
        let status = status(Phase::Exchanging, vec![awaited(2, Some("10.0.0.7:4123"))]);
        let json = json(status.peer, &Ok(status));
        assert_eq!(json["waits_for"][0]["address"], "10.0.0.7:4123");
        assert_eq!(json["waits_for"][0]["peer"], PeerId::new(2, 9).0);
        assert_eq!(
            (&json["step"], &json["since_s"], &json["phase"]),
            (&118.into(), &3.21.into(), &"exchanging".into())
        );
    }
}
