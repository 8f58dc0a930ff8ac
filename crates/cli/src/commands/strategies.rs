//! `strategies`: how peers can exchange what they learnt.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use nettorrent_swarm::strategies::{STRATEGIES, find};
use nettorrent_swarm::strategy::{DescribedCost, Description, Spec};

use crate::output::print_line;

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
    let describe = |spec: &&Spec| spec.describe(arguments.peers as usize, arguments.params);
    if arguments.json {
        let list: Vec<Description> = specs.iter().map(describe).collect();
        print_line!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(ExitCode::SUCCESS);
    }
    for spec in &specs {
        print_line!("{:<18} {}", spec.name, spec.about);
        if arguments.name.is_some() {
            print_details(&describe(spec));
        }
    }
    if arguments.name.is_none() {
        print_line!("\nMore about one: nettorrent strategies NAME. Use it: nettorrent train --peers 4 --strategy NAME");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_details(Description { options, cost, paper, .. }: &Description) {
    let DescribedCost { formula, n_peers, n_params, round, is_bound } = cost;
    print_line!("\nCost (N peers, M bytes of parameters): {formula}");
    print_line!(
        "  {n_peers} peers, {} parameters: a round moves {}{}, the busiest peer sends {} and receives {}, in {} communication step{};",
        HumanCount(*n_params as u64),
        if *is_bound { "at most " } else { "" },
        HumanBytes(round.total),
        HumanBytes(round.most_sent),
        HumanBytes(round.most_received),
        round.n_steps,
        if round.n_steps == 1 { "" } else { "s" }
    );
    let time = |bits_per_s: f64, delay| round.time(bits_per_s / 8.0, delay).as_secs_f64();
    print_line!(
        "  about {:.3} s at 1 Gbit/s and 0.2 ms, {:.2} s at 100 Mbit/s and 20 ms, without overlap",
        time(1e9, Duration::from_micros(200)),
        time(1e8, Duration::from_millis(20))
    );
    print_line!("\nOptions, in [swarm.options] of the job or with --set swarm.options.NAME=VALUE:");
    for option in options {
        let default = option.default.as_ref().map_or(String::new(), ToString::to_string);
        print_line!("  {:<12} {} [default: {default}]", option.name, option.about);
    }
    print_line!("\nSource: {paper}");
}
