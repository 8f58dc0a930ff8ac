//! The plan of a pipeline: stages of consecutive layers, and the grid of peers of each.

use std::ops::Range;

use nettorrent_engine::job::StageSpec;
use nettorrent_engine::model::{ModelError, ModelSpec, Part, PartSpec};
use nettorrent_swarm::link_spec::LinkSpecError;
use serde::Serialize;

/// Consecutive layers and the grid of peers that share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Which of the description's layers.
    pub layers: Range<usize>,
    /// Among how many peers the samples of a batch are divided.
    pub batch_shards: usize,
    /// Among how many peers the outputs of the first layer are divided.
    pub tensor_shards: usize,
}

/// A block's place in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Coordinates {
    /// Which stage.
    pub stage: usize,
    /// Which block of samples.
    pub batch_shard: usize,
    /// Which block of outputs.
    pub tensor_shard: usize,
}

/// Why layers cannot be shared out so.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The model itself is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There are more or fewer layers than the stages have.
    #[error(
        "the stages have {given} layers together, but the model has {there} (residual blocks count as one; `nettorrent model \
         describe MODEL --toml` lists them); give every layer to one stage"
    )]
    Cover {
        /// How many layers all stages have.
        given: usize,
        /// How many the model has.
        there: usize,
    },
    /// Nothing is to be done.
    #[error("pipeline.stages[{stage}].{field} = 0: must be at least 1")]
    Empty {
        /// Which stage.
        stage: usize,
        /// Which of its fields.
        field: &'static str,
    },
    /// A stage's layers cannot be held by peers in this way.
    #[error("pipeline.stages[{stage}]: {problem}")]
    Stage {
        /// Which stage.
        stage: usize,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The stages are still to be chosen.
    #[error("pipeline.stages = \"auto\" has to be planned for some number of peers first; see `nettorrent plan`")]
    Unplanned,
    /// A pipeline needs more peers than there are.
    #[error("this plan has {n_slots} places, but there are only {n_peers} peers; use smaller grids or fewer stages")]
    Peers {
        /// How many places the plan has.
        n_slots: usize,
        /// How many peers there are.
        n_peers: usize,
    },
    /// The link is none.
    #[error("pipeline.link: {0}")]
    Link(#[from] LinkSpecError),
    /// A number that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// No plan fits the peers' memory.
    #[error(
        "no plan for {n_peers} peers fits in {} of memory per peer; the one that takes least needs {}: use more \
         peers, a smaller batch, or a smaller pipeline.in_flight",
        size(*limit),
        size(*least)
    )]
    Memory {
        /// How many peers there are.
        n_peers: usize,
        /// What each has.
        limit: u64,
        /// What the plan that takes least needs.
        least: u64,
    },
}

fn size(n_bytes: u64) -> String {
    let (unit, name) =
        [(1e9, "GB"), (1e6, "MB")].into_iter().find(|(unit, _)| n_bytes as f64 >= *unit).unwrap_or((1e3, "kB"));
    format!("{:.1} {name}", n_bytes as f64 / unit)
}

/// Who does what in one pipeline: its slots are numbered stage by stage, batch shard by batch shard, tensor shard by tensor shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelinePlan {
    /// From the first layers to the last.
    pub stages: Vec<Stage>,
}

impl PipelinePlan {
    /// The plan with these stages, if the network can be shared out so.
    pub fn new(spec: &ModelSpec, given: &[StageSpec]) -> Result<Self, PlanError> {
        let mut stages = Vec::with_capacity(given.len());
        let mut start: usize = 0;
        for (stage, one) in given.iter().enumerate() {
            for (field, n) in
                [("layers", one.layers), ("batch_shards", one.batch_shards), ("tensor_shards", one.tensor_shards)]
            {
                if n == 0 {
                    return Err(PlanError::Empty { stage, field });
                }
            }
            let end = start.saturating_add(one.layers);
            stages.push(Stage { layers: start..end, batch_shards: one.batch_shards, tensor_shards: one.tensor_shards });
            start = end;
        }
        if start != spec.layers.len() {
            return Err(PlanError::Cover { given: start, there: spec.layers.len() });
        }
        for (stage, one) in stages.iter().enumerate() {
            check(spec, one).map_err(|problem| PlanError::Stage { stage, problem })?;
        }
        Ok(Self { stages })
    }

    /// Its stages as a job says them.
    pub fn stage_specs(&self) -> Vec<StageSpec> {
        let spec = |stage: &Stage| StageSpec {
            layers: stage.layers.len(),
            batch_shards: stage.batch_shards,
            tensor_shards: stage.tensor_shards,
        };
        self.stages.iter().map(spec).collect()
    }

    /// How many slots a pipeline has.
    pub fn n_slots(&self) -> usize {
        self.stages.iter().map(|stage| stage.batch_shards * stage.tensor_shards).sum()
    }

    /// Where a slot is.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(crate) fn coordinates(&self, slot: usize) -> Coordinates {
        let mut rest = slot;
        for (stage, Stage { batch_shards, tensor_shards, .. }) in self.stages.iter().enumerate() {
            if rest < batch_shards * tensor_shards {
                return Coordinates { stage, batch_shard: rest / tensor_shards, tensor_shard: rest % tensor_shards };
            }
            rest -= batch_shards * tensor_shards;
        }
        panic!("a pipeline of {} slots has no slot {slot}", self.n_slots())
    }

    /// The slot at some coordinates.
    pub(crate) fn slot(&self, at: Coordinates) -> usize {
        let before: usize = self.stages[..at.stage].iter().map(|stage| stage.batch_shards * stage.tensor_shards).sum();
        before + at.batch_shard * self.stages[at.stage].tensor_shards + at.tensor_shard
    }

    /// Which part of the network a slot holds.
    pub(crate) fn part(&self, slot: usize) -> PartSpec {
        let Coordinates { stage, tensor_shard, .. } = self.coordinates(slot);
        let Stage { layers, tensor_shards, .. } = &self.stages[stage];
        PartSpec { layers: layers.clone(), column: tensor_shard, columns: *tensor_shards }
    }
}

/// Whether peers can hold a stage's layers so, and if not, why.
fn check(spec: &ModelSpec, stage: &Stage) -> Result<(), String> {
    let Stage { layers, batch_shards, tensor_shards } = stage;
    if spec.layers[layers.clone()].iter().all(|layer| !layer.has_parameters()) {
        return Err("none of its layers has parameters; let them belong to the stage before or after it".into());
    }
    for tensor_shard in 0..*tensor_shards {
        let part = PartSpec { layers: layers.clone(), column: tensor_shard, columns: *tensor_shards };
        let needs_all_rows = Part::new(spec, &part).map_err(|error| error.to_string())?.needs_all_rows();
        if needs_all_rows && *batch_shards > 1 {
            return Err(format!(
                "batch_shards = {batch_shards}: a batch norm among its layers needs the whole batch's statistics; use batch_shards = 1, or end the \
                 stage before the batch norm's layer"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::StageSpec;
    use nettorrent_engine::model::{ModelSpec, zoo};

    use super::{Coordinates, PipelinePlan, PlanError};

    fn model(name: &str) -> ModelSpec {
        zoo::describe(name, None, None).unwrap()
    }

    fn plan(spec: &ModelSpec, given: &[(usize, usize, usize)]) -> Result<PipelinePlan, PlanError> {
        let stage = |&(layers, batch_shards, tensor_shards): &(usize, usize, usize)| StageSpec {
            layers,
            batch_shards,
            tensor_shards,
        };
        PipelinePlan::new(spec, &given.iter().map(stage).collect::<Vec<_>>())
    }

    fn problem(spec: &ModelSpec, given: &[(usize, usize, usize)]) -> String {
        plan(spec, given).unwrap_err().to_string()
    }

    #[test]
    fn slots_are_numbered_stage_by_stage() {
        // digits-cnn: conv relu conv relu pool flatten dense relu dropout dense
        let plan = plan(&model("digits-cnn"), &[(2, 3, 4), (4, 2, 1), (4, 1, 1)]).unwrap();
        assert_eq!(plan.n_slots(), 12 + 2 + 1);
        for slot in 0..plan.n_slots() {
            assert_eq!(plan.slot(plan.coordinates(slot)), slot);
        }
        assert_eq!(plan.coordinates(7), Coordinates { stage: 0, batch_shard: 1, tensor_shard: 3 });
        assert_eq!(plan.coordinates(13), Coordinates { stage: 1, batch_shard: 1, tensor_shard: 0 });
        let part = plan.part(7);
        assert_eq!((part.layers, part.column, part.columns), (0..2, 3, 4));
        assert_eq!(plan.stage_specs()[0], StageSpec { layers: 2, batch_shards: 3, tensor_shards: 4 });
    }

    #[test]
    fn stages_have_all_layers_once() {
        let digits = model("digits-cnn");
        assert!(plan(&digits, &[(10, 1, 1)]).is_ok());
        assert!(problem(&digits, &[(4, 1, 1), (5, 1, 1)]).contains("9 layers together, but the model has 10"));
        assert!(problem(&digits, &[(4, 1, 1), (7, 1, 1)]).contains("11 layers together"));
        assert!(problem(&digits, &[(usize::MAX, 1, 1), (7, 1, 1)]).contains("layers together"));
        assert_eq!(plan(&digits, &[]), Err(PlanError::Cover { given: 0, there: 10 }));
        assert_eq!(plan(&digits, &[(10, 0, 1)]), Err(PlanError::Empty { stage: 0, field: "batch_shards" }));
    }

    #[test]
    fn what_cannot_be_split_is_explained() {
        let digits = model("digits-cnn");
        let message = problem(&digits, &[(2, 1, 1), (8, 1, 2)]);
        assert!(message.starts_with("pipeline.stages[1]: layers[6] (dense)"), "{message}");
        let message = problem(&digits, &[(2, 1, 17), (8, 1, 1)]);
        assert!(message.contains("pipeline.stages[0]") && message.contains("16"), "{message}");
        let resnet = model("resnet20");
        let n = resnet.layers.len();
        let message = problem(&resnet, &[(3, 2, 1), (n - 3, 1, 1)]);
        assert!(message.contains("batch_shards = 2") && message.contains("batch norm"), "{message}");
        assert!(plan(&resnet, &[(3, 1, 4), (n - 4, 1, 1), (1, 5, 2)]).is_ok());
    }
}
