//! Two machines: network namespaces joined by a cable, or two addresses on loopback where namespaces cannot be made.

use std::process::Command;

use serde_json::Value;

use crate::program::{Place, Running};

/// Where a process runs and the address at which it listens.
struct Host {
    namespace: Option<String>,
    address: String,
}

/// Two hosts that reach each other.
struct Lab {
    hosts: [Host; 2],
}

pub(crate) fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).output().is_ok_and(|output| output.status.success())
}

impl Lab {
    fn new() -> Self {
        let id = std::process::id() % 100_000;
        let (a, b) = (format!("nta{id}"), format!("ntb{id}"));
        let is_made = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!("link add v{a} netns {a} type veth peer name v{b} netns {b}"))
            && [(&a, "10.99.7.1"), (&b, "10.99.7.2")].iter().all(|(name, address)| {
                ip(&format!("-n {name} link set lo up"))
                    && ip(&format!("-n {name} addr add {address}/24 dev v{name}"))
                    && ip(&format!("-n {name} link set v{name} up"))
            });
        if is_made {
            let host = |name: String, address: &str| Host { namespace: Some(name), address: address.into() };
            return Self { hosts: [host(a, "10.99.7.1"), host(b, "10.99.7.2")] };
        }
        remove(&a);
        remove(&b);
        Self { hosts: ["127.0.0.1", "127.0.0.2"].map(|address| Host { namespace: None, address: address.into() }) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.hosts.iter().filter_map(|host| host.namespace.as_deref()).for_each(remove);
    }
}

pub(crate) fn remove(namespace: &str) {
    // It need not be there.
    ip(&format!("netns del {namespace}"));
}

impl Host {
    fn start(&self, place: &Place, arguments: &[&str]) -> Running {
        let listen = format!("{}:0", self.address);
        let all: Vec<&str> = arguments.iter().copied().chain(["--listen", &listen, "--threads", "1"]).collect();
        let command = place.command(&all);
        let Some(namespace) = &self.namespace else { return Running::of(command) };
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
        place.shelter(&mut inside);
        Running::of(inside)
    }
}

#[test]
fn two_machines_train_together_and_a_wrong_ticket_is_refused() {
    let lab = Lab::new();
    let [here, there] = &lab.hosts;
    let (first, second, third) = (Place::new(), Place::new(), Place::new());
    let mut starter = here.start(&first, &["start", "--json", "--run", "run", "--epochs", "8"]);
    let line = starter.wait_for_line(|line| line.contains(r#""event":"ticket""#));
    let event: Value = serde_json::from_str(&line).expect("JSON");
    let ticket = event["ticket"].as_str().expect("a ticket");
    assert!(event["address"].as_str().is_some_and(|address| address.starts_with(&here.address)), "{event}");

    let mut other = here.start(&third, &["start", "--json", "--run", "other"]);
    let line = other.wait_for_line(|line| line.contains(r#""event":"ticket""#));
    let other_ticket: Value = serde_json::from_str(&line).expect("JSON");
    let wrong = crate::swarm::mix(ticket, other_ticket["ticket"].as_str().expect("a ticket"));
    let refused = there.start(&third, &["join", &wrong, "--run", "wrong"]).finish();
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("another swarm"), "{}", refused.stderr);
    starter.wait_for_line(|line| line.contains("was not let in") && line.contains("another swarm"));

    let mut joiner = there.start(&second, &["join", ticket, "--json", "--run", "run"]);
    starter.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    joiner.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    let tested = |place: &Place| place.succeed(&["eval", "run", "--json"]).json()[0].clone();
    let (one, two) = (tested(&first), tested(&second));
    assert_eq!(one["loss"], two["loss"]);
    assert!(one["accuracy"].as_f64().is_some_and(|accuracy| accuracy > 0.9), "{one}");
}
