//! `nettorrent-fuzz`: makes inputs up for some time, and keeps those that something does not stand.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use nettorrent_allocation::Counting;
use nettorrent_fuzz::{Corpus, Finding, Fuzzer, TARGETS, Target, find};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Has everything that reads bytes from outside read bytes that were made up. What is not stood is kept in the corpus.
#[derive(Parser)]
struct Arguments {
    /// What to try; all of them, one after the other, if nothing is said.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// For how long, each of them.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where all randomness comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also print the ways to answer that were seen.
    #[arg(long)]
    answers: bool,
    /// List the targets and end.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        TARGETS.iter().for_each(|target| println!("{:12} {}", target.name, target.about));
        return Ok(ExitCode::SUCCESS);
    }
    let named = arguments.targets.iter().map(|name| {
        find(name).with_context(|| {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            format!("there is no target `{name}`; there are {}", names.join(", "))
        })
    });
    let named: Vec<&'static Target> = named.collect::<anyhow::Result<_>>()?;
    let targets = if named.is_empty() { TARGETS.iter().collect() } else { named };
    let found = targets.into_iter().map(|target| fuzz(target, &arguments));
    let n_found = found.collect::<anyhow::Result<Vec<bool>>>()?.into_iter().filter(|found| *found).count();
    Ok(if n_found > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says whether something was found.
fn fuzz(target: &'static Target, arguments: &Arguments) -> anyhow::Result<bool> {
    let corpus = Corpus::default();
    let kept = corpus.inputs(target.name)?.into_iter().map(|(_, input)| input);
    let mut fuzzer = Fuzzer::new(target, kept, arguments.seed);
    if let Err(finding) = fuzzer.read_known() {
        bail!("{}: an input that is kept is not stood: {}", target.name, finding.problem);
    }
    let (began, mut n_inputs) = (Instant::now(), 0_u64);
    while began.elapsed() < Duration::from_secs(arguments.seconds) {
        n_inputs += 1;
        if let Err(finding) = fuzzer.step() {
            // What shortening tries would fill the screen.
            std::panic::set_hook(Box::new(|_| {}));
            let Finding { input, problem } = fuzzer.shortened(finding);
            drop(std::panic::take_hook());
            let path = corpus.keep(target.name, &format!("found-{n_inputs}-seed-{}", arguments.seed), &input)?;
            println!("{}: {problem}\n  kept as {}", target.name, path.display());
            return Ok(true);
        }
    }
    println!("{}: {n_inputs} inputs, {} ways to answer, nothing found", target.name, fuzzer.answers().len());
    if arguments.answers {
        fuzzer.answers().iter().for_each(|answer| println!("  {answer}"));
    }
    Ok(false)
}
