//! A pipeline's plan in words, tables and a picture, and as one object for programs.

use std::fmt;

use indicatif::HumanCount;
use nettorrent_figures::{Side, aligned};
use nettorrent_pipeline::planner::{Candidate, Choice, PlanKind, Question, StageEstimate};
use serde_json::{Value, json};

use super::picture::picture;
use super::{PIPELINE_ASSUMPTIONS, PipelineReport, bytes};
use crate::compute_speed::SpeedSource;

/// The widest a name of layers is.
const WIDEST_LAYERS: usize = 22;

impl PipelineReport<'_> {
    /// One object for programs.
    pub fn json(&self) -> Value {
        let Question { batch, scale, n_peers, speeds, link, multiplications_per_s, memory_limit, .. } = &self.question;
        let in_flight = self.in_flight();
        json!({
            "model": self.job.model, "n_params": self.n_params, "batch": batch, "scale": scale,
            "in_flight": in_flight,
            "n_peers": n_peers, "speeds": speeds, "link": link, "multiplications_per_s": multiplications_per_s,
            "speed": self.speed_source, "memory_limit": memory_limit, "is_given": self.is_given,
            "best": self.choice.best, "runners_up": self.choice.runners_up, "alone": self.alone,
            "stages": self.choice.best.plan.stage_specs(), "assumptions": PIPELINE_ASSUMPTIONS,
        })
    }

    /// That sharing out does not pay, where it does not.
    fn caution(&self) -> String {
        let alone = self.alone.as_ref().map_or(0.0, |alone| alone.estimate.samples_per_s);
        if self.question.n_peers == 1 || alone <= self.choice.best.estimate.samples_per_s {
            return String::new();
        }
        format!(
            "\nBut one peer alone is faster, with {} samples/s. Over such links, share the network out for its memory\n\
             only, or take a strategy that says less: nettorrent advise.\n",
            HumanCount(alone as u64)
        )
    }

    fn head(&self) -> String {
        let Question { spec, batch, n_peers, speeds, link, multiplications_per_s, .. } = &self.question;
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let source = match self.speed_source {
            SpeedSource::Given => "as given".to_owned(),
            SpeedSource::Measured => format!("measured here on {} thread{}", self.job.threads, s(self.job.threads)),
            SpeedSource::Usual => "taken to be so; say it with --compute-speed".to_owned(),
        };
        let mut text = format!(
            "{} with {} parameters for samples of {}; {n_peers} peer{} over {link}\n\
             Batches of {batch}{}. A peer computes {:.1} GMAC/s ({source}).\n",
            self.job.model,
            HumanCount(self.n_params as u64),
            spec.input.iter().map(usize::to_string).collect::<Vec<_>>().join(" x "),
            s(*n_peers),
            self.of_batches(),
            multiplications_per_s / 1e9
        );
        if !speeds.is_empty() {
            let list: Vec<String> = speeds.iter().map(f64::to_string).collect();
            text += &format!("Speeds by each other, in turn: {}.\n", list.join(", "));
        }
        if let Some(problem) = &self.without_data {
            text += &format!("Samples are taken to be as this model usually has them, because {problem}.\n");
        }
        text.push('\n');
        text
    }

    /// A line for each stage.
    fn stage_lines(&self) -> Vec<Vec<String>> {
        let head = ["stage", "layers", "grid", "parameters", "memory", "up", "down", "sums", "compute", "exchange"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        let Candidate { plan, estimate, .. } = &self.choice.best;
        for (index, (stage, one)) in plan.stages.iter().zip(&estimate.stages).enumerate() {
            let StageEstimate { n_params, memory_bytes, up_bytes, down_bytes, sum_bytes, compute_s, exchange_s } = one;
            lines.push(vec![
                index.to_string(),
                shortened(&self.layers_of(stage)),
                format!("{}x{}", stage.batch_shards, stage.tensor_shards),
                HumanCount(*n_params).to_string(),
                bytes(*memory_bytes),
                bytes(*up_bytes),
                bytes(*down_bytes),
                bytes(*sum_bytes),
                milliseconds(*compute_s),
                milliseconds(*exchange_s),
            ]);
        }
        lines
    }

    fn totals(&self) -> String {
        let Candidate { plan, estimate, .. } = &self.choice.best;
        let n_slots = plan.n_slots();
        let mut text = format!(
            "\n{} per batch, latency {}; {} samples/s in total; peak memory {} per peer\n",
            milliseconds(estimate.batch_s),
            milliseconds(estimate.journey_s),
            HumanCount(estimate.samples_per_s as u64),
            bytes(estimate.memory_bytes)
        );
        let peers = if n_slots == 1 { "1 peer".to_owned() } else { format!("{n_slots} peers") };
        text += &match estimate.n_replicas {
            1 => format!("One pipeline of {peers}"),
            n => format!("{n} replicas of {peers} each"),
        };
        text += &match estimate.n_spare {
            0 => ".\n".to_owned(),
            1 => "; 1 peer is left over.\n".to_owned(),
            n => format!("; {n} peers are left over.\n"),
        };
        text
    }

    /// A line for each candidate.
    fn candidate_lines(&self) -> Vec<Vec<String>> {
        let head = ["plan", "stages", "peers in each", "replicas", "a batch", "samples/s", "memory", "speed"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        let best = self.choice.best.estimate.samples_per_s;
        for Candidate { kind, plan, estimate } in std::iter::once(&self.choice.best).chain(&self.choice.runners_up) {
            lines.push(vec![
                kind.name().to_owned(),
                plan.stages.len().to_string(),
                plan.n_slots().to_string(),
                estimate.n_replicas.to_string(),
                milliseconds(estimate.batch_s),
                HumanCount(estimate.samples_per_s as u64).to_string(),
                bytes(estimate.memory_bytes),
                format!("{:.0} %", 100.0 * estimate.samples_per_s / best.max(1e-12)),
            ]);
        }
        lines
    }

    /// What to do, and why.
    fn verdict(&self) -> String {
        let Choice { best, runners_up } = &self.choice;
        let is_over = self.question.memory_limit.filter(|limit| best.estimate.memory_bytes > *limit);
        if let (true, Some(limit)) = (self.is_given, is_over) {
            let needs = bytes(best.estimate.memory_bytes);
            return format!("The job's stages do not fit: a peer needs {needs} and has {}.\n", bytes(limit));
        }
        if self.is_given {
            return "These are the job's own stages; --set pipeline.stages=auto lets the planner choose.\n".to_owned();
        }
        let parallel = runners_up.iter().find(|one| one.kind == PlanKind::DataParallel);
        let mut text = match (best.kind, parallel) {
            (PlanKind::DataParallel, _) => {
                return "Data parallelism is best here: every peer holds the whole network, and no [pipeline] section is \
                        needed.\n"
                    .to_owned();
            }
            (kind, Some(parallel)) => {
                let times = best.estimate.samples_per_s / parallel.estimate.samples_per_s.max(1e-12);
                format!("A {} plan is best here, {times:.2} times as fast as data parallelism.", kind.name())
            }
            (kind, None) => {
                format!("A {} plan is best here; the whole network does not fit a peer's memory.", kind.name())
            }
        };
        text += " In the job:\n\n  [pipeline]\n";
        if self.in_flight() > 1 {
            text += &format!("  in_flight = {}\n", self.in_flight());
        }
        text += "  stages = [\n";
        for stage in best.plan.stage_specs() {
            let mut fields = format!("layers = {}", stage.layers);
            for (name, n) in [("batch_shards", stage.batch_shards), ("tensor_shards", stage.tensor_shards)] {
                if n > 1 {
                    fields += &format!(", {name} = {n}");
                }
            }
            text += &format!("    {{ {fields} }},\n");
        }
        text + "  ]\n"
    }
}

/// Tables, a picture and what to do, for people.
impl fmt::Display for PipelineReport<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.head())?;
        out.write_str(&aligned(&self.stage_lines(), &[Side::Left, Side::Left, Side::Right]))?;
        write!(out, "{}\n{}", self.totals(), picture(self))?;
        if !self.is_given {
            write!(out, "\n{}", aligned(&self.candidate_lines(), &[Side::Left, Side::Right]))?;
        }
        write!(out, "\n{}{}\nWhat estimates rest on: nettorrent plan --help.\n", self.verdict(), self.caution())
    }
}

/// The text, or its beginning and an ellipsis where it is too wide.
fn shortened(text: &str) -> String {
    if text.chars().count() <= WIDEST_LAYERS {
        return text.to_owned();
    }
    let start: String = text.chars().take(WIDEST_LAYERS - 1).collect();
    format!("{}…", start.trim_end())
}

fn milliseconds(seconds: f64) -> String {
    match 1e3 * seconds {
        0.0 => "-".to_owned(),
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}
