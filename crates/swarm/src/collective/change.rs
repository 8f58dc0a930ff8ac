//! What a peer has learnt: what its parameters became, less what they were, in the vectors in which it was computed.
//!
//! As long as nothing is added to it, a change is these vectors themselves: whoever keeps several of them, as long as the parameters
//! each, has no room for another copy.

use std::ops::Range;

use crate::strategy::add;

/// A change of the parameters, in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// What was learnt of each bucket, and where that lies; empty means nothing.
    parts: Vec<(Range<usize>, Vec<f32>)>,
}

impl Change {
    /// No change of parameters that lie in these buckets.
    pub(crate) fn none(buckets: &[Range<usize>]) -> Self {
        Self { parts: buckets.iter().map(|place| (place.clone(), Vec::new())).collect() }
    }

    /// Whether nothing was learnt.
    pub(crate) fn is_none(&self) -> bool {
        self.parts.iter().all(|(_, part)| part.is_empty())
    }

    /// Adds what was learnt of a bucket; gives the vector back if it is not needed.
    pub(crate) fn accrue(&mut self, bucket: usize, numbers: Vec<f32>) -> Option<Vec<f32>> {
        let (_, part) = &mut self.parts[bucket];
        if part.is_empty() {
            *part = numbers;
            return None;
        }
        add(part, &numbers);
        Some(numbers)
    }

    /// Adds what another change says of a place.
    pub(crate) fn add_part(&mut self, place: &Range<usize>, other: &Self) {
        for (bucket, part) in &mut self.parts {
            let common = overlap(bucket, place);
            if common.is_empty() {
                continue;
            }
            part.resize(bucket.len(), 0.0);
            let here = common.start - bucket.start..common.end - bucket.start;
            other.add_to(&common, &mut part[here]);
        }
    }

    /// Adds what was learnt of a place to the numbers that lie there.
    pub(crate) fn add_to(&self, place: &Range<usize>, numbers: &mut [f32]) {
        for (bucket, part) in self.parts.iter().filter(|(_, part)| !part.is_empty()) {
            let common = overlap(bucket, place);
            if !common.is_empty() {
                let there = common.start - bucket.start..common.end - bucket.start;
                add(&mut numbers[common.start - place.start..common.end - place.start], &part[there]);
            }
        }
    }

    /// What was learnt of a place, in one piece.
    pub(crate) fn at(&self, place: &Range<usize>) -> Vec<f32> {
        let mut numbers = vec![0.0; place.len()];
        self.add_to(place, &mut numbers);
        numbers
    }

    /// The vectors, to be used again.
    pub(crate) fn into_vectors(self) -> impl Iterator<Item = Vec<f32>> {
        self.parts.into_iter().map(|(_, part)| part).filter(|part| !part.is_empty())
    }
}

/// What two places have in common.
fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::Change;

    #[test]
    fn places_need_not_be_those_of_buckets() {
        let (mut change, first) = (Change::none(&[6..10, 0..6]), vec![6.0, 7.0, 8.0, 9.0]);
        assert!(change.is_none());
        let there = first.as_ptr();
        assert_eq!(change.accrue(0, first), None);
        assert_eq!(change.at(&(4..8)), [0.0, 0.0, 6.0, 7.0], "of one bucket nothing was learnt");
        assert_eq!(change.accrue(1, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(change.at(&(4..8)), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(change.accrue(0, vec![1.0; 4]), Some(vec![1.0; 4]));
        let mut numbers = [100.0; 3];
        change.add_to(&(5..8), &mut numbers);
        assert_eq!(numbers, [105.0, 107.0, 108.0]);
        let mut other = Change::none(&[6..10, 0..6]);
        other.add_part(&(5..8), &change);
        other.add_part(&(7..9), &change);
        assert_eq!(other.at(&(0..10)), [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 7.0, 16.0, 9.0, 0.0]);
        assert_eq!(change.into_vectors().next().map(|vector| vector.as_ptr()), Some(there), "nothing was copied");
        assert_eq!(other.into_vectors().map(|vector| vector.len()).sum::<usize>(), 10);
    }
}
