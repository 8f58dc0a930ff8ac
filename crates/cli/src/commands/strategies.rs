//! `strategies`: how peers can exchange what they learnt.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::HumanBytes;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategies::find;
use nettorrent_swarm::strategy::{CostQuestion, Payload, Spec};
use serde_json::json;

/// Arguments of `strategies`.
#[derive(Args)]
pub(crate) struct StrategiesArguments {
    /// Only this one, with its options and what it costs.
    name: Option<String>,
    /// For how many peers the cost is given.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    peers: u32,
    /// For how many parameters.
    #[arg(long, value_name = "N", default_value_t = 1_199_882)]
    params: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `strategies`.
pub(crate) fn strategies(arguments: &StrategiesArguments) -> anyhow::Result<ExitCode> {
    let specs: Vec<&Spec> = match &arguments.name {
        Some(name) => vec![find(name)?],
        None => STRATEGIES.iter().collect(),
    };
    if arguments.json {
        let list: Vec<serde_json::Value> = specs.iter().map(|spec| as_json(spec, arguments)).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(ExitCode::SUCCESS);
    }
    for spec in &specs {
        println!("{:<18} {}", spec.name, spec.about);
        if arguments.name.is_some() {
            describe(spec, arguments);
        }
    }
    if arguments.name.is_none() {
        println!("\nMore about one: nettorrent strategies NAME. Use it: nettorrent train --peers 4 --strategy NAME");
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(spec: &Spec, arguments: &StrategiesArguments) {
    let (n_peers, n_params) = (arguments.peers, arguments.params);
    println!("\nCost (N peers, M bytes of parameters): {}", spec.cost);
    let cost = cost(spec, arguments);
    let most = if (spec.build)(&(spec.defaults)()).is_ok_and(|strategy| strategy.cost_is_upper_bound()) {
        "at most "
    } else {
        ""
    };
    println!(
        "  {n_peers} peers, {} parameters: a round moves {most}{}, the busiest peer sends {} and receives {}, in {} communication step{};",
        indicatif::HumanCount(n_params as u64),
        HumanBytes(cost.total),
        HumanBytes(cost.most_sent),
        HumanBytes(cost.most_received),
        cost.n_steps,
        if cost.n_steps == 1 { "" } else { "s" }
    );
    let time = |bits_per_s: f64, delay| cost.time(bits_per_s / 8.0, delay).as_secs_f64();
    println!(
        "  about {:.3} s at 1 Gbit/s and 0.2 ms, {:.2} s at 100 Mbit/s and 20 ms, without overlap",
        time(1e9, Duration::from_micros(200)),
        time(1e8, Duration::from_millis(20))
    );
    println!("\nOptions, in [swarm.options] of the job or with --set swarm.options.NAME=VALUE:");
    let defaults = (spec.defaults)();
    for option in spec.options {
        let default = defaults.get(option.name).map_or(String::new(), ToString::to_string);
        println!("  {:<12} {} [default: {default}]", option.name, option.about);
    }
    println!("\nSource: {}", spec.paper);
}

fn cost(spec: &Spec, arguments: &StrategiesArguments) -> nettorrent_swarm::strategy::Cost {
    let strategy = (spec.build)(&(spec.defaults)()).expect("defaults are right");
    let whole = 0..arguments.params;
    strategy.cost(&CostQuestion {
        n_peers: arguments.peers as usize,
        buckets: std::slice::from_ref(&whole),
        n_params: whole.end,
        round: 0,
    })
}

fn as_json(spec: &Spec, arguments: &StrategiesArguments) -> serde_json::Value {
    let defaults = (spec.defaults)();
    let options: Vec<serde_json::Value> = spec
        .options
        .iter()
        .map(|option| json!({ "name": option.name, "about": option.about, "default": defaults.get(option.name) }))
        .collect();
    let cost = cost(spec, arguments);
    let strategy = (spec.build)(&defaults).expect("defaults are right");
    let is_asynchronous = strategy.turn().payload == Payload::Updates;
    json!({
        "name": spec.name, "is_asynchronous": is_asynchronous, "about": spec.about, "paper": spec.paper, "options": options,
        "cost": { "formula": spec.cost, "n_peers": arguments.peers, "n_params": arguments.params, "round": cost,
                  "is_bound": strategy.cost_is_upper_bound() },
    })
}
