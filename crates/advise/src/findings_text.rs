//! What was found out about strategies, for people and for programs.

use indicatif::{HumanBytes, HumanCount};
use nettorrent_engine::measure::Measure;
use nettorrent_figures::{Side, Unit, aligned};
use nettorrent_net::observer::SurveyedLink;
use nettorrent_swarm::strategy::Payload;
use serde_json::{Value, json};

use crate::advice::{ALONE, Advice, Judged};
use crate::findings::Findings;
use crate::judge::Depth;
use crate::predict::{Forecast, Situation};
use crate::verdict::{Learning, Verdict};

/// What forecasts rest on.
pub const ASSUMPTIONS: &str = "\
What is taken to be so: all peers compute as fast as this machine and have equal links, which send and receive at their full \
rate at once. Peers that exchange in rounds train locally, then the busiest link carries its bytes and a delay passes for each \
step; gradients travel while the rest of them is computed. A batch takes what was measured here, for a whole one and for a \
peer's share of one. Work on messages takes what it takes here: peers' own work is timed while they are simulated, encryption \
and system calls by an exchange over loopback. Where there are no more cores than threads, computing stands still meanwhile; \
peers of one machine (--here) share its cores. Tests are not counted.\n\n\
Each strategy is simulated on the job's own samples with several seeds until it is at the target, and one machine alone first; \
those whose epochs take more than four times as long as one machine's are not. Epochs to the target are the median over the \
seeds, and an epoch takes as long as it did in the simulator. Where the budget allows only some of the samples, an epoch takes \
as long as some rounds of the whole job do, and as many samples are taken to teach as much. One machine alone is recommended \
unless a strategy is faster by more than a quarter, which is how exact forecasts are. What does not reach the target in the \
job's epochs, or is more than a point less accurate than one machine after as many, does not learn here. With --no-pilots an \
epoch is taken to teach the same whatever the strategy. Strategies have their usual options, the job's own has the job's.";

impl Findings<'_> {
    /// One object for programs. The words are the arguments that say which job it is.
    pub fn json(&self, words: &[String]) -> Value {
        let Situation { n_peers, n_params, n_train, batch, step, link, messages, slowdown, .. } = &self.situation;
        json!({
            "model": self.job.model, "n_params": n_params, "n_train": n_train, "batch": batch, "threads": self.job.threads,
            "batch_s": step.batch_s(*batch as f64), "step": step, "messages": messages, "slowdown": slowdown,
            "n_peers": n_peers, "link": link,
            "links": self.surveyed, "is_learning_tested": self.depth != Depth::Speed, "measure": self.measure, "target": self.target,
            "n_pilot_samples": self.n_pilot_samples, "alone": self.alone, "strategies": self.judged,
            "recommended": self.advice.as_ref().map(|advice| &advice.strategy), "advice": self.advice,
            "command": self.command(words), "assumptions": ASSUMPTIONS,
        })
    }

    /// A table and what to do, for people. The words are the arguments that say which job it is.
    pub fn text(&self, words: &[String]) -> String {
        let mut text = self.head();
        // Names, seven numbers, words.
        let sides = [vec![Side::Left], vec![Side::Right; 7], vec![Side::Left]].concat();
        text += &aligned(&self.lines(), &sides);
        text.push('\n');
        let remarks = remarks(&self.rows(), self.measure);
        if !remarks.is_empty() {
            text += &remarks;
            text.push('\n');
        }
        text += &self.recommendation(words);
        text + "\nWhat forecasts rest on: nettorrent advise --help.\n"
    }

    fn head(&self) -> String {
        let Situation { n_peers, n_params, batch, step, link, slowdown, .. } = &self.situation;
        let own = (self.job.swarm.scale.step_samples(*batch, *n_peers) as f64 / *n_peers as f64).ceil();
        let mut text = format!(
            "{} with {} parameters: a batch of {batch} takes {:.2} ms here on {}, of {own} {:.2} ms; {n_peers} peers over {link}\n",
            self.job.model,
            HumanCount(*n_params as u64),
            1e3 * step.batch_s(*batch as f64),
            counted(self.job.threads as u64, "thread"),
            1e3 * step.batch_s(own),
        );
        if *slowdown > 1.0 {
            text += &format!("They share this machine's cores: each takes {slowdown:.1} times as long\n");
        }
        for SurveyedLink { peer, address, speed, problem } in &self.surveyed {
            text += &match speed {
                Some(speed) => format!(
                    "  {peer} at {address}: {:.1} Mbit/s, {:.2} ms there and back\n",
                    8e-6 * speed.bytes_per_s,
                    1e3 * speed.round_trip_s
                ),
                None => format!("  {peer} at {address}: not measured: {}\n", problem.as_deref().unwrap_or("unknown")),
            };
        }
        text += &self.aim();
        text.push('\n');
        text
    }

    /// What the times in the table are times to.
    fn aim(&self) -> String {
        let Verdict { n_epochs_simulated, n_seeds, .. } = self.alone.verdict;
        let mut text = match (self.depth, self.target) {
            (Depth::Speed, _) => format!(
                "Speed only: whether strategies learn was not tested, and each is taken to need the job's {}\n",
                counted(self.job.epochs, "epoch")
            ),
            (Depth::Learning { target: Some(_), .. }, Some(target)) => {
                format!("The target is {}\n", self.measure.quality_text(target))
            }
            (_, Some(target)) => format!(
                "The target is {}: {} than one machine alone reached in {n_epochs_simulated} of {} \
                 ({})\n",
                self.measure.quality_text(target),
                match self.measure {
                    Measure::Accuracy => "half a point less",
                    Measure::Loss | Measure::Perplexity { .. } => "half a percent worse",
                },
                counted(self.job.epochs, "epoch"),
                match n_seeds {
                    1 => "one seed".to_owned(),
                    n => format!("median of {n} seeds"),
                }
            ),
            (_, None) => "There was no time to find out what one machine alone reaches\n".to_owned(),
        };
        let n_train = self.situation.n_train;
        if self.n_pilot_samples < n_train {
            let (some, all) = (HumanCount(self.n_pilot_samples as u64), HumanCount(n_train as u64));
            text += &format!("For want of time {some} of {all} training samples were simulated; see --budget\n");
        }
        text
    }

    /// One machine alone and all strategies, by their time.
    fn rows(&self) -> Vec<&Judged> {
        let mut rows: Vec<&Judged> = [&self.alone].into_iter().chain(&self.judged).collect();
        rows.sort_by(|a, b| a.rank_s().total_cmp(&b.rank_s()));
        rows
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let total = match (self.depth, self.target) {
            (Depth::Speed, _) | (_, None) => format!("s for {}", counted(self.job.epochs, "epoch")),
            (_, Some(target)) => format!("s to {}", self.measure.quality_text(target)),
        };
        let head = [
            "strategy",
            total.as_str(),
            "epochs",
            "seeds there",
            "s an epoch",
            "samples/s",
            "sent by a peer",
            "waits",
            "exchanges",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for one in self.rows() {
            let missing = || "-".to_owned();
            let (forecast, verdict) = (&one.forecast, &one.verdict);
            let most = if forecast.is_bound { "at most " } else { "" };
            lines.push(vec![
                one.strategy.clone(),
                one.seconds.map_or_else(missing, |seconds| format!("{seconds:.2}")),
                verdict.epochs.map_or_else(missing, |epochs| Unit::Count.format(epochs)),
                match verdict.n_seeds {
                    0 => missing(),
                    n_seeds => format!("{} of {n_seeds}", verdict.n_reached),
                },
                format!("{:.2}", forecast.epoch_s),
                HumanCount(forecast.samples_per_s as u64).to_string(),
                format!("{most}{} an epoch", HumanBytes(forecast.bytes_per_peer as u64)),
                format!("{:.0} %", 100.0 * forecast.wait_share),
                exchanges(one),
            ]);
        }
        lines
    }

    fn recommendation(&self, words: &[String]) -> String {
        let Some(Advice { strategy, reason, caveats }) = &self.advice else {
            let is_cut_short = |one: &&Judged| matches!(one.verdict.learning, Learning::OnCourse | Learning::Unknown);
            return match self.rows().iter().any(is_cut_short) {
                true => {
                    "There was not enough time to recommend anything. Give a larger --budget, or --no-pilots for speed only.\n"
                }
                false => {
                    "Nothing got to the target, and one machine alone did not either. Try more epochs or a lower --target.\n"
                }
            }
            .to_owned();
        };
        let mut text = match strategy.as_str() {
            ALONE => format!("Train on one machine: {reason}.\n"),
            strategy => format!("Take {strategy}: {reason}.\n"),
        };
        caveats.iter().for_each(|caveat| text += &format!("{caveat}\n"));
        text + &self.command(words).map_or(String::new(), |command| format!("\n  {command}\n"))
    }

    /// What to do next.
    fn command(&self, words: &[String]) -> Option<String> {
        let Advice { strategy, .. } = self.advice.as_ref()?;
        let n_peers = self.situation.n_peers.to_string();
        let (command, own) = match strategy.as_str() {
            ALONE => ("train", vec![]),
            strategy => ("start", vec!["--strategy", strategy, "--wait-for", &n_peers]),
        };
        let words = ["nettorrent", command].into_iter().chain(words.iter().map(String::as_str)).chain(own);
        Some(shell_words::join(words))
    }
}

/// Says of what did not get to the target why.
fn remarks(rows: &[&Judged], measure: Measure) -> String {
    let text: String = rows.iter().filter_map(|one| remark(one, measure)).collect();
    let too_slow = rows.iter().filter(|one| one.verdict.learning == Learning::TooSlow);
    text + &too_slow_text(&too_slow.map(|one| one.strategy.as_str()).collect::<Vec<_>>())
}

/// Says of all that were too slow to be simulated that they were.
fn too_slow_text(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => {
            format!("{name} was not simulated: its epochs take several times as long as one machine's\n")
        }
        [first @ .., last] => format!(
            "{} and {last} were not simulated: their epochs take several times as long as one machine's\n",
            first.join(", ")
        ),
    }
}

/// Says of what did not get to the target how far it came.
fn remark(one: &Judged, measure: Measure) -> Option<String> {
    let Verdict { learning, quality, quality_alone, n_epochs_simulated, n_seeds, n_reached, .. } = one.verdict;
    let what = match learning {
        Learning::DoesNotLearn => "does not learn here",
        Learning::OnCourse => "was not seen at the target",
        Learning::Unknown => "was not judged for want of time",
        Learning::Reached | Learning::TooSlow | Learning::Untested => return None,
    };
    let mut text = format!("{} {what}", one.strategy);
    if let Some(quality) = quality {
        text += &format!(": {} after {}", measure.quality_text(quality), counted(n_epochs_simulated, "epoch"));
        if one.trial.as_ref().is_some_and(|trial| trial.n_cut_short() > 0) {
            text += ", when its time was over";
        }
        if let Some(alone) = quality_alone.filter(|_| one.strategy != ALONE) {
            text += &format!(", alone {}", measure.quality_text(alone));
        }
        text += &format!("; {n_reached} of {} got there", counted(n_seeds as u64, "seed"));
    }
    let problem = one.trial.as_ref().and_then(|trial| trial.problems.first());
    problem.into_iter().for_each(|problem| text += &format!("; {problem}"));
    Some(text + "\n")
}

fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// How often peers hear of each other.
fn exchanges(one: &Judged) -> String {
    let Forecast { batches_per_round, rounds_per_epoch, .. } = one.forecast;
    match one.payload {
        None => "never".to_owned(),
        Some(Payload::Updates) => "async".to_owned(),
        _ if batches_per_round == 1 => "every batch".to_owned(),
        _ if rounds_per_epoch == 1 => "once an epoch".to_owned(),
        _ => format!("every {batches_per_round} batches"),
    }
}

#[cfg(test)]
mod tests {
    use super::too_slow_text;

    #[test]
    fn what_was_too_slow_is_said_once_of_all() {
        assert_eq!(too_slow_text(&[]), "");
        let one = too_slow_text(&["ring"]);
        assert_eq!(one, "ring was not simulated: its epochs take several times as long as one machine's\n");
        let three = too_slow_text(&["ring", "tree", "gossip"]);
        assert!(three.starts_with("ring, tree and gossip were not simulated: their epochs take"), "{three}");
        assert_eq!(three.lines().count(), 1);
    }
}
