//! The order of samples: which batches a peer trains in an epoch, a pure function of seed and epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::split::indices_by_class;
use crate::rng::Rng;

/// How the samples of a peer are grouped into batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRule {
    /// How many samples a batch has.
    pub batch_size: usize,
    /// What a batch is made of.
    #[serde(default)]
    pub order: Order,
    /// What becomes of a last batch that is not full.
    #[serde(default)]
    pub last: LastBatch,
}

/// What a batch is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The same number of each class. The epoch ends when the scarcest class is used up: what is left of the others waits
    /// for another epoch, whose new order gives it its chance.
    Balanced,
    /// The same number of each class. The epoch ends when the commonest class is used up: a class that runs out before
    /// starts again, in a new order, so its samples are seen more than once.
    BalancedRepeat,
    /// All samples once, in random order.
    #[default]
    Shuffled,
}

/// What becomes of a last batch that is not full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LastBatch {
    /// It is left out; its samples come in another epoch.
    Drop,
    /// It is trained like the others.
    #[default]
    Keep,
}

/// Why there are no such batches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A batch of nothing.
    #[error("the batch size must be at least 1")]
    Empty,
    /// A balanced batch has the same number of each class.
    #[error(
        "a balanced batch of {batch_size} cannot hold the same number of each of {n_classes} classes; \
         use a multiple of {n_classes}, such as {nearest}"
    )]
    Uneven {
        /// The batch size asked for.
        batch_size: usize,
        /// How many classes the peer has samples of.
        n_classes: usize,
        /// The multiple nearest to what was asked for.
        nearest: usize,
    },
    /// A sample has no label.
    #[error("there is no sample {index}: the set has {n_samples}")]
    NoSuchSample {
        /// The index.
        index: usize,
        /// How many samples there are.
        n_samples: usize,
    },
}

impl BatchRule {
    /// Batches of this many shuffled samples, the last one perhaps shorter.
    pub fn shuffled(batch_size: usize) -> Self {
        Self { batch_size, order: Order::Shuffled, last: LastBatch::Keep }
    }

    /// The batches of one epoch over a peer's `indices`; `labels` are those of the whole set.
    ///
    /// The same arguments give the same batches, on every machine; each epoch has its own order.
    /// Peers that hold the same samples, as in different networks of `groups`, need seeds of their own, or they would all
    /// take the same steps.
    ///
    /// ```
    /// use nettorrent_engine::data::batches::BatchRule;
    /// let batches = BatchRule::shuffled(2).epoch_batches(&[3, 4, 5], &[0; 6], 1, 0)?;
    /// assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    /// # Ok::<(), nettorrent_engine::data::batches::BatchError>(())
    /// ```
    pub fn epoch_batches(
        &self,
        indices: &[usize],
        labels: &[u32],
        seed: u64,
        epoch: u64,
    ) -> Result<Vec<Vec<usize>>, BatchError> {
        if self.batch_size == 0 {
            return Err(BatchError::Empty);
        }
        let n_samples = labels.len();
        if let Some(&index) = indices.iter().find(|&&index| index >= n_samples) {
            return Err(BatchError::NoSuchSample { index, n_samples });
        }
        let mut rng = Rng::stream(seed, "batches", epoch);
        let mut batches = match self.order {
            Order::Balanced => self.balanced(indices, labels, RunOut::End, &mut rng)?,
            Order::BalancedRepeat => self.balanced(indices, labels, RunOut::Repeat, &mut rng)?,
            Order::Shuffled => {
                let mut order = indices.to_vec();
                rng.shuffle(&mut order);
                order.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
            }
        };
        if self.last == LastBatch::Drop && batches.last().is_some_and(|batch| batch.len() < self.batch_size) {
            batches.pop();
        }
        Ok(batches)
    }

    /// Batches with as many samples of one class as of any other.
    ///
    /// The classes are those that the peer has samples of: a peer that was given two classes balances these two.
    fn balanced(
        &self,
        indices: &[usize],
        labels: &[u32],
        run_out: RunOut,
        rng: &mut Rng,
    ) -> Result<Vec<Vec<usize>>, BatchError> {
        let classes = indices_by_class(indices.iter().copied(), labels);
        let n_classes = classes.len().max(1);
        if !self.batch_size.is_multiple_of(n_classes) {
            let nearest = ((self.batch_size + n_classes / 2) / n_classes).max(1) * n_classes;
            return Err(BatchError::Uneven { batch_size: self.batch_size, n_classes, nearest });
        }
        let sizes = classes.values().map(Vec::len);
        let per_class = match run_out {
            RunOut::End => sizes.min(),
            RunOut::Repeat => sizes.max(),
        };
        let columns = columns(classes, per_class.unwrap_or(0), rng);
        let each = self.batch_size / n_classes;
        let n_batches = per_class.unwrap_or(0).div_ceil(each);
        let batch = |k: usize| {
            let mut batch: Vec<usize> =
                columns.iter().flat_map(|column| column.iter().skip(k * each).take(each)).copied().collect();
            // Layers that look at the order within a batch should not find the classes in a row.
            rng.shuffle(&mut batch);
            batch
        };
        Ok((0..n_batches).map(batch).collect())
    }
}

/// What happens when a class has no samples left in an epoch.
#[derive(Clone, Copy)]
enum RunOut {
    End,
    Repeat,
}

/// Of each class, `length` samples in random order, all of them before any comes again.
fn columns(classes: BTreeMap<u32, Vec<usize>>, length: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let column = |samples: Vec<usize>| {
        let mut column = Vec::with_capacity(length);
        while column.len() < length {
            let mut order = samples.clone();
            rng.shuffle(&mut order);
            order.truncate(length - column.len());
            column.extend(order);
        }
        column
    };
    classes.into_values().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::{BatchError, BatchRule, LastBatch, Order};
    use crate::rng::Rng;

    #[test]
    fn an_epoch_sees_every_sample_once_and_no_two_are_alike() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let (n_samples, batch_size) = (rng.below(200) + 2, rng.below(40) + 1);
            let indices: Vec<usize> = (0..n_samples).filter(|_| rng.below(3) > 0).collect();
            let mut rule = BatchRule::shuffled(batch_size);
            let batches = rule.epoch_batches(&indices, &vec![0; n_samples], seed, 5).unwrap();
            assert_eq!(batches, rule.epoch_batches(&indices, &vec![0; n_samples], seed, 5).unwrap());
            let mut seen = batches.concat();
            assert!(
                indices.len() < 10
                    || seen != rule.epoch_batches(&indices, &vec![0; n_samples], seed, 6).unwrap().concat()
            );
            seen.sort_unstable();
            assert_eq!(seen, indices, "seed {seed}");
            rule.last = LastBatch::Drop;
            let full = rule.epoch_batches(&indices, &vec![0; n_samples], seed, 5).unwrap();
            assert_eq!(full.len(), indices.len() / batch_size, "seed {seed}");
            assert_eq!(full, batches[..full.len()]);
        }
    }

    #[test]
    fn balanced_batches_hold_as_much_of_each_class() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let (n_classes, each) = (rng.below(5) + 1, rng.below(4) + 1);
            let labels: Vec<u32> =
                (0..200).map(|i| if i < n_classes { i } else { rng.below(n_classes) } as u32).collect();
            let indices: Vec<usize> = (0..200).collect();
            let counts = |samples: &[usize]| {
                let mut counts = vec![0; n_classes];
                samples.iter().for_each(|&index| counts[labels[index] as usize] += 1);
                counts
            };
            let whole = counts(&indices);
            for (order, expected) in
                [(Order::Balanced, *whole.iter().min().unwrap()), (Order::BalancedRepeat, *whole.iter().max().unwrap())]
            {
                let rule = BatchRule { batch_size: each * n_classes, order, last: LastBatch::Keep };
                let batches = rule.epoch_batches(&indices, &labels, seed, 0).unwrap();
                for batch in &batches {
                    let counts = counts(batch);
                    assert!(counts.iter().all(|&n| n == counts[0] && n <= each), "seed {seed}, {order:?}, {counts:?}");
                }
                let mut seen = batches.concat();
                assert!(counts(&seen).iter().all(|&n| n == expected), "seed {seed}, {order:?}");
                seen.sort_unstable();
                seen.dedup();
                let all_or_fewest = if order == Order::Balanced { n_classes * expected } else { 200 };
                assert_eq!(seen.len(), all_or_fewest, "seed {seed}, {order:?}");
            }
        }
    }

    #[test]
    fn what_makes_no_batches_is_refused() {
        let labels = [0, 1, 2, 0, 1, 2];
        let balanced = |batch_size| BatchRule { batch_size, order: Order::Balanced, last: LastBatch::Keep };
        let uneven = |batch_size, nearest| Err(BatchError::Uneven { batch_size, n_classes: 3, nearest });
        assert_eq!(balanced(4).epoch_batches(&[0, 1, 2], &labels, 0, 0), uneven(4, 3));
        assert_eq!(balanced(1).epoch_batches(&[0, 1, 2], &labels, 0, 0), uneven(1, 3));
        assert_eq!(balanced(4).epoch_batches(&[0, 1, 3], &labels, 0, 0).unwrap().len(), 1, "two classes here");
        assert_eq!(balanced(4).epoch_batches(&[], &labels, 0, 0), Ok(Vec::new()));
        assert_eq!(balanced(0).epoch_batches(&[0], &labels, 0, 0), Err(BatchError::Empty));
        let missing = BatchError::NoSuchSample { index: 6, n_samples: 6 };
        assert_eq!(BatchRule::shuffled(1).epoch_batches(&[6], &labels, 0, 0), Err(missing));
    }

    #[test]
    fn orders_are_frozen() {
        // A run that is resumed must go on with the same batches: a change here breaks runs that were saved.
        let batches = |order| {
            let rule = BatchRule { batch_size: 2, order, last: LastBatch::Keep };
            rule.epoch_batches(&[0, 1, 2, 3, 4], &[0, 0, 0, 1, 1], 42, 3).unwrap()
        };
        assert_eq!(
            [Order::Shuffled, Order::Balanced, Order::BalancedRepeat].map(batches),
            [
                vec![vec![4, 1], vec![0, 3], vec![2]],
                vec![vec![0, 4], vec![3, 2]],
                vec![vec![4, 0], vec![2, 3], vec![3, 1]]
            ]
        );
    }

    #[test]
    fn the_rule_is_written_in_words() {
        let rule: BatchRule = toml::from_str("batch_size = 20\norder = \"balanced-repeat\"").unwrap();
        assert_eq!(rule, BatchRule { batch_size: 20, order: Order::BalancedRepeat, last: LastBatch::Keep });
        assert!(toml::from_str::<BatchRule>("batch_size = 20\nsize = 3").is_err());
    }
}
