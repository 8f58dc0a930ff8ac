//! The second transport: two machines that reach a relay and not each other.

use std::process::Command;

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

#[test]
fn machines_that_reach_a_relay_only_train_by_it_and_say_so() {
    let Some(lab) = Lab::new() else {
        println!("namespaces cannot be made here; links by a relay are tested in the crate of the transport");
        return;
    };
    let (middle, here, there) = (Place::new(), Place::new(), Place::new());
    let mut relay = Running::of(lab.command(0, &middle, &["relay", "--listen", "0.0.0.0:0", "--json"]));
    let url = relay.wait_for("relay")["url"].as_str().expect("a URL").replace("HOST", RELAY);
    let start = ["start", "--json", "--run", "run", "--epochs", "500", "--threads", "1", "--relay", &url];
    let mut starter = Running::of(lab.command(1, &here, &start));
    let ticket = starter.wait_for("ticket");
    assert!(ticket["address"].as_str().is_some_and(|address| address.starts_with("key:")), "{ticket}");
    let ticket = ticket["ticket"].as_str().expect("a ticket");
    // The relay is in the ticket.
    let mut joiner = Running::of(lab.command(2, &there, &["join", ticket, "--json", "--run", "run", "--threads", "1"]));
    starter.wait_for_line(|line| line.contains("peer 1 is linked by another way than TCP: relayed"));
    joiner.wait_for("epoch");
    let status = lab.command(2, &there, &["status", "run", "--json"]).output().expect("the program starts");
    let peers: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let routes: Vec<&Value> = peers.as_array().expect("a list").iter().map(|peer| &peer["routes"][0][1]).collect();
    assert_eq!(routes, ["relayed", "relayed"], "{peers}");
    // Who leaves says so before its process ends.
    joiner.signal(&["INT"]);
    let left = starter.wait_for("loss");
    assert_eq!(left["cause"], "left", "{left}");
}
