//! The second transport: two machines that reach a relay and not each other.

use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use crate::namespaces::{ip, remove};
use crate::program::{Place, Running};

/// The relay's address, which both machines reach by different cables.
const RELAY: &str = "10.99.10.1";

/// Three machines; the one in the middle passes nothing on.
struct Lab {
    names: [String; 3],
}

impl Lab {
    /// None where namespaces cannot be made.
    fn new() -> Option<Self> {
        let id = std::process::id() % 100_000;
        let lab = Self { names: ["h", "a", "b"].map(|name| format!("ntr{name}{id}")) };
        let [hub, ..] = &lab.names;
        let is_made =
            lab.names.iter().all(|name| ip(&format!("netns add {name}")) && ip(&format!("-n {name} link set lo up")))
                && ip(&format!("-n {hub} addr add {RELAY}/32 dev lo"))
                && lab.names[1..].iter().zip([8, 9]).all(|(name, net)| {
                    ip(&format!("link add c{name} netns {hub} type veth peer name c{name} netns {name}"))
                        && ip(&format!("-n {hub} addr add 10.99.{net}.1/24 dev c{name}"))
                        && ip(&format!("-n {hub} link set c{name} up"))
                        && ip(&format!("-n {name} addr add 10.99.{net}.2/24 dev c{name}"))
                        && ip(&format!("-n {name} link set c{name} up"))
                        && ip(&format!("-n {name} route add default via 10.99.{net}.1"))
                });
        is_made.then_some(lab)
    }

    fn command(&self, machine: usize, place: &Place, arguments: &[&str]) -> Command {
        let command = place.command(arguments);
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.names[machine]]).arg(command.get_program()).args(command.get_args());
        place.shelter(&mut inside);
        inside
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| remove(name));
    }
}

/// Files by which a relay at this address is recognised.
struct Certified {
    chain: PathBuf,
    key: PathBuf,
    /// Who vouches for it; nobody else knows them.
    authority: PathBuf,
}

impl Certified {
    fn new(place: &Place, address: &str) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let new_key = || KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(authority, new_key()).expect("a certificate");
        let (relay, key) = (CertificateParams::new([address.to_owned()]).expect("an address"), new_key());
        let relay = relay.signed_by(&key, &authority).expect("a certificate");
        Self {
            chain: place.write("relay.pem", relay.pem()),
            key: place.write("relay-key.pem", key.serialize_pem()),
            authority: place.write("authority.pem", authority.pem()),
        }
    }

    /// The arguments of a relay that has them.
    fn relay(&self, listen: &str) -> Vec<String> {
        let [chain, key] = [&self.chain, &self.key].map(|file| file.display().to_string());
        ["relay", "--json", "--listen", listen, "--certificate", &chain, "--key", &key].map(str::to_owned).into()
    }

    /// Has a command trust who vouches for it.
    fn trusted_by(&self, mut command: Command) -> Command {
        command.env("SSL_CERT_FILE", &self.authority);
        command
    }
}

#[test]
fn a_relay_with_a_certificate_is_used_by_those_alone_who_trust_it() {
    let (middle, here, there) = (Place::new(), Place::new(), Place::new());
    let certified = Certified::new(&middle, "127.0.0.1");
    let arguments = certified.relay("127.0.0.1:0");
    let mut relay = middle.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let url = relay.wait_for("relay")["url"].as_str().expect("a URL").replace("HOST", "127.0.0.1");
    assert!(url.starts_with("https://"), "{url}");
    let start = ["start", "--json", "--run", "run", "--epochs", "1", "--threads", "1", "--relay", &url];
    // Both wait for the relay at the same time.
    let stranger = there.start(&start);
    let mut starter = Running::of(certified.trusted_by(here.command(&start)));
    let ticket = starter.wait_for("ticket");
    assert!(ticket["address"].as_str().is_some_and(|address| address.starts_with("key:")), "{ticket}");
    let refused = stranger.finish();
    assert_eq!(refused.code, Some(1), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("trusts who signed its certificate"), "{}", refused.stderr);
}

#[test]
fn machines_that_reach_a_relay_only_train_by_it_and_say_so() {
    let Some(lab) = Lab::new() else {
        println!("namespaces cannot be made here; links by a relay are tested in the crate of the transport");
        return;
    };
    let (middle, here, there) = (Place::new(), Place::new(), Place::new());
    // As the strictest networks have it: over HTTPS, with a certificate of one's own.
    let certified = Certified::new(&middle, RELAY);
    let arguments = certified.relay("0.0.0.0:0");
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut relay = Running::of(lab.command(0, &middle, &arguments));
    let url = relay.wait_for("relay")["url"].as_str().expect("a URL").replace("HOST", RELAY);
    let peer = |machine, place: &Place, arguments: &[&str]| {
        certified.trusted_by(lab.command(machine, place, &[arguments, &["--json"]].concat()))
    };
    let start = ["start", "--run", "run", "--epochs", "500", "--threads", "1", "--relay", &url];
    let mut starter = Running::of(peer(1, &here, &start));
    let ticket = starter.wait_for("ticket");
    assert!(ticket["address"].as_str().is_some_and(|address| address.starts_with("key:")), "{ticket}");
    let ticket = ticket["ticket"].as_str().expect("a ticket");
    // The relay is in the ticket.
    let mut joiner = Running::of(peer(2, &there, &["join", ticket, "--run", "run", "--threads", "1"]));
    starter.wait_for_line(|line| line.contains("peer 1 is linked by another way than TCP: relayed"));
    joiner.wait_for("epoch");
    let status = peer(2, &there, &["status", "run"]).output().expect("the program starts");
    let peers: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let routes: Vec<&Value> = peers.as_array().expect("a list").iter().map(|peer| &peer["routes"][0][1]).collect();
    assert_eq!(routes, ["relayed", "relayed"], "{peers}");
    // Who leaves says so before its process ends.
    joiner.signal(&["INT"]);
    let left = starter.wait_for("loss");
    assert_eq!(left["cause"], "left", "{left}");
}
