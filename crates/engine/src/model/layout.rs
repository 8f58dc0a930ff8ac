//! What a model's flat vector holds. It is all that checkpoints and peers need to know of a model.

use std::ops::Range;

use super::graph::NamedTensor;
use super::layer::{Init, Tensor, n_values};
use super::network::Network;
use super::part::Part;

/// How many numbers a bucket has at least: 1 MiB of them. Sending that much takes far longer than starting to, and a model of
/// a few MiB is still cut into pieces that can travel while the rest is computed.
pub const BUCKET_LEN: usize = 1 << 18;

/// A model's tensors by name, shape and place in one flat vector: trained parameters first, then running statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    tensors: Vec<NamedTensor>,
    n_params: usize,
    n_values: usize,
    buckets: Vec<Range<usize>>,
}

impl Layout {
    /// Trained tensors one after the other, each in row-major order, by name and shape.
    pub fn of_tensors<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Self {
        let mut end = 0;
        let tensors = tensors.into_iter().map(|(name, shape)| {
            let start = end;
            end += n_values(shape);
            NamedTensor {
                name: name.to_owned(),
                tensor: Tensor::plain("", shape, Init::Constant(0.0)),
                range: start..end,
            }
        });
        let tensors = tensors.collect();
        Self { tensors, n_params: end, n_values: end, buckets: buckets_of(end, end) }
    }

    /// Trained tensors and, behind them, buffers, one after the other by name and shape. They are cut into buckets as backward passes
    /// complete them: the last tensors first, large ones in pieces, and what is left for the first ones may be less.
    pub fn with_buffers(params: &[(String, Vec<usize>)], buffers: &[(String, Vec<usize>)]) -> Self {
        let all = params.iter().chain(buffers).map(|(name, shape)| (name.as_str(), shape.as_slice()));
        let (all, n_params) = (Self::of_tensors(all), params.iter().map(|(_, shape)| n_values(shape)).sum::<usize>());
        let mut buckets = Vec::new();
        let mut end = n_params;
        for tensor in all.tensors[..params.len()].iter().rev() {
            let start = tensor.range.start;
            let n_pieces = (end - start) / BUCKET_LEN;
            let cut = |k: usize| start + (end - start) * k / n_pieces;
            buckets.extend((0..n_pieces).rev().map(|k| cut(k)..cut(k + 1)));
            end = if n_pieces > 0 { start } else { end };
        }
        buckets.extend([0..end, n_params..all.n_values].into_iter().filter(|bucket| !bucket.is_empty()));
        Self { n_params, buckets, ..all }
    }

    /// The same of tensors as a model of Python's describes them: name, shape, and `parameter`, `buffer` or `frozen`. What is frozen comes
    /// last and is in no bucket: nobody changes it, so newcomers and checkpoints get it, and rounds do without.
    pub fn of_described(tensors: &[(String, Vec<usize>, String)]) -> Self {
        let of = |kind: &str| -> Vec<(String, Vec<usize>)> {
            let those = tensors.iter().filter(|tensor| tensor.2 == kind);
            those.map(|(name, shape, _)| (name.clone(), shape.clone())).collect()
        };
        let frozen = of("frozen");
        let n_frozen: usize = frozen.iter().map(|(_, shape)| n_values(shape)).sum();
        let mut layout = Self::with_buffers(&of("parameter"), &[of("buffer"), frozen].concat());
        let end = layout.n_values - n_frozen;
        layout.buckets.iter_mut().for_each(|bucket| bucket.end = bucket.end.min(end));
        layout.buckets.retain(|bucket| !bucket.is_empty());
        layout
    }

    /// Parameters and running statistics without names or shapes: a tensor of each. Backward passes complete these buckets in turn.
    pub fn flat(n_params: usize, n_values: usize, buckets: Vec<Range<usize>>) -> Self {
        let params = (n_params > 0).then_some(("parameters", n_params));
        let buffers = (n_values > n_params).then_some(("buffers", n_values - n_params));
        let tensors = params.into_iter().chain(buffers);
        let tensors: Vec<(&str, [usize; 1])> = tensors.map(|(name, len)| (name, [len])).collect();
        let all = Self::of_tensors(tensors.iter().map(|(name, shape)| (*name, shape.as_slice())));
        Self { n_params, buckets, ..all }
    }

    /// Its tensors in the order of the flat vector.
    pub fn tensors(&self) -> &[NamedTensor] {
        &self.tensors
    }

    /// Number of trained parameters.
    pub fn n_params(&self) -> usize {
        self.n_params
    }

    /// Length of the flat vector: the parameters, then the running statistics.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// Ranges of the flat vector in the order in which a backward pass completes them; together they cover all of it once that is not
    /// frozen.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }
}

fn buckets_of(n_params: usize, n_values: usize) -> Vec<Range<usize>> {
    [0..n_params, n_params..n_values].into_iter().filter(|bucket| !bucket.is_empty()).collect()
}

impl Network {
    /// What its flat vector holds.
    pub fn layout(&self) -> Layout {
        Layout {
            tensors: self.tensors().to_vec(),
            n_params: self.n_params(),
            n_values: self.n_values(),
            buckets: self.buckets(BUCKET_LEN),
        }
    }
}

impl Part {
    /// What the part's flat vector holds.
    pub fn layout(&self) -> Layout {
        Layout::flat(self.n_params(), self.n_values(), self.buckets(BUCKET_LEN))
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn tensors_follow_one_another_and_are_covered_by_buckets() {
        let layout = Layout::of_tensors([("weight", [3, 4].as_slice()), ("bias", &[4])]);
        let places: Vec<_> = layout.tensors().iter().map(|named| (named.name.as_str(), named.range.clone())).collect();
        assert_eq!(places, [("weight", 0..12), ("bias", 12..16)]);
        assert_eq!((layout.n_params(), layout.n_values(), layout.buckets().first()), (16, 16, Some(&(0..16))));
    }

    #[test]
    fn large_models_have_several_buckets_the_last_first_and_buffers_behind() {
        let params =
            [("first".to_owned(), vec![5]), ("weight".to_owned(), vec![1 << 10, 1 << 9]), ("bias".to_owned(), vec![4])];
        let layout = Layout::with_buffers(&params, &[("mean".to_owned(), vec![3])]);
        let n = 5 + (1 << 19) + 4;
        assert_eq!((layout.n_params(), layout.n_values()), (n, n + 3));
        let half = 5 + (n - 5) / 2;
        assert_eq!(layout.buckets(), [half..n, 5..half, 0..5, n..n + 3]);
        assert_eq!(Layout::with_buffers(&params[2..], &[]).buckets(), std::slice::from_ref(&(0..4)));
    }

    #[test]
    fn what_is_frozen_lies_last_and_in_no_bucket() {
        let described = |kinds: &[(&str, usize, &str)]| {
            let tensors: Vec<_> =
                kinds.iter().map(|&(name, len, kind)| (name.to_owned(), vec![len], kind.to_owned())).collect();
            Layout::of_described(&tensors)
        };
        let layout = described(&[("weight", 4, "parameter"), ("mean", 2, "buffer"), ("old", 5, "frozen")]);
        assert_eq!((layout.n_params(), layout.n_values(), layout.buckets()), (4, 11, [0..4, 4..6].as_slice()));
        assert_eq!(layout.tensors().last().map(|tensor| tensor.range.clone()), Some(6..11));
        let layout = described(&[("weight", 4, "parameter"), ("old", 5, "frozen")]);
        assert_eq!((layout.n_values(), layout.buckets()), (9, std::slice::from_ref(&(0..4))));
    }

    #[test]
    fn a_flat_layout_has_a_tensor_for_each_kind() {
        let layout = Layout::flat(5, 7, vec![2..5, 0..2, 5..7]);
        let places: Vec<_> = layout.tensors().iter().map(|named| (named.name.as_str(), named.range.clone())).collect();
        assert_eq!(places, [("parameters", 0..5), ("buffers", 5..7)]);
        assert_eq!((layout.n_params(), layout.n_values()), (5, 7));
    }
}
