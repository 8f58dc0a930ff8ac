//! Numbers of a tensor on their way between a vector and a file, where they lie in another order.
//!
//! Numbers that follow one another in the file are written and read at once, however they lie in memory.

use std::io::{self, Read, Seek, SeekFrom, Write};

use safetensors::tensor::Dtype;

use super::file_layout::TensorPlace;
use crate::model::{Span, Tensor};

/// The most numbers that are written or read at once.
const MOST_AT_ONCE: usize = 1 << 16;

/// Writes numbers of a tensor to their places in a file.
pub(super) fn write(
    file: &mut (impl Write + Seek),
    place: &TensorPlace,
    tensor: &Tensor,
    spans: &[Span],
    values: &[f32],
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for_each_run(tensor, spans, |at, mine| {
        bytes.clear();
        bytes.extend(mine.iter().flat_map(|&mine| values[mine].to_le_bytes()));
        file.seek(SeekFrom::Start(place.first + (size_of::<f32>() * at) as u64))?;
        file.write_all(&bytes)
    })
}

/// Reads numbers of a tensor from their places in a file.
pub(super) fn read(
    file: &mut (impl Read + Seek),
    place: &TensorPlace,
    tensor: &Tensor,
    spans: &[Span],
    values: &mut [f32],
) -> io::Result<()> {
    let n_bytes_each = place.dtype.bitsize() / 8;
    let mut bytes = Vec::new();
    for_each_run(tensor, spans, |at, mine| {
        bytes.resize(n_bytes_each * mine.len(), 0);
        file.seek(SeekFrom::Start(place.first + (n_bytes_each * at) as u64))?;
        file.read_exact(&mut bytes)?;
        let numbers = numbers(place.dtype, &bytes).ok_or(io::ErrorKind::InvalidData)?;
        mine.iter().zip(numbers).for_each(|(&mine, number)| values[mine] = number);
        Ok(())
    })
}

/// Whether numbers of this kind can be read.
pub(super) fn is_readable(dtype: Dtype) -> bool {
    numbers(dtype, &[]).is_some()
}

/// Numbers of any floating-point kind.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match dtype {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F64 => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => return None,
    })
}

/// Goes through numbers of a tensor in the checkpoint's order. `act` is told where in this order a run begins, and where its
/// numbers lie in the vector. The spans are counted from the tensor's beginning and in its order in memory.
fn for_each_run<F>(tensor: &Tensor, spans: &[Span], act: F) -> io::Result<()>
where
    F: FnMut(usize, &[usize]) -> io::Result<()>,
{
    let mut run = Run { first: 0, mine: Vec::new(), act };
    let inner = shuffled_axes(tensor);
    if inner.is_empty() {
        for &Span { mine, whole, len } in spans {
            (0..len).try_for_each(|i| run.push(whole + i, mine + i))?;
        }
        return run.flush();
    }
    // Within a block memory and checkpoint differ; the blocks themselves are in the same order.
    let block_len: usize = inner.iter().map(|&(n, _)| n).product();
    let pieces = cut(spans, block_len);
    let has_whole_blocks = pieces.iter().any(|piece| piece.len == block_len);
    let places = if has_whole_blocks { Tensor { axes: inner.clone(), ..tensor.clone() }.places() } else { Vec::new() };
    for of_block in pieces.chunk_by(|one, next| one.whole / block_len == next.whole / block_len) {
        let first = of_block[0].whole / block_len * block_len;
        if of_block[0].len == block_len {
            let mine = of_block[0].mine;
            places.iter().enumerate().try_for_each(|(i, place)| run.push(first + i, mine + place))?;
            continue;
        }
        let numbers = of_block.iter().flat_map(|piece| (piece.whole - first..).zip(piece.mine..).take(piece.len));
        let mut order: Vec<(usize, usize)> = numbers.map(|(place, mine)| (index(&inner, place), mine)).collect();
        order.sort_unstable();
        order.into_iter().try_for_each(|(i, mine)| run.push(first + i, mine))?;
    }
    run.flush()
}

/// The axes of a tensor without the first ones that memory and checkpoint have in common: none if both have the same order.
fn shuffled_axes(tensor: &Tensor) -> Vec<(usize, usize)> {
    let mut axes: Vec<(usize, usize)> = tensor.axes.iter().copied().filter(|&(n, _)| n != 1).collect();
    while let [(_, step), rest @ ..] = axes.as_slice()
        && *step == rest.iter().map(|&(n, _)| n).product::<usize>()
    {
        axes.remove(0);
    }
    axes
}

/// Where a number is in the checkpoint's order, from where it lies in memory.
fn index(axes: &[(usize, usize)], place: usize) -> usize {
    axes.iter().fold(0, |index, &(n, step)| index * n + place / step % n)
}

/// The same spans, none of which crosses the border of a block.
fn cut(spans: &[Span], block_len: usize) -> Vec<Span> {
    let mut pieces = Vec::new();
    for &Span { mut mine, mut whole, len } in spans {
        let end = whole + len;
        while whole < end {
            let len = (block_len - whole % block_len).min(end - whole);
            pieces.push(Span { mine, whole, len });
            (mine, whole) = (mine + len, whole + len);
        }
    }
    pieces
}

/// Numbers that follow one another in the file: where they begin, and where they lie in memory.
struct Run<F> {
    first: usize,
    mine: Vec<usize>,
    act: F,
}

impl<F: FnMut(usize, &[usize]) -> io::Result<()>> Run<F> {
    fn push(&mut self, at: usize, mine: usize) -> io::Result<()> {
        if at != self.first + self.mine.len() || self.mine.len() == MOST_AT_ONCE {
            self.flush()?;
            self.first = at;
        }
        self.mine.push(mine);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.mine.is_empty() {
            (self.act)(self.first, &self.mine)?;
            self.mine.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_AT_ONCE, for_each_run};
    use crate::model::{Init, Span, Tensor};

    const START: Init = Init::Constant(0.0);

    /// What is at each place of the checkpoint's order, and the lengths of the runs.
    fn order(tensor: &Tensor, spans: &[Span]) -> (Vec<Option<usize>>, Vec<usize>) {
        let (mut found, mut lens) = (vec![None; tensor.len()], Vec::new());
        for_each_run(tensor, spans, |at, mine| {
            lens.push(mine.len());
            for (at, &mine) in (at..).zip(mine) {
                assert_eq!(found[at].replace(mine), None, "each place once");
            }
            Ok(())
        })
        .unwrap();
        (found, lens)
    }

    fn tensors() -> Vec<Tensor> {
        let filters = Tensor::plain("weight", &[6, 5, 3, 3], START).laid_out(vec![(6, 1), (5, 6), (3, 90), (3, 30)]);
        let after_flatten = Tensor::plain("weight", &[7, 24], START).laid_out(vec![(7, 24), (4, 1), (2, 12), (3, 4)]);
        let single = Tensor::plain("weight", &[1, 4, 1, 1], START).laid_out(vec![(1, 1), (4, 1), (1, 4), (1, 4)]);
        vec![filters, after_flatten, single, Tensor::plain("bias", &[4, 9], START)]
    }

    #[test]
    fn the_whole_is_one_run() {
        for tensor in tensors() {
            let (found, lens) = order(&tensor, &[Span { mine: 100, whole: 0, len: tensor.len() }]);
            let places: Vec<_> = tensor.places().iter().map(|place| Some(100 + place)).collect();
            assert_eq!((found, lens), (places, vec![tensor.len()]), "{tensor:?}");
        }
    }

    #[test]
    fn every_stretch_finds_its_places() {
        for tensor in tensors() {
            for (start, end) in
                (0..tensor.len()).flat_map(|start| (start + 1..=tensor.len()).map(move |end| (start, end)))
            {
                let (found, _) = order(&tensor, &[Span { mine: 7, whole: start, len: end - start }]);
                let is_here = |place: usize| (start..end).contains(&place).then(|| 7 + place - start);
                let expected: Vec<_> = tensor.places().into_iter().map(is_here).collect();
                assert_eq!(found, expected, "{start}..{end} of {tensor:?}");
            }
        }
    }

    #[test]
    fn a_column_of_filters_is_one_run() {
        let filters = &tensors()[0];
        let column: Vec<Span> = (0..45).map(|k| Span { mine: 2 * k, whole: 6 * k + 2, len: 2 }).collect();
        let (found, lens) = order(filters, &column);
        assert_eq!(lens, [90]);
        assert!(found[90..180].iter().all(Option::is_some));
    }

    #[test]
    fn long_runs_are_cut() {
        let tensor = Tensor::plain("weight", &[2 * MOST_AT_ONCE + 1], START);
        let (_, lens) = order(&tensor, &[Span { mine: 0, whole: 0, len: tensor.len() }]);
        assert_eq!(lens, [MOST_AT_ONCE, MOST_AT_ONCE, 1]);
    }
}
