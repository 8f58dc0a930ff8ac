//! Which numbers of a whole network's vectors are written or read: those of a part of it, or all.

use std::ops::Range;

use crate::model::{Layout, Part, Span};

/// Some of a network's numbers, in a vector of their own.
pub(super) struct Share {
    /// Where they lie in the whole network's vector, in its order.
    spans: Vec<Span>,
    /// How many of them are trained.
    pub n_params: usize,
    pub n_values: usize,
}

impl Share {
    /// What a part of a network holds.
    pub(super) fn of(part: &Part) -> Self {
        Self::new(part.spans().to_vec(), part.n_params())
    }

    /// All.
    pub(super) fn whole(layout: &Layout) -> Self {
        Self::new(vec![Span { mine: 0, whole: 0, len: layout.n_values() }], layout.n_params())
    }

    pub(super) fn new(mut spans: Vec<Span>, n_params: usize) -> Self {
        spans.retain(|span| span.len > 0);
        spans.sort_unstable_by_key(|span| span.whole);
        let n_values = spans.iter().map(|span| span.len).sum();
        Self { spans, n_params, n_values }
    }

    /// Whether these can be numbers of a network with so many of them.
    pub(super) fn fits(&self, n_params: usize, n_values: usize) -> bool {
        let n_trained: usize = self.within(&(0..n_params)).iter().map(|span| span.len).sum();
        let next = self.ranges().skip(1).map(|range| range.start).chain([n_values]);
        n_trained == self.n_params && self.ranges().zip(next).all(|(range, next)| range.end <= next)
    }

    /// Where they lie in the whole vector, in its order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.spans.iter().map(|span| span.whole..span.whole + span.len)
    }

    /// Those within a range of the whole vector; they are counted from its start.
    pub(super) fn within(&self, range: &Range<usize>) -> Vec<Span> {
        let from = self.spans.partition_point(|span| span.whole + span.len <= range.start);
        let clip = |span: &Span| {
            let start = span.whole.max(range.start);
            let end = (span.whole + span.len).min(range.end);
            Span { mine: span.mine + (start - span.whole), whole: start - range.start, len: end - start }
        };
        self.spans[from..].iter().take_while(|span| span.whole < range.end).map(clip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Share;
    use crate::model::Span;

    fn span(mine: usize, whole: usize, len: usize) -> Span {
        Span { mine, whole, len }
    }

    #[test]
    fn a_range_clips_what_it_cuts() {
        let share = Share::new(vec![span(0, 10, 5), span(5, 2, 3), span(8, 20, 4)], 8);
        assert_eq!(share.within(&(0..30)), [span(5, 2, 3), span(0, 10, 5), span(8, 20, 4)]);
        assert_eq!(share.within(&(3..12)), [span(6, 0, 2), span(0, 7, 2)]);
        assert_eq!(share.within(&(11..13)), [span(1, 0, 2)]);
        assert_eq!(share.within(&(15..20)), []);
    }

    #[test]
    fn shares_of_other_networks_do_not_fit() {
        let share = || Share::new(vec![span(0, 4, 4), span(4, 10, 2)], 4);
        assert!(share().fits(8, 12));
        assert!(!share().fits(8, 11));
        assert!(!share().fits(7, 12));
        assert!(!share().fits(11, 12));
        assert!(!Share::new(vec![span(0, 4, 4), span(4, 7, 2)], 6).fits(10, 12), "a number twice");
    }
}
