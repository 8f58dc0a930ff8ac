//! Judges one machine alone and then strategies beside it: how fast each is, whether it learns, and how long it takes to the
//! target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::task::Task;
use nettorrent_sim::{Handling, Scenario, Stragglers};
use nettorrent_swarm::strategies::find;
use nettorrent_swarm::strategy::{OptionError, Payload, Spec, Strategy};
use toml::Table;

use crate::advice::{ALONE, Judged};
use crate::pilot::{Goal, PilotError, PilotSetup};
use crate::predict::{Forecast, MessageTime, Situation, predict};
use crate::sampled::Sampled;
use crate::trial::{Budget, Trial, try_out};
use crate::verdict::Verdict;

/// What is to be judged.
pub(crate) struct Question<'a> {
    /// What is trained.
    pub job: &'a Job,
    /// The same as a function.
    pub task: Arc<dyn Task>,
    /// What speed depends on.
    pub situation: Situation<'a>,
    /// What is to be found out.
    pub depth: Depth,
    /// How long all pilots together may take.
    pub budget: Duration,
    /// How many strategies will be simulated.
    pub n_strategies: usize,
}

/// How much is to be found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// Only how fast strategies are: a few rounds are simulated.
    Speed,
    /// Also whether they learn.
    Learning {
        /// The quality to be reached ([`Measure::quality`](nettorrent_engine::measure::Measure::quality)); without it, about what one
        /// machine alone reaches in the job's epochs.
        target: Option<f64>,
        /// How many seeds are tried, if there is time.
        n_seeds: u32,
    },
}

/// Judges strategies beside one machine alone.
pub(crate) struct Judge<'a> {
    question: Question<'a>,
    /// What pilots learn: the job's own samples, or some of them.
    pilot_task: Arc<dyn Task>,
    budget: Budget,
    target: Option<f64>,
    alone: Judged,
}

/// Why strategies cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The options of one.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// It cannot be simulated.
    #[error("{strategy} cannot be simulated: {source}")]
    Pilot {
        /// Its name.
        strategy: String,
        /// Why.
        source: PilotError,
    },
}

/// What one trial is to find out, and how long it may take.
#[derive(Clone, Copy)]
struct Wanted {
    goal: Goal,
    until: Instant,
    n_seeds: u32,
}

/// So many rounds tell how long they take, and how much is said by those who cannot say it before.
const PILOT_ROUNDS: u32 = 40;
/// The share of a strategy's time that these rounds may take where its learning is judged as well.
const ROUNDS_SHARE: u32 = 4;
/// Real peers look twice a second what their links carry. That shows only if they write more at once than sockets hold.
const UPLINKS_KNOWN_AFTER: Duration = Duration::from_millis(500);
const SOCKET_BYTES: usize = 1 << 20;
/// How far below what one machine alone reaches the target is, if nobody gives one.
const TOLERANCE: f64 = 0.005;
/// The share of its time that a pilot of a long job is planned to take: peers that exchange take longer than one that only trains.
const PLANNED_SHARE: f64 = 0.5;
/// No strategy that is slower than one machine alone by more than this is simulated: a forecast may be off by a factor of two, and hardly
/// any strategy needs fewer than half as many epochs.
const MOST_TIMES_SLOWER: f64 = 4.0;
/// No pilot has fewer samples to learn from and to be tested with, if the job has so many.
const FEWEST_SAMPLES: usize = 1000;

impl<'a> Judge<'a> {
    /// Judges one machine alone; strategies follow.
    pub(crate) fn new(question: Question<'a>) -> Result<Self, JudgeError> {
        let mut budget = Budget::new(question.budget, question.n_strategies + 1);
        let pilot_task = question.pilot_task();
        let usual = SwarmSpec::default();
        let strategy = (find(&usual.strategy)?.build)(&Table::new())?;
        // Whoever is alone computes what any strategy would, and the usual one is as good as others.
        let forecast = predict(&*strategy, &Situation { n_peers: 1, slowdown: 1.0, ..question.situation }, None);
        let until = budget.next_end();
        let (verdict, trial, target) = match question.depth {
            Depth::Speed => (Verdict::untested(question.job.epochs), None, None),
            Depth::Learning { target, n_seeds } => {
                let goal = target.map_or(Goal::Epochs, Goal::Quality);
                let wanted = Wanted { goal, until, n_seeds };
                let trial = question.try_out(&pilot_task, 1, usual, wanted).map_err(failed(ALONE))?;
                let measure = question.task.measure();
                let target =
                    target.or_else(|| trial.median_quality().map(|quality| measure.a_little_worse(quality, TOLERANCE)));
                let verdict = Verdict::new(&trial, &trial, target, question.share_of(&pilot_task));
                (verdict, Some(trial), target)
            }
        };
        let alone = judged(ALONE, forecast, verdict, trial, None);
        Ok(Self { question, pilot_task, budget, target, alone })
    }

    /// What is known of one machine alone.
    pub(crate) fn alone(&self) -> &Judged {
        &self.alone
    }

    /// The quality to be reached; none if learning is not judged, or if there was not even time for an epoch of one machine.
    pub(crate) fn target(&self) -> Option<f64> {
        self.target
    }

    /// How many samples pilots learn from.
    pub(crate) fn n_pilot_samples(&self) -> usize {
        self.pilot_task.labels().len()
    }

    /// Judges a strategy with these options.
    pub(crate) fn judge(&mut self, spec: &Spec, options: Table) -> Result<Judged, JudgeError> {
        let question = &self.question;
        let strategy = (spec.build)(&options)?;
        let payload = Some(strategy.round_plan().payload);
        if question.depth != Depth::Speed && !may_pay_off(&*strategy, &question.situation) {
            let forecast = predict(&*strategy, &question.situation, None);
            return Ok(judged(spec.name, forecast, Verdict::too_slow(), None, payload));
        }
        let swarm = SwarmSpec { strategy: spec.name.to_owned(), options, ..question.job.swarm.clone() };
        let until = self.budget.next_end();
        let wanted = match question.depth {
            Depth::Learning { n_seeds, .. } => {
                Some(Wanted { goal: self.target.map_or(Goal::Epochs, Goal::Quality), until, n_seeds })
            }
            Depth::Speed => None,
        };
        let n_peers = question.situation.n_peers;
        let is_whole = self.n_pilot_samples() == question.situation.n_train;
        // Where an epoch of the whole task is not simulated, some of its rounds are.
        let rounds = match wanted.is_some() && is_whole {
            true => None,
            false => {
                let now = Instant::now();
                let until = match wanted {
                    Some(_) => now + until.saturating_duration_since(now) / ROUNDS_SHARE,
                    None => until,
                };
                let wanted = Wanted { goal: Goal::Rounds(PILOT_ROUNDS), until, n_seeds: 1 };
                Some(question.try_out(&question.task, n_peers, swarm.clone(), wanted).map_err(failed(spec.name))?)
            }
        };
        let trial = wanted.map(|wanted| question.try_out(&self.pilot_task, n_peers, swarm, wanted)).transpose();
        let trial = trial.map_err(failed(spec.name))?;
        let forecast = self.forecast(&*strategy, trial.as_ref(), rounds.as_ref());
        let verdict = match (question.depth, &trial, &self.alone.trial) {
            (Depth::Learning { .. }, Some(trial), Some(alone)) => {
                Verdict::new(trial, alone, self.target, question.share_of(&self.pilot_task))
            }
            _ => Verdict::untested(question.job.epochs),
        };
        Ok(judged(spec.name, forecast, verdict, trial, payload))
    }

    /// What is predicted, unless epochs of the job's own size were simulated, or some rounds of one.
    fn forecast(&self, strategy: &dyn Strategy, trial: Option<&Trial>, rounds: Option<&Trial>) -> Forecast {
        let cost_is_upper_bound = strategy.cost_is_upper_bound();
        let observed = trial.or(rounds).and_then(Trial::cost).filter(|_| cost_is_upper_bound);
        let forecast = predict(strategy, &self.question.situation, observed);
        let n_train = self.question.situation.n_train;
        if let Some(epoch_s) = trial.and_then(Trial::epoch_s).filter(|_| rounds.is_none()) {
            return forecast.as_simulated(epoch_s);
        }
        // Who says less as time goes on is not known by its first rounds, but those of fewer samples are as long as those of all.
        let later_s = trial.and_then(Trial::round_s).filter(|_| cost_is_upper_bound);
        if let Some(round_s) = later_s {
            return forecast.as_simulated(forecast.rounds_per_epoch as f64 * round_s);
        }
        match rounds.and_then(Trial::sample_s) {
            Some(sample_s) => forecast.as_simulated(n_train as f64 * sample_s),
            None => forecast,
        }
    }
}

/// Whether a strategy can be at the target before one machine alone, or nearly so: one whose epochs take many times as long cannot,
/// however well it learns. Of those that tell only the most that they may say, only a simulation shows how long they take.
pub(crate) fn may_pay_off(strategy: &dyn Strategy, situation: &Situation<'_>) -> bool {
    let alone_s = predict(strategy, &Situation { n_peers: 1, slowdown: 1.0, ..*situation }, None).epoch_s;
    strategy.cost_is_upper_bound() || predict(strategy, situation, None).epoch_s <= MOST_TIMES_SLOWER * alone_s
}

impl Question<'_> {
    /// The share of the job's samples that a task has.
    fn share_of(&self, task: &Arc<dyn Task>) -> f64 {
        task.labels().len() as f64 / self.situation.n_train.max(1) as f64
    }

    /// The whole task if there is time for all epochs of it. A target that somebody gave is one for the whole task.
    fn pilot_task(&self) -> Arc<dyn Task> {
        let Situation { n_train, n_peers, batch, step, .. } = self.situation;
        let (n_test, n_trials) = (self.task.n_test(), self.n_strategies + 1);
        // Testing a sample takes a third of training it.
        let samples = self.job.epochs as f64 * (n_train as f64 + n_test as f64 / 3.0);
        let own = self.situation.scale.step_samples(batch.max(1), n_peers) as f64 / n_peers.max(1) as f64;
        let needed_s = samples * step.batch_s(own) / own;
        let share = PLANNED_SHARE * self.budget.as_secs_f64() / n_trials as f64 / needed_s.max(1e-12);
        if share >= 1.0 || !matches!(self.depth, Depth::Learning { target: None, .. }) {
            return self.task.clone();
        }
        let fewest = FEWEST_SAMPLES.max(2 * batch * n_peers);
        let part = |n: usize, fewest: usize| ((share * n as f64) as usize).max(fewest).min(n);
        let (n_train, n_test) = (part(n_train, fewest), part(n_test, FEWEST_SAMPLES));
        Arc::new(Sampled::new(self.task.clone(), n_train, n_test, self.job.seed))
    }

    fn try_out(
        &self,
        task: &Arc<dyn Task>,
        n_peers: usize,
        swarm: SwarmSpec,
        wanted: Wanted,
    ) -> Result<Trial, PilotError> {
        let Wanted { goal, until, n_seeds } = wanted;
        let Situation { step, link, messages, slowdown, .. } = self.situation;
        let job = Job { swarm, ..self.job.clone() };
        // Who thinks as long as it really does takes its steps then. A batch is handed to the thread that computes and comes back from it:
        // both wake, as for a message.
        let fixed_s = step.fixed_s + messages.map_or(step.update_s, |time| time.frame_s);
        let shows_uplinks = 4 * task.n_values() >= SOCKET_BYTES;
        let scenario = Scenario {
            link,
            sample_time: Duration::try_from_secs_f64(step.sample_s).unwrap_or(Duration::MAX),
            step_time: Duration::try_from_secs_f64(fixed_s).unwrap_or(Duration::MAX),
            handling: messages.map_or_else(Handling::default, handling),
            uplinks_known_after: if shows_uplinks { UPLINKS_KNOWN_AFTER } else { Duration::MAX },
            stragglers: Stragglers { share: 1.0, factor: slowdown.max(1.0) },
            deadline: Duration::MAX,
            ..Scenario::lan()
        };
        try_out(&job, task, &PilotSetup { n_peers, scenario, thinks: messages.is_some(), goal, until }, n_seeds)
    }
}

fn judged(name: &str, forecast: Forecast, verdict: Verdict, trial: Option<Trial>, payload: Option<Payload>) -> Judged {
    let seconds = verdict.epochs.map(|epochs| epochs * forecast.epoch_s);
    Judged { strategy: name.to_owned(), forecast, verdict, seconds, trial, payload }
}

/// Half of what a message costs is its sender's, half its receiver's. What is made of its numbers, peers really do.
fn handling(time: MessageTime) -> Handling {
    Handling {
        frame_time: Duration::try_from_secs_f64(time.frame_s / 2.0).unwrap_or_default(),
        bytes_per_second: Some((2.0 * time.bytes_per_s) as u64),
        shares_cores: time.shares_cores,
    }
}

fn failed(strategy: &str) -> impl FnOnce(PilotError) -> JudgeError {
    let strategy = strategy.to_owned();
    |source| JudgeError::Pilot { strategy, source }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use nettorrent_engine::job::Job;
    use nettorrent_engine::task::Task;
    use nettorrent_sim::{Toy, ToySize};
    use nettorrent_swarm::strategies::find;
    use toml::Table;

    use super::{Depth, Judge, Question};
    use crate::advice::{Judged, advise};
    use crate::predict::{Situation, StepTime};
    use crate::verdict::Learning;

    const LEARNING: Depth = Depth::Learning { target: None, n_seeds: 3 };

    /// One machine alone and two strategies, four peers over such links; and how many samples pilots had.
    fn judge(n_train: usize, link: &str, depth: Depth, budget_s: u64) -> (Judged, Vec<Judged>, usize) {
        let task: Arc<dyn Task> = Arc::new(Toy::with_size(ToySize { n_train, n_test: 500, ..ToySize::default() }, 1));
        let job = Job { epochs: 4, batch: 4, threads: 1, ..Job::default() };
        let situation = Situation {
            n_peers: 4,
            buckets: task.buckets(),
            n_params: task.n_params(),
            optimizer: &job.optimizer,
            n_train,
            epochs: job.epochs,
            batch: job.batch,
            scale: job.swarm.scale,
            step: StepTime { sample_s: 0.01, ..StepTime::default() },
            link: link.parse().unwrap(),
            messages: None,
            slowdown: 1.0,
        };
        let budget = Duration::from_secs(budget_s);
        let question = Question { job: &job, task: task.clone(), situation, depth, budget, n_strategies: 2 };
        let mut judge = Judge::new(question).unwrap();
        let names = ["ring-all-reduce", "threshold"];
        let judged = names.map(|name| judge.judge(find(name).unwrap(), Table::new()).unwrap()).to_vec();
        (judge.alone().clone(), judged, judge.n_pilot_samples())
    }

    #[test]
    fn one_machine_is_the_baseline_and_wins_where_links_are_slow() {
        let (alone, fast, n_samples) = judge(400, "1gbit/10us", LEARNING, 3600);
        assert_eq!((n_samples, alone.verdict.learning, alone.verdict.n_seeds), (400, Learning::Reached, 3));
        // 400 samples of 10 ms each.
        assert!((alone.forecast.epoch_s - 4.0).abs() < 1e-9, "{alone:?}");
        assert_eq!(alone.seconds, alone.verdict.epochs.map(|epochs| 4.0 * epochs));
        let ring = &fast[0];
        assert!(ring.forecast.epoch_s < 0.5 * alone.forecast.epoch_s, "{ring:?}");
        let (alone, slow, _) = judge(400, "1mbit/2s", LEARNING, 3600);
        assert_eq!(advise(&alone, &slow, "ring-all-reduce").unwrap().strategy, "alone");
        // It may be ahead of the others by some batches, but what it waits for takes seconds to come.
        let free = &slow[1];
        assert!(free.forecast.epoch_s > fast[1].forecast.epoch_s + 2.0, "{free:?}");
    }

    #[test]
    fn without_pilots_only_speed_is_predicted() {
        let (alone, judged, _) = judge(400, "1gbit/10us", Depth::Speed, 3600);
        for one in judged.iter().chain([&alone]) {
            assert_eq!((one.verdict.learning, one.verdict.epochs), (Learning::Untested, Some(4.0)), "{one:?}");
        }
        // A batch is shared by four, and the network takes hardly any time.
        assert!((judged[0].forecast.epoch_s - 1.0).abs() < 0.1 && judged[0].trial.is_none(), "{judged:?}");
    }

    #[test]
    fn pilots_of_long_jobs_have_fewer_samples_unless_there_is_a_target() {
        // An epoch of 4000 samples takes 40 seconds, and all four more than the pilots' third of the budget.
        let (_, judged, n_samples) = judge(4000, "1gbit/10us", LEARNING, 300);
        assert!((1000..2000).contains(&n_samples), "{n_samples}");
        let predicted = 40.0 / 4.0;
        assert!((judged[0].forecast.epoch_s / predicted - 1.0).abs() < 0.2, "of the whole job: {:?}", judged[0]);
        let target = Depth::Learning { target: Some(0.5), n_seeds: 1 };
        assert_eq!(judge(4000, "1gbit/10us", target, 300).2, 4000);
    }

    #[test]
    fn without_time_nothing_is_known_about_learning() {
        let (alone, judged, _) = judge(400, "1gbit/10us", LEARNING, 0);
        for one in judged.iter().chain([&alone]) {
            assert_eq!((one.verdict.learning, one.seconds), (Learning::Unknown, None), "{one:?}");
        }
        assert_eq!(advise(&alone, &judged, "ring-all-reduce"), None);
    }
}
