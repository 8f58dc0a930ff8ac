//! How well a model ranks: whether what is right is among its first guesses, and whether it is surer of what is right than of what is not.

use nettorrent_engine::data::{Batch, Dataset, IGNORED, TargetKind, Targets};

/// How many guesses count, where there are more classes.
const TOP: usize = 5;

/// The name of the share of answers that are among the first guesses.
const TOP_NAME: &str = "top5_accuracy";
/// The name of the area under the ROC curve.
const AREA_NAME: &str = "auc";

/// Looks at a model's outputs, batch by batch.
pub(crate) struct Ranking {
    target: TargetKind,
    n_names: usize,
    /// The samples' shares of right answers among the first guesses, added up.
    in_top: f64,
    n_samples: usize,
    /// For each question of yes or no, how sure the model was.
    scores: Vec<Scores>,
}

/// How high a model's output was for a question of yes or no.
#[derive(Clone, Debug, Default)]
struct Scores {
    /// Where yes is right.
    yes: Vec<f32>,
    /// Where no is right.
    no: Vec<f32>,
}

impl Ranking {
    /// For samples of these data.
    pub(crate) fn new(data: &dyn Dataset) -> Self {
        let (target, n_names) = (data.target(), data.classes().len());
        let n_questions = match target {
            TargetKind::Class if n_names == 2 => 1,
            TargetKind::Labels => n_names,
            _ => 0,
        };
        Self { target, n_names, in_top: 0.0, n_samples: 0, scores: vec![Scores::default(); n_questions] }
    }

    /// Looks at a batch and what a network with so many classes says about it.
    pub(crate) fn watch(&mut self, batch: &Batch, outputs: &[f32], n_classes: usize) {
        if batch.is_empty() {
            return;
        }
        match &batch.targets {
            Targets::Classes(classes) => {
                let n_positions = classes.len() / batch.len();
                let samples = outputs.chunks_exact(n_positions * n_classes).zip(classes.chunks_exact(n_positions));
                for (rows, classes) in samples {
                    let asked = rows.chunks_exact(n_classes).zip(classes).filter(|(_, class)| **class != IGNORED);
                    let ranks: Vec<usize> = asked.map(|(row, &class)| rank(row, class as usize)).collect();
                    self.in_top += ranks.iter().filter(|rank| **rank < TOP).count() as f64 / ranks.len().max(1) as f64;
                    self.n_samples += 1;
                    if let (Some(scores), [_, _, ..], [class]) = (self.scores.first_mut(), rows, classes) {
                        scores.add(rows[1] - rows[0], *class == 1);
                    }
                }
            }
            Targets::Numbers(answers) => {
                let n_labels = self.scores.len().max(1);
                for (row, answers) in outputs.chunks_exact(n_labels).zip(answers.chunks_exact(n_labels)) {
                    for ((scores, &output), &answer) in self.scores.iter_mut().zip(row).zip(answers) {
                        scores.add(output, answer > 0.5);
                    }
                }
            }
        }
    }

    /// What was found, by name: only what means something for the data.
    pub(crate) fn found(&self) -> Vec<(String, f64)> {
        let has_top = matches!(self.target, TargetKind::Class | TargetKind::Tokens) && self.n_names > TOP;
        let top = (has_top && self.n_samples > 0).then(|| self.in_top / self.n_samples as f64);
        let areas: Vec<f64> = self.scores.iter().filter_map(|Scores { yes, no }| area(yes, no)).collect();
        let area = (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64);
        let named = [(TOP_NAME, top), (AREA_NAME, area)].into_iter();
        named.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

impl Scores {
    fn add(&mut self, score: f32, is_yes: bool) {
        if is_yes { self.yes.push(score) } else { self.no.push(score) }
    }
}

/// How many classes come before this one; of equals the first comes first. One whose output is no number comes last.
fn rank(row: &[f32], class: usize) -> usize {
    let output = row[class];
    if output.is_nan() {
        return row.len();
    }
    let comes_before = |(other, x): (usize, &f32)| *x > output || (*x == output && other < class);
    row.iter().enumerate().filter(|&pair| comes_before(pair)).count()
}

/// The area under the ROC curve: how often a score where yes is right is higher than one where no is right, ties counted half. None where
/// all answers are the same, or a score is no number.
fn area(yes: &[f32], no: &[f32]) -> Option<f64> {
    if yes.is_empty() || no.is_empty() || yes.iter().chain(no).any(|score| score.is_nan()) {
        return None;
    }
    let mut scores: Vec<(f32, bool)> = yes.iter().map(|&score| (score, true)).collect();
    scores.extend(no.iter().map(|&score| (score, false)));
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut n_won, mut n_no_below) = (0.0, 0.0);
    for equal in scores.chunk_by(|a, b| a.0 == b.0) {
        let n_yes = equal.iter().filter(|(_, is_yes)| *is_yes).count() as f64;
        let n_no = equal.len() as f64 - n_yes;
        n_won += n_yes * (n_no_below + 0.5 * n_no);
        n_no_below += n_no;
    }
    Some(n_won / (yes.len() as f64 * no.len() as f64))
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::data::in_memory::{InMemory, Samples};
    use nettorrent_engine::data::{Batch, IGNORED, TargetKind, Targets};
    use nettorrent_engine::rng::Rng;

    use super::{Ranking, Scores, area, rank};

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            // Few different scores, so that many are equal; zero with both signs.
            let mut scores =
                |n: u64, sign: f32| -> Vec<f32> { (0..n).map(|_| sign * (rng.below(9) as f32 - 4.0)).collect() };
            let (yes, no) = (scores(1 + seed % 17, 1.0), scores(1 + seed % 23, -1.0));
            let pairs = yes.iter().flat_map(|y| no.iter().map(move |n| (y, n)));
            let won: f64 = pairs
                .map(|(y, n)| {
                    if y > n {
                        1.0
                    } else if y == n {
                        0.5
                    } else {
                        0.0
                    }
                })
                .sum();
            let expected = won / (yes.len() * no.len()) as f64;
            assert!((area(&yes, &no).unwrap() - expected).abs() < 1e-12, "seed {seed}");
        }
        assert_eq!(
            (area(&[1.0], &[0.0]), area(&[0.0], &[1.0]), area(&[-0.0], &[0.0])),
            (Some(1.0), Some(0.0), Some(0.5))
        );
        assert_eq!((area(&[], &[1.0]), area(&[1.0], &[]), area(&[f32::NAN], &[1.0])), (None, None, None));
    }

    #[test]
    fn equals_are_ranked_in_order() {
        let row = [1.0, 3.0, 3.0, f32::NAN, 2.0];
        assert_eq!([0, 1, 2, 3, 4].map(|class| rank(&row, class)), [3, 0, 1, 5, 2]);
    }

    fn classes(n: usize) -> Ranking {
        let names = (0..n).map(|class| class.to_string()).collect();
        Ranking::new(&InMemory::new(vec![1], names, vec![0], Samples::Bytes(vec![0])).unwrap())
    }

    #[test]
    fn the_first_five_guesses_count_where_there_are_more_classes() {
        let mut seven = classes(7);
        let outputs: Vec<f32> = (0..7).map(|x| x as f32).collect();
        let batch = Batch::labelled(vec![0.0; 4], vec![6, 2, 1, 0]);
        seven.watch(&batch, &outputs.repeat(4), 7);
        assert_eq!(seven.found(), [("top5_accuracy".to_owned(), 0.5)]);
        assert!(classes(5).found().is_empty() && classes(7).found().is_empty());
        // Two positions of a sample, of which one is not asked for, and two of another.
        let mut tokens = Ranking { target: TargetKind::Tokens, ..classes(7) };
        let targets = Targets::Classes(vec![6, IGNORED, 6, 0]);
        tokens.watch(&Batch { n: 2, inputs: vec![0.0; 4], targets }, &outputs.repeat(4), 7);
        assert_eq!(tokens.found(), [("top5_accuracy".to_owned(), 0.75)]);
    }

    #[test]
    fn the_area_is_for_two_classes_and_for_labels() {
        let mut two = classes(2);
        two.watch(&Batch::labelled(vec![0.0; 3], vec![0, 1, 1]), &[0.0, 1.0, 0.0, 2.0, 5.0, 4.0], 2);
        assert_eq!(two.found(), [("auc".to_owned(), 0.5)]);
        let mut labels = Ranking { target: TargetKind::Labels, scores: vec![Scores::default(); 3], ..classes(3) };
        // The first is ranked right, the second wrong, and the third is always 1.
        let targets = Targets::Numbers(vec![0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        labels.watch(&Batch { n: 2, inputs: vec![0.0; 2], targets }, &[-1.0, 1.0, 0.0, 1.0, -1.0, 0.0], 3);
        assert_eq!(labels.found(), [("auc".to_owned(), 0.5)]);
    }
}
