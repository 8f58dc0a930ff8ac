//! The fuzzer: makes inputs up, has a target read them, and keeps those that are answered in a new way.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nettorrent_allocation::Watch;
use nettorrent_engine::rng::Rng;

use crate::mutation::mutated;
use crate::target::Target;

/// One target and what is known of it.
pub struct Fuzzer {
    target: &'static Target,
    rng: Rng,
    known: Vec<Vec<u8>>,
    answers: BTreeSet<String>,
}

/// An input that a target does not stand.
#[derive(Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// What it did.
    pub problem: String,
}

/// More inputs are not remembered: they would all be much alike.
const MOST_KNOWN: usize = 4096;

/// So many words tell errors apart; after them comes what is quoted from the input.
const MOST_WORDS: usize = 8;

impl Fuzzer {
    /// A fuzzer that begins with the target's own seeds and these inputs.
    pub fn new(target: &'static Target, kept: impl IntoIterator<Item = Vec<u8>>, seed: u64) -> Self {
        let known: Vec<Vec<u8>> = (target.seeds)().into_iter().chain(kept).collect();
        Self { target, rng: Rng::stream(seed, target.name, 0), known, answers: BTreeSet::new() }
    }

    /// Has all known inputs read as they are.
    pub fn read_known(&mut self) -> Result<(), Finding> {
        for k in 0..self.known.len() {
            let input = self.known[k].clone();
            let answer = self.read(&input)?;
            self.answers.insert(answer);
        }
        Ok(())
    }

    /// Makes one input up and has it read.
    pub fn step(&mut self) -> Result<(), Finding> {
        let input = self.next_input();
        let answer = self.read(&input)?;
        if self.answers.insert(answer) && self.known.len() < MOST_KNOWN {
            self.known.push(input);
        }
        Ok(())
    }

    /// The ways to answer that have been seen.
    pub fn answers(&self) -> &BTreeSet<String> {
        &self.answers
    }

    /// A shorter input that is not stood either, if there is one.
    pub fn shortened(&self, finding: Finding) -> Finding {
        let mut best = finding;
        let mut piece = best.input.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < best.input.len() {
                let mut shorter = best.input.clone();
                shorter.drain(at..(at + piece).min(best.input.len()));
                match self.read(&shorter) {
                    Err(finding) => best = finding,
                    Ok(_) => at += piece,
                }
            }
            piece /= 2;
        }
        best
    }

    fn next_input(&mut self) -> Vec<u8> {
        let n = self.known.len();
        if n == 0 {
            return mutated(&mut self.rng, &[], &[], self.target.words);
        }
        let (k, other) = (self.rng.below(n), self.rng.below(n));
        mutated(&mut self.rng, &self.known[k], &self.known[other], self.target.words)
    }

    fn read(&self, input: &[u8]) -> Result<String, Finding> {
        let finding = |problem: String| Finding { input: input.to_vec(), problem };
        let watch = Watch::start();
        let answer = catch_unwind(AssertUnwindSafe(|| (self.target.read)(input)));
        let n_bytes = watch.highest();
        let answer = answer.map_err(|panic| finding(said(&*panic)))?;
        let most = self.target.most_bytes + self.target.times_input * input.len();
        if n_bytes > most {
            let problem = format!("{n_bytes} bytes of memory for {} bytes of input; {most} would do", input.len());
            return Err(finding(problem));
        }
        Ok(kind_of(&answer))
    }
}

/// An answer without what differs from input to input: numbers, what is quoted or listed in brackets, and all but the first words.
fn kind_of(answer: &str) -> String {
    let mut words = String::new();
    let mut depth = 0_usize;
    let mut is_quoted = false;
    for character in answer.chars() {
        match character {
            '`' | '"' => is_quoted = !is_quoted,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ if is_quoted || depth > 0 => {}
            _ => words.push(if character.is_ascii_alphabetic() { character } else { ' ' }),
        }
    }
    let words = words.split_whitespace().filter(|word| word.len() > 1).take(MOST_WORDS);
    words.collect::<Vec<_>>().join(" ")
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::{Fuzzer, kind_of};
    use crate::target::Target;

    /// It does not stand an input that begins with three letters, and says how far one has come.
    static STUMBLES: Target = Target {
        name: "stumbles",
        about: "a test",
        seeds: || vec![b"seed".to_vec()],
        words: &[],
        read: |input| {
            let n = input.iter().zip(b"bug").take_while(|(a, b)| a == b).count();
            assert!(n < 3, "found");
            ["nothing", "one", "two"][n].to_owned()
        },
        most_bytes: 1 << 20,
        times_input: 8,
        n_quick: 0,
    };

    #[test]
    fn what_is_answered_anew_leads_on_and_what_is_found_is_made_short() {
        let mut fuzzer = Fuzzer::new(&STUMBLES, [], 1);
        fuzzer.read_known().expect("its seed is stood");
        let finding = (0..1_000_000).find_map(|_| fuzzer.step().err()).expect("it is found");
        assert_eq!(fuzzer.answers().len(), 3);
        assert!(finding.problem.contains("found"), "{}", finding.problem);
        assert_eq!(fuzzer.shortened(finding).input, b"bug");
    }

    #[test]
    fn answers_differ_by_more_than_numbers_and_quotes() {
        assert_eq!(kind_of("line 17: there is no `frx` [ab, 1]"), kind_of("line 3: there is no `y` [c]"));
        assert_ne!(kind_of("too long"), kind_of("too short"));
    }
}
