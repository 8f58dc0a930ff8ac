//! Everything that is to be known before a strategy is chosen: measured here, predicted and simulated.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::measure::Measure;
use nettorrent_engine::task::Task;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::message_cost::{MessageCost, measure_message_cost};
use nettorrent_net::observer::SurveyedLink;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::Spec;
use toml::Table;

use crate::advice::{ALONE, Advice, Judged, advise};
use crate::cores::Cores;
use crate::error::AdviseError;
use crate::judge::{Depth, Judge, JudgeError, Question, may_pay_off};
use crate::message_rate::message_rate;
use crate::predict::{MessageTime, Situation};
use crate::step_time::step_time;

/// How long steps are timed.
const MEASURE_FOR: Duration = Duration::from_secs(1);
/// How long work on messages is timed.
const MEASURE_MESSAGES_FOR: Duration = Duration::from_millis(200);

/// What is to be trained, where, and how much is to be found out.
pub struct Inquiry<'a> {
    /// What is trained.
    pub job: &'a Job,
    /// The same as a function.
    pub task: &'a Arc<dyn Task>,
    /// By how many peers.
    pub n_peers: usize,
    /// Whether they all run on this machine, and share its cores.
    pub is_one_machine: bool,
    /// Every peer's link.
    pub link: LinkSpec,
    /// The links of which that is the worst, if they were measured.
    pub surveyed: Vec<SurveyedLink>,
    /// Whether peers encrypt.
    pub encryption: Encryption,
    /// How much is to be found out.
    pub depth: Depth,
    /// How long all simulations together may take.
    pub budget: Duration,
}

/// What was found out: of one machine alone, of every strategy, and which to take.
pub struct Findings<'a> {
    pub(crate) job: &'a Job,
    pub(crate) situation: Situation<'a>,
    pub(crate) depth: Depth,
    /// What the model is judged by.
    pub(crate) measure: Measure,
    /// The quality to be reached, given or found.
    pub(crate) target: Option<f64>,
    /// How many samples pilots learnt from.
    pub(crate) n_pilot_samples: usize,
    pub(crate) surveyed: Vec<SurveyedLink>,
    pub(crate) alone: Judged,
    /// Sorted by their time.
    pub(crate) judged: Vec<Judged>,
    pub(crate) advice: Option<Advice>,
}

impl<'a> Findings<'a> {
    /// How many things are judged: one machine alone, and every strategy.
    pub const N_JUDGED: usize = STRATEGIES.len() + 1;

    /// Measures, predicts and simulates; `on_next` is told of what is judged next.
    pub fn find_out(inquiry: Inquiry<'a>, on_next: &mut dyn FnMut(&str)) -> Result<Self, AdviseError> {
        let Inquiry { job, task, n_peers, surveyed, depth, budget, .. } = inquiry;
        let cores = Cores::here(if inquiry.is_one_machine { n_peers } else { 1 }, job.threads);
        let situation = Situation {
            n_peers,
            buckets: task.buckets(),
            n_params: task.n_params(),
            optimizer: &job.optimizer,
            n_train: task.labels().len(),
            epochs: job.epochs,
            batch: job.batch,
            scale: job.swarm.scale,
            step: step_time(job, task.clone(), n_peers, MEASURE_FOR)?,
            link: inquiry.link,
            messages: Some(message_time(task.n_values(), inquiry.encryption, cores)?),
            slowdown: cores.slowdown,
        };
        on_next(ALONE);
        let task = task.clone();
        let n_strategies = n_simulated(job, depth, &situation)?;
        let mut judge = Judge::new(Question { job, task, situation, depth, budget, n_strategies })?;
        let mut judged = Vec::new();
        for spec in STRATEGIES {
            on_next(spec.name);
            judged.push(judge.judge(spec, options(job, spec))?);
        }
        judged.sort_by(|a, b| a.rank_s().total_cmp(&b.rank_s()));
        Ok(Self {
            job,
            situation,
            depth,
            measure: inquiry.task.measure(),
            target: judge.target(),
            n_pilot_samples: judge.n_pilot_samples(),
            surveyed,
            advice: advise(judge.alone(), &judged, &SwarmSpec::default().strategy),
            alone: judge.alone().clone(),
            judged,
        })
    }
}

/// Times work on messages: what is made of their numbers, and how they get from one peer to another.
fn message_time(n_values: usize, encryption: Encryption, cores: Cores) -> Result<MessageTime, AdviseError> {
    let MessageCost { frame, bytes_per_s } = measure_message_cost(encryption, MEASURE_MESSAGES_FOR)?;
    Ok(MessageTime {
        codec_bytes_per_s: message_rate(n_values, MEASURE_MESSAGES_FOR)?,
        frame_s: frame.as_secs_f64(),
        bytes_per_s,
        shares_cores: cores.are_shared,
    })
}

/// How many strategies are worth simulating.
fn n_simulated(job: &Job, depth: Depth, situation: &Situation<'_>) -> Result<usize, AdviseError> {
    let mut n = 0;
    for spec in STRATEGIES {
        let strategy = (spec.build)(&options(job, spec)).map_err(JudgeError::Option)?;
        n += usize::from(depth == Depth::Speed || may_pay_off(&*strategy, situation));
    }
    Ok(n)
}

/// The job's own options for its own strategy, and for all others the usual.
fn options(job: &Job, spec: &Spec) -> Table {
    if job.swarm.strategy == spec.name { job.swarm.options.clone() } else { Table::new() }
}
