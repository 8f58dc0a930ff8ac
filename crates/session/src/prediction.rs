//! What a trained model says about a sample, in the words of its data.

use nettorrent_engine::data::{Dataset, TargetKind, TextCodec};
use nettorrent_engine::model::best_class;
use serde::Serialize;

/// What a model says about a sample.
#[derive(Debug, Serialize)]
pub struct Prediction {
    /// The sample's line or row in its file, counted from 1, where the file holds several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What it is taken for.
    pub guesses: Vec<Guess>,
    /// What the network said, output by output.
    pub logits: Vec<f32>,
}

/// One answer of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Guess {
    /// A class that the sample may be of.
    Class {
        /// Its name.
        class: String,
        /// From 0 to 1; those of all classes together are 1.
        probability: f64,
    },
    /// A label that may apply.
    Label {
        /// Its name.
        label: String,
        /// From 0 to 1, whatever those of other labels are.
        probability: f64,
    },
    /// A number, in the units of the data.
    Number {
        /// The name of its column.
        number: String,
        /// What is predicted.
        value: f32,
    },
    /// A class that some of the sample's positions are taken for.
    Share {
        /// Its name.
        class: String,
        /// Of how many of the positions, from 0 to 1.
        share: f64,
    },
    /// A token that may come next.
    Token {
        /// Its text.
        token: String,
        /// Its number in the vocabulary.
        id: u32,
        /// From 0 to 1; those of all tokens together are 1.
        probability: f64,
    },
}

/// What outputs mean for data of this kind: `top` classes or tokens (3 unless it is said), `top` labels (else all), the most probable
/// first; or all numbers.
pub(crate) fn guesses(data: &dyn Dataset, logits: &[f32], top: Option<usize>) -> Vec<Guess> {
    let names = data.classes();
    let name = |index: usize| names.get(index).cloned().unwrap_or_default();
    match data.target() {
        TargetKind::Class => ranked(probabilities(logits).take(names.len()), top.unwrap_or(USUAL_TOP))
            .map(|(index, probability)| Guess::Class { class: name(index), probability })
            .collect(),
        TargetKind::Labels => ranked(logits.iter().map(|&x| sigmoid(x)), top.unwrap_or(names.len()))
            .map(|(index, probability)| Guess::Label { label: name(index), probability })
            .collect(),
        TargetKind::Numbers { .. } => {
            let mut numbers = logits.to_vec();
            data.restore(&mut numbers);
            let number = |(index, value)| Guess::Number { number: name(index % names.len().max(1)), value };
            numbers.into_iter().enumerate().map(number).collect()
        }
        TargetKind::Positions { n } => {
            let shares = shares(logits, logits.len() / n.max(1));
            let found = ranked(shares.into_iter().take(names.len()), top.unwrap_or(USUAL_TOP));
            found.map(|(index, share)| Guess::Share { class: name(index), share }).collect()
        }
        TargetKind::Tokens => ranked(probabilities(logits).take(names.len()), top.unwrap_or(USUAL_TOP))
            .map(|(index, probability)| {
                let id = index as u32;
                Guess::Token { token: text_of(data.tokenizer(), id).unwrap_or_else(|| name(index)), id, probability }
            })
            .collect(),
    }
}

/// How many guesses there are unless it is said otherwise.
const USUAL_TOP: usize = 3;

/// The largest of some values with their indices, the largest first; of equals the first.
fn ranked(values: impl Iterator<Item = f64>, n: usize) -> impl Iterator<Item = (usize, f64)> {
    let mut values: Vec<(usize, f64)> = values.enumerate().collect();
    values.sort_by(|a, b| b.1.total_cmp(&a.1));
    values.into_iter().take(n.max(1))
}

/// For each class, what share of the positions is taken for it.
fn shares(logits: &[f32], n_classes: usize) -> Vec<f64> {
    let mut counts = vec![0_u32; n_classes];
    let positions = logits.chunks_exact(n_classes.max(1));
    let n = positions.len().max(1);
    positions.for_each(|row| counts[best_class(row)] += 1);
    counts.into_iter().map(|count| f64::from(count) / n as f64).collect()
}

/// The text of a token; none if it has none of its own, as half a letter and the end of a document have none.
fn text_of(codec: Option<&TextCodec>, token: u32) -> Option<String> {
    let text = codec?.decode(&[token]);
    (!text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER)).then_some(text)
}

fn probabilities(logits: &[f32]) -> impl Iterator<Item = f64> {
    let highest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = logits.iter().map(|&x| (f64::from(x) - highest).exp()).sum();
    logits.iter().map(move |&x| (f64::from(x) - highest).exp() / total)
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

#[cfg(test)]
mod tests {
    use super::{probabilities, ranked, shares, sigmoid, text_of};
    use nettorrent_engine::data::TextCodec;

    #[test]
    fn probabilities_add_up_to_one_however_large_logits_are() {
        let found: Vec<f64> = probabilities(&[1000.0, 1000.0, -1000.0]).collect();
        assert_eq!(found, [0.5, 0.5, 0.0]);
        assert_eq!([sigmoid(0.0), sigmoid(-1e9), sigmoid(1e9)], [0.5, 0.0, 1.0]);
    }

    #[test]
    fn the_most_probable_come_first() {
        let of = |n| ranked([0.1, 0.5, 0.1, 0.3].into_iter(), n).map(|(index, _)| index).collect::<Vec<usize>>();
        assert_eq!((of(2), of(9), of(0)), (vec![1, 3], vec![1, 3, 0, 2], vec![1]));
    }

    #[test]
    fn positions_are_counted_by_what_they_are_taken_for() {
        assert_eq!(shares(&[0.0, 1.0, 3.0, 2.0, 0.0, 5.0, 1.0, 2.0], 2), [0.25, 0.75]);
    }

    #[test]
    fn half_a_letter_has_no_text() {
        let codec = TextCodec::bytes();
        assert_eq!((text_of(Some(&codec), 65), text_of(Some(&codec), 0xc3)), (Some("A".to_owned()), None));
        assert_eq!(text_of(None, 65), None);
    }
}
