//! How far a peer is: enough to go on from there, on the same machine or on another.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::sampling::ledger::Ledger;
use nettorrent_engine::model::Score;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::rng::mix;
use serde::{Deserialize, Serialize};

use crate::train_plan::TrainPlan;

/// How far training is. All randomness is a function of the seed and these numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// How much of the parameters' past was trained by whom.
    #[serde(alias = "standing")]
    pub version: StateVersion,
    /// Batches that a peer has trained one after the other.
    pub step: u64,
    /// Which samples of the present epoch are trained, and by whom.
    pub ledger: Ledger,
    /// After how many epochs the run ends, if the strategy has decided that.
    #[serde(default)]
    pub ends_after: Option<u64>,
    /// How often training has diverged and gone back.
    #[serde(default)]
    pub n_rollbacks: u32,
    /// The first round since it did: what was said in earlier ones is void.
    #[serde(default)]
    pub first_round: u32,
}

impl Place {
    /// The place after so many batches of an epoch, for who goes on from what one machine has trained alone.
    pub fn after_batches(epoch: u64, batch: u32, step: u64, n_samples: u64) -> Self {
        let version = StateVersion { n_samples, round: 0, history: mix(step) };
        let ledger = Ledger { epoch, start: batch, segments: Vec::new() };
        Self { version, step, ledger, ..Self::default() }
    }

    /// The run's last epoch, where the job has so many: a strategy may have ended it before.
    pub fn last_epoch(&self, epochs: u64) -> u64 {
        self.ends_after.map_or(epochs, |last| last.min(epochs))
    }

    /// Forgets that training has gone back: it goes on with the job's whole learning rate.
    pub fn forget_rollbacks(&mut self) {
        self.version.round = self.n_rounds();
        (self.n_rollbacks, self.first_round) = (0, 0);
    }
}

/// Further than this apart peers never are: the first round after going back is so many after the last.
pub(crate) const ROUNDS_APART: u32 = 1 << 20;

impl Place {
    /// How many rounds were made, those among them that were taken back.
    pub fn n_rounds(&self) -> u32 {
        self.version.round.saturating_sub(self.n_rollbacks.saturating_mul(ROUNDS_APART))
    }

    /// The share of the job's learning rate that is left: it is halved when training has diverged.
    pub fn lr_factor(&self) -> f32 {
        0.5_f32.powi(self.n_rollbacks.min(32) as i32)
    }
}

/// The version of a state: by what peers compare how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StateVersion {
    /// Samples that went into the parameters. This comes first: a peer that was cut off and went on alone has made more
    /// rounds than the rest, and yet learnt less.
    pub n_samples: u64,
    /// Rounds of exchange.
    pub round: u32,
    /// A hash of the past: peers with the same have seen the same rounds in the same views.
    #[serde(alias = "lineage")]
    pub history: u64,
}

impl StateVersion {
    /// One round more, made in this view with so many samples.
    pub(crate) fn advance(&mut self, view: u32, n_samples: u64) {
        self.n_samples += n_samples;
        self.round += 1;
        self.pass(view);
    }

    /// The past goes on in this view.
    pub(crate) fn pass(&mut self, view: u32) {
        self.history = mix(self.history ^ mix(u64::from(view) << 32 | u64::from(self.round)));
    }
}

/// All that training goes on from.
#[derive(Clone, Debug)]
pub struct State {
    /// The parameters, shared until they change.
    pub values: Arc<Vec<f32>>,
    /// The optimizer with what it remembers.
    pub optimizer: Optimizer,
    /// How far it is.
    pub place: Place,
    /// The strategy's state: vectors as long as the parameters, shared until they change.
    pub strategy_state: Vec<Arc<Vec<f32>>>,
    /// The average of the parameters, where the job wants one.
    pub average: Option<Arc<Vec<f32>>>,
    /// How samples of the present epoch were classified while training, as far as the one whose state it is knows.
    pub epoch_score: Score,
    /// Training samples that it leaves out because they have no finite loss or gradient, or an enormous one.
    pub left_out: Arc<BTreeSet<usize>>,
}

impl State {
    /// A state in which no sample of the present epoch counts yet.
    pub fn new(values: Arc<Vec<f32>>, optimizer: Optimizer, place: Place, strategy_state: Vec<Arc<Vec<f32>>>) -> Self {
        let (epoch_score, left_out) = (Score::default(), Arc::default());
        Self { values, optimizer, place, strategy_state, average: None, epoch_score, left_out }
    }

    /// The beginning, as the job's seed gives it.
    pub fn fresh(training: &TrainPlan) -> Self {
        Self::from_values(training, training.initial_values())
    }

    /// The beginning, from parameters that come from elsewhere.
    ///
    /// # Panics
    /// If they belong to another task.
    pub fn from_values(training: &TrainPlan, values: Vec<f32>) -> Self {
        assert_eq!(values.len(), training.task.n_values(), "the parameters belong to another task");
        let history = values.iter().fold(0, |hash, value| mix(hash ^ u64::from(value.to_bits())));
        let version = StateVersion { history, ..StateVersion::default() };
        let optimizer = Optimizer::new(training.optimizer.clone(), training.task.n_params());
        Self::new(Arc::new(values), optimizer, Place { version, ..Place::default() }, Vec::new())
    }
}
