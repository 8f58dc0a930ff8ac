//! How fast a strategy will be, from what it says that a round costs, how long a batch takes, and the link.
//!
//! What is taken to be so:
//! - all peers compute equally fast and have equal links; each link sends and receives at its full rate at the same time, to and
//!   from all others together, and each message is its delay on its way;
//! - a batch takes some time however few samples it has, and some for each of them ([`StepTime`]);
//! - messages take their peers' time, which is measured ([`MessageTime`]): each peer goes through its own vector once a round, however
//!   little it says of it, and what it sends and receives takes time by the frame and by the byte; taking steps belongs to the time of a
//!   batch;
//! - whoever exchanges in rounds trains locally, then exchanges. The busiest link carries its bytes, and as many delays as the
//!   exchange has steps follow one another. Long vectors are cut into messages, so that one step's last messages go while the
//!   next step's first ones do: how much of that there is follows from how evenly links are used (`Flow`);
//! - the parts of a gradient come evenly in the second half of a batch's time, and go at once. Weights go when the local phase is over;
//! - whoever trains asynchronously waits where its link cannot carry what it says in the time of a batch, and where it may not be further ahead
//!   of the others than it has heard of them;
//! - judging a sample, where a strategy does that in its rounds, takes a third of training it;
//! - what is said once an epoch is left out: tests, and bringing replicas together.
//!
//! Where a strategy can only say what a round costs at most, so can this; see [`Forecast::is_bound`].
//!
//! `tests/predictions.rs` holds it against the simulator: with four and eight peers on three links, exchanges in rounds take what is
//! predicted within a quarter. With two, a vector that goes there and back cannot be told from two halves that go both ways at once, which are
//! twice as fast. So whoever has the time simulates: what is said here then only fills in what was not ([`Forecast::as_simulated`]).

use std::ops::Range;

use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_swarm::collective::SEGMENT_LEN;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::sampling::rounds::RoundRule;
use nettorrent_swarm::strategy::{Cost, CostQuestion, Payload, Strategy};
use serde::Serialize;

/// What a strategy's speed depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// How many peers there are.
    pub n_peers: usize,
    /// The buckets of the parameters.
    pub buckets: &'a [Range<usize>],
    /// How many of its numbers are trained.
    pub n_params: usize,
    /// How each peer takes its steps: some strategies exchange what that remembers.
    pub optimizer: &'a OptimizerSpec,
    /// Training samples, of all peers together.
    pub n_train: usize,
    /// How many epochs the run has.
    pub epochs: u64,
    /// Samples in a batch.
    pub batch: usize,
    /// Whether a batch is each peer's, or shared by all.
    pub scale: Scale,
    /// How long a peer takes to train a batch.
    pub step: StepTime,
    /// Every peer's link.
    pub link: LinkSpec,
    /// What messages take of a peer's time besides; none where that is taken to be nothing.
    pub messages: Option<MessageTime>,
    /// How many times as long a peer takes for all this as it would alone, because others share its machine.
    pub slowdown: f64,
}

/// How long a batch takes: some time however few samples it has, and some for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// The gradient of no samples: parameters are read all the same.
    pub fixed_s: f64,
    /// The gradient of each sample.
    pub sample_s: f64,
    /// The optimizer's step.
    pub update_s: f64,
}

impl StepTime {
    /// The line through two measurements, how long the gradient of so many samples took, and an optimizer's step. Neither part is below 0;
    /// with as many samples in both, all of it is the samples'.
    pub fn through(few: (usize, f64), many: (usize, f64), update_s: f64) -> Self {
        let ((n_few, few_s), (n_many, many_s)) = (few, many);
        let fixed_s = match n_few < n_many {
            true => many_s - ((many_s - few_s) / (n_many - n_few) as f64).max(0.0) * n_many as f64,
            false => 0.0,
        };
        let fixed_s = fixed_s.max(0.0);
        Self { fixed_s, sample_s: (many_s - fixed_s) / n_many.max(1) as f64, update_s }
    }

    /// How long a batch of so many samples takes, its step with it.
    pub fn batch_s(&self, n_samples: f64) -> f64 {
        self.fixed_s + n_samples * self.sample_s + self.update_s
    }
}

/// What messages take of a peer's time besides the time on its link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessageTime {
    /// Numbers are written, checked and added up at so many bytes a second.
    pub codec_bytes_per_s: f64,
    /// A message takes so long from one peer to another, both together, however short it is.
    pub frame_s: f64,
    /// And so many of its bytes go in a second besides.
    pub bytes_per_s: f64,
    /// Whether that is done by cores that also compute.
    pub shares_cores: bool,
}

impl Situation<'_> {
    fn messages_s(&self, cost: &Cost) -> f64 {
        let own = 4 * self.buckets.iter().map(Range::len).sum::<usize>() as u64;
        let moved = (cost.most_sent + cost.most_received) as f64;
        self.messages.map_or(0.0, |time| {
            let n_frames = f64::from(cost.n_steps).max(moved / 2.0 / (4 * SEGMENT_LEN) as f64);
            (own as f64 + moved) / time.codec_bytes_per_s.max(1.0)
                + n_frames * time.frame_s
                + moved / 2.0 / time.bytes_per_s.max(1.0)
        })
    }
}

/// Of a longer run no more epochs than this are looked at: rounds then are as long as they become.
const MOST_EPOCHS: u64 = 16;

/// The steps of an epoch.
pub struct Steps {
    /// How many a peer takes in an epoch.
    pub per_epoch: u64,
    /// How many it takes between two exchanges.
    pub per_round: u64,
    /// How many samples it trains in one.
    pub own_samples: f64,
}

impl Situation<'_> {
    /// The steps of an epoch that is cut into rounds by this rule, in the mean over the run: early rounds may be shorter.
    pub fn steps(&self, rule: RoundRule) -> Steps {
        let step = rule.scale.step_samples(self.batch.max(1), self.n_peers.max(1));
        let (per_epoch, own_samples) = (self.n_train.div_ceil(step).max(1), step as f64 / self.n_peers.max(1) as f64);
        let n_epochs = self.epochs.clamp(1, MOST_EPOCHS);
        let n_rounds = |epoch| rule.round_ends(epoch, per_epoch, own_samples, self.n_peers).len();
        let per_round =
            (per_epoch as f64 * n_epochs as f64 / (0..n_epochs).map(n_rounds).sum::<usize>() as f64).round();
        Steps { per_epoch: per_epoch as u64, per_round: per_round as u64, own_samples }
    }
}

/// What is predicted of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// How long a round takes; of asynchronous strategies, a batch.
    pub round_s: f64,
    /// How many of them an epoch has.
    pub rounds_per_epoch: u64,
    /// How many batches a peer trains in each.
    pub batches_per_round: u64,
    /// How long a peer makes and reads messages in each.
    pub messages_s: f64,
    /// How long an epoch takes, without its test.
    pub epoch_s: f64,
    /// Samples a second, all peers together.
    pub samples_per_s: f64,
    /// Bytes of bodies that a peer sends in an epoch, in the mean over all.
    pub bytes_per_peer: f64,
    /// The share of its time in which a peer neither computes nor works on messages.
    pub wait_share: f64,
    /// Whether the strategy may say less than is counted with here: then it is at least as fast as this.
    pub is_bound: bool,
}

impl Forecast {
    /// The same of epochs that took so long in the simulator.
    #[must_use]
    pub(crate) fn as_simulated(self, epoch_s: f64) -> Self {
        let factor = epoch_s / self.epoch_s.max(1e-12);
        Self {
            round_s: factor * self.round_s,
            epoch_s,
            samples_per_s: self.samples_per_s / factor.max(1e-12),
            wait_share: (1.0 - (1.0 - self.wait_share) / factor.max(1e-12)).max(0.0),
            ..self
        }
    }
}

/// What is predicted of a strategy. What a round really costs goes before what the strategy says, if somebody has `observed` it.
pub fn predict(strategy: &dyn Strategy, situation: &Situation<'_>, observed: Option<Cost>) -> Forecast {
    let Situation { n_peers, n_params, n_train, .. } = *situation;
    let round_plan = strategy.round_plan();
    let sizes = (situation.buckets.iter().map(ExactSizeIterator::len).sum(), n_params);
    let buckets = &round_plan.optimizer_state.exchanged(situation.buckets, sizes, situation.optimizer);
    let steps =
        situation.steps(RoundRule { length: round_plan.length, scale: situation.scale, redeal: 0, overhead: 0 });
    let rounds_per_epoch = steps.per_epoch.div_ceil(steps.per_round);
    let round = CostQuestion { n_peers: n_peers.max(1), buckets, n_params, round: 0, site_sizes: &[] };
    let cost = observed.unwrap_or_else(|| strategy.cost(&round));
    let step_s = situation.slowdown * situation.step.batch_s(steps.own_samples);
    let judging_s = situation.slowdown * strategy.n_held_out(n_train) as f64 * situation.step.sample_s / 3.0;
    // The last round of an epoch may be shorter, so that the computing is counted for the epoch and the exchange for each round.
    let compute_s = steps.per_epoch as f64 / rounds_per_epoch as f64 * step_s + judging_s;
    let messages_s = if n_peers > 1 { situation.slowdown * situation.messages_s(&cost) } else { 0.0 };
    let link = Link::new(situation.link, &cost, Flow::of(&cost, n_peers), buckets);
    let round_s = messages_s
        + match round_plan.payload {
            Payload::Updates => link.free_round_s(compute_s, strategy.delay()),
            payload @ Payload::Gradients => compute_s + (link.exchange_s(payload) - link.hidden_s(step_s)).max(0.0),
            payload @ Payload::Weights => compute_s + link.exchange_s(payload),
        };
    let epoch_s = rounds_per_epoch as f64 * round_s;
    Forecast {
        round_s,
        rounds_per_epoch,
        batches_per_round: steps.per_round,
        messages_s,
        epoch_s,
        samples_per_s: n_train as f64 / epoch_s.max(1e-12),
        bytes_per_peer: rounds_per_epoch as f64 * cost.total as f64 / n_peers.max(1) as f64,
        wait_share: 1.0 - (compute_s + messages_s) / round_s.max(1e-12),
        is_bound: observed.is_none() && strategy.cost_is_upper_bound(),
    }
}

/// A link, and how long what a strategy says takes on it.
struct Link {
    flow: Flow,
    n_steps: u32,
    delay_s: f64,
    /// All that the busiest sender sends in a round.
    sending_s: f64,
    /// All that the busiest receiver receives.
    receiving_s: f64,
    /// One message.
    message_s: f64,
    /// The longest bucket's share of the vector.
    longest_bucket: f64,
    n_buckets: usize,
}

/// How the bytes of a round follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// All links are equally busy all the time.
    Even,
    /// One vector goes from hand to hand. Nothing comes back to those who began, so they cannot wait for its end: rounds follow
    /// each other at the distance of one hop.
    Relay,
    /// All goes to one peer, and then from it.
    Hub,
    /// Something else.
    Uneven,
}

impl Flow {
    fn of(cost: &Cost, n_peers: usize) -> Self {
        let Cost { total, most_sent, most_received, n_steps } = *cost;
        // Chunks may differ by a number, so the busiest is a little busier than the others.
        if total as f64 > 0.95 * n_peers as f64 * most_sent as f64 {
            Self::Even
        } else if n_peers > 3 && n_steps == 2 && total <= most_sent + most_received {
            Self::Hub
        } else if total == u64::from(n_steps) * most_sent && most_sent == most_received {
            Self::Relay
        } else {
            Self::Uneven
        }
    }
}

impl Link {
    fn new(shape: LinkSpec, cost: &Cost, flow: Flow, buckets: &[Range<usize>]) -> Self {
        let seconds = |n_bytes: f64| shape.bits_per_second.map_or(0.0, |rate| 8.0 * n_bytes / rate as f64);
        let longest = buckets.iter().map(Range::len).max().unwrap_or(0) as f64;
        let longest_bucket = longest / buckets.iter().map(Range::len).sum::<usize>().max(1) as f64;
        let message = 4.0 * longest.min(SEGMENT_LEN as f64);
        let a_step = longest_bucket * cost.most_sent as f64 / f64::from(cost.n_steps.max(1));
        Self {
            delay_s: shape.delay.as_secs_f64(),
            sending_s: seconds(cost.most_sent as f64),
            receiving_s: seconds(cost.most_received as f64),
            message_s: seconds(if flow == Flow::Even {
                message.min(a_step)
            } else {
                message.min(cost.most_sent as f64)
            }),
            flow,
            n_steps: cost.n_steps,
            longest_bucket,
            n_buckets: buckets.len(),
        }
    }

    fn busiest_s(&self) -> f64 {
        self.sending_s.max(self.receiving_s)
    }

    fn exchange_s(&self, payload: Payload) -> f64 {
        if self.n_steps == 0 {
            return 0.0;
        }
        let Self { delay_s, message_s, sending_s, receiving_s, .. } = *self;
        let delays_s = f64::from(self.n_steps) * delay_s;
        match self.flow {
            Flow::Even => {
                let first_s = f64::from(self.n_steps - 1) * (delay_s + message_s);
                first_s.max(self.busiest_s() - message_s) + message_s + delay_s
            }
            Flow::Relay if self.n_steps == 1 => self.busiest_s() + delay_s,
            Flow::Relay => self.busiest_s() + message_s + delay_s,
            // What comes bucket by bucket goes back bucket by bucket, and meets what comes in the next round.
            Flow::Hub if payload == Payload::Gradients => {
                delays_s + receiving_s + self.longest_bucket / 2.0 * sending_s
            }
            Flow::Hub => delays_s + receiving_s + sending_s,
            Flow::Uneven => delays_s + self.busiest_s() + message_s,
        }
    }

    /// A round of asynchronous strategies. Who may be no batch ahead of the others waits until it has heard them; who may be some ahead
    /// waits only where that is not enough.
    fn free_round_s(&self, compute_s: f64, delay: f64) -> f64 {
        if self.n_steps == 0 {
            return compute_s;
        }
        let heard_s = compute_s + self.busiest_s() + self.delay_s;
        (heard_s / (delay + 1.0)).max(compute_s).max(self.busiest_s())
    }

    /// How much of an exchange of gradients goes on while a batch is still computed.
    fn hidden_s(&self, batch_s: f64) -> f64 {
        let early_s = batch_s / 2.0 * (1.0 - 1.0 / self.n_buckets.max(1) as f64);
        early_s.min(self.busiest_s() * (1.0 - self.longest_bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, MessageTime, OptimizerSpec, Scale, Situation, StepTime, predict};
    use nettorrent_swarm::strategies::STRATEGIES;
    use nettorrent_swarm::strategy::Cost;

    #[test]
    fn a_line_goes_through_two_measurements() {
        let line = StepTime::through((8, 0.5), (32, 0.8), 0.1);
        assert!((line.fixed_s - 0.4).abs() < 1e-9 && (line.sample_s - 0.0125).abs() < 1e-9, "{line:?}");
        assert!((line.batch_s(8.0) - 0.6).abs() < 1e-9, "{line:?}");
        // What cannot be is noise: fewer samples that take longer, and nothing that takes less than nothing.
        let parts = |few| {
            let StepTime { fixed_s, sample_s, .. } = StepTime::through(few, (32, 0.8), 0.0);
            (fixed_s, sample_s)
        };
        assert_eq!([parts((8, 0.9)), parts((8, 0.1)), parts((32, 0.9))], [(0.8, 0.0), (0.0, 0.025), (0.0, 0.025)]);
    }

    #[test]
    fn flows_are_told_apart() {
        let cost = |total, most_sent, most_received, n_steps| Cost { total, most_sent, most_received, n_steps };
        for (cost, n_peers, flow) in [
            (cost(600, 150, 150, 6), 4, Flow::Even),
            (cost(300, 100, 100, 3), 4, Flow::Relay),
            (cost(600, 300, 300, 2), 4, Flow::Hub),
            (cost(600, 300, 200, 4), 4, Flow::Uneven),
        ] {
            assert_eq!(Flow::of(&cost, n_peers), flow, "{cost:?}");
        }
    }

    #[test]
    fn a_slower_link_is_never_faster_and_nobody_waits_alone() {
        let whole = 0..100_000;
        for spec in STRATEGIES {
            let strategy = (spec.build)(&(spec.defaults)()).expect("defaults are right");
            let told_at = |rate: Option<f64>, n_peers, link: &str| {
                let situation = Situation {
                    n_peers,
                    buckets: std::slice::from_ref(&whole),
                    n_params: whole.end,
                    optimizer: &OptimizerSpec::default(),
                    n_train: 1000,
                    epochs: 3,
                    batch: 10,
                    scale: Scale::default(),
                    step: StepTime { sample_s: 0.001, ..StepTime::default() },
                    slowdown: 1.0,
                    link: link.parse().expect("a link"),
                    messages: rate.map(|rate| MessageTime {
                        codec_bytes_per_s: rate,
                        frame_s: 0.001,
                        bytes_per_s: 1e9,
                        shares_cores: false,
                    }),
                };
                predict(&*strategy, &situation, None)
            };
            let told = |n_peers, link| told_at(None, n_peers, link);
            let links = ["1gbit/100us", "100mbit/1ms", "100mbit/20ms", "1mbit/20ms"];
            let epochs: Vec<f64> = links.iter().map(|link| told(4, link).epoch_s).collect();
            assert!(epochs.is_sorted() && epochs[0] < epochs[3], "{}: {epochs:?}", spec.name);
            let alone = told(1, links[3]);
            assert_eq!((alone.bytes_per_peer, alone.wait_share < 1e-9), (0.0, true), "{}: {alone:?}", spec.name);
            let slower = alone.as_simulated(2.0 * alone.epoch_s);
            assert!((slower.epoch_s - 2.0 * alone.epoch_s).abs() < 1e-9 && (slower.wait_share - 0.5).abs() < 1e-9);
            assert_eq!(told_at(Some(1e3), 1, links[3]), alone, "{}: nobody works on messages alone", spec.name);
            let (free, laden) = (told(4, links[0]), told_at(Some(4e6), 4, links[0]));
            // To go through 100,000 numbers of four bytes takes a tenth of a second.
            assert!(laden.messages_s >= 0.1 && free.messages_s == 0.0, "{}: {laden:?}", spec.name);
            assert!((laden.round_s - free.round_s - laden.messages_s).abs() < 1e-9, "{}: {laden:?}", spec.name);
            assert!((laden.as_simulated(7.0).epoch_s - 7.0).abs() < 1e-9, "{}: {laden:?}", spec.name);
        }
    }
}
