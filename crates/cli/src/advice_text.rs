//! What `advise` has found out, for people and for programs.

use indicatif::{HumanBytes, HumanCount};
use nettorrent_engine::data::rounds::RoundLength;
use nettorrent_engine::job::Job;
use nettorrent_study::{Advice, Judged, Situation};
use nettorrent_swarm::strategy::Payload;
use serde_json::{Value, json};

use crate::columns::{Side, aligned};
use crate::command_line::command_line;
use crate::link_survey::Surveyed;

/// What forecasts rest on.
pub(crate) const ASSUMPTIONS: &str = "\
What is taken to be so: all peers compute as fast as this machine and have equal links, which send and receive at their full
rate at once. Peers that exchange in rounds train their turn, then the busiest link carries its bytes and a delay passes for
each step; gradients travel while the rest of them is computed. What peers that train freely say,
and how long they wait, is found out by simulating a few rounds. Making and reading messages takes no time, and tests are not counted. Without --target an epoch is taken to teach the
same whatever the strategy. Strategies have their usual options, the job's own has the job's.";

/// What was found out.
pub(crate) struct Findings<'a> {
    pub job: &'a Job,
    /// The arguments that say which job it is.
    pub words: Vec<String>,
    pub situation: &'a Situation<'a>,
    pub target: Option<f64>,
    pub surveyed: Vec<Surveyed>,
    /// Sorted by their time.
    pub judged: Vec<Judged>,
    pub advice: Option<Advice>,
}

impl Findings<'_> {
    /// One object for programs.
    pub(crate) fn json(&self) -> Value {
        let Situation { n_peers, n_params, n_train, batch, batch_time, link, .. } = self.situation;
        json!({
            "model": self.job.model, "n_params": n_params, "n_train": n_train, "batch": batch, "threads": self.job.threads,
            "batch_s": batch_time.as_secs_f64(), "n_peers": n_peers, "link": link, "links": self.surveyed,
            "target": self.target, "strategies": self.judged, "advice": self.advice,
            "command": self.command(), "assumptions": ASSUMPTIONS,
        })
    }

    /// A table and what to do, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = self.head();
        // Names, six numbers, words.
        let sides = [vec![Side::Left], vec![Side::Right; 6], vec![Side::Left]].concat();
        text += &aligned(&self.lines(), &sides);
        let unreached: Vec<String> = self.judged.iter().filter_map(|one| self.unreached(one)).collect();
        text += &unreached.concat();
        text.push('\n');
        text += &self.recommendation();
        text + "\nWhat forecasts rest on: nettorrent advise --help.\n"
    }

    fn head(&self) -> String {
        let Situation { n_peers, n_params, batch, batch_time, link, .. } = self.situation;
        let mut text = format!(
            "{} with {} parameters: a batch of {batch} takes {:.2} ms here on {} threads; {n_peers} peers over {link}\n",
            self.job.model,
            HumanCount(*n_params as u64),
            1e3 * batch_time.as_secs_f64(),
            self.job.threads
        );
        for Surveyed { peer, address, speed, problem } in &self.surveyed {
            text += &match speed {
                Some(speed) => format!(
                    "  {peer} at {address}: {:.1} Mbit/s, {:.2} ms there and back\n",
                    8e-6 * speed.bytes_per_s,
                    1e3 * speed.round_trip_s
                ),
                None => format!("  {peer} at {address}: not measured: {}\n", problem.as_deref().unwrap_or("unknown")),
            };
        }
        text.push('\n');
        text
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let total = match self.target {
            Some(target) => format!("s to {} %", 100.0 * target),
            None => format!("s for {} epochs", self.job.epochs),
        };
        let head =
            ["strategy", total.as_str(), "epochs", "s an epoch", "samples/s", "sent by a peer", "waits", "exchanges"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for one in &self.judged {
            let missing = || "-".to_owned();
            let forecast = &one.forecast;
            let most = if forecast.is_bound { "at most " } else { "" };
            lines.push(vec![
                one.strategy.clone(),
                one.seconds.map_or_else(missing, |seconds| format!("{seconds:.1}")),
                one.epochs.map_or_else(missing, |epochs| epochs.to_string()),
                format!("{:.2}", forecast.epoch_s),
                format!("{:.0}", forecast.samples_per_s),
                format!("{most}{} an epoch", HumanBytes(forecast.bytes_per_peer as u64)),
                format!("{:.0} %", 100.0 * forecast.wait_share),
                exchanges(one),
            ]);
        }
        lines
    }

    /// Says of a strategy that did not get to the target how far it came.
    fn unreached(&self, one: &Judged) -> Option<String> {
        if let Some(problem) = &one.problem {
            return Some(format!("{}: {problem}\n", one.strategy));
        }
        let pilot = one.pilot.as_ref().filter(|_| one.seconds.is_none())?;
        let best =
            pilot.best_accuracy.map_or_else(|| "nothing tested".to_owned(), |best| format!("{:.2} %", 100.0 * best));
        let why =
            if pilot.is_out_of_time { "when its --pilot-seconds were over" } else { "when the job's epochs were over" };
        Some(format!("{}: {best} after {} epochs, {why}\n", one.strategy, pilot.epochs))
    }

    fn recommendation(&self) -> String {
        let Some(Advice { strategy, reason, caveats }) = &self.advice else {
            return "No strategy got there. Try more epochs, more --pilot-seconds or a lower --target.\n".to_owned();
        };
        let mut text = format!("Take {strategy}: {reason}.\n");
        caveats.iter().for_each(|caveat| text += &format!("{caveat}\n"));
        text + &self.command().map_or(String::new(), |command| format!("\n  {command}\n"))
    }

    /// What to do next.
    fn command(&self) -> Option<String> {
        let Advice { strategy, .. } = self.advice.as_ref()?;
        let own = ["--strategy", strategy, "--wait-for", &self.situation.n_peers.to_string()].map(str::to_owned);
        let words =
            ["nettorrent".to_owned(), "start".to_owned()].into_iter().chain(self.words.iter().cloned()).chain(own);
        Some(command_line(words))
    }
}

/// How often peers hear of each other.
fn exchanges(one: &Judged) -> String {
    match (one.turn.payload, one.turn.length) {
        (Payload::Updates, _) => "freely".to_owned(),
        (_, RoundLength::Batches(1)) => "every batch".to_owned(),
        (_, RoundLength::Batches(n)) => format!("every {n} batches"),
        (_, RoundLength::Samples(n)) => format!("every {n} samples"),
        (_, RoundLength::Epoch) => "once an epoch".to_owned(),
    }
}
